"""A round whose stages reveal the context as it goes: decided arm by arm."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stopwise.errors import InvalidContextError, InvalidInputError
from stopwise.features import BoundFeatures
from stopwise.policies.recorded import Rounds
from stopwise.policies.round_in_progress import RoundInProgress
from stopwise.records import Decision

if TYPE_CHECKING:
    from stopwise.policies.contextual import Contextual


Floats = NDArray[np.float64]


class StagedRound(RoundInProgress):
    """A round for features that see more from stage to stage (`PerStage` with ``sees``).

    At arm i, pair (i, j) is judged by what is known there. Whether the round continues to the last
    arm at random is drawn before anything is known, so that it depends on nothing; the rule is
    asked at every arm all the same, to know where it would have stopped.
    """

    _policy: "Contextual"  # pyright: ignore[reportIncompatibleVariableOverride] (the only maker)

    def _plan(self) -> None:
        policy, features = self._policy, self._policy.features
        self._known: list[float] = numbers_of(self._x)
        self._sees: tuple[int, ...] = features.sees or (features.context_dim,)
        if len(self._known) > self._sees[0]:
            raise InvalidContextError(
                f"a round starts with at most {self._sees[0]} numbers, which is what the features "
                f"see once arm 0 has run; these are {len(self._known)}"
            )
        self._row = np.zeros(features.width)
        self._noise, self._note, self._explored = policy.begin()
        self._rule_stops: int | None = None  # the first arm at which the rule would stop

    def _planned(self) -> dict[str, Any]:
        return {
            "known": list(self._known),
            "noise": None if self._noise is None else self._noise.tolist(),
            "note": np.frombuffer(self._note).tolist(),
            "sent_on": self._explored,
            "rule_stops": self._rule_stops,
            "judged": self._judged,
        }

    def _restore(self, state: Mapping[str, Any]) -> None:
        features = self._policy.features
        self._known = list(state["known"])
        self._sees = features.sees or (features.context_dim,)
        self._row = np.zeros(features.width)
        for arm in range(min(len(self.outputs), len(features.stages))):
            fill(features, self._row, arm, self._known[: self._sees[arm]])
        noise = state["noise"]
        self._noise = None if noise is None else np.array(noise, dtype=np.float64)
        self._note = np.array(state["note"], dtype=np.float64).tobytes()
        self._explored = bool(state["sent_on"])
        self._rule_stops = state["rule_stops"]
        self._judged = int(state["judged"])

    @property
    def context(self) -> tuple[float, ...]:
        """All that is known now: the context it began with, and what was revealed."""
        return tuple(self._known)

    @property
    def rule_stop(self) -> int:
        """Where the rule itself stops, as far as is known (see `RoundInProgress.rule_stop`)."""
        if self._rule_stops is not None:
            return self._rule_stops
        last = self._policy.cascade.n_arms - 1
        return min(len(self.outputs), last)  # it went on from the last arm that answered

    def _stops(self) -> bool:
        arm = len(self.outputs) - 1
        if arm < 0:
            return False
        if arm == self._policy.cascade.n_arms - 1:
            return True
        if self._rule_stops is None and self._judged != arm:
            self._judged = arm
            stops, self._note = self._policy.should_stop(self._row, self._noise, self._note, arm)
            if stops:
                self._rule_stops = arm
        return self._rule_stops is not None and not self._explored

    _judged: int = -1  # the arm last judged: `next` may be called twice

    def _decided(self) -> Decision:
        stop = len(self.outputs) - 1
        return self._policy.decided(stop, self.rule_stop, self._noise, self._note)

    def _reveal(self, revealed: Sequence[float]) -> None:
        arm = len(self.outputs)
        if arm == self._policy.cascade.n_arms - 1:
            return  # nothing is left to decide by what the last arm reveals
        known = [*self._known, *numbers_of(revealed)]
        if len(known) != self._sees[arm]:
            raise InvalidContextError(
                f"once arm {arm} has run the features see {self._sees[arm]} numbers; it is "
                f"{len(self._known)} so far and {len(known) - len(self._known)} that it reveals"
            )
        fill(self._policy.features, self._row, arm, known)
        self._known = known

    def _learn_outputs(self) -> None:
        self._policy.learn_row(self._row, self.outputs, self.rule_stop)


def known_row(features: BoundFeatures, x: ArrayLike, n: int) -> Floats:
    """Return the features of a round in which n arms ran.

    Where stages reveal the context, only what was known before the last of them is used.
    """
    if features.sees is None:
        return features.row(x)
    known = numbers_of(x)
    needed = features.sees[n - 2] if n > 1 else 0
    if not needed <= len(known) <= features.context_dim:
        raise InvalidContextError(
            f"a round in which {n} arms ran has a context of {needed} to {features.context_dim} "
            f"numbers; this has {len(known)}"
        )
    row = np.zeros(features.width)
    for arm in range(n - 1):
        fill(features, row, arm, known[: features.sees[arm]])
    return row


def recorded_rows(features: BoundFeatures, recorded: Rounds) -> Floats:
    """Return the features of recorded rounds; zeros for stages that did not run."""
    contexts = recorded.contexts
    if features.sees is None:
        return features.rows(contexts)
    if contexts.shape[1] != features.context_dim:
        raise InvalidContextError(
            f"contexts form a table of {features.context_dim} columns, one row each; this has "
            f"shape {contexts.shape}"
        )
    rows = np.zeros((len(contexts), features.width))
    for arm, (stage, seen) in enumerate(zip(features.stages, features.sees, strict=True)):
        ran = np.flatnonzero(recorded.reach >= arm)
        start = features.offsets[arm]
        try:
            rows[ran, start : start + features.dims[arm]] = stage.rows(contexts[ran, :seen])
        except InvalidInputError as error:
            raise type(error)(f"at arm {arm}: {error}") from error
    return rows


def fill(features: BoundFeatures, row: Floats, arm: int, known: list[float]) -> None:
    """Write into a row the features at an arm, computed from what is known there."""
    start = features.offsets[arm]
    row[start : start + features.dims[arm]] = features.stages[arm].row(known)


def numbers_of(values: ArrayLike | None) -> list[float]:
    """Return a context as far as it is known.

    Examples
    --------
    >>> numbers_of([1, 2.5]), numbers_of(None)
    ([1.0, 2.5], [])
    """
    try:
        numbers = np.asarray(() if values is None else values, dtype=np.float64)
    except (TypeError, ValueError) as reason:
        raise InvalidContextError(f"a context must be real numbers ({reason})") from None
    if numbers.ndim != 1 or not np.isfinite(numbers).all():
        raise InvalidContextError(f"a context is a flat list of finite numbers, not {values!r}")
    return numbers.tolist()
