"""A service behind a real server on loopback, in a thread of the test."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from time import sleep
from typing import Any

import httpx
import uvicorn

from stopwise.service.http.app import make_app
from stopwise.service.http.protocol import Protocol
from stopwise.service.service import Service
from stopwise.service.settings import Settings
from stopwise.service.store.opening import open_store


@contextmanager
def served(folder: Path, **settings: Any) -> Iterator[str]:
    """Serve a log in a folder; yield the address."""
    asked = Settings(**{"store": str(folder / "log.db"), **settings})
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{door.getsockname()[1]}"
        config = uvicorn.Config(
            make_app(Service(open_store(asked.store), asked), asked),
            http=Protocol,
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
        )
        server = uvicorn.Server(config)
        thread = Thread(target=server.run, kwargs={"sockets": [door]})
        thread.start()
        try:
            while not (server.started and httpx.get(f"{address}/readyz").is_success):
                assert thread.is_alive()
                sleep(0.01)
            yield address
        finally:
            server.should_exit = True
            thread.join()
