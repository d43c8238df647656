"""Fixtures: upstreams with real models, and faulty ones."""

from collections.abc import Iterator

import pytest

from examples.proxy_upstreams import Upstream, classifiers
from tests.proxy.proxy_harness import FaultyUpstream, ScriptedUpstream


@pytest.fixture(scope="session")
def models() -> Iterator[list[Upstream]]:
    """A keyword rule, a linear model and a neural network, each with its own server."""
    servers = [Upstream(classify) for classify in classifiers()]
    yield servers
    for server in servers:
        server.close()


@pytest.fixture(scope="session")
def faulty() -> Iterator[FaultyUpstream]:
    server = FaultyUpstream()
    yield server
    server.close()


@pytest.fixture
def scripted() -> Iterator[ScriptedUpstream]:
    server = ScriptedUpstream()
    yield server
    server.close()
