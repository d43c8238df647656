"""Rounds that are decided step by step."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from copy import copy
from typing import Any, Protocol, Self, cast

import numpy as np
from numpy.typing import ArrayLike

from stopwise.arrays import Floats
from stopwise.checks import comparable, numbers, short_repr
from stopwise.engine import native
from stopwise.errors import InvalidContextError, InvalidOutputsError
from stopwise.features import BoundFeatures
from stopwise.records import Decision, LabelRequest


class Steps(Protocol):
    """How a policy decides a round; `RoundInProgress` calls it in the right order."""

    @property
    def context(self) -> tuple[float, ...]:
        """The context so far."""
        ...

    @property
    def rule_stop(self) -> int:
        """The arm at which the rule stops; until it decides to stop, the next arm."""
        ...

    def next(self) -> int | None:
        """Return the arm to run next, or None to stop."""
        ...

    def give(self, outputs: Sequence[Hashable], revealed: Sequence[float]) -> None:
        """Add the newest of ``outputs`` and what its arm revealed; if invalid, change nothing."""
        ...

    def run_all(self) -> None:
        """Run every arm, regardless of the rule."""
        ...

    def follow(self, ended: bool) -> None:
        """Stop at the current arm if ``ended``, otherwise continue, overriding `next`."""
        ...

    def decision(self) -> Decision:
        """Return the decision to stop at the current arm."""
        ...

    def learn(self, outputs: Sequence[Hashable]) -> LabelRequest | None:
        """Let the policy learn; return a label request, if any."""
        ...

    def state(self) -> dict[str, Any]:
        """Return the state as plain values."""
        ...


class RoundInProgress:
    """A round that is decided step by step; created by `Policy.start`.

    Call `next`, run the arm, and pass its output to `give`, until `next` returns None; then call
    `learn`. Several rounds may be in progress at once. If a stage fails, the round can still learn
    from the arms that answered. ``decision`` is set once `next` has returned None. ``request`` is
    set by `learn` if the policy requests the round's label (`Policy.label`).

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
        self._pending = False  # `next` returned an arm that has not answered yet
        self._learned = False
        self.outputs: list[Hashable] = []
        self.decision: Decision | None = None
        self.request: LabelRequest | None = None

    @property
    def context(self) -> tuple[float, ...]:
        """The context before the first arm, followed by the values revealed so far."""
        return self._steps.context

    @property
    def rule_stop(self) -> int:
        """The arm at which the rule stops; until it decides to stop, the next arm.

        Some rounds continue beyond this arm at random.
        """
        return self._steps.rule_stop

    @property
    def wants_label(self) -> bool:
        """Whether the policy requests the round's label; always False before `learn`."""
        return self.request is not None

    def next(self) -> int | None:
        """Return the arm to run next, or None to stop."""
        if self.decision is not None:
            return None
        arm = self._steps.next()
        if arm is None:
            self.decision = self._steps.decision()
        self._pending = arm is not None
        return arm

    def give(self, output: Hashable, revealed: Sequence[float] = ()) -> None:
        """Add the output of the arm that `next` returned, and the values that it revealed."""
        if not self._pending:
            raise InvalidOutputsError("call next() before each give()")
        if not comparable(output):
            raise InvalidOutputsError(
                "an output must be hashable and equal to itself (such as a number other than NaN, "
                f"a string or a tuple), got {short_repr(output)}"
            )
        self._steps.give([*self.outputs, output], revealed)
        self.outputs.append(output)
        self._pending = False

    def run_all(self) -> None:
        """Run every arm, regardless of the rule; `rule_stop` is still where the rule stops."""
        self._steps.run_all()

    def learn(self) -> None:
        """Let the policy learn from the outputs, if any; call it once per round."""
        if self._learned:
            raise InvalidOutputsError("learn() may be called only once per round")
        self._learned = True
        if self.outputs:
            self.request = self._steps.learn(self.outputs)

    def follow(self, ended: bool) -> None:
        """Stop at the current arm if ``ended``, otherwise continue, overriding the last `next`.

        Needed to replay records made by another version, whose decisions may differ by rounding.
        """
        self._steps.follow(ended)
        self.decision = self._steps.decision() if ended else None
        self._pending = not ended

    def state(self) -> dict[str, Any]:
        """Return the state of the round as plain values, for `Policy.resume`."""
        return {
            "outputs": list(self.outputs),
            "asked": self._pending,
            "ended": self.decision is not None,
            "learned": self._learned,
            "steps": self._steps.state(),
        }

    @classmethod
    def resumed(cls, steps: Steps, state: Mapping[str, Any]) -> Self:
        """Restore a round from `state`; nothing is decided or drawn again."""
        current = cls(steps)
        current._pending = bool(state["asked"])
        current._learned = bool(state["learned"])
        current.outputs = list(state["outputs"])
        current.decision = steps.decision() if state["ended"] else None
        return current

    def __repr__(self) -> str:
        state = "in progress" if self.decision is None else str(self.decision)
        return f"RoundInProgress({len(self.outputs)} arms answered, {state})"


class Decider(Protocol):
    """A policy that decides each round from its complete context."""

    def decide(self, x: ArrayLike, /) -> Decision:
        """Return how deep to go."""
        ...

    def observe(
        self, x: ArrayLike, outputs: Sequence[Hashable], /, *, rule_stop: int | None = None
    ) -> LabelRequest | None:
        """Learn from the outputs."""
        ...


class DecidedSteps:
    """Steps of a round that is decided before the first arm, from its complete context."""

    def __init__(self, policy: Decider, x: ArrayLike | None, decision: Decision) -> None:
        self._policy = policy
        self._x = copy(x)  # the caller may modify a list or an array before the round ends
        self._decision = decision
        self._answered = 0

    @classmethod
    def resumed(cls, policy: Decider, decision: Decision, state: Mapping[str, Any]) -> Self:
        """Restore steps from `state`."""
        steps = cls(policy, state["x"], decision)
        steps._answered = int(state["answered"])
        return steps

    @property
    def context(self) -> tuple[float, ...]:
        """The context; empty for a policy without contexts."""
        if self._x is None:
            return ()
        return tuple(np.asarray(self._x, dtype=np.float64).ravel().tolist())

    @property
    def rule_stop(self) -> int:
        """The arm at which the rule stops."""
        return self._decision.rule_stop

    def next(self) -> int | None:
        """Return the arm to run next, or None to stop."""
        return None if self._answered > self._decision.stop else self._answered

    def give(self, outputs: Sequence[Hashable], revealed: Sequence[float]) -> None:
        """Count the newest output; raise if its arm revealed values."""
        if len(revealed):
            raise _nothing_revealed(self._answered, len(revealed))
        self._answered = len(outputs)

    def run_all(self) -> None:
        """Raise, because the policy has already decided before the first arm."""
        raise _decided_at_once()

    def follow(self, ended: bool) -> None:
        """Do nothing, because the recorded decision is already the stop."""

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
        """Return the state as plain values."""
        x = None if self._x is None else np.asarray(self._x, dtype=np.float64).tolist()
        return {
            "x": x,
            "stop": self._decision.stop,
            "rule_stop": self._decision.rule_stop,
            "answered": self._answered,
        }


class EngineSteps:
    """Steps of a round that the engine decides.

    ``decided`` turns the stop, the arm at which the rule stops and the trace into a decision.
    ``result`` turns the result of learning into a label request or None.
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
        """The context so far."""
        return self._context if self._features.stages is None else tuple(self._steps.context)

    @property
    def rule_stop(self) -> int:
        """The arm at which the rule stops; until it decides to stop, the next arm."""
        return self._steps.rule_stop

    def next(self) -> int | None:
        """Return the arm to run next, or None to stop."""
        return self._steps.next()

    def give(self, outputs: Sequence[Hashable], revealed: Sequence[float]) -> None:
        """Add the newest of ``outputs`` and the values that its arm revealed."""
        arm, code = len(outputs) - 1, outputs.index(outputs[-1])
        stages = self._features.stages
        if stages is None and len(revealed):
            raise _nothing_revealed(arm, len(revealed))
        if stages is None or arm == len(stages.reveals):  # no decision can use them
            self._steps.add_output(code, [])
            return
        values = flat_numbers(revealed, "revealed")
        if len(values) != stages.reveals[arm]:
            raise InvalidContextError(
                f"arm {arm} must reveal {stages.reveals[arm]} values, as set by reveals=, got "
                f"{len(values)}"
            )
        invalid = self._steps.add_output(code, values.tolist())
        if invalid is not None:
            self._features.raise_invalid(np.array([*self._steps.context, *values]), *invalid)

    def run_all(self) -> None:
        """Run every arm, regardless of the rule."""
        if self._features.stages is None:
            raise _decided_at_once()
        self._steps.run_all()

    def follow(self, ended: bool) -> None:
        """Stop at the current arm if ``ended``, otherwise continue, overriding `next`."""
        self._steps.set_ended(ended)

    def decision(self) -> Decision:
        """Return the decision to stop at the current arm."""
        trace = self._steps.trace
        if self._features.stages is None:
            return self._decided(trace.stop, trace.rule_stop, trace)
        return self._decided(self._steps.answered - 1, self._steps.rule_stop, trace)

    def learn(self, outputs: Sequence[Hashable]) -> LabelRequest | None:
        """Let the engine learn; return a label request, if any."""
        return self._result(self._steps.learn())

    def state(self) -> dict[str, Any]:
        """Return the state as plain values."""
        return {
            "context": list(self._context),
            "round": self._steps.state(),
            "trace": self._steps.trace.__getstate__(),
        }


def _nothing_revealed(arm: int, n: int) -> InvalidContextError:
    return InvalidContextError(
        f"arm {arm} revealed {n} values, but this policy has the complete context from the start; "
        "to use revealed values, create the policy with reveals= (the number of values that each "
        "stage adds)"
    )


def _decided_at_once() -> InvalidContextError:
    return InvalidContextError(
        "run_all requires a policy created with reveals=; this one decided before the first arm"
    )


def flat_numbers(values: ArrayLike | None, name: str = "a context") -> Floats:
    """Return a context, or part of one, as a flat array."""
    array = numbers(name, () if values is None else values, InvalidContextError)
    if array.ndim != 1 or not np.isfinite(array).all():
        raise InvalidContextError(f"{name} must be a flat list of finite numbers, got {values!r}")
    return array
