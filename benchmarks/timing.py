"""CPU clocks, progress, and the loop that plays a contestant's rounds."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.peers.base import Peer

REPEATS = 3
"""Every time reported is the best of so many runs: noise on a shared machine only ever adds."""


@dataclass
class Entry:
    """A row of a table: something that can be run again and again.

    Attributes
    ----------
    name
        What the table calls it.
    rounds
        How many rounds one run plays.
    play
        Plays them from the beginning and returns CPU seconds a round; None if not installed.
    best
        The best of the runs so far, CPU seconds a round.
    """

    name: str
    rounds: int
    play: Callable[[], float] | None
    best: float = field(default=float("inf"))


def race(entries: Sequence[Entry], title: str, repeats: int = REPEATS) -> None:
    """Run all entries in turn, `repeats` times over, so that a bad minute hurts all alike."""
    for repeat in range(1, repeats + 1):
        for entry in entries:
            if entry.play is not None:
                progress(f"{title}: {entry.name}, run {repeat} of {repeats}")
                entry.best = min(entry.best, entry.play())
    progress("")


def play(peer: Peer, contexts: Sequence[Any], outputs: Sequence[Sequence[int]]) -> float:
    """Play prepared contexts and return CPU seconds a round."""
    if peer.every > 1:
        return _play_sampled(peer, contexts, outputs)
    one_round = peer.round
    start = time.process_time()
    for x, answers in zip(contexts, outputs, strict=True):
        one_round(x, answers)
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
    """CPU seconds that a call takes."""
    start = time.process_time()
    work()
    return time.process_time() - start


def progress(message: str) -> None:
    """Say on stderr what is going on; a terminal sees one changing line."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[2K{message}")
    elif message:
        sys.stderr.write(message + "\n")
    sys.stderr.flush()
