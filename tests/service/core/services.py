"""Run services in the event loop of a test, and compare states."""

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
    """A real store whose next commits can be delayed, or fail before or after they are stored."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.before = 0  # number of the next commits that fail before they are stored
        self.after = 0  # number of the next commits that fail after they are stored
        self.allowed = asyncio.Event()  # commits wait for this event
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
    """Replay a log from its start or from a snapshot; return the state."""
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
    """Return the answer of a request, and check that it changed nothing."""
    before = state_hash(service.state)
    answer = await request
    assert state_hash(service.state) == before, f"{answer} changed the state"
    return answer


async def refused(service: Service, request: Awaitable[object], *codes: str) -> RequestError:
    """Check that a request fails with one of the codes and changes nothing; return the error."""

    async def raised() -> RequestError:
        with pytest.raises(RequestError) as caught:
            await request
        return caught.value

    error = await unchanged(service, raised())
    assert error.code in codes, error
    return error


def bits_of(policy: sw.Policy) -> dict[str, Any]:
    """Return the parameters and the state of a policy in a form that compares bit for bit."""
    state = policy.state().items()
    return policy.parameters() | {k: (x.dtype, x.shape, x.tobytes()) for k, x in state}
