"""A round taken step by step: which arm to run next, or to stop."""

from collections.abc import Hashable, Mapping, Sequence
from copy import copy
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike

from stopwise.cascade import Cascade
from stopwise.checks import comparable
from stopwise.errors import InvalidContextError, InvalidOutputsError
from stopwise.records import Decision, LabelRequest


class Decider(Protocol):
    """The parts of a policy that a round needs."""

    cascade: Cascade

    def decide(self, x: ArrayLike | None) -> Decision: ...  # noqa: D102 (see `Policy`)

    def observe(  # noqa: D102
        self,
        x: ArrayLike | None,
        outputs: Sequence[Hashable],
        *,
        rule_stop: int | None = None,
    ) -> LabelRequest | None: ...


class RoundInProgress:
    """One round on its way down the cascade; created by `Policy.start`.

    Ask for the next arm, run it, give its output; when there is none left to run, learn. Other
    rounds may be in progress meanwhile. A round whose stage failed may learn from the arms that
    answered. ``decision`` is where the round ends, once `next` has returned None; ``request`` says
    whether the policy wants its label (`Policy.label`), once it has learned.

    Examples
    --------
    >>> import stopwise as sw
    >>> policy = sw.USSPD(sw.Cascade(costs=[0.01, 0.3]), context_dim=2)
    >>> current = policy.start([0.5, 1.0])
    >>> while (arm := current.next()) is not None:
    ...     current.give(["spam", "ham"][arm])
    >>> current.learn()
    >>> current.decision, policy.rounds
    (Decision(stop=1, arm='arm 1', cost=0.31), 1)
    """

    _learned = False
    _asked = False  # an arm was named and has not answered yet

    def __init__(self, policy: Decider, x: ArrayLike | None) -> None:
        self._policy = policy
        self.outputs: list[Hashable] = []
        self.decision: Decision | None = None
        self.request: LabelRequest | None = None
        self._plan(x)

    @property
    def context(self) -> tuple[float, ...]:
        """All that is known now: the context it began with, and what was revealed."""
        if self._x is None:  # a policy that looks at no context
            return ()
        return tuple(np.asarray(self._x, dtype=np.float64).ravel().tolist())

    @property
    def rule_stop(self) -> int:
        """Where the rule itself stops, as far as is known: some rounds go further at random."""
        return self._settled.rule_stop

    def next(self) -> int | None:
        """Return the arm to run now, or None: stop here."""
        if self.decision is None and self._stops():
            self.decision = self._decided()
        if self.decision is not None:
            return None
        self._asked = True
        return len(self.outputs)

    def give(self, output: Hashable, revealed: Sequence[float] = ()) -> None:
        """Give the output of the arm that `next` named, and what it adds to the context."""
        if not self._asked:
            raise InvalidOutputsError("no arm was asked: call next() before each give()")
        if not comparable(output):
            raise InvalidOutputsError(
                "an output must be hashable and equal to itself (a number, a string, a tuple …; "
                f"not NaN), which this {type(output).__name__} is not"
            )
        self._reveal(output, revealed)
        self.outputs.append(output)
        self._asked = False

    def run_all(self) -> None:
        """Run every arm, whatever the rule says; `rule_stop` says where it would have stopped."""
        raise InvalidContextError("run_all is for rounds whose stages reveal the context")

    def learn(self) -> None:
        """Let the policy learn from the outputs, once; nothing if no arm has answered."""
        if self._learned:
            raise InvalidOutputsError("this round was learned already")
        self._learned = True
        if self.outputs:
            self.request = self._learn_outputs()

    @property
    def wants_label(self) -> bool:
        """Whether the policy asks for the right answer, once the round was learned."""
        return self.request is not None

    # -- a round that outlives its process -----------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return this round as plain values, from which `Policy.resume` continues."""
        started = {"outputs": list(self.outputs), "asked": self._asked}
        return {**started, "ended": self.decision is not None, **self._planned()}

    @classmethod
    def resumed(cls, policy: Decider, state: Mapping[str, Any]) -> Self:
        """Return the round that `state` described; nothing is decided or drawn again."""
        current = cls.__new__(cls)
        current._policy = policy
        current._asked = bool(state["asked"])
        current.outputs = list(state["outputs"])
        current.request = None
        current._restore(state)
        current.decision = current._decided() if state["ended"] else None
        return current

    def follow(self, ended: bool) -> None:
        """Continue, or end here, as a record says, where `next` has just decided otherwise.

        Another version may differ in the last bit of a number; the record counts.
        """
        self.decision = self._decided() if ended else None
        self._asked = not ended

    # -- a policy that knows the complete context decides at once ------------------------------

    def _plan(self, x: ArrayLike | None) -> None:
        self._x = copy(x)  # the caller may reuse a list or an array before this round has ended
        self._settled = self._policy.decide(self._x)

    def _planned(self) -> dict[str, Any]:
        settled = self._settled
        x = None if self._x is None else np.asarray(self._x, dtype=np.float64).tolist()
        return {"x": x, "stop": settled.stop, "rule_stop": settled.rule_stop}

    def _restore(self, state: Mapping[str, Any]) -> None:
        cascade, stop, rule_stop = self._policy.cascade, int(state["stop"]), int(state["rule_stop"])
        self._x = state["x"]
        explored_from = rule_stop if rule_stop < stop else None
        name, cost = cascade.names[stop], cascade.cost(stop)
        self._settled = Decision(stop, name, cost, explored_from=explored_from)

    def _stops(self) -> bool:
        return len(self.outputs) > self._settled.stop

    def _decided(self) -> Decision:
        return self._settled

    def _reveal(self, output: Hashable, revealed: Sequence[float]) -> None:
        del output
        if len(revealed):
            raise InvalidContextError(
                f"arm {len(self.outputs)} reveals {len(revealed)} numbers, but this policy sees "
                "the complete context from the start; to let it see more from stage to stage, give "
                "it features=Answers(reveals=...)"
            )

    def _learn_outputs(self) -> LabelRequest | None:
        rule_stop = self.rule_stop if self.rule_stop < len(self.outputs) - 1 else None
        return self._policy.observe(self._x, self.outputs, rule_stop=rule_stop)

    def __repr__(self) -> str:
        state = "in progress" if self.decision is None else str(self.decision)
        return f"RoundInProgress({len(self.outputs)} arms answered, {state})"
