"""A round whose stages reveal the context as it goes: decided arm by arm."""

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from stopwise.checks import numbers
from stopwise.engine.native import Trace
from stopwise.errors import InvalidContextError, InvalidInputError
from stopwise.features import BoundFeatures
from stopwise.features.arrangements import pairs
from stopwise.policies.checking import Ints, encode_outputs
from stopwise.policies.round_in_progress import RoundInProgress
from stopwise.records import Decision, Floats, LabelRequest, RecordedRounds

if TYPE_CHECKING:
    from stopwise.policies.contextual import Contextual


class StagedRound(RoundInProgress):
    """A round for features that see more from stage to stage (`Answers`).

    At arm i, pair (i, j) is judged by what is known there. Whether the round continues to the last
    arm at random is drawn before anything is known, so that it depends on nothing; the rule is
    still asked at every arm, to know where it would have stopped.
    """

    _policy: "Contextual"  # pyright: ignore[reportIncompatibleVariableOverride] (the only maker)
    _judged: int = -1  # the arm last judged: `next` may be called twice
    _rule_stops: int | None = None  # the first arm at which the rule would stop
    _told: bool = False  # to run every arm: not by chance

    def _plan(self, x: ArrayLike | None) -> None:
        self._known, starts_with = _known(x), self._policy.features.starts_with
        if len(self._known) != starts_with:
            raise InvalidContextError(
                f"a round starts with context_dim={starts_with} numbers; these are "
                f"{len(self._known)}"
            )
        self._trace = self._policy.learner.begin()
        self._explored = self._trace.explored

    def _planned(self) -> dict[str, Any]:
        return {
            "known": list(self._known),
            "trace": self._trace.__getstate__(),
            "sent_on": self._explored,
            "rule_stops": self._rule_stops,
            "judged": self._judged,
            **({"told": True} if self._told else {}),
        }

    def _restore(self, state: Mapping[str, Any]) -> None:
        self._known = list(state["known"])
        self._trace = Trace.__new__(Trace)
        self._trace.__setstate__(state["trace"])
        self._explored = bool(state["sent_on"])
        self._rule_stops = state["rule_stops"]
        self._judged = int(state["judged"])
        self._told = bool(state.get("told"))

    def run_all(self) -> None:
        """Run every arm, whatever the rule says; `rule_stop` says where it would have stopped."""
        self._explored = self._told = True

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
            self._judged, policy = arm, self._policy
            with policy.lock:
                row = known_row(policy.features, self._known, self.outputs)
                stops = policy.learner.should_stop(row, arm, self._trace)
            self._rule_stops = arm if stops else None
        return self._rule_stops is not None and not self._explored

    def _decided(self) -> Decision:
        stop = len(self.outputs) - 1
        return self._policy.decided(stop, self.rule_stop, self._trace)

    def _reveal(self, output: Hashable, revealed: Sequence[float]) -> None:
        arm, features = len(self.outputs), self._policy.features
        sees = features.sees or ()
        if arm == self._last:
            return  # nothing is left to decide by what the last arm reveals
        known = [*self._known, *_known(revealed, "revealed")]
        if len(known) != sees[arm]:
            raise InvalidContextError(
                f"arm {arm} reveals {sees[arm] - len(self._known)} numbers, as the features say; "
                f"these are {len(revealed)}"
            )
        known_row(features, known, [*self.outputs, output])  # or it refuses these numbers
        self._known = known

    def _learn_outputs(self) -> LabelRequest | None:
        n, codes = encode_outputs(self.outputs, self._policy.cascade.n_arms)
        # Labels are weighted by the chance of going on at random, and here there was none.
        rule_stop = self._last if self._told else self.rule_stop
        return self._policy.learn_round(self._known, n, codes, rule_stop)


def known_row(features: BoundFeatures, x: ArrayLike, outputs: Sequence[Hashable]) -> Floats:
    """Return the features of a round by what its arms have answered.

    Where stages reveal the context, zeros for arms that have not run.
    """
    if features.sees is None:
        return features.row(x)
    known, row = _known(x), np.zeros(features.width)
    arms = min(len(outputs), len(features.sees))
    if len(known) < (needed := features.sees[arms - 1] if arms else 0):
        raise InvalidContextError(
            f"a round in which {len(outputs)} arms ran has a context of at least {needed} numbers; "
            f"this has {len(known)}"
        )
    for arm, stage in enumerate(features.stages[:arms]):
        agree = [float(outputs[a] == outputs[b]) for b in range(arm + 1) for a in range(b)]
        start = features.offsets[arm]
        row[start : start + stage.width] = stage.row([*known[: features.sees[arm]], *agree])
    return row


def known_at(features: BoundFeatures, recorded: RecordedRounds, arm: int, ran: Ints) -> Floats:
    """Return all that is known at an arm in some recorded rounds: numbers, then agreements."""
    order = pairs(features.n_arms)
    agree = [order.index((a, b)) for b in range(arm + 1) for a in range(b)]
    seen = (features.sees or ())[arm]
    known = [recorded.contexts[ran, :seen], 1.0 - recorded.differ[ran][:, agree]]
    return np.hstack(known).astype(np.float64)


def recorded_rows(features: BoundFeatures, recorded: RecordedRounds) -> Floats:
    """Return the features of recorded rounds; zeros for stages that did not run."""
    contexts = recorded.contexts
    if features.sees is None:
        return features.rows(contexts)
    if contexts.ndim != 2 or contexts.shape[1] != features.context_dim:
        raise InvalidContextError(
            f"recorded contexts have {features.context_dim} columns, context_dim="
            f"{features.starts_with} and what stages reveal; these have shape {contexts.shape}"
        )
    rows = np.zeros((len(contexts), features.width))
    for arm, stage in enumerate(features.stages):
        ran = np.flatnonzero(recorded.answered > arm)
        start = features.offsets[arm]
        try:
            known = known_at(features, recorded, arm, ran)
            rows[ran, start : start + stage.width] = stage.rows(known)
        except InvalidInputError as error:
            raise type(error)(f"at arm {arm}: {error}") from error
    return rows


def _known(values: ArrayLike | None, name: str = "a context") -> list[float]:
    """Return a context, or a part of it, as a list."""
    known = numbers(name, () if values is None else values, InvalidContextError)
    if known.ndim != 1 or not np.isfinite(known).all():
        raise InvalidContextError(f"{name} is a flat list of finite numbers, not {values!r}")
    return known.tolist()
