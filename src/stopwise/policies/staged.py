"""A round whose stages reveal the context as it goes: decided arm by arm."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stopwise.checks import numbers
from stopwise.errors import InvalidContextError, InvalidInputError
from stopwise.features import BoundFeatures
from stopwise.policies.checking import encode_outputs
from stopwise.policies.round_in_progress import RoundInProgress
from stopwise.records import Decision, Rounds

if TYPE_CHECKING:
    from stopwise.policies.contextual import Contextual


Floats = NDArray[np.float64]


class StagedRound(RoundInProgress):
    """A round for features that see more from stage to stage (`PerStage` with ``sees``).

    At arm i, pair (i, j) is judged by what is known there. Whether the round continues to the last
    arm at random is drawn before anything is known, so that it depends on nothing; the rule is
    still asked at every arm, to know where it would have stopped.
    """

    _policy: "Contextual"  # pyright: ignore[reportIncompatibleVariableOverride] (the only maker)
    _judged: int = -1  # the arm last judged: `next` may be called twice
    _rule_stops: int | None = None  # the first arm at which the rule would stop

    def _plan(self, x: ArrayLike | None) -> None:
        self._known, features = _known(x), self._policy.features
        if len(self._known) > (most := features.stages[0].context_dim):
            raise InvalidContextError(
                f"a round starts with at most {most} numbers, which is what the features see once "
                f"arm 0 has run; these are {len(self._known)}"
            )
        self._row = np.zeros(features.width)
        self._noise, self._note, self._explored = self._policy.begin()

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
        noise = state["noise"]
        self._known = list(state["known"])
        self._row = _partial_row(self._policy.features, self._known, len(self.outputs))
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
        return min(len(self.outputs), self._last)  # it went on from the last arm that answered

    @property
    def _last(self) -> int:
        return self._policy.cascade.n_arms - 1

    def _stops(self) -> bool:
        arm = len(self.outputs) - 1
        if arm in (-1, self._last):
            return arm >= 0
        if self._rule_stops is None and self._judged != arm:
            self._judged = arm
            should_stop = self._policy.learner.should_stop
            stops, self._note = should_stop(self._row, self._noise, self._note, arm)
            self._rule_stops = arm if stops else None
        return self._rule_stops is not None and not self._explored

    def _decided(self) -> Decision:
        stop = len(self.outputs) - 1
        return self._policy.decided(stop, self.rule_stop, self._noise, self._note)

    def _reveal(self, revealed: Sequence[float]) -> None:
        arm, features = len(self.outputs), self._policy.features
        if arm == self._last:
            return  # nothing is left to decide by what the last arm reveals
        known = [*self._known, *_known(revealed)]
        stage, start = features.stages[arm], features.offsets[arm]
        if len(known) != stage.context_dim:
            raise InvalidContextError(
                f"once arm {arm} has run the features see {stage.context_dim} numbers; there are "
                f"{len(self._known)} so far and {len(known) - len(self._known)} that it reveals"
            )
        self._row[start : start + stage.width] = stage.row(known)
        self._known = known

    def _learn_outputs(self) -> None:
        n, codes = encode_outputs(self.outputs, self._policy.cascade.n_arms)
        self._policy.learner.observe(self._row, None, n, self.rule_stop, codes)


def known_row(features: BoundFeatures, x: ArrayLike, n: int) -> Floats:
    """Return the features of a round in which n arms ran.

    Where stages reveal the context, only what was known before the last of them is used.
    """
    if features.sees is None:
        return features.row(x)
    known = _known(x)
    needed = features.sees[n - 2] if n > 1 else 0
    if not needed <= len(known) <= features.context_dim:
        raise InvalidContextError(
            f"a round in which {n} arms ran has a context of {needed} to {features.context_dim} "
            f"numbers; this has {len(known)}"
        )
    return _partial_row(features, known, n - 1)


def recorded_rows(features: BoundFeatures, recorded: Rounds) -> Floats:
    """Return the features of recorded rounds; zeros for stages that did not run."""
    contexts = recorded.contexts
    if features.sees is None or contexts.shape[1] != features.context_dim:
        return features.rows(contexts)  # which refuses a wrong shape
    rows = np.zeros((len(contexts), features.width))
    for arm, stage in enumerate(features.stages):
        ran = np.flatnonzero(recorded.reach >= arm)
        start, seen = features.offsets[arm], stage.context_dim
        try:
            rows[ran, start : start + features.dims[arm]] = stage.rows(contexts[ran, :seen])
        except InvalidInputError as error:
            raise type(error)(f"at arm {arm}: {error}") from error
    return rows


def _partial_row(features: BoundFeatures, known: list[float], arms: int) -> Floats:
    """Return a row with the features at the first arms; zeros for the others."""
    row = np.zeros(features.width)
    for stage, start in zip(features.stages[:arms], features.offsets, strict=False):
        row[start : start + stage.width] = stage.row(known[: stage.context_dim])
    return row


def _known(values: ArrayLike | None) -> list[float]:
    """Return a context as far as it is known."""
    known = numbers("a context", () if values is None else values, InvalidContextError)
    if known.ndim != 1 or not np.isfinite(known).all():
        raise InvalidContextError(f"a context is a flat list of finite numbers, not {values!r}")
    return known.tolist()
