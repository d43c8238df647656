"""Both clients, and a real service."""

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.client.both_clients import CLIENTS
from tests.service.harness import Served, served


@pytest.fixture(params=CLIENTS.values(), ids=list(CLIENTS))
def connect(request: pytest.FixtureRequest) -> Callable[..., Any]:
    return request.param


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("STOPWISE_")]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service that tests share, each with cascades of its own names."""
    with served(tmp_path_factory.mktemp("service")) as running:
        yield running
