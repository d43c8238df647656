"""Play all specs with the installed Stopwise and write the decisions.

``python -m tests.identical.play OUT.jsonl`` writes a line for each spec. ``--only TEXT`` plays the
specs whose name contains a text, ``--digests FILE`` writes a checksum of the decisions of each.
"""

import argparse
import hashlib
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from msgspec import Struct

from tests.identical import adapter, worlds
from tests.identical.specs import SPECS, Spec

COPYING: tuple[adapter.Copying, ...] = ("file", "pickle", "copy")
START = 0.4  # probability of starting another round instead of continuing one


class Record(Struct, kw_only=True):
    """The record of a run.

    ``rounds`` has the round, its stop and the stop of the rule (None if unknown), in the order in
    which rounds ended. ``requests`` has the round, then the request: its probability, the
    exploration probability, and the rounds learned before. ``probes`` has the number of rounds,
    then the decisions for a few contexts. ``fixed`` counts single decisions that labels fixed.
    """

    name: str
    inputs: str
    rounds: list[tuple[int, int, int | None]] = []
    requests: list[tuple[int, float, float, int]] = []
    probes: list[tuple[int, list[int]]] = []
    counters: list[dict[str, int]] = []
    fixed: int = 0
    changes: list[list[Any]] = []
    estimates: dict[str, list[float] | None] = {}

    def digest(self) -> str:
        """Return a checksum of all stops and requests."""
        requests = [(t, round(p, 9), round(explored, 9), n) for t, p, explored, n in self.requests]
        decisions = [self.rounds, requests, self.probes, self.counters, self.fixed]
        return hashlib.sha256(msgspec.json.encode(decisions)).hexdigest()


class Labelled(NamedTuple):
    """A round whose label arrives after ``due`` rounds have ended."""

    due: int
    t: int
    ended: adapter.Ended


class Open(NamedTuple):
    """A round in progress, and the arm that is running."""

    t: int
    current: Any
    asked: int | None = None


def play(spec: Spec) -> Record:
    """Play a spec and return the record."""
    with tempfile.TemporaryDirectory() as folder:
        return _Play(spec, Path(folder)).record_all()


class _Play:
    """The policy of a spec, its world, and the record so far."""

    def __init__(self, spec: Spec, folder: Path) -> None:
        self.spec, self.folder = spec, folder
        self.world = worlds.draw(spec)
        self.policy = adapter.make(spec)
        inputs = hashlib.sha256(msgspec.json.encode(spec) + self.world.digest().encode())
        self.record = Record(name=spec.name, inputs=inputs.hexdigest())
        self.labelled: list[Labelled] = []
        self.open: list[Open] = []
        self.ended = self.reloads = 0
        self._watch()

    def record_all(self) -> Record:
        """Play all rounds."""
        self._end(0)
        if self.spec.warm:
            self._learn_first_rounds()
        if self.spec.way == "staged":
            self._play_staged()
        elif self.spec.way in ("single", "pairs"):
            self._play_single()
        else:
            self._play_at_once()
        estimates = adapter.estimates(self.policy)
        self.record.estimates = {
            pair: values and [round(v, 9) for v in values] for pair, values in estimates.items()
        }
        self.record.counters.append(adapter.counters(self.policy))
        return self.record

    # -- ways of playing ------------------------------------------------------------------------

    def _learn_first_rounds(self) -> None:
        rng, warm = np.random.default_rng([self.spec.seed, 1]), self.spec.warm
        stops = rng.integers(-1, len(self.spec.costs), warm)
        adapter.observe_many(self.policy, self.spec, self.world, slice(0, warm), stops)
        self._end(warm)

    def _play_single(self) -> None:
        observe = adapter.observe if self.spec.way == "single" else adapter.observe_pairs
        for t in range(self.spec.warm, self.spec.world.rounds):
            decision = adapter.decide(self.policy, self.world, t)
            self.record.rounds.append((t, decision.stop, decision.rule_stop))
            self.record.fixed += adapter.is_fixed(decision)
            failures = np.flatnonzero(self.world.fails[t, : decision.stop + 1])
            answered = int(failures[0]) if len(failures) else decision.stop + 1
            if answered:
                self._expect_label(t, observe(self.policy, self.world, t, answered, decision))
            self._end(1)

    def _play_staged(self) -> None:
        rng, t = np.random.default_rng([self.spec.seed, 2]), self.spec.warm
        while self.open or t < self.spec.world.rounds:
            room = t < self.spec.world.rounds and len(self.open) < self.spec.open
            if room and (not self.open or rng.random() < START):
                self._start(t)
                t += 1
            else:
                self._continue(int(rng.integers(len(self.open))))

    def _start(self, t: int) -> None:
        context = self.world.contexts[t]
        if self.spec.sees_answers:
            context = context[: len(self.spec.world.columns)]
        current = adapter.start(self.policy, context.tolist(), bool(self.world.run_all[t]))
        self.open.append(Open(t, current))

    def _continue(self, k: int) -> None:
        """Advance an open round: get its next arm, run that arm, or end the round."""
        t, current, arm = self.open[k]
        if arm is None and (asked := adapter.next_arm(current)) is not None:
            self.open[k] = Open(t, current, asked)
            return
        if arm is not None and t % 2:
            assert adapter.next_arm(current) == arm  # regardless of what was learned since
        if arm is not None and not self.world.fails[t, arm]:
            adapter.give(current, self.world.outputs[t][arm], self._revealed(t, arm))
            self.open[k] = Open(t, current)
            return
        del self.open[k]
        ended = adapter.learn(current)
        self.record.rounds.append((t, ended.stop, ended.rule_stop))
        if ended.stop >= 0:
            self._expect_label(t, ended)
        self._end(1)

    def _revealed(self, t: int, arm: int) -> list[float]:
        reveals = self.spec.world.reveals
        if not self.spec.sees_answers or arm >= len(reveals):
            return []
        first = len(self.spec.world.columns) + sum(reveals[:arm])
        return self.world.contexts[t, first : first + reveals[arm]].tolist()

    def _play_at_once(self) -> None:
        run = adapter.run if self.spec.way == "run" else adapter.run_recorded
        done, n = self.spec.warm, self.spec.world.rounds
        inner = [t for t in range(done + 1, n) if self._reloads_at(t) or self._probes_at(t)]
        for end in [*inner, n]:
            stops = run(self.policy, self.spec, self.world, slice(done, end))
            self.record.rounds += [(done + k, s, None) for k, s in enumerate(stops.tolist())]
            self._end(end - done)
            done = end

    # -- between rounds -------------------------------------------------------------------------

    def _reloads_at(self, ended: int) -> bool:
        return ended in self.spec.reload_at

    def _probes_at(self, ended: int) -> bool:
        return self.spec.probe_every > 0 and ended % self.spec.probe_every == 0

    def _expect_label(self, t: int, ended: adapter.Ended) -> None:
        if ended.request is not None:
            probability, explored, before = ended.request
            self.record.requests.append(
                (t, round(probability, 12), round(explored, 12), int(before))
            )
        arrives = self.world.unrequested if ended.request is None else self.world.labelled
        if arrives[t]:
            self.labelled.append(Labelled(self.ended + self.spec.delay, t, ended))

    def _end(self, rounds: int) -> None:
        """Deliver due labels and save or copy the policy after more rounds have ended."""
        due = [label for label in self.labelled if label.due <= self.ended]
        self.labelled = [label for label in self.labelled if label.due > self.ended]
        for _, t, ended in due:
            adapter.label(self.policy, ended, self.world.labels[t])
        self.ended += rounds
        if self._reloads_at(self.ended):
            self._reload()
        if self._probes_at(self.ended):
            first = self.ended * 7 % (self.spec.world.rounds - 12)
            probe = adapter.decide_some(self.policy, self.spec, self.world, first)
            self.record.probes.append((self.ended, probe))
            self.record.counters.append(adapter.counters(self.policy))

    def _reload(self) -> None:
        how = COPYING[self.reloads % len(COPYING)]
        self.reloads += 1
        texts = [adapter.stored(running.current) for running in self.open]
        self.policy = adapter.reloaded(self.policy, self.spec, how, self.folder)
        resumed = [adapter.resumed(self.policy, text) for text in texts]
        self.open = [
            Open(t, current, asked)
            for (t, _, asked), current in zip(self.open, resumed, strict=True)
        ]
        self._watch()

    def _watch(self) -> None:
        if self.spec.watched:
            adapter.watch(self.policy, self.record.changes.append)


# -- the command ----------------------------------------------------------------------------------


def summary(record: Record, n_arms: int, seconds: float) -> str:
    """Return a one-line summary of a run: stops and label requests."""
    stops = np.bincount([stop + 1 for _, stop, _ in record.rounds], minlength=n_arms + 1)[1:]
    explored = sum(
        rule_stop is not None and rule_stop < stop for _, stop, rule_stop in record.rounds
    )
    parts = f"{len(record.requests)} requests, {explored} explored, {len(record.changes)} changes, "
    parts += f"{record.fixed} fixed"
    return f"{seconds:5.2f} s  {record.name:<52} stops {stops.tolist()}, {parts}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, nargs="?", help="file for the decisions")
    parser.add_argument("--only", default="", metavar="TEXT", help="specs with this in their name")
    parser.add_argument("--digests", type=Path, metavar="FILE", help="file for the checksums")
    arguments = parser.parse_args()
    records: list[Record] = []
    for spec in SPECS:
        if arguments.only in spec.name:
            start = time.perf_counter()
            records.append(play(spec))
            print(summary(records[-1], len(spec.costs), time.perf_counter() - start), flush=True)
    if arguments.out:
        arguments.out.write_bytes(b"".join(_lines(records)))
    if arguments.digests:
        digests = {record.name: record.digest() for record in records}
        arguments.digests.write_bytes(msgspec.json.format(msgspec.json.encode(digests)) + b"\n")


def _lines(records: Iterable[Record]) -> Iterable[bytes]:
    return (msgspec.json.encode(record) + b"\n" for record in records)


if __name__ == "__main__":
    main()
