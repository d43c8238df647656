"""Both clients behind one function, and a real service."""

import asyncio
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import stopwise as sw
from tests.service.harness import Served, served


def blocking(url: str, **options: Any) -> Callable[..., Any]:
    def call(method: str, *args: Any, **more: Any) -> Any:
        with sw.Client(url, **options) as client:
            return getattr(client, method)(*args, **more)

    return call


def awaiting(url: str, **options: Any) -> Callable[..., Any]:
    def call(method: str, *args: Any, **more: Any) -> Any:
        async def main() -> Any:
            async with sw.AsyncClient(url, **options) as client:
                return await getattr(client, method)(*args, **more)

        return asyncio.run(main())

    return call


@pytest.fixture(params=[blocking, awaiting], ids=["Client", "AsyncClient"])
def connect(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Return a function that calls a method of a client: ``connect(url)("open", name, x)``."""
    return request.param


@pytest.fixture(autouse=True)
def no_stopwise_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("STOPWISE_")]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service shared by all tests; each uses its own cascade names."""
    with served(tmp_path_factory.mktemp("service")) as running:
        yield running
