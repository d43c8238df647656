"""A round taken step by step: which arm to run next, or to stop."""

from collections.abc import Hashable, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
from numpy.typing import ArrayLike

from stopwise.errors import InvalidContextError, InvalidOutputsError
from stopwise.records import Decision

if TYPE_CHECKING:
    from stopwise.policies.base import Policy


class Descent:
    """One round on its way down the cascade; made by `Policy.start`.

    Ask for the next arm, run it, give its output; when there is none left to run, learn. Other
    rounds may be under way meanwhile. A round whose stage failed may learn too: from the arms
    that answered.

    Attributes
    ----------
    outputs : list
        What the arms said so far.
    decision : Decision or None
        Where it ends, once `next` has said so.

    Examples
    --------
    >>> import stopwise as sw
    >>> policy = sw.USSPD(sw.Cascade(costs=[0.01, 0.3]), context_dim=2)
    >>> descent = policy.start([0.5, 1.0])
    >>> while (arm := descent.next()) is not None:
    ...     descent.give(["spam", "ham"][arm])
    >>> descent.learn()
    >>> descent.decision, policy.rounds
    (Decision(stop=1, arm='arm 1', cost=0.31), 1)
    """

    def __init__(self, policy: "Policy", x: ArrayLike | None) -> None:
        self._policy = policy
        self._x = copy(x)  # the caller may reuse a list or an array before this round has ended
        self._asked = False  # an arm was named and has not answered yet
        self._learned = False
        self.outputs: list[Hashable] = []
        self.decision: Decision | None = None
        self._plan()

    @property
    def context(self) -> tuple[float, ...]:
        """All that is known now: the context it began with, and what was revealed."""
        if self._x is None:  # a policy that looks at no context
            return ()
        return tuple(np.asarray(self._x, dtype=np.float64).ravel().tolist())

    @property
    def wanted(self) -> int:
        """Where the rule itself stops, as far as is known: chance may send a round further."""
        return self._settled.wanted

    def next(self) -> int | None:
        """Return the arm to run now, or None: stop here."""
        if self.decision is None and self._stops():
            self.decision = self._decided()
        if self.decision is not None:
            return None
        self._asked = True
        return len(self.outputs)

    def give(self, output: Hashable, revealed: Sequence[float] = ()) -> None:
        """Tell what the arm that `next` named has said.

        Parameters
        ----------
        output : hashable
            Compared with other outputs by equality.
        revealed : sequence of float
            What it adds to the context, where the features see more from stage to stage.
        """
        if not self._asked:
            raise InvalidOutputsError("no arm was asked: call next() before each give()")
        if not comparable(output):
            raise InvalidOutputsError(
                "an output must be hashable and equal to itself (a number, a string, a tuple …; "
                f"not NaN), which this {type(output).__name__} is not"
            )
        self._reveal(revealed)
        self.outputs.append(output)
        self._asked = False

    def learn(self) -> None:
        """Teach the policy what was given, once; nothing if no arm has answered."""
        if self._learned:
            raise InvalidOutputsError("this round was learned already")
        self._learned = True
        if self.outputs:
            self._teach()

    # -- a round that outlives its process -----------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return where this round stands, as plain values from which `Policy.resume` goes on.

        The outputs are returned as they were given; so is what chance has decided already.

        Examples
        --------
        >>> import stopwise as sw
        >>> policy = sw.FixedDepth(sw.Cascade(costs=[0.01, 0.3]), depth=1)
        >>> descent = policy.start([0.5])
        >>> descent.next()
        0
        >>> descent.give("spam")
        >>> policy.resume(descent.state()).next()
        1
        """
        return {
            "outputs": list(self.outputs),
            "asked": self._asked,
            "ended": self.decision is not None,
            **self._planned(),
        }

    @classmethod
    def resumed(cls, policy: "Policy", state: Mapping[str, Any]) -> Self:
        """Return the round that `state` saw; nothing is decided or drawn again."""
        descent = cls.__new__(cls)
        descent._policy = policy
        descent._learned = False
        descent._asked = bool(state["asked"])
        descent.outputs = list(state["outputs"])
        descent.decision = None
        descent._take_up(state)
        if state["ended"]:
            descent.decision = descent._decided()
        return descent

    def follow(self, ended: bool) -> None:
        """Go on, or end here, as a record says, where `next` has just said otherwise.

        A record made by another version may differ in the last bit of a number, and so once in a
        blue moon in a decision; what was done then is what counts.
        """
        self.decision = self._decided() if ended else None
        self._asked = not ended

    # -- a policy that knows the whole context decides at once ---------------------------------

    def _plan(self) -> None:
        self._settled = self._policy.decide(cast(ArrayLike, self._x))

    def _planned(self) -> dict[str, Any]:
        settled = self._settled
        x = None if self._x is None else np.asarray(self._x, dtype=np.float64).tolist()
        return {"x": x, "stop": settled.stop, "wanted": settled.wanted}

    def _take_up(self, state: Mapping[str, Any]) -> None:
        cascade, stop, wanted = self._policy.cascade, int(state["stop"]), int(state["wanted"])
        self._x = state["x"]
        sent_on_from = wanted if wanted < stop else -1
        self._settled = Decision(
            stop, cascade.names[stop], cascade.cost(stop), sent_on_from=sent_on_from
        )

    def _stops(self) -> bool:
        return len(self.outputs) > self._settled.stop

    def _decided(self) -> Decision:
        return self._settled

    def _reveal(self, revealed: Sequence[float]) -> None:
        if len(revealed):
            raise InvalidContextError(
                f"arm {len(self.outputs)} reveals {len(revealed)} numbers, but this policy sees "
                "the whole context from the start; to let it see more from stage to stage give it "
                "features=PerStage(maps, sees=[...])"
            )

    def _teach(self) -> None:
        by_chance = {"wanted": self.wanted} if self.wanted < len(self.outputs) - 1 else {}
        self._policy.observe(cast(ArrayLike, self._x), self.outputs, **by_chance)

    def __repr__(self) -> str:
        state = "under way" if self.decision is None else str(self.decision)
        return f"Descent({len(self.outputs)} arms answered, {state})"


def comparable(output: object) -> bool:
    """Say whether a value can be compared with others: hashable, and equal to itself.

    Examples
    --------
    >>> comparable("spam"), comparable(float("nan")), comparable([1])
    (True, False, False)
    """
    try:
        hash(output)
        return bool(output == output)
    except Exception:  # whatever a foreign type does when it is compared
        return False
