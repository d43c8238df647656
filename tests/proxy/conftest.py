"""Upstreams with real models behind them."""

from collections.abc import Iterator

import pytest

from examples.proxy_upstreams import Upstream, classifiers
from tests.proxy.harness import Misbehaving, Scripted


@pytest.fixture(scope="session")
def models() -> Iterator[list[Upstream]]:
    """A keyword rule, a linear model and a neural network, each behind a server of its own."""
    servers = [Upstream(classify) for classify in classifiers()]
    yield servers
    for server in servers:
        server.close()


@pytest.fixture(scope="session")
def bad() -> Iterator[Misbehaving]:
    server = Misbehaving()
    yield server
    server.close()


@pytest.fixture
def scripted() -> Iterator[Scripted]:
    server = Scripted()
    yield server
    server.close()
