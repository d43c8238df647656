"""A round taken step by step: which arm to run next, or to stop."""

from collections.abc import Hashable, Sequence
from copy import copy
from typing import TYPE_CHECKING, cast

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

    # -- a policy that knows the whole context decides at once ---------------------------------

    def _plan(self) -> None:
        self._settled = self._policy.decide(cast(ArrayLike, self._x))

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
        self._policy.observe(cast(ArrayLike, self._x), self.outputs, wanted=self.wanted)

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
