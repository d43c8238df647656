"""Check that a policy follows the protocol."""

import copy
import json
from collections.abc import Callable, Generator, Hashable
from contextlib import contextmanager
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from stopwise.arrays import Bools, Ints
from stopwise.errors import (
    InvalidContextError,
    InvalidParameterError,
    LabelsNotSupportedError,
    PolicyCheckError,
)
from stopwise.policies import batch
from stopwise.policies.labels import observation_of, recorded_label, recorded_observation
from stopwise.policies.persistence import DTYPES
from stopwise.policies.protocol import Policy
from stopwise.policies.round_in_progress import RoundInProgress
from stopwise.policies.validation import disagreements, learned_arms, learned_end
from stopwise.records import Decision, Label, LabelRequest, Observation, RecordedRounds

ROUNDS = 60  # per check; more than most policies have forced rounds
REPEATS = 5  # decisions per context
OUTPUT_PAIRS: tuple[tuple[Hashable, Hashable], ...] = (  # a policy must treat all these pairs alike
    (0, 1),
    ("spam", "ham"),
    ((1, "a"), (1, "b")),
    (True, None),
    (np.float64(0.5), np.str_("half")),
)


class World(NamedTuple):
    """Rounds for the checks: contexts, outputs of shape (n, K), and right answers."""

    contexts: NDArray[Any]
    outputs: Ints
    labels: Ints

    @property
    def right(self) -> Bools:
        """Whether each arm was right in each round, of shape (n, K)."""
        return self.outputs == self.labels[:, None]


def check_policy(policy: Policy, contexts: ArrayLike | None = None) -> None:
    """Check that a policy follows the protocol; raise PolicyCheckError if it does not.

    The checks run on deep copies, so they do not change the policy. They cover decisions, outputs
    of any type, disagreements without outputs, rounds decided step by step, labels, whether batches
    give the same results as single rounds, and saving (if `Policy.state` is implemented). They do
    not measure how well a policy learns; use `simulate` for that.

    Parameters
    ----------
    policy : Policy
        The policy to check.
    contexts : array_like of shape (n, context_dim), optional
        Valid contexts. By default, as many values as ``policy.features`` require, drawn uniformly
        from [−1, 1].

    Examples
    --------
    >>> import stopwise as sw
    >>> class TooDeep(sw.Policy):
    ...     def decide(self, x):
    ...         return sw.Decision(stop=2, arm="arm 2", cost=0.3)
    ...
    ...     def learn(self, observation):
    ...         return None
    >>> check_policy(TooDeep(sw.Cascade(costs=[0.1, 0.2])), contexts=[[0.5], [0.7]])
    Traceback (most recent call last):
    stopwise.errors.PolicyCheckError: Decision.stop must be an arm, 0 to 1, got 2
    """
    if not isinstance(policy, Policy):  # pyright: ignore[reportUnnecessaryIsInstance] (callers may have no types)
        raise PolicyCheckError(f"expected a Policy, got {type(policy).__name__}")
    if policy.reveals is not None:
        raise InvalidParameterError(
            "check_policy requires a policy that decides from the complete context; create it "
            "without reveals="
        )
    world = _world(policy, contexts)
    checks: tuple[Callable[[Policy, World], None], ...] = (
        _check_that_arguments_are_not_changed,
        _check_decisions,
        _check_that_decide_learns_nothing,
        _check_copies,
        _check_outputs_of_any_type,
        _check_disagreements,
        _check_many_decisions,
        _check_runs,
        _check_recorded_rounds,
        _check_warm_start,
        _check_rounds_in_progress,
        _check_labels,
        _check_saving,
    )
    for check in checks:
        check(policy, world)


# -- one round --------------------------------------------------------------------------------


def _check_that_arguments_are_not_changed(policy: Policy, world: World) -> None:
    policy = copy.deepcopy(policy)
    for t, original in enumerate(world.contexts):
        x, outputs = copy.deepcopy(original), world.outputs[t].tolist()
        observation = observation_of(x, outputs, len(outputs))
        differ = observation.differ.copy()
        for name in ("decide", "learn", "observe"):
            with _calling(name):
                if name == "decide":
                    policy.decide(x)
                elif name == "learn":
                    policy.learn(observation)
                else:
                    policy.observe(x, outputs)
            same = _equal(x, original) and outputs == world.outputs[t].tolist()
            same = same and _equal(observation.differ, differ)
            _expect(same, f"{name} must not change its arguments")


def _check_decisions(policy: Policy, world: World) -> None:
    policy, cascade = copy.deepcopy(policy), policy.cascade
    for t, x in enumerate(world.contexts):
        decision = _decide(policy, x)
        stop, rule_stop = decision.stop, decision.rule_stop
        _expect(type(stop) is int, f"Decision.stop must be an int, got {type(stop).__name__}")
        _expect(
            0 <= stop < cascade.n_arms,
            f"Decision.stop must be an arm, 0 to {cascade.n_arms - 1}, got {stop}",
        )
        _expect(
            type(rule_stop) is int and 0 <= rule_stop <= stop,
            f"Decision.rule_stop must be an arm from 0 to the stop ({stop}), got {rule_stop!r}",
        )
        arm, cost = cascade.names[stop], cascade.cost(stop)
        _expect(
            (decision.arm, decision.cost) == (arm, cost),
            f"Decision.arm and Decision.cost must be {arm!r} and {cost:g} for stop {stop}, got "
            f"{decision.arm!r} and {decision.cost!r}; use self.cascade.decision(stop)",
        )
        _learn_round(policy, world, t, decision)


def _check_that_decide_learns_nothing(policy: Policy, world: World) -> None:
    policy = _trained(policy, world)
    twin = copy.deepcopy(policy)
    _expect(
        _stops(copy.deepcopy(policy), world) == _stops(twin, world),
        "two copies of the policy decide differently for the same contexts; if decide is random, "
        "draw from a generator stored in the policy, not from a global one",
    )
    before = _data(policy)
    for x in world.contexts:
        for _ in range(REPEATS):
            _decide(policy, x)
    after = _data(policy)
    changed = [name for name, value in before.items() if not _equal(value, after.get(name))]
    _expect(not changed, f"decide must not learn, but it changed {', '.join(changed)}")


def _check_copies(policy: Policy, world: World) -> None:
    with _calling("copy.deepcopy(policy)"):
        twin = copy.deepcopy(policy)
    before = _stops(copy.deepcopy(policy), world)
    _play(twin, world)
    after = _stops(copy.deepcopy(policy), world)
    _expect(
        twin is not policy and before == after,
        "a deep copy must not share its state with the policy",
    )


def _check_outputs_of_any_type(policy: Policy, world: World) -> None:
    twins: list[Policy] = []
    for no, yes in OUTPUT_PAIRS:
        twin = copy.deepcopy(policy)
        for t, x in enumerate(world.contexts):
            outputs = [yes if output else no for output in world.outputs[t].tolist()]
            with _calling(f"observe(x, {outputs})"):
                twin.observe(x, outputs[: 1 + t % len(outputs)])
        twins.append(twin)
    for twin in twins[1:]:
        _expect_same(
            twins[0],
            twin,
            world,
            "outputs must be compared only by equality, so a policy must learn the same from the "
            "outputs 0 and 1 as from any other two values",
        )


def _check_disagreements(policy: Policy, world: World) -> None:
    by_outputs, by_pairs, by_table = (copy.deepcopy(policy) for _ in range(3))
    n_arms = policy.cascade.n_arms
    for t, x in enumerate(world.contexts):
        stop, outputs = t % n_arms, world.outputs[t]
        differ = outputs[:, None] != outputs[None, :]
        pairs = {(i, j): bool(differ[i, j]) for j in range(stop + 1) for i in range(j)}
        with _calling("observe_disagreements"):
            by_pairs.observe_disagreements(x, stop, pairs)
            by_table.observe_disagreements(x, stop, differ)
        with _calling("observe"):
            by_outputs.observe(x, outputs[: stop + 1].tolist())
    text = "observe_disagreements must learn the same as observe with equivalent outputs"
    _expect_same(by_outputs, by_pairs, world, text)
    _expect_same(by_outputs, by_table, world, text)


def _check_rounds_in_progress(policy: Policy, world: World) -> None:
    stepwise, at_once = copy.deepcopy(policy), copy.deepcopy(policy)
    for t, x in enumerate(world.contexts):
        decision, outputs = _decide(at_once, x), world.outputs[t].tolist()
        fails_at = t % 4 if t % 3 == 0 else decision.stop + 1  # an arm fails in a third of rounds
        with _calling("start and next"):
            current = stepwise.start(x)
            while (arm := current.next()) is not None and arm < fails_at:
                if t % 2:  # as after a restart
                    current = stepwise.resume(json.loads(json.dumps(current.state())))
                current.give(outputs[arm])
            current.learn()
        answered = min(decision.stop + 1, fails_at)
        _expect(
            len(current.outputs) == answered,
            f"a round from start(x) must run as many arms as decide(x) decides ({answered}), but "
            f"ran {len(current.outputs)}",
        )
        if answered:
            rule_stop = min(decision.rule_stop, answered - 1)
            with _calling("observe"):
                at_once.observe(x, outputs[:answered], rule_stop=rule_stop)
    text = "a round played step by step must teach the policy the same as observe"
    _expect_same(at_once, stepwise, world, text)


# -- many rounds ------------------------------------------------------------------------------


def _check_many_decisions(policy: Policy, world: World) -> None:
    single = _trained(policy, world)
    many, both = copy.deepcopy(single), copy.deepcopy(single)
    decisions = [_decide(single, x) for x in world.contexts]
    with _calling("decide_many"):
        rule_stops = many.decide_many(world.contexts).tolist()
        stops, _ = batch.decide_batch(both, world.contexts)
    _expect(
        rule_stops == [decision.rule_stop for decision in decisions],
        "decide_many must return the same rule_stop as decide for every row",
    )
    _expect(
        stops.tolist() == [decision.stop for decision in decisions],
        "decide_batch must return the same stop as decide for every row",
    )


def _check_runs(policy: Policy, world: World) -> None:
    single, by_outputs, by_pairs = (copy.deepcopy(policy) for _ in range(3))
    expected = _play(single, world)
    labels = world.labels if policy.asks_for_labels else None
    with _calling("run"):
        stops = by_outputs.run(world.contexts, world.outputs, labels=labels).tolist()
    _expect(stops == expected, "run must return the same stops as single rounds")
    _expect_same(single, by_outputs, world, "run must learn the same as single rounds")
    if not policy.asks_for_labels:
        differ = disagreements(world.outputs, policy.cascade)
        with _calling("run"):
            stops = by_pairs.run(world.contexts, differ=differ).tolist()
        _expect(stops == expected, "run with differ= must return the same stops as with outputs")
        _expect_same(
            by_outputs, by_pairs, world, "run with differ= must learn the same as with outputs"
        )


def _check_recorded_rounds(policy: Policy, world: World) -> None:
    single, many, n_arms = copy.deepcopy(policy), copy.deepcopy(policy), policy.cascade.n_arms
    record = _recorded(policy, world)
    expected: list[int] = []
    for t, x in enumerate(world.contexts):
        decision = _decide(single, x)
        expected.append(decision.stop)
        end = learned_end(record, t, decision.stop)
        if end is not None:
            rule_stop = decision.rule_stop
            observation = recorded_observation(record, t, end, rule_stop, n_arms)
            request = _learn(single, observation)
            label = recorded_label(record, t, end, rule_stop, request, n_arms)
            if request is not None and label is not None:
                _learn_label(single, label)
    with _calling("run_recorded"):
        stops = many.run_recorded(record).tolist()
    _expect(stops == expected, "run_recorded must return the same stops as decide and learn")
    _expect_same(single, many, world, "run_recorded must learn the same as single rounds")


def _check_warm_start(policy: Policy, world: World) -> None:
    if policy.asks_for_labels:
        return  # unlike `learn`, a warm start requests no labels
    single, many, n_arms = copy.deepcopy(policy), copy.deepcopy(policy), policy.cascade.n_arms
    record = _recorded(policy, world)
    stops = np.arange(record.n) % n_arms
    for t, arms in enumerate(learned_arms(record, stops, n_arms).tolist()):
        if arms > 0:
            _learn(single, recorded_observation(record, t, arms - 1, arms - 1, n_arms))
    with _calling("observe_many"):
        many.observe_many(record, stops)
    _expect(  # compares decisions, since a state may count potential label requests
        _stops(single, world) == _stops(many, world),
        "observe_many must learn the same as single rounds",
    )


# -- labels and files -------------------------------------------------------------------------


def _check_labels(policy: Policy, world: World) -> None:
    by_answer, by_right = copy.deepcopy(policy), copy.deepcopy(policy)
    for t in range(ROUNDS):
        answer, right = int(world.labels[t]), world.right[t].tolist()
        first, second = _finished(by_answer, world, t), _finished(by_right, world, t)
        if not policy.learns_from_labels:
            _check_that_a_label_changes_nothing(by_answer, first, answer, world)
            return
        with _calling("label(round, answer)"):
            by_answer.label(first, answer)
        with _calling("label(round, right=…)"):
            by_right.label(second, right=right[: len(second.outputs)])
    text = "label(round, answer) must learn the same as label(round, right=…)"
    _expect_same(by_answer, by_right, world, text)


def _check_that_a_label_changes_nothing(
    policy: Policy, done: RoundInProgress, answer: int, world: World
) -> None:
    before = _stops(copy.deepcopy(policy), world)
    try:
        with _calling("label", LabelsNotSupportedError):
            policy.label(done, answer)
    except LabelsNotSupportedError:
        same = _stops(copy.deepcopy(policy), world) == before
        _expect(same, "if label raises LabelsNotSupportedError, it must change nothing")
        return
    raise PolicyCheckError(
        "label must raise LabelsNotSupportedError unless learn_label is implemented"
    )


def _finished(policy: Policy, world: World, t: int) -> RoundInProgress:
    """Play round t step by step, let the policy learn from it, and return it."""
    with _calling("start, next, give and learn"):
        current = policy.start(world.contexts[t])
        while (arm := current.next()) is not None:
            current.give(int(world.outputs[t, arm]))
        current.learn()
    return current


def _check_saving(policy: Policy, world: World) -> None:
    kind = type(policy)
    saves = kind.state is not Policy.state
    _expect(
        saves == (kind.restore is not Policy.restore),
        "implement both state and restore, or neither",
    )
    if not saves:
        return
    policy = _trained(policy, world)
    with _calling("state"):
        arrays = policy.state()
    for name, array in arrays.items():
        value: Any = array
        if not isinstance(value, np.ndarray):
            raise PolicyCheckError(
                f"state must map names to arrays, got {type(value).__name__} for {name!r}"
            )
        stored = array.dtype.newbyteorder("<").str
        _expect(
            stored in DTYPES,
            f"state()[{name!r}] must have dtype float64, int64, int32 or uint8, got {array.dtype}",
        )
    saved = {name: array.copy() for name, array in arrays.items()}
    restored = _untrained(policy)
    with _calling("restore"):
        restored.restore({name: array.copy() for name, array in arrays.items()})
    text = "restore(state()) must restore the policy"
    _expect_same(policy, restored, world, text)
    _expect(_play(policy, world) == _play(restored, world), text)
    _expect_same(policy, restored, world, text)
    _expect(
        all(_equal(array, saved[name]) for name, array in arrays.items()),
        "state must return copies, but the arrays changed when the policy learned",
    )
    untrained = _untrained(policy)
    before = _stops(copy.deepcopy(untrained), world)
    try:
        untrained.restore({})
    except (LookupError, TypeError, ValueError):
        pass
    else:
        raise PolicyCheckError("restore must raise ValueError for an invalid state such as {}")
    _expect(_stops(untrained, world) == before, "a failed restore must change nothing")


def _untrained(policy: Policy) -> Policy:
    """Return a new policy with the same parameters."""
    with _calling("parameters"):
        parameters: dict[str, Any] = policy.parameters()
    with _calling("saving parameters()"):
        msgspec.msgpack.encode(parameters)
    if policy.features is not None:
        assignment, dim = policy.features.assignment, policy.features.initial_dim
        parameters = {**parameters, "features": assignment, "context_dim": dim}
    with _calling(f"{type(policy).__name__}(cascade, **parameters())"):
        untrained = type(policy)(policy.cascade, **parameters)
    _expect(
        repr(untrained.parameters()) == repr(policy.parameters()),
        "a policy created from parameters() must have the same parameters",
    )
    return untrained


# -- helpers ----------------------------------------------------------------------------------


def _world(policy: Policy, contexts: ArrayLike | None) -> World:
    rng, n_arms = np.random.default_rng(0), policy.cascade.n_arms
    labels = rng.integers(2, size=ROUNDS)
    wrong = rng.random((ROUNDS, n_arms)) < 0.3 / (1 + np.arange(n_arms))
    return World(_contexts(policy, contexts, rng), labels[:, None] ^ wrong, labels)


def _contexts(policy: Policy, contexts: ArrayLike | None, rng: np.random.Generator) -> NDArray[Any]:
    if not policy.uses_context:
        return np.full(ROUNDS, None, dtype=np.object_)
    if contexts is not None:
        table = np.asarray(contexts, dtype=np.float64)
        if table.ndim != 2 or not len(table):
            raise InvalidContextError(f"contexts must be a table, got shape {table.shape}")
        return table[np.arange(ROUNDS) % len(table)]
    if policy.features is None:
        raise InvalidParameterError(
            f"{type(policy).__name__} has no features, so the dimension of its contexts is "
            "unknown; pass valid contexts as contexts="
        )
    table = rng.uniform(-1, 1, (ROUNDS, policy.features.context_dim))
    try:
        policy.features.rows(table)
    except InvalidContextError as error:
        raise InvalidParameterError(
            f"these features reject contexts drawn from [−1, 1] ({error}); pass valid contexts as "
            "contexts="
        ) from error
    return table


def _recorded(policy: Policy, world: World) -> RecordedRounds:
    """Return the rounds as recorded rounds in which some arms did not run or failed."""
    rng, n_arms = np.random.default_rng(1), policy.cascade.n_arms
    labelled = policy.asks_for_labels
    return RecordedRounds(
        contexts=world.contexts,
        differ=disagreements(world.outputs, policy.cascade),
        answered=rng.integers(0, n_arms + 1, ROUNDS),
        failed=rng.random(ROUNDS) < 0.3,
        right=world.right if labelled else None,
        labelled=np.ones(ROUNDS, dtype=np.bool_) if labelled else None,
    )


@contextmanager
def _calling(call: str, *expected: type[Exception]) -> Generator[None]:
    """Raise PolicyCheckError if the code in the block raises an unexpected error."""
    try:
        yield
    except (PolicyCheckError, *expected):
        raise
    except Exception as error:
        raise PolicyCheckError(f"{call} raised {type(error).__name__}: {error}") from error


def _expect(condition: bool, message: str) -> None:
    if not condition:
        raise PolicyCheckError(message)


def _expect_same(first: Policy, second: Policy, world: World, message: str) -> None:
    """Raise if two policies differ in what they have learned."""
    if type(first).state is not Policy.state:
        with _calling("state"):
            states = first.state(), second.state()
        names = sorted(states[0].keys() | states[1].keys())
        different = [n for n in names if not _equal(states[0].get(n), states[1].get(n))]
        _expect(not different, f"{message}; state differs in {', '.join(different)}")
    _expect(_stops(copy.deepcopy(first), world) == _stops(copy.deepcopy(second), world), message)


def _decide(policy: Policy, x: Any) -> Decision:
    with _calling("decide"):
        decision: Any = policy.decide(x)
    if not isinstance(decision, Decision):
        raise PolicyCheckError(
            f"decide must return a Decision, got {type(decision).__name__}; "
            "use self.cascade.decision(stop)"
        )
    return decision


def _learn(policy: Policy, observation: Observation) -> LabelRequest | None:
    with _calling("learn"):
        request: object = policy.learn(observation)
    return _checked_request(policy, request, "learn")


def _learn_label(policy: Policy, label: Label) -> None:
    with _calling("learn_label"):
        policy.learn_label(label)


def _checked_request(policy: Policy, request: object, name: str) -> LabelRequest | None:
    if request is None:
        return None
    if not isinstance(request, LabelRequest):
        raise PolicyCheckError(
            f"{name} must return None or a LabelRequest, got {type(request).__name__}"
        )
    _expect(
        policy.asks_for_labels,
        f"{name} returned a LabelRequest, but asks_for_labels is False; override asks_for_labels",
    )
    return request


def _learn_round(policy: Policy, world: World, t: int, decision: Decision) -> None:
    """Let a policy observe a round, and learn the round's label if the policy requests it."""
    stop, rule_stop = decision.stop, decision.rule_stop
    x, outputs = world.contexts[t], world.outputs[t, : stop + 1].tolist()
    explored = rule_stop if rule_stop < stop else None
    with _calling("learn"):
        result: object = policy.observe(x, outputs, rule_stop=explored)
    request = _checked_request(policy, result, "learn")
    if request is not None:
        observation = observation_of(x, outputs, policy.cascade.n_arms, rule_stop)
        right = tuple(world.right[t, : stop + 1].tolist())
        _learn_label(policy, Label(observation, right, request))


def _play(policy: Policy, world: World) -> list[int]:
    """Play all rounds one by one; return the stops."""
    stops: list[int] = []
    for t, x in enumerate(world.contexts):
        decision = _decide(policy, x)
        stops.append(decision.stop)
        _learn_round(policy, world, t, decision)
    return stops


def _trained(policy: Policy, world: World) -> Policy:
    policy = copy.deepcopy(policy)
    _play(policy, world)
    return policy


def _stops(policy: Policy, world: World) -> list[tuple[int, int]]:
    decisions = [_decide(policy, x) for x in world.contexts]
    return [(decision.stop, decision.rule_stop) for decision in decisions]


def _data(policy: Policy) -> dict[str, Any]:
    """Return copies of the attributes that are arrays or floats.

    Generators and integer counters are omitted, since decisions may change them.
    """
    kinds: tuple[type[Any], ...] = (np.ndarray, float)
    attributes: dict[str, Any] = vars(policy)
    names = [name for name, value in attributes.items() if isinstance(value, kinds)]
    return {name: copy.deepcopy(attributes[name]) for name in names}


def _equal(first: Any, second: Any) -> bool:
    if first is None or second is None:
        return first is second
    return np.array_equal(first, second, equal_nan=np.asarray(first).dtype.kind == "f")
