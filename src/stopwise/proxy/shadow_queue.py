"""Queue of shadow rounds, limited in number and bytes."""

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from stopwise.proxy.chat import Answer, ChatRequest

if TYPE_CHECKING:
    from stopwise.proxy.chat_run import ServedCascade


class ShadowRound(NamedTuple):
    """A request and its answer, kept encoded because decoding them takes many times the memory."""

    cascade: "ServedCascade"
    request: bytes
    answer: bytes
    cost: float

    @property
    def size(self) -> int:
        """Size of the request and the answer in bytes."""
        return len(self.request) + len(self.answer)

    def decoded(self) -> tuple[ChatRequest, Answer]:
        """Decode the request and the answer."""
        return ChatRequest(self.request), Answer(self.answer, self.cost)


class ShadowQueue:
    """Queue that rejects rounds beyond its limits; running rounds count toward ``max_bytes``.

    Examples
    --------
    >>> queue = ShadowQueue(max_rounds=200, max_bytes=1000)
    >>> queue.put(ShadowRound(None, bytes(400), bytes(500), 0.0))
    True
    >>> queue.put(ShadowRound(None, bytes(100), b"x", 0.0)), queue.held
    (False, 900)
    """

    def __init__(self, max_rounds: int, max_bytes: int) -> None:
        self.held = 0  # bytes of the waiting and running rounds
        self._max_bytes = max_bytes
        self._waiting: asyncio.Queue[ShadowRound] = asyncio.Queue(max_rounds)

    def put(self, shadow_round: ShadowRound) -> bool:
        """Add a round if there is room for it; return whether it was added."""
        if self._waiting.full() or self.held + shadow_round.size > self._max_bytes:
            return False
        self.held += shadow_round.size
        self._waiting.put_nowait(shadow_round)
        return True

    async def get(self) -> ShadowRound:
        """Wait for the oldest round and remove it from the queue; call `done` once it has run."""
        return await self._waiting.get()

    def done(self, shadow_round: ShadowRound) -> None:
        """Release the bytes of a round that has run."""
        self.held -= shadow_round.size
