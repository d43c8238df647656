"""CPU times, progress messages, and the timed loop over rounds."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.peers.base import Peer

REPEATS = 3
"""Reported times are the best of this many runs, because noise on a shared machine only adds."""


@dataclass
class Entry:
    """A row of a table, which can be run repeatedly.

    Attributes
    ----------
    name
        Its name in the table.
    rounds
        Number of rounds per run.
    play
        Runs them from the beginning and returns CPU seconds per round; None if not installed.
    best
        CPU seconds per round of the best run so far.
    """

    name: str
    rounds: int
    play: Callable[[], float] | None
    best: float = field(default=float("inf"))


def race(entries: Sequence[Entry], title: str, repeats: int = REPEATS) -> None:
    """Run all entries `repeats` times, interleaved, so that slow periods affect all."""
    for repeat in range(1, repeats + 1):
        for entry in entries:
            if entry.play is not None:
                progress(f"{title}: {entry.name}, run {repeat} of {repeats}")
                entry.best = min(entry.best, entry.play())
    progress("")


def play(peer: Peer, contexts: Sequence[Any], outputs: Sequence[Sequence[int]]) -> float:
    """Run prepared contexts and return CPU seconds per round."""
    if peer.every > 1:
        return _play_sampled(peer, contexts, outputs)
    run_round = peer.round
    start = time.process_time()
    for x, answers in zip(contexts, outputs, strict=True):
        run_round(x, answers)
    return (time.process_time() - start) / len(contexts)


def _play_sampled(peer: Peer, contexts: Sequence[Any], outputs: Sequence[Sequence[int]]) -> float:
    spent, timed = 0.0, 0
    for t, (x, answers) in enumerate(zip(contexts, outputs, strict=True), start=1):
        if t % peer.every:
            peer.skim(x, answers)
        else:
            start = time.process_time()
            peer.round(x, answers)
            spent += time.process_time() - start
            timed += 1
    return spent / timed


def cpu_seconds(work: Callable[[], Any]) -> float:
    """Return the CPU seconds of a call."""
    start = time.process_time()
    work()
    return time.process_time() - start


def progress(message: str) -> None:
    """Write a progress message to stderr; on a terminal, it replaces the previous one."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[2K{message}")
    elif message:
        sys.stderr.write(message + "\n")
    sys.stderr.flush()
