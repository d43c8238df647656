"""Holds the log against what clients were promised, and against Stopwise without any service."""

import asyncio
import json
from collections import Counter
from typing import Any

import numpy as np

import stopwise as sw
from stopwise.service.events import (
    Created,
    Decided,
    Ended,
    Event,
    Labelled,
    Started,
    Stepped,
    Told,
    decode,
)
from stopwise.service.recovery import recovered
from stopwise.service.store.base import START, chained
from stopwise.service.store.opening import open_store
from tests.service.durability.cascades import twins
from tests.service.durability.storm import Book, Line


async def events_of(where: str) -> list[Event]:
    """Read the whole log, checking that it has no gap and no change."""
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


class Twin:
    """One cascade as its events tell it: the decisions, and a policy fed with them by hand."""

    def __init__(self, policy: sw.Policy) -> None:
        self.policy = policy
        self.contexts: list[list[float]] = []
        self.stops: list[int | None] = []
        self.wanted: list[int] = []
        self.keys: Counter[str] = Counter()
        self.key_of: list[str | None] = []
        self.told: dict[int, dict[int, str]] = {}
        self.ended: Counter[int] = Counter()
        self.labels: dict[int, str] = {}
        self.steps: dict[int, list[tuple[int, str, list[float]]]] = {}
        self.descents: dict[int, sw.Descent] = {}

    def happen(self, event: Event) -> None:
        match event:
            case Decided():
                self._decided(event)
            case Told():
                self._told(event)
            case Labelled():
                self._labelled(event)
            case Started():
                self._started(event)
            case Stepped():
                self._stepped(event)
            case Ended():
                self._end(event.number)
            case _:
                raise AssertionError(event)

    def _key(self, key: str | None, count: int) -> None:
        assert key is not None  # the clients send one with everything
        self.keys[key] += 1
        self.key_of += [key] * count

    def _decided(self, event: Decided) -> None:
        assert event.first == len(self.stops)
        rows = np.frombuffer(event.contexts).reshape(len(event.stops), -1)
        decisions = [self.policy.decide(row) for row in rows.tolist()]
        assert [decision.stop for decision in decisions] == list(event.stops)
        self.contexts += rows.tolist()
        self.stops += list(event.stops)
        self.wanted += [decision.wanted for decision in decisions]
        self._key(event.key, len(rows))

    def _told(self, event: Told) -> None:
        known = self.told.setdefault(event.number, {})
        said = {arm: json.loads(o) for arm, o in zip(event.arms, event.outputs, strict=True)}
        if event.ended:
            assert list(said) == list(range(len(said)))
            assert all(said.get(arm, output) == output for arm, output in known.items())
            self.ended[event.number] += 1
            if said:
                self.policy.observe(
                    self.contexts[event.number],
                    list(said.values()),
                    wanted=self.wanted[event.number],
                )
        else:
            assert said
            assert not said.keys() & known.keys()  # nothing is taken twice
            assert not self.ended[event.number]
        known |= said

    def _labelled(self, event: Labelled) -> None:
        number = event.number
        assert number not in self.labels
        assert self.ended[number] == 1
        label = json.loads(event.label)
        self.labels[number] = label
        outputs = tuple(json.loads(output) for output in event.outputs)
        told = self.told[number]
        assert outputs == tuple(told[arm] for arm in range(len(outputs)))
        context, wanted = tuple(self.contexts[number]), self.wanted[number]
        done = sw.Round("", 0.0, context, outputs, outputs, len(outputs) - 1, wanted)
        self.policy.audit(done, label)

    def _started(self, event: Started) -> None:
        assert event.number == len(self.stops)
        context = np.frombuffer(event.context).tolist()
        descent = self.descents[event.number] = self.policy.start(context)
        assert descent.next() == 0
        self.contexts.append(context)
        self.stops.append(None)
        self.wanted.append(-1)
        self.steps[event.number] = []
        self._key(event.key, 1)

    def _stepped(self, event: Stepped) -> None:
        descent = self.descents[event.number]
        output, revealed = json.loads(event.output), np.frombuffer(event.revealed).tolist()
        assert event.arm == len(descent.outputs)
        descent.give(output, revealed)
        self.steps[event.number].append((event.arm, output, revealed))
        assert (descent.next() is None) == event.ended
        if event.ended:
            self._end(event.number)

    def _end(self, number: int) -> None:
        descent = self.descents[number]
        self.stops[number] = len(descent.outputs) - 1
        self.ended[number] += 1
        descent.learn()


def replayed(events: list[Event]) -> dict[str, Twin]:
    """Let the events happen to policies that know nothing of a service."""
    policies, order, found = twins(), list[str](), dict[str, Twin]()
    for event in events:
        if isinstance(event, Created):
            order.append(event.spec.name)
            found[event.spec.name] = Twin(policies[event.spec.name])
        else:
            found[order[event.cascade]].happen(event)  # pyright: ignore[reportAttributeAccessIssue] (nothing retires)
    assert sorted(order) == sorted(policies)  # each made once
    return found


def check_promises(found: dict[str, Twin], book: Book) -> None:
    """Check that all that was acknowledged is in the log, once, and nothing nobody asked for."""
    for (cascade, id_), one in book.promised.items():
        twin, number = found[cascade], int(id_.partition("-")[0])
        assert twin.stops[number] == one.stop
        assert twin.contexts[number] == one.context
        assert twin.key_of[number] == one.key
        told = twin.told.get(number, {})
        assert one.told.items() <= told.items()
        assert all(one.outputs[arm] == output for arm, output in told.items())
        if one.status == "learned":
            assert twin.ended[number] == 1
        if one.label is not None:
            assert twin.labels[number] == one.label
    for id_, one in book.taken.items():
        twin, number = found["stages"], int(id_.partition("-")[0])
        assert twin.key_of[number] == one.key
        assert twin.contexts[number] == one.context
        assert twin.steps[number][: len(one.steps)] == one.steps
        if one.ended or one.stop is not None:
            assert twin.ended[number] == 1
        if one.stop is not None:
            assert twin.stops[number] == one.stop
    for twin in found.values():
        assert max(twin.keys.values(), default=0) <= 1  # no key made two
        assert twin.keys.keys() <= book.keys
        assert max(twin.ended.values(), default=0) <= 1  # nothing was learned twice
    ids = Counter(id_ for name in ("triage", "chance") for id_ in _ids(book, name))
    assert max(ids.values()) == 1


def _ids(book: Book, name: str) -> list[str]:
    return [f"{cascade}/{id_}" for cascade, id_ in book.promised if cascade == name]


async def check_state(where: str, found: dict[str, Twin]) -> str:
    """Check that what the service recovers is what the policies fed by hand are, bit for bit.

    Returns the hash of that state, which every server must have too.
    """
    store = open_store(where)
    await store.open()
    try:
        from_snapshot = await recovered(store)
        from_nothing = await recovered(store, snapshots=False)
    finally:
        await store.close()
    assert from_snapshot.hash() == from_nothing.hash()
    assert from_snapshot.position == from_nothing.position
    for name, twin in found.items():
        for state in (from_snapshot, from_nothing):
            learner = state.cascades[name]
            assert learner.divergences == 0
            assert list(learner.ledger.stops) == [-1 if s is None else s for s in twin.stops]
            check_same(learner.policy, twin.policy)
    return from_snapshot.hash()


def check_same(one: sw.Policy, other: sw.Policy) -> None:
    """Check that two policies are equal, bit for bit."""
    here, there = one.state(), other.state()
    assert here.keys() == there.keys()
    for name, array in here.items():
        assert array.dtype == there[name].dtype, name
        assert array.shape == there[name].shape, name
        assert array.tobytes() == there[name].tobytes(), name
    assert one.parameters() == other.parameters()


async def state_of(port: int) -> dict[str, Any]:
    """Ask a server for its state hash."""
    line = Line()
    try:
        status, answer = await line.ask(port, "GET", "/v1/state")
    finally:
        line.close()
    return answer if status == 200 else {}


async def ready(port: int) -> dict[str, Any]:
    """Wait until a server has read its log; return its state."""
    while not (state := await state_of(port)):
        await asyncio.sleep(0.02)
    return state
