"""Services in the event loop of a test, and comparisons of states."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import stopwise as sw
from stopwise.errors import StoreError
from stopwise.service.domain.errors import RequestError
from stopwise.service.domain.state import State
from stopwise.service.persistence.blocks import Block, apply_block
from stopwise.service.persistence.snapshots import restore_snapshot, state_hash
from stopwise.service.persistence.stores.base import EventStore, Snapshot
from stopwise.service.persistence.stores.opening import open_store
from stopwise.service.persistence.stores.sqlite import SqliteStore
from stopwise.service.service import Service
from stopwise.service.settings import Settings


class FailingStore(SqliteStore):
    """A real store whose next commits are slow, or fail before or after they are made."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.before = self.after = 0  # how many of the next commits fail
        self.allowed = asyncio.Event()  # commits wait for it
        self.allowed.set()

    async def commit(self, block: Block) -> None:
        await self.allowed.wait()
        if self.before:
            self.before -= 1
            self._last_event = None
            raise StoreError("the disk is full")
        await super().commit(block)
        if self.after:
            self.after -= 1
            self._last_event = None
            raise StoreError("the connection was lost")


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(120):
        while not condition():
            await asyncio.sleep(0.001)


@asynccontextmanager
async def running(
    where: str | Path, store: EventStore | None = None, **settings: Any
) -> AsyncIterator[Service]:
    """Run a service, by default on the store at ``where``."""
    service = Service(store or open_store(str(where)), Settings(store=str(where), **settings))
    await service.start()
    try:
        await until(lambda: service.ready or service.failed.done())
        assert service.ready
        yield service
    finally:
        await service.stop()


async def folded(where: str | Path, snapshot: Snapshot | None = None) -> State:
    """Return the state that a log gives, from its start or from a snapshot."""
    store = open_store(str(where))
    await store.open()
    try:
        state = State() if snapshot is None else restore_snapshot(snapshot)
        assert state is not None
        async for block in store.read(state.position):
            apply_block(state, block)
        return state
    finally:
        await store.close()


async def unchanged(service: Service, request: Awaitable[Any]) -> Any:
    """Return the answer of a request, having checked that it changed nothing."""
    before = state_hash(service.state)
    answer = await request
    assert state_hash(service.state) == before, f"{answer} has changed the state"
    return answer


async def refused(service: Service, request: Awaitable[object], *codes: str) -> RequestError:
    """Check that a request is refused with one of some codes, and that it changed nothing."""

    async def refusal() -> RequestError:
        with pytest.raises(RequestError) as caught:
            await request
        return caught.value

    found = await unchanged(service, refusal())
    assert found.code in codes, found
    return found


def bits_of(policy: sw.Policy) -> dict[str, Any]:
    """Return all that two policies have in common if they are equal, bit for bit."""
    state = policy.state().items()
    return policy.parameters() | {k: (x.dtype, x.shape, x.tobytes()) for k, x in state}
