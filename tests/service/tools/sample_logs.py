"""Event logs written by a real service, for tests of the tools."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import psycopg

from stopwise.service.domain.messages import (
    Arm,
    BatchRequest,
    CascadeSpec,
    LabelReport,
    OutputsRequest,
    RoundAnswer,
    RoundRequest,
)
from stopwise.service.labels import report_label
from stopwise.service.persistence.blocks import Block
from stopwise.service.persistence.stores.base import EventStore
from stopwise.service.persistence.stores.opening import open_existing_store
from stopwise.service.service import Service
from tests.service.core.services import running

T = TypeVar("T")

ARMS = [Arm("rules", 0.05), Arm("model", 0.1), Arm("person", 0.3)]
COSTS = "0.05,0.1,0.3"
TRIAGE = CascadeSpec(
    "triage",
    ARMS,
    ["age", "fever"],
    policy={"kind": "uss-pd", "forced_rounds": 10, "sigma": 0.05, "explore": 0.2},
)
STAGED = CascadeSpec(
    "staged",
    ARMS,
    ["age"],
    features={"kind": "identity"},
    policy={"kind": "thompson", "forced_rounds": 5, "seed": 3, "reveals": 1},
)


def output_of(rng: np.random.Generator, context: list[float], arm: int) -> str:
    wrong = rng.random() < (0.3, 0.15, 0.02)[arm] * abs(context[-1])
    return "ill" if (context[0] > 0) != wrong else "healthy"


async def open_round(service: Service, context: list[float], name: str = "triage") -> RoundAnswer:
    (answer,), _ = await service.open_rounds(name, RoundRequest(context), None)
    return answer


async def play(service: Service, rounds: int, seed: int = 0, name: str = "triage") -> list[str]:
    """Open rounds and report their outputs, one after the other; return the ids."""
    rng = np.random.default_rng(seed)
    ids: list[str] = []
    for _ in range(rounds):
        context = rng.uniform(-1, 1, 2).tolist()
        opened = await open_round(service, context, name)
        await report(service, opened, lambda arm, x=context: output_of(rng, x, arm), name)
        ids.append(opened.id)
    return ids


async def report(
    service: Service, opened: RoundAnswer, output: Callable[[int], Any], name: str = "triage"
) -> str:
    """Report the outputs of a round up to its stop; return its status."""
    assert opened.stop is not None
    outputs = [output(arm) for arm in range(opened.stop + 1)]
    return (await service.report(name, opened.id, OutputsRequest(outputs))).status


async def play_sample(service: Service, seed: int = 0) -> None:
    """Create two cascades, and open, report, label and abandon rounds."""
    await service.create(TRIAGE, "create triage")
    await service.create(STAGED, None)
    ids = await play(service, 25, seed)
    for id_ in ids[:4]:
        await report_label(service, "triage", id_, LabelReport("ill"))
    rng = np.random.default_rng(seed + 1)
    contexts = rng.uniform(-1, 1, (5, 2)).tolist()
    batch, _ = await service.open_rounds("triage", BatchRequest(contexts), "a batch")
    waiting, early, complete, silent, *_ = sorted(batch, key=lambda opened: opened.stop == 0)
    assert early.stop  # `waiting` and another round stay open
    await service.report("triage", waiting.id, OutputsRequest([None, "ill"]))
    await report(service, complete, lambda arm: "ill")
    await service.report("triage", early.id, OutputsRequest(["ill"], final=True))
    await service.report("triage", silent.id, OutputsRequest([], final=True))
    for k in range(8):
        context = rng.uniform(-1, 1, 3).tolist()
        answer = await open_round(service, context[:1], "staged")
        while answer.next is not None:
            arm = answer.next
            if k == 7 and arm == 1:
                answer = await service.report("staged", answer.id, OutputsRequest([], final=True))
                break
            output: dict[str, Any] = {ARMS[arm].name: output_of(rng, context, arm)}
            request = OutputsRequest(output, revealed=context[arm + 1 : arm + 2])
            answer = await service.report("staged", answer.id, request)


def write_sample(where: str, **settings: Any) -> str:
    """Write a sample log with a real service; return its state hash."""

    async def scenario() -> str:
        async with running(where, **settings) as service:
            await play_sample(service)
            return (await service.state_hash()).hash

    return asyncio.run(scenario())


async def blocks_of(store: EventStore) -> list[Block]:
    return [block async for block in store.read(0)]


async def using(where: str, work: Callable[[EventStore], Awaitable[T]]) -> T:
    """Run ``work`` on the store at an address."""
    async with open_existing_store(where) as store:
        return await work(store)


def change(where: str, statement: str, values: tuple[Any, ...] = ()) -> None:
    """Tamper with a log; tables are named as in SQLite."""
    if where.startswith("postgresql:"):
        text = statement.replace("?", "%s")
        for table in ("block", "snapshot"):
            text = text.replace(f" {table} ", f" stopwise_{table} ")
        with psycopg.connect(where, autocommit=True) as connection:
            assert connection.execute(text.encode(), values).rowcount > 0
    else:
        with sqlite3.connect(Path(where)) as connection:
            assert connection.execute(statement, values).rowcount > 0
        connection.close()
