"""Both clients called in the same way, so that a test says once what both must do."""

import asyncio
from collections.abc import Callable
from typing import Any

import stopwise as sw

Call = Callable[..., Any]


def blocking(url: str, **options: Any) -> Call:
    def call(method: str, *args: Any, **more: Any) -> Any:
        with sw.Client(url, **options) as client:
            return getattr(client, method)(*args, **more)

    return call


def awaiting(url: str, **options: Any) -> Call:
    def call(method: str, *args: Any, **more: Any) -> Any:
        async def main() -> Any:
            async with sw.AsyncClient(url, **options) as client:
                return await getattr(client, method)(*args, **more)

        return asyncio.run(main())

    return call


CLIENTS = {"Client": blocking, "AsyncClient": awaiting}
