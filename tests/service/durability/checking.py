"""Compares the log with what was acknowledged to clients, and with Stopwise without any service."""

import asyncio
import json
from collections import Counter
from typing import Any

import numpy as np

import stopwise as sw
from stopwise.service.events import (
    START,
    Created,
    Event,
    Labelled,
    Opened,
    Reported,
    Retired,
    chained,
    decode,
)
from stopwise.service.recovery import recovered
from stopwise.service.store import open_store
from tests.service.core.services import check_same
from tests.service.durability.cascades import policies
from tests.service.durability.clients import Connection, Load, Record


async def events_of(where: str) -> list[Event]:
    """Read the whole log, and check that it has no gap and no change."""
    store = open_store(where)
    await store.open()
    try:
        position, digest, events = 0, START, list[Event]()
        async for block in store.read(0):
            digest = chained(digest, block.payload)
            assert (block.base, block.digest) == (position + 1, digest)
            here = decode(block.payload)
            assert len(here) == block.count
            events += here
            position = block.end
        assert await store.end() == (position, digest)
    finally:
        await store.close()
    return events


class Replayed:
    """One cascade by its events: the rounds, and a policy fed through the public interface."""

    def __init__(self, policy: sw.Policy) -> None:
        self.policy = policy
        self.contexts: list[list[float]] = []
        self.stops: list[int] = []  # -1: not known
        self.rule_stops: list[int] = []
        self.keys: list[str] = []  # of the rounds
        self.requests: Counter[str] = Counter()  # by their key
        self.reported: dict[int, dict[int, str]] = {}
        self.ended: Counter[int] = Counter()
        self.labels: dict[int, str] = {}
        self.descents: dict[int, sw.Descent] = {}

    def apply(self, event: Event) -> None:
        match event:
            case Opened():
                self._open(event)
            case Reported():
                self._report(event)
            case Labelled():
                self._label(event)
            case _:
                raise AssertionError(event)

    def _open(self, event: Opened) -> None:
        assert event.first == len(self.stops)
        assert event.key is not None  # the clients always send one
        self.requests[event.key] += 1
        self.keys += [event.key] * event.count
        rows = np.frombuffer(event.contexts).reshape(event.count, -1).tolist()
        self.contexts += rows
        if not event.stops:
            descent = self.descents[event.first] = self.policy.start(rows[0])
            assert (event.count, descent.next()) == (1, 0)
            self.stops.append(-1)
            self.rule_stops.append(-1)
            return
        decisions = [self.policy.decide(row) for row in rows]
        rule_stops = [decision.wanted for decision in decisions]
        assert [decision.stop for decision in decisions] == list(event.stops)
        assert rule_stops == list(event.rule_stops or event.stops)
        self.stops += list(event.stops)
        self.rule_stops += rule_stops

    def _report(self, event: Reported) -> None:
        number, known = event.number, self.reported.setdefault(event.number, {})
        given = {arm: json.loads(o) for arm, o in zip(event.arms, event.outputs, strict=True)}
        assert not self.ended[number]
        if event.ended:
            assert list(given) == list(range(len(given)))
            assert all(given.get(arm, output) == output for arm, output in known.items())
            self.ended[number] += 1
        else:
            assert given
            assert not given.keys() & known.keys()  # nothing is taken twice
        new = [arm for arm in given if arm not in known]
        known |= given
        descent = self.descents.get(number)
        if descent is None:
            if event.ended:
                assert event.early == (len(given) <= self.stops[number])
            if given and event.ended:
                wanted = self.rule_stops[number]
                outputs = list(given.values())
                self.policy.observe(self.contexts[number], outputs, wanted=wanted)
            return
        revealed = np.frombuffer(event.revealed).tolist()
        for arm in new:
            assert arm == len(descent.outputs)
            descent.give(given[arm], revealed)
            assert (descent.next() is None) == (event.ended and not event.early)
        if event.ended:
            assert np.frombuffer(event.context).tolist() == list(descent.context)
            self.contexts[number] = list(descent.context)
            self.stops[number], self.rule_stops[number] = len(given) - 1, descent.wanted
            descent.learn()

    def _label(self, event: Labelled) -> None:
        number = event.number
        assert number not in self.labels
        assert self.ended[number] == 1
        label = self.labels[number] = json.loads(event.label)
        outputs = tuple(json.loads(output) for output in event.outputs)
        known = self.reported[number]
        assert outputs == tuple(known[arm] for arm in range(len(outputs)))
        context, wanted = tuple(self.contexts[number]), self.rule_stops[number]
        done = sw.Round("", 0.0, context, outputs, outputs, len(outputs) - 1, wanted)
        self.policy.audit(done, label)


def replayed(events: list[Event]) -> dict[str, Replayed]:
    """Apply the events to policies that know nothing of a service."""
    made, order, found = policies(), list[str](), dict[str, Replayed]()
    for event in events:
        assert not isinstance(event, Retired)
        if isinstance(event, Created):
            order.append(event.spec.name)
            found[event.spec.name] = Replayed(made[event.spec.name])
        else:
            found[order[event.cascade]].apply(event)
    assert sorted(order) == sorted(made)  # each created once
    return found


def check_record(found: dict[str, Replayed], record: Record) -> None:
    """Check that the log has all that was acknowledged, once, and nothing that nobody sent."""
    for (cascade, id_), one in record.rounds.items():
        there, number = found[cascade], int(id_.partition("-")[0])
        assert one.stop in (None, there.stops[number])
        assert there.contexts[number][: len(one.context)] == one.context
        assert there.keys[number] == one.key
        reported = there.reported.get(number, {})
        assert {arm: one.outputs[arm] for arm in reported} == reported
        if one.status == "learned":
            assert there.ended[number] == 1
            assert list(range(len(one.known))) == sorted(reported)[: len(one.known)]
        else:
            assert one.reported.items() <= reported.items()
        if one.label is not None:
            assert there.labels[number] == one.label
    for there in found.values():
        assert max(there.requests.values(), default=0) <= 1  # no key opened rounds twice
        assert there.requests.keys() <= record.keys
        assert max(there.ended.values(), default=0) <= 1  # nothing was learned twice


async def check_state(where: str, found: dict[str, Replayed]) -> str:
    """Check that the service recovers the state of the policies fed by hand, bit for bit.

    Returns the hash of that state, which every server must have too.
    """
    store = open_store(where)
    await store.open()
    try:
        from_snapshot = await recovered(store)
        from_start = await recovered(store, snapshots=False)
    finally:
        await store.close()
    assert from_snapshot.hash() == from_start.hash()
    assert from_snapshot.position == from_start.position
    for name, there in found.items():
        for state in (from_snapshot, from_start):
            learner = state.cascades[name]
            assert learner.divergences == 0
            assert list(learner.ledger.stops) == there.stops
            assert list(learner.ledger.rule_stops) == there.rule_stops
            check_same(learner.policy, there.policy)
    return from_snapshot.hash()


async def check_all(where: str, load: Load, *ports: int) -> dict[str, Any]:
    """Check everything against the log, and that all servers have its state; return that."""
    found = replayed(await events_of(where))
    check_record(found, load.record)
    expected = await check_state(where, found)
    states = [await ready(port) for port in ports]
    assert {state["hash"] for state in states} == {expected}
    return states[0]


async def state_of(port: int) -> dict[str, Any]:
    """Ask a server for its state; empty if it has not read its log yet."""
    connection = Connection()
    try:
        status, answer = await connection.ask(port, "GET", "/v1/state")
    finally:
        connection.close()
    return answer if status == 200 else {}


async def ready(port: int) -> dict[str, Any]:
    """Wait until a server has read its log; return its state."""
    while not (state := await state_of(port)):
        await asyncio.sleep(0.02)
    return state
