"""Cascades that a replica loads when it is first asked about them."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from stopwise.errors import StopwiseError
from stopwise.service.recovery import recover_state
from stopwise.service.server_log import LOG
from stopwise.service.state import NotFollowed
from stopwise.service.store import open_store
from stopwise.service.writer import Writer, unavailable

T = TypeVar("T")


class Loading:
    """Repeats what asked about a cascade that was not followed, once it is."""

    def __init__(self, where: str, writer: Callable[[], Writer]) -> None:
        self._where = where
        self._writer = writer
        self._tasks: dict[str, asyncio.Task[None]] = {}  # by the name of the cascade

    async def __call__(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask; where a cascade is not followed, load it and ask again."""
        while True:
            try:
                return await ask()
            except NotFollowed as missing:
                name = missing.name
            if name not in self._tasks:
                self._tasks[name] = asyncio.create_task(self._load(name))
            await asyncio.shield(self._tasks[name])

    async def _load(self, name: str) -> None:
        """Read a cascade from the log, and follow it from then on; others are served meanwhile."""
        store = open_store(self._where)
        try:
            await store.open()
            state = await recover_state(store, follows=[name])
            await self._writer().follow(state, name)
            LOG.info("follows", extra={"cascade": name, "events": state.position})
        except StopwiseError as error:
            raise unavailable(str(error)) from error
        finally:
            del self._tasks[name]
            await store.close()
