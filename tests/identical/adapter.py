"""Adapter to the Stopwise API: the only module of these tests that imports it."""

import copy
import json
import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

import stopwise as sw
from stopwise.errors import StopwiseError
from stopwise.policies import batch
from stopwise.policies.labels import observation_of
from stopwise.policies.pairwise import PairwisePolicy
from stopwise.research import COMPARATORS, Clairvoyant, Comparator, Oracle, Supervised, Truth
from tests.identical.specs import Map, Maps, Spec
from tests.identical.worlds import FUNCTIONS, Bools, Floats, Ints, World

# Comparators, which do not learn and have no counts.
PLAYED: WeakKeyDictionary[Comparator, int] = WeakKeyDictionary()

Copying = Literal["file", "pickle", "copy"]


class Ended(NamedTuple):
    """The stop of a finished round and the request for its label.

    ``subject`` is what `label` needs: the round, or its context and its outputs.
    """

    stop: int
    rule_stop: int
    request: sw.LabelRequest | None
    subject: Any


# -- policies -----------------------------------------------------------------------------------


def policy_names() -> list[str]:
    """Return the names of all policies, comparators included."""
    return [*sw.POLICIES, *COMPARATORS]


def make(spec: Spec) -> Any:
    """Create the policy of a spec."""
    options = dict(spec.options)
    features = _features(spec)
    if features is not None:
        options["features"] = features
    if spec.sees_answers:
        options["reveals"] = spec.world.reveals or 0
    cascade = sw.Cascade(spec.costs)
    if spec.policy in COMPARATORS:
        kind: Any = COMPARATORS[spec.policy]
        if kind is Supervised:
            options["context_dim"] = len(spec.world.columns)
        return kind(cascade, **options)
    return sw.make(spec.policy, cascade, context_dim=len(spec.world.columns), **options)


def _features(spec: Spec) -> Any:
    features, n_arms = spec.features, len(spec.costs)
    if features is None:
        return None
    if isinstance(features, Map):
        return _map(features)
    maps = [_map(m) for m in features.maps]
    if features.arrangement == "shared":
        return sw.Shared(*maps)
    if features.arrangement == "per_stage":
        return sw.PerStage(maps)
    pairs = [(i, j) for i in range(n_arms) for j in range(i + 1, n_arms)]
    return sw.PerPair(dict(zip(pairs, maps, strict=True)))


def _map(m: Map) -> Any:
    if m.kind == "identity":
        return sw.Identity(bound=m.bound)
    if m.kind == "polynomial":
        return sw.Polynomial(degree=m.degree, bias=m.bias, bound=m.bound, without=m.without)
    if m.kind == "standard":
        return sw.Standard()
    if m.kind == "scaled":
        inner = sw.Polynomial(degree=m.degree) if m.degree else sw.Identity()
        return sw.Scaled(inner, m.center, m.scale, m.outside)
    return sw.Custom(FUNCTIONS[m.function], name=m.function)


def reloaded(policy: Any, spec: Spec, how: Copying, folder: Path) -> Any:
    """Return the policy after saving and loading it."""
    if how == "pickle":
        return pickle.loads(pickle.dumps(policy))
    if how == "copy" or isinstance(policy, Comparator):  # which cannot be saved
        return copy.deepcopy(policy)
    path = folder / "policy"
    policy.save(path)
    # the code of a custom map is not saved
    features = _features(spec) if "custom" in _kinds(spec) else None
    return sw.load(path, features=features)


def _kinds(spec: Spec) -> list[str]:
    maps = spec.features.maps if isinstance(spec.features, Maps) else (spec.features,)
    return [m.kind for m in maps if m is not None]


def watch(policy: Any, report: Callable[[list[Any]], None]) -> None:
    """Report changes as round, pair, probabilities before and after, and the round of the alarm."""

    def on_change(change: sw.Change) -> None:
        i, j = change.pair
        report([change.round, i, j, change.before, change.after, change.noticed])

    policy.watch(on_change)


def counters(policy: Any) -> dict[str, int]:
    """Return the numbers of rounds and labels of a policy."""
    if isinstance(policy, Oracle | Clairvoyant):
        return {"rounds": PLAYED.get(policy, 0)}
    if isinstance(policy, Supervised):  # which learns from a label in every round
        return {"rounds": policy.rounds, "asked": 0, "labelled": 0, "missing": 0}
    totals = {"rounds": int(policy.rounds)} if hasattr(policy, "rounds") else {}
    if isinstance(policy, PairwisePolicy):
        labels = policy.labels
        totals |= {
            "asked": labels.requested,
            "labelled": labels.received,
            "missing": labels.missing,
        }
    return totals


def estimates(policy: Any) -> dict[str, list[float] | None]:
    """Return the estimates of all pairs of arms; None without an estimate."""
    pairs = policy.cascade.pairs()
    if hasattr(policy, "disagreement"):
        shares = policy.disagreement()
        by_pair = {pair: [float(shares[pair])] for pair in pairs}
        return {f"{i}-{j}": None if v != v else [v] for (i, j), [v] in by_pair.items()}
    if not hasattr(policy, "gram"):  # it estimates no pairs
        return {}
    return {f"{i}-{j}": _theta(policy, i, j) for i, j in pairs}


def _theta(policy: Any, i: int, j: int) -> list[float] | None:
    try:
        return policy.theta(i, j).tolist()
    except StopwiseError:  # it has not converged
        return None


# -- one round ----------------------------------------------------------------------------------


def decide(policy: Any, world: World, t: int) -> sw.Decision:
    """Decide a round with a complete context."""
    if isinstance(policy, Oracle | Clairvoyant):
        truth = Truth(optimal=int(world.optimal[t]), disagreement=world.disagreement[t])
        return policy.decide(world.contexts[t], truth)
    return policy.decide(world.contexts[t])


def is_fixed(decision: sw.Decision) -> bool:
    """Return whether labels have fixed the depth of all rounds."""
    return decision.fixed_by_labels


def observe(policy: Any, world: World, t: int, n: int, decision: sw.Decision) -> Ended:
    """Let a policy learn from the outputs of the first n arms of a round."""
    x, outputs = world.contexts[t], tuple(world.outputs[t][:n])
    explored = {"rule_stop": decision.rule_stop} if decision.rule_stop < n - 1 else {}
    request = None
    if isinstance(policy, Supervised):
        policy.observe(x, outputs, Truth(label=world.labels[t]), **explored)
    elif isinstance(policy, Comparator):
        PLAYED[policy] = PLAYED.get(policy, 0) + 1
    else:
        request = policy.observe(x, outputs, **explored)
    return _ended(x, outputs, decision, request)


def observe_pairs(policy: Any, world: World, t: int, n: int, decision: sw.Decision) -> Ended:
    """Let a policy learn which of the first n arms of a round disagreed."""
    x, outputs = world.contexts[t], tuple(world.outputs[t][:n])
    pairs = {(i, j): outputs[i] != outputs[j] for j in range(n) for i in range(j)}
    request = policy.observe_disagreements(x, n - 1, pairs)
    return _ended(x, outputs, decision, request)


def _ended(
    x: Floats,
    outputs: tuple[Any, ...],
    decision: sw.Decision,
    request: sw.LabelRequest | None,
) -> Ended:
    return Ended(decision.stop, decision.rule_stop, request, (x, outputs))


def label(policy: Any, ended: Ended, answer: Any) -> None:
    """Label a finished round."""
    if isinstance(ended.subject, sw.RoundInProgress):
        policy.label(ended.subject, answer)
        return
    x, outputs = ended.subject
    observation = observation_of(x, outputs, len(outputs), ended.rule_stop)
    right = tuple(output == answer for output in outputs)
    policy.learn_label(sw.Label(observation, right, ended.request))


# -- a round in progress ------------------------------------------------------------------------


def start(policy: Any, x: Sequence[float], run_all: bool) -> Any:
    """Start a round, optionally one that runs every arm."""
    current = policy.start(x)
    if run_all:
        current.run_all()
    return current


def next_arm(current: Any) -> int | None:
    """Return the arm to run next, or None."""
    return current.next()


def give(current: Any, output: Any, revealed: list[float]) -> None:
    """Add the output of an arm and the numbers it reveals."""
    current.give(output, revealed)


def learn(current: Any) -> Ended:
    """Learn from a round, which may have ended early because an arm failed."""
    current.learn()
    return Ended(len(current.outputs) - 1, current.rule_stop, current.request, current)


def stored(current: Any) -> str:
    """Return a round in progress as text."""
    return json.dumps(current.state())


def resumed(policy: Any, text: str) -> Any:
    """Return the round in progress that `stored` wrote."""
    return policy.resume(json.loads(text))


# -- many rounds --------------------------------------------------------------------------------


def run(policy: Any, spec: Spec, world: World, part: slice) -> Ints:
    """Play rounds with all outputs; return the stops."""
    contexts, outputs = world.contexts[part], world.outputs[part]
    if isinstance(policy, Supervised):
        return policy.run(contexts, outputs, labels=world.labels[part])
    if isinstance(policy, Oracle | Clairvoyant):
        PLAYED[policy] = PLAYED.get(policy, 0) + len(contexts)
    if isinstance(policy, Oracle):
        return policy.run(contexts, outputs, optimal=world.optimal[part])
    if isinstance(policy, Clairvoyant):
        return policy.run(contexts, outputs, disagreement=world.disagreement[part])
    labels = _labels(world, part) if spec.options.get("labels") else None
    return policy.run(contexts, outputs, labels=labels)


def run_recorded(policy: Any, spec: Spec, world: World, part: slice) -> Ints:
    """Play rounds with some unknown outputs; return the stops."""
    with_labels = bool(spec.options.get("labels"))
    return policy.run_recorded(_recorded(policy, spec, world, part, with_labels))


def observe_many(policy: Any, spec: Spec, world: World, part: slice, stops: Ints) -> None:
    """Let a policy learn from rounds that ended at these stops."""
    policy.observe_many(_recorded(policy, spec, world, part, False), stops, rule_stop=stops)


def decide_some(policy: Any, spec: Spec, world: World, t: int) -> list[int]:
    """Return where the rule stops for a few contexts, without learning.

    If rounds are decided arm by arm: whether it stops them at the arms that they have reached.
    """
    part, last = slice(t, t + 12), len(spec.costs) - 1
    if isinstance(policy, Oracle | Clairvoyant):
        return []
    if isinstance(policy, Supervised):
        probe = copy.deepcopy(policy)
        return [probe.decide(x).rule_stop for x in world.contexts[part]]
    if not spec.sees_answers:
        return policy.decide_many(world.contexts[part]).tolist()
    record = _recorded(policy, spec, world, part, False)
    answered, failed = np.arange(record.n) % last + 1, np.zeros(record.n, dtype=np.bool_)
    some = sw.RecordedRounds(record.contexts, record.differ, answered, failed)
    return batch.should_stop_many(policy, some).astype(int).tolist()


def _recorded(
    policy: Any, spec: Spec, world: World, part: slice, with_labels: bool
) -> sw.RecordedRounds:
    outputs, labels = np.array(world.outputs[part]), np.array(world.labels[part])
    differ = [outputs[:, i] != outputs[:, j] for i, j in policy.cascade.pairs()]
    reach, failed = _reach(world.reach[part], world.fails[part])
    return sw.RecordedRounds(
        _known_contexts(spec, world.contexts[part], reach),
        np.column_stack(differ).astype(np.uint8),
        answered=reach + 1,
        failed=failed,
        right=outputs == labels[:, None] if with_labels else None,
        labelled=world.labelled[part] if with_labels else None,
    )


def _reach(reach: Ints, fails: Bools) -> tuple[Ints, Bools]:
    """Return the last arms that answered before a failure, and which rounds have a failure."""
    n_arms = fails.shape[1]
    first = np.where(fails.any(axis=1), fails.argmax(axis=1), n_arms)
    failed = first <= reach
    return np.where(failed, first - 1, reach), failed


def _known_contexts(spec: Spec, contexts: Floats, reach: Ints) -> Floats:
    """Return contexts with zeros for numbers that were not revealed."""
    masked, first = contexts.copy(), len(spec.world.columns)
    for arm, n in enumerate(spec.world.reveals):
        masked[reach < arm, first : first + n] = 0.0
        first += n
    return masked


def _labels(world: World, part: slice) -> list[Any]:
    rounds = zip(world.labels[part], world.labelled[part].tolist(), strict=True)
    return [answer if labelled else None for answer, labelled in rounds]
