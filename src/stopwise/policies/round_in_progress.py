"""A round in progress: which arm to run next, or to stop."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from copy import copy
from typing import Any, Protocol, Self, cast

import numpy as np
from numpy.typing import ArrayLike

from stopwise.arrays import Floats
from stopwise.checks import comparable, numbers
from stopwise.engine import native
from stopwise.errors import InvalidContextError, InvalidOutputsError
from stopwise.features import BoundFeatures
from stopwise.records import Decision, LabelRequest


class Steps(Protocol):
    """How a policy decides one round; `RoundInProgress` asks it in the right order."""

    @property
    def context(self) -> tuple[float, ...]:
        """What is known now."""
        ...

    @property
    def rule_stop(self) -> int:
        """Where the rule itself stops, as far as is known."""
        ...

    def next(self) -> int | None:
        """Return the arm to run now, or None: stop here."""
        ...

    def give(self, outputs: Sequence[Hashable], revealed: Sequence[float]) -> None:
        """Add the last of the outputs, and what it reveals; change nothing if these are invalid."""
        ...

    def run_all(self) -> None:
        """Run every arm, whatever the rule says."""
        ...

    def follow(self, ended: bool) -> None:
        """End here, or go on, whatever `next` has decided."""
        ...

    def decision(self) -> Decision:
        """Return the decision of a round that ends here."""
        ...

    def learn(self, outputs: Sequence[Hashable]) -> LabelRequest | None:
        """Let the policy learn; return a request if it wants the label."""
        ...

    def state(self) -> dict[str, Any]:
        """Return all of this as plain values."""
        ...


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

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._asked = False  # an arm was named and has not answered yet
        self._learned = False
        self.outputs: list[Hashable] = []
        self.decision: Decision | None = None
        self.request: LabelRequest | None = None

    @property
    def context(self) -> tuple[float, ...]:
        """All that is known now: the context it began with, and what was revealed."""
        return self._steps.context

    @property
    def rule_stop(self) -> int:
        """Where the rule itself stops, as far as is known: some rounds go further at random."""
        return self._steps.rule_stop

    @property
    def wants_label(self) -> bool:
        """Whether the policy asks for the right answer, once the round was learned."""
        return self.request is not None

    def next(self) -> int | None:
        """Return the arm to run now, or None: stop here."""
        if self.decision is not None:
            return None
        arm = self._steps.next()
        if arm is None:
            self.decision = self._steps.decision()
        self._asked = arm is not None
        return arm

    def give(self, output: Hashable, revealed: Sequence[float] = ()) -> None:
        """Give the output of the arm that `next` named, and what it adds to the context."""
        if not self._asked:
            raise InvalidOutputsError("no arm was asked: call next() before each give()")
        if not comparable(output):
            raise InvalidOutputsError(
                "an output must be hashable and equal to itself (a number, a string, a tuple …; "
                f"not NaN), which this {type(output).__name__} is not"
            )
        self._steps.give([*self.outputs, output], revealed)
        self.outputs.append(output)
        self._asked = False

    def run_all(self) -> None:
        """Run every arm, whatever the rule says; `rule_stop` says where it would have stopped."""
        self._steps.run_all()

    def learn(self) -> None:
        """Let the policy learn from the outputs, once; nothing if no arm has answered."""
        if self._learned:
            raise InvalidOutputsError("this round was learned already")
        self._learned = True
        if self.outputs:
            self.request = self._steps.learn(self.outputs)

    def follow(self, ended: bool) -> None:
        """Continue, or end here, as a record says, where `next` has just decided otherwise.

        Another version may differ in the last bit of a number; the record counts.
        """
        self._steps.follow(ended)
        self.decision = self._steps.decision() if ended else None
        self._asked = not ended

    def state(self) -> dict[str, Any]:
        """Return this round as plain values, from which `Policy.resume` continues."""
        return {
            "outputs": list(self.outputs),
            "asked": self._asked,
            "ended": self.decision is not None,
            "learned": self._learned,
            "steps": self._steps.state(),
        }

    @classmethod
    def resumed(cls, steps: Steps, state: Mapping[str, Any]) -> Self:
        """Return the round that `state` described; nothing is decided or drawn again."""
        current = cls(steps)
        current._asked = bool(state["asked"])
        current._learned = bool(state["learned"])
        current.outputs = list(state["outputs"])
        current.decision = steps.decision() if state["ended"] else None
        return current

    def __repr__(self) -> str:
        state = "in progress" if self.decision is None else str(self.decision)
        return f"RoundInProgress({len(self.outputs)} arms answered, {state})"


class Decider(Protocol):
    """A policy that decides a round by its complete context."""

    def decide(self, x: ArrayLike, /) -> Decision:
        """Return how deep to go."""
        ...

    def observe(
        self, x: ArrayLike, outputs: Sequence[Hashable], /, *, rule_stop: int | None = None
    ) -> LabelRequest | None:
        """Learn from the outputs."""
        ...


class DecidedSteps:
    """The steps of a policy that decides by the complete context, before the first arm."""

    def __init__(self, policy: Decider, x: ArrayLike | None, decision: Decision) -> None:
        self._policy = policy
        self._x = copy(x)  # the caller may reuse a list or an array before this round has ended
        self._decision = decision
        self._answered = 0

    @classmethod
    def resumed(cls, policy: Decider, decision: Decision, state: Mapping[str, Any]) -> Self:
        """Return the steps that `state` described."""
        steps = cls(policy, state["x"], decision)
        steps._answered = int(state["answered"])
        return steps

    @property
    def context(self) -> tuple[float, ...]:
        """The context; empty for a policy that looks at none."""
        if self._x is None:
            return ()
        return tuple(np.asarray(self._x, dtype=np.float64).ravel().tolist())

    @property
    def rule_stop(self) -> int:
        """Where the rule itself stops."""
        return self._decision.rule_stop

    def next(self) -> int | None:
        """Return the arm to run now, or None: stop here."""
        return None if self._answered > self._decision.stop else self._answered

    def give(self, outputs: Sequence[Hashable], revealed: Sequence[float]) -> None:
        """Count the output; nothing can be revealed."""
        if len(revealed):
            raise _nothing_revealed(self._answered, len(revealed))
        self._answered = len(outputs)

    def run_all(self) -> None:
        """Refuse: the policy has decided already."""
        raise _decided_at_once()

    def follow(self, ended: bool) -> None:
        """Do nothing: what a record says is where the round ends."""
        del ended

    def decision(self) -> Decision:
        """Return the decision."""
        return self._decision

    def learn(self, outputs: Sequence[Hashable]) -> LabelRequest | None:
        """Let the policy learn."""
        x = cast(ArrayLike, self._x)
        if self.rule_stop < len(outputs) - 1:
            return self._policy.observe(x, outputs, rule_stop=self.rule_stop)
        return self._policy.observe(x, outputs)

    def state(self) -> dict[str, Any]:
        """Return all of this as plain values."""
        x = None if self._x is None else np.asarray(self._x, dtype=np.float64).tolist()
        return {
            "x": x,
            "stop": self._decision.stop,
            "rule_stop": self._decision.rule_stop,
            "answered": self._answered,
        }


class EngineSteps:
    """The steps of a round that the engine decides.

    ``decided`` makes the decision of a round from its stop, the rule's own stop and the trace,
    ``result`` the request for a label from what came of learning.
    """

    def __init__(
        self,
        context: tuple[float, ...],
        steps: native.Round,
        features: BoundFeatures,
        *,
        decided: Callable[[int, int, native.Trace], Decision],
        result: Callable[[native.Learned], LabelRequest | None],
    ) -> None:
        self._context = context  # at the start
        self._steps = steps
        self._features = features
        self._decided = decided
        self._result = result

    @property
    def context(self) -> tuple[float, ...]:
        """What is known now."""
        return self._context if self._features.stages is None else tuple(self._steps.context)

    @property
    def rule_stop(self) -> int:
        """Where the rule itself stops, as far as is known."""
        return self._steps.rule_stop

    def next(self) -> int | None:
        """Return the arm to run now, or None: stop here."""
        return self._steps.next()

    def give(self, outputs: Sequence[Hashable], revealed: Sequence[float]) -> None:
        """Add the last of the outputs, and what it reveals."""
        arm, code = len(outputs) - 1, outputs.index(outputs[-1])
        stages = self._features.stages
        if stages is None and len(revealed):
            raise _nothing_revealed(arm, len(revealed))
        if stages is None or arm == len(stages.reveals):  # nothing is left to decide by it
            self._steps.give(code, [])
            return
        given = flat_numbers(revealed, "revealed")
        if len(given) != stages.reveals[arm]:
            raise InvalidContextError(
                f"arm {arm} reveals {stages.reveals[arm]} numbers, as the policy was told; these "
                f"are {len(given)}"
            )
        refused = self._steps.give(code, given.tolist())
        if refused is not None:
            self._features.raise_invalid(np.array([*self._steps.context, *given]), *refused)

    def run_all(self) -> None:
        """Run every arm, whatever the rule says."""
        if self._features.stages is None:
            raise _decided_at_once()
        self._steps.run_all()

    def follow(self, ended: bool) -> None:
        """End here, or go on, whatever `next` has decided."""
        self._steps.follow(ended)

    def decision(self) -> Decision:
        """Return the decision of a round that ends here."""
        trace = self._steps.trace
        if self._features.stages is None:
            return self._decided(trace.stop, trace.rule_stop, trace)
        return self._decided(self._steps.answered - 1, self._steps.rule_stop, trace)

    def learn(self, outputs: Sequence[Hashable]) -> LabelRequest | None:
        """Let the engine learn; return a request if it wants the label."""
        del outputs  # the engine knows which are equal
        return self._result(self._steps.learn())

    def state(self) -> dict[str, Any]:
        """Return all of this as plain values."""
        return {
            "context": list(self._context),
            "round": self._steps.state(),
            "trace": self._steps.trace.__getstate__(),
        }


def _nothing_revealed(arm: int, n: int) -> InvalidContextError:
    return InvalidContextError(
        f"arm {arm} reveals {n} numbers, but this policy sees the complete context from the start; "
        "to let it see more from stage to stage, create it with reveals=, how many numbers each "
        "stage adds"
    )


def _decided_at_once() -> InvalidContextError:
    return InvalidContextError("run_all is for rounds whose stages reveal the context")


def flat_numbers(values: ArrayLike | None, name: str = "a context") -> Floats:
    """Return a context, or a part of it, as a flat array."""
    known = numbers(name, () if values is None else values, InvalidContextError)
    if known.ndim != 1 or not np.isfinite(known).all():
        raise InvalidContextError(f"{name} is a flat list of finite numbers, not {values!r}")
    return known
