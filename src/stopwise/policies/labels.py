"""Labels of finished rounds."""

from collections.abc import Hashable, Sequence
from typing import TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike

from stopwise.arrays import Bools
from stopwise.checks import comparable, short_repr
from stopwise.errors import InvalidOutputsError
from stopwise.policies.round_in_progress import RoundInProgress
from stopwise.policies.validation import checked_stop, differing, encode_outputs, square
from stopwise.records import Label, LabelRequest, Observation, RecordedRounds, Round

Right: TypeAlias = Sequence[bool] | Bools  # whether each arm that answered was right


def label_of(
    done: Round | RoundInProgress | Observation,
    answer: Hashable,
    right: Right | None,
    n_arms: int,
) -> Label | None:
    """Return the validated label of a round, or None if none of its arms answered.

    Pass either the right ``answer``, which is compared with the outputs, or ``right``,
    whether each arm that answered was right.

    Examples
    --------
    >>> observation = observation_of([0.5], ["spam", "ham"], n_arms=3)
    >>> done = Round("a", 0.0, (0.5,), ("spam", "ham"), ("spam", "ham"), stop=1, rule_stop=1)
    >>> label_of(done, "ham", None, n_arms=3).right
    (False, True)
    >>> label_of(observation, None, [False, True], n_arms=3).right
    (False, True)
    """
    if (answer is None) == (right is None):
        number = "neither" if right is None else "both"
        raise InvalidOutputsError(
            "pass either the right answer or right=[True, False, …] (one value per arm that "
            f"answered), got {number}"
        )
    if isinstance(done, Observation):
        if right is None:
            raise InvalidOutputsError(
                "an Observation has no outputs to compare an answer with; pass right=[True, False, "
                "…] (one value per arm that answered)"
            )
        return Label(done, _checked_right(right, done.stop + 1))
    outputs = list(done.outputs)
    each = _equal_to(answer, outputs) if right is None else _checked_right(right, len(outputs))
    if not outputs:
        return None
    observation = observation_of(done.context, outputs, n_arms, done.rule_stop)
    return Label(observation, each, done.request)


def observation_of(
    context: ArrayLike | None,
    outputs: Sequence[Hashable],
    n_arms: int,
    rule_stop: int | None = None,
) -> Observation:
    """Return the observation of a round; ``rule_stop`` defaults to the round's stop.

    Examples
    --------
    >>> observation_of([0.5], ["spam", "ham"], n_arms=3).differ[0, 1]
    np.True_
    """
    n, codes = encode_outputs(outputs, n_arms)
    return Observation(
        context, n - 1, n - 1 if rule_stop is None else rule_stop, differing(codes, n)
    )


def recorded_observation(
    rounds: RecordedRounds, t: int, stop: int, rule_stop: int, n_arms: int
) -> Observation:
    """Return the observation of recorded round t, assuming that it ended at ``stop``."""
    differ = square(rounds.differ[t] > 0, n_arms)[: stop + 1, : stop + 1]
    return Observation(rounds.contexts[t], stop, rule_stop, differ)


def recorded_label(
    rounds: RecordedRounds,
    t: int,
    stop: int,
    rule_stop: int,
    request: LabelRequest | None,
    n_arms: int,
) -> Label | None:
    """Return the label of recorded round t, assuming that it ended at ``stop``, if it has one."""
    if rounds.right is None or rounds.labelled is None or not rounds.labelled[t]:
        return None
    observation = recorded_observation(rounds, t, stop, rule_stop, n_arms)
    return Label(observation, tuple(rounds.right[t, : stop + 1].tolist()), request)


def check_label(label: Label, n_arms: int) -> None:
    """Raise if a label does not match its round, or the round does not match the cascade."""
    check_observation(label.observation, n_arms)
    _checked_right(label.right, label.observation.stop + 1)


def check_observation(observation: Observation, n_arms: int) -> None:
    """Raise if an observation does not match the cascade."""
    stop = checked_stop(observation.stop, n_arms)
    checked_stop(observation.rule_stop, n_arms, "rule_stop")
    shape = np.shape(observation.differ)
    if len(shape) != 2 or min(shape) <= stop:
        raise InvalidOutputsError(
            f"differ must have a row and a column for each of the {stop + 1} arms that answered, "
            f"got shape {shape}"
        )


def _equal_to(answer: Hashable, outputs: Sequence[Hashable]) -> tuple[bool, ...]:
    if not comparable(answer):
        raise InvalidOutputsError(
            "the right answer must be hashable and equal to itself (such as a number other than "
            f"NaN, a string or a tuple), got {short_repr(answer)}"
        )
    return tuple(bool(output == answer) for output in outputs)


def _checked_right(right: object, n: int) -> tuple[bool, ...]:
    """Return ``right`` as booleans; raise if it is not a sequence of n booleans."""
    values = list(cast(Sequence[object], right)) if np.iterable(right) else None
    if values is None or len(values) != n:
        raise InvalidOutputsError(
            f"right must have one value for each of the {n} arms that answered, got "
            f"{short_repr(right)}"
        )
    for arm, value in enumerate(values):
        if not isinstance(value, bool | np.bool_):
            raise InvalidOutputsError(
                f"right must be True or False for each arm, got {short_repr(value)} for arm {arm}"
            )
    return tuple(bool(value) for value in values)
