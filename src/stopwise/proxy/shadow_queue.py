"""Queue of the requests that wait to run in shadow, bounded in number and bytes."""

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from stopwise.proxy.chat import Answer, Chat

if TYPE_CHECKING:
    from stopwise.proxy.turns import Live


class ShadowRound(NamedTuple):
    """A request and its answer, as bytes: decoded they would take several times as much memory."""

    live: "Live"
    request: bytes
    answer: bytes
    cost: float

    @property
    def size(self) -> int:
        """Its bytes."""
        return len(self.request) + len(self.answer)

    def decoded(self) -> tuple[Chat, Answer]:
        """Return the request and the answer."""
        return Chat(self.request), Answer(self.answer, self.cost)


class ShadowQueue:
    """Rounds that wait or run; one that does not fit is refused.

    Examples
    --------
    >>> queue = ShadowQueue(most=200, most_bytes=1000)
    >>> queue.put(ShadowRound(None, bytes(400), bytes(500), 0.0))
    True
    >>> queue.put(ShadowRound(None, bytes(100), b"x", 0.0)), queue.held
    (False, 900)
    """

    def __init__(self, most: int, most_bytes: int) -> None:
        self.held = 0  # bytes of the rounds that wait or run
        self._most_bytes = most_bytes
        self._waiting: asyncio.Queue[ShadowRound] = asyncio.Queue(most)

    def put(self, one: ShadowRound) -> bool:
        """Add a round; return whether there was room."""
        if self._waiting.full() or self.held + one.size > self._most_bytes:
            return False
        self.held += one.size
        self._waiting.put_nowait(one)
        return True

    async def get(self) -> ShadowRound:
        """Return the oldest round once there is one; `done` must follow."""
        return await self._waiting.get()

    def done(self, one: ShadowRound) -> None:
        """Release the bytes of a round that has run."""
        self.held -= one.size
