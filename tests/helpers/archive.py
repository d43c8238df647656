"""What a contextual policy has learned, as `save` writes it: parts by name, to look at or change.

A learner is saved as numbers one after another (`Learner::save` in learner.cpp). `parts` gives each
run of them a name, in their order, and `joined` is its inverse.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from stopwise.policies.contextual import Contextual

Parts = dict[str, NDArray[Any]]

BLOCK = 64  # rows of history that are stored together
MAX_DISTINCT = 4096  # rows of one stop that are stored once, with counts


class Row(NamedTuple):
    """One row of history, and the rounds that it represents."""

    x: tuple[float, ...]
    stop: int
    count: int
    positives: tuple[int, ...]  # rounds in which the answer to each question was yes


def parts(policy: Contextual) -> Parts:
    """Return the learned state of a policy, part by part."""
    return _Reading(policy, policy.state()["learner"].tobytes()).all()


def joined(named: Parts) -> NDArray[np.uint8]:
    """Return the bytes of parts, as `state()["learner"]` has them."""
    return np.frombuffer(b"".join(part.tobytes() for part in named.values()), dtype=np.uint8)


def learned(policy: Contextual) -> Parts:
    """Return what was learned from rounds, without randomness and the precision of estimates."""
    left_out = {"draws", "effort", "beaten_by", "model"}
    named = parts(policy) | {k: v for k, v in policy.state().items() if k.startswith("held")}
    return {name: part for name, part in named.items() if not left_out & {*name.split(".")}}


def assert_same(one: Parts, other: Parts, message: str = "") -> None:
    """Assert that two states, or parts of them, are equal."""
    assert one.keys() == other.keys()
    for name, part in one.items():
        np.testing.assert_array_equal(part, other[name], err_msg=f"{name} {message}")


def numbers(policy: Contextual) -> Parts:
    """Return the parts that are real numbers."""
    return {name: part for name, part in parts(policy).items() if part.dtype.kind == "f"}


def rows(policy: Contextual) -> list[Row]:
    """Return all rows of history by stop, those stored once first."""
    found: list[Row] = []
    named = parts(policy)
    for name, x in named.items():
        if not (name.startswith("history") and name.endswith(".x")):
            continue
        block, (_, stop, kind, *_) = name[:-1], name.split(".")
        for r, row in enumerate(x.T.tolist()):
            count, yes = 1, [int(bits) >> r & 1 for bits in named.get(block + "answers", [])]
            if kind == "counted":
                count, yes = int(named[block + "counts"][r]), named[block + "positives"][:, r]
            found.append(Row(tuple(row), int(stop), count, tuple(map(int, yes))))
    return found


class _Reading:
    """Takes the bytes of a learner apart, by the plan that its policy gave it."""

    def __init__(self, policy: Contextual, content: bytes) -> None:
        features, self.n_arms = policy.features, policy.cascade.n_arms
        asked = [(slot, arm, 0) for slot, arm in policy.questions()]
        if features.sees is not None:
            pairs = policy.cascade.pairs()
            asked = [
                (slot, arm, policy.answered_from(*pair))
                for (slot, arm, _), pair in zip(asked, pairs, strict=True)
            ]
        self.questions = [features.dims[slot] for slot, *_ in asked]
        self.linear = [features.linear[slot] for slot, *_ in asked]
        self.grams = [features.dims[slot] for slot, *_ in dict.fromkeys(asked)]
        self.width, self.revealed = features.width, features.sees is not None
        self.content, self.at = content, 0
        self.named: Parts = {}

    def all(self) -> Parts:
        self.take("draws", "<i8")
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
        assert self.at == len(self.content), "the layout of a saved learner has changed"
        return self.named

    def requests(self, name: str) -> None:
        self.take(f"{name}.answered", "<i8")
        self.take(f"{name}.dropped", "<i8")
        for k in range(int(self.take(f"{name}.waiting", "<i8")[0])):
            for part in ("probability", "explored", "round"):
                self.take(f"{name}.{k}.{part}", "<f8")
            for part in ("arms", "rule_stop", "missing"):
                self.take(f"{name}.{k}.{part}", "<i8")
            self.take(f"{name}.{k}.row", "<f8", self.width)
            self.take(f"{name}.{k}.differ", "|u1", self.n_arms * (self.n_arms - 1) // 2)

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
