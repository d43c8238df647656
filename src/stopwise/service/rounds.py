"""Reads what the log has of one round."""

import asyncio
from typing import TypeAlias

from stopwise.errors import StoreError
from stopwise.service.events import Event, Opened, Reported, decode
from stopwise.service.store.base import EventStore
from stopwise.service.writer import unavailable

RoundEvents: TypeAlias = tuple[Opened | None, Reported | None]


class RoundReader:
    """Looks up events through a connection of its own, one request at a time."""

    def __init__(self, store: EventStore) -> None:
        self._store = store
        self._turn = asyncio.Lock()

    async def events(self, opened_at: int, ended_at: int) -> RoundEvents:
        """Return how a round was opened and how it ended; None: not there, or not yet."""
        try:
            async with self._turn:
                await self._store.open()
                opened = await self._event(opened_at)
                ended = await self._event(ended_at) if ended_at else None
        except StoreError as error:
            raise unavailable(str(error)) from error
        return (
            opened if isinstance(opened, Opened) else None,
            ended if isinstance(ended, Reported) else None,
        )

    async def _event(self, position: int) -> Event | None:
        block = await self._store.block_of(position)
        return None if block is None else decode(block.payload)[position - block.base]

    async def close(self) -> None:
        """Close the connection."""
        await self._store.close()


def context_of(opened: Opened, reported: Reported | None, number: int) -> bytes:
    """Return all that is known of a round's context from its events."""
    if reported is not None and reported.context:
        return reported.context
    k, size = number - opened.first, len(opened.contexts) // opened.count
    return opened.contexts[k * size : (k + 1) * size]
