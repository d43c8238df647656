"""Parse the saved state of a learner into named parts, to inspect or change them.

`Learner::save` (learner.cpp) writes arrays one after another. `parts` returns them by name, in
order, and `joined` is its inverse.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from stopwise.features import Custom, FeatureMap, Scaled, Standard
from stopwise.policies.pairwise import PairwisePolicy
from stopwise.policies.rules import Anchor
from stopwise.research import Supervised

Parts = dict[str, NDArray[Any]]
Learned = PairwisePolicy | Supervised

BLOCK = 64  # rows of history per block
LATEST = 256  # rounds that the change detector keeps
MAX_DISTINCT = 4096  # counted rows per stop


class Row(NamedTuple):
    """A row of history, and the rounds that it represents."""

    x: tuple[float, ...]
    stop: int
    count: int
    positives: tuple[int, ...]  # for each question, the rounds in which the answer was yes


def parts(policy: Learned) -> Parts:
    """Return the learned state of a policy as named parts."""
    return _Parser(policy, policy.state()["learner"].tobytes()).all()


def joined(arrays: Parts) -> NDArray[np.uint8]:
    """Return parts as bytes, as in `state()["learner"]`."""
    return np.frombuffer(b"".join(part.tobytes() for part in arrays.values()), dtype=np.uint8)


def learned(policy: Learned) -> Parts:
    """Return the learned state without random state and caches of estimates."""
    excluded = {"decisions", "effort", "beaten_by", "model"}
    items = parts(policy).items()
    return {name: part for name, part in items if not excluded & {*name.split(".")}}


def assert_same(actual: Parts, expected: Parts, message: str = "") -> None:
    """Assert that two states, or parts of them, are equal."""
    assert actual.keys() == expected.keys()
    for name, part in actual.items():
        np.testing.assert_array_equal(part, expected[name], err_msg=f"{name} {message}")


def numbers(policy: Learned) -> Parts:
    """Return the parts of type float."""
    return {name: part for name, part in parts(policy).items() if part.dtype.kind == "f"}


def rows(policy: Learned) -> list[Row]:
    """Return all rows of history by stop, counted rows first."""
    history: list[Row] = []
    arrays = parts(policy)
    for name, x in arrays.items():
        if not (name.startswith("history") and name.endswith(".x")):
            continue
        block, (_, stop, kind, *_) = name[:-1], name.split(".")
        for r, row in enumerate(x.T.tolist()):
            count, positives = 1, [int(b) >> r & 1 for b in arrays.get(block + "answers", [])]
            if kind == "counted":
                count = int(arrays[block + "counts"][r])
                positives = arrays[block + "positives"][:, r]
            history.append(Row(tuple(row), int(stop), count, tuple(map(int, positives))))
    return history


def questions(policy: Learned) -> list[tuple[int, int, int]]:
    """Return the slot, the answering arm and the first relevant stop of each question."""
    n_arms, last = policy.cascade.n_arms, policy.cascade.n_arms - 1
    if isinstance(policy, Supervised):
        return [(0, arm, arm) for arm in range(n_arms)]
    anchored, result = isinstance(policy.rule, Anchor), list[tuple[int, int, int]]()
    for i, j in policy.cascade.pairs():
        arm = last if anchored else j
        seen_at = j if anchored and j < last else i + 1
        stop = arm if policy.reveals is None else seen_at
        result.append((policy.features.slot_of(i, j), arm, stop))
    return result


def linear(m: FeatureMap, d: int) -> int:
    """Return the number of leading features of a map that are not products."""
    if isinstance(m, Custom):
        return d
    if isinstance(m, Standard):
        return 1 + (len(m.center) if m.degree else 0) if m.center else d
    inner = m.inner if isinstance(m, Scaled) else m
    dims = next(n for n in range(200) if len(inner.monomials(n)) == d)
    return sum(len(monomial) <= 1 for monomial in inner.monomials(dims))


class _Parser:
    """Parser of a learner's bytes, whose layout depends on the policy."""

    def __init__(self, policy: Learned, content: bytes) -> None:
        features, self.n_arms = policy.features, policy.cascade.n_arms
        asked = questions(policy)
        self.questions = [features.dims[slot] for slot, *_ in asked]
        self.linear = [linear(features.maps[slot], features.dims[slot]) for slot, *_ in asked]
        self.grams = [features.dims[slot] for slot, *_ in dict.fromkeys(asked)]
        self.width, self.revealed = features.width, features.stages is not None
        self.inputs = features.native_maps.input_dims if features.self_scaling else []
        self.context_dim = features.context_dim
        anchored = isinstance(policy, PairwisePolicy) and isinstance(policy.rule, Anchor)
        pairs = policy.cascade.pairs()
        self.watched = [
            self.questions[k]
            for k, (_, j) in enumerate(pairs)
            if k < len(self.questions) and (not anchored or j == self.n_arms - 1)
        ]
        self.content, self.at = content, 0
        self.named: Parts = {}

    def all(self) -> Parts:
        self.take("decisions", "<i8")
        for slot in range(len(self.inputs)):
            self.take(f"map.{slot}.degree", "<i8")
            n = int(self.take(f"map.{slot}.fitted", "<i8")[0])
            two_valued = int(self.take(f"map.{slot}.two_valued", "<i8")[0])
            self.take(f"map.{slot}.center", "<f8", n)
            self.take(f"map.{slot}.scale", "<f8", n)
            self.take(f"map.{slot}.which", "<i8", two_valued)
            self.take(f"map.{slot}.size", "<f8")
        self.take("beaten_by", "<i8", self.n_arms - 1)
        self.take("rounds", "<i8")
        self.take("explored", "<i8")
        self.take("effort", "<i8", 4)
        self.history("history", self.n_arms, self.width, len(self.questions))
        for g, d in enumerate(self.grams):
            self.take(f"gram.{g}.count", "<f8")
            self.factor(f"gram.{g}", d)
        for q, d in enumerate(self.questions):
            self.model(f"model.{q}", d)
        if self.revealed:
            self.take("thirds", "<f8", self.n_arms, self.n_arms, self.n_arms, 2)
            self.take("corrections", "<f8", len(self.questions), 2)
        for name in ("rounds", "asked", "disagreed", "trial_asked", "trial_answered", "since"):
            self.take(f"label.{name}", "<i8")
        self.take("label.fixes", "<i8")
        self.take("label.fixed", "<i8")
        self.take("label.depths", "<f8", self.n_arms, 3)
        self.take("label.heaviest", "<f8")
        if self.take("label.any", "<i8")[0]:
            for q, dims in enumerate(zip(self.questions, self.linear, strict=True)):
                self.take(f"label.{q}.rounds", "<i8")
                missing = int(self.take(f"label.{q}.missing", "<i8")[0])
                self.take(f"label.{q}.residuals", "<f8")
                kinds = [("pooled", dims[0]), ("local", dims[1])]
                if missing:
                    kinds += [("missing_pooled", dims[0]), ("missing_local", dims[1])]
                for kind, d in kinds:
                    self.take(f"label.{q}.{kind}.moment", "<f8", d + 1)
                    self.take(f"label.{q}.{kind}.gram", "<f8", (d + 1) * (d + 2) // 2)
        self.requests("request")
        if self.inputs and self.take("first", "<i8")[0]:
            self.first_rounds()
        if self.take("watches", "<i8")[0]:
            self.drift()
        assert self.at == len(self.content), "the layout of a saved learner has changed"
        return self.named

    def requests(self, name: str) -> None:
        self.take(f"{name}.answered", "<i8")
        self.take(f"{name}.dropped", "<i8")
        for k in range(int(self.take(f"{name}.waiting", "<i8")[0])):
            for part in ("probability", "explored"):
                self.take(f"{name}.{k}.{part}", "<f8")
            for part in ("round", "arms", "rule_stop", "missing"):
                self.take(f"{name}.{k}.{part}", "<i8")
            self.take(f"{name}.{k}.row", "<f8", self.width)
            self.take(f"{name}.{k}.differ", "|u1", self.n_arms * (self.n_arms - 1) // 2)

    def first_rounds(self) -> None:
        pairs = self.n_arms * (self.n_arms - 1) // 2
        n = int(self.take("first.rounds", "<i8")[0])
        labels = int(self.take("first.labels", "<i8")[0])
        for t in range(n):
            self.take(f"first.{t}.context", "<f8", self.context_dim)
            self.take(f"first.{t}.differ", "|u1", pairs)
            for part in ("stop", "rule_stop", "may_ask"):
                self.take(f"first.{t}.{part}", "<i8")
        for k in range(labels):
            self.take(f"first.label.{k}.after", "<i8")
            self.take(f"first.label.{k}.context", "<f8", self.context_dim)
            self.take(f"first.label.{k}.differ", "|u1", pairs)
            arms = int(self.take(f"first.label.{k}.arms", "<i8")[0])
            self.take(f"first.label.{k}.right", "|u1", arms)
            self.take(f"first.label.{k}.rule_stop", "<i8")
            if self.take(f"first.label.{k}.requested", "<i8")[0]:
                self.take(f"first.label.{k}.probability", "<f8")
                self.take(f"first.label.{k}.explored", "<f8")
                self.take(f"first.label.{k}.round", "<i8")

    def drift(self) -> None:
        self.take("drift.seen", "<i8")
        self.take("drift.era", "<i8")
        for k, d in enumerate(self.watched):
            if self.take(f"drift.{k}.fitted", "<i8")[0]:
                self.take(f"drift.{k}.theta", "<f8", d)
            n = int(self.take(f"drift.{k}.buckets", "<i8")[0])
            self.take(f"drift.{k}.bucket", "<i8", n, 5)
        for t in range(LATEST):
            self.take(f"drift.latest.{t}.row", "<f8", self.width)
            self.take(f"drift.latest.{t}.differ", "|u1", len(self.watched))
            self.take(f"drift.latest.{t}.ends", "<i8", 2)

    def take(self, name: str, dtype: DTypeLike, *shape: int) -> NDArray[Any]:
        count = int(np.prod(shape, dtype=np.int64))
        part = np.frombuffer(self.content, dtype, count, self.at).reshape(shape or (1,)).copy()
        self.at += part.nbytes
        self.named[name] = part
        return part

    def history(self, name: str, n_arms: int, width: int, n_questions: int) -> None:
        for stop in range(n_arms):
            for kind in ("counted", "single"):
                prefix = f"{name}.{stop}.{kind}"
                for b in range(int(self.take(f"{prefix}.blocks", "<i8")[0])):
                    n = int(self.take(f"{prefix}.{b}.rows", "<i8")[0])
                    self.take(f"{prefix}.{b}.x", "<f8", width, n)
                    if kind == "single":
                        self.take(f"{prefix}.{b}.answers", "<u8", n_questions)
                    if kind == "counted":
                        self.take(f"{prefix}.{b}.counts", "<i4", BLOCK)
                        self.take(f"{prefix}.{b}.positives", "<i4", n_questions, BLOCK)
        n = int(self.take(f"{name}.entries", "<i8")[0])
        self.take(f"{name}.index", "<u4", n, 2)

    def factor(self, name: str, d: int) -> None:
        self.take(f"{name}.reciprocal", "<f8", d)
        self.take(f"{name}.lower", "<f8", d * (d - 1) // 2)

    def model(self, name: str, d: int) -> None:
        anchored = self.take(f"{name}.anchored", "<i8")[0]
        self.take(f"{name}.count", "<f8")
        if anchored:
            for part in ("theta_g", "theta_h", "gradient", "step"):
                self.take(f"{name}.{part}", "<f8", d)
            self.factor(name, d)
            self.take(f"{name}.since", "<i8")
            for part in ("reach", "reach_age", "measured_at", "shift", "lightest", "trace"):
                self.take(f"{name}.{part}", "<f8")
