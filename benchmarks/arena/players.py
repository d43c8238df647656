"""The competitors. To add one, write a function and list it in `players`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import stopwise as sw
from benchmarks.arena import thresholds
from benchmarks.arena.data import Setting
from stopwise.policies.registry import policy_class, takes

LABELS = (30, 100, 300)
UNLABELLED = (
    "uss-anchor",
    "uss-ucb",
    "uss-ts",
    "thompson",
)  # policies that do not learn from labels
LABELLED = ("uss-laplace", "uss-pd", "uss-pd-ridge")

Stops = NDArray[np.int64]
Play = Callable[[Setting, int, int], Stops]


@dataclass(frozen=True)
class Player:
    """A competitor. ``play(setting, labels, seed)`` returns the stop of each round.

    The stops include the rounds for learning, so their cost is included.
    """

    name: str
    play: Play
    labels: int = 0

    @property
    def title(self) -> str:
        return f"{self.name}, {self.labels} labels" if self.labels else self.name


def players() -> list[Player]:
    """Return the competitors in the order of the tables."""
    return [
        *(Player(f"depth {depth}", _fixed(depth)) for depth in (1, 2, 3)),
        Player("always last", _last),
        Player("best fixed depth in hindsight", _best),
        Player("random depth", _random),
        Player("agreement of all", _all_agree),
        Player("agreement of two", _two_agree),
        *(Player("thresholds", _thresholds, labels) for labels in LABELS),
        *(Player(name, _library(name)) for name in UNLABELLED),
        *(Player(name, _library(name), labels) for name in LABELLED for labels in (0, *LABELS)),
    ]


def depths(setting: Setting) -> NDArray[np.float64]:
    """Return the mean loss of every fixed depth, in hindsight."""
    return setting.cascade.cumulative + setting.wrong.mean(axis=0)


def _fixed(depth: int) -> Play:
    def play(setting: Setting, labels: int, seed: int) -> Stops:
        return np.full(setting.n, min(depth - 1, setting.last))

    return play


def _last(setting: Setting, labels: int, seed: int) -> Stops:
    return np.full(setting.n, setting.last)


def _best(setting: Setting, labels: int, seed: int) -> Stops:
    return np.full(setting.n, depths(setting).argmin())


def _random(setting: Setting, labels: int, seed: int) -> Stops:
    return np.random.default_rng(seed).integers(setting.last + 1, size=setting.n)


def _all_agree(setting: Setting, labels: int, seed: int) -> Stops:
    """Run two arms and stop if they agree. Otherwise not all arms can agree, so run the last."""
    return np.where(setting.outputs[:, 0] == setting.outputs[:, 1], 1, setting.last)


def _two_agree(setting: Setting, labels: int, seed: int) -> Stops:
    """Stop at the first arm that agrees with an earlier one."""
    stops = np.full(setting.n, setting.last)
    for arm in reversed(range(1, setting.last)):
        repeats = (setting.outputs[:, :arm] == setting.outputs[:, [arm]]).any(axis=1)
        stops[repeats] = arm
    return stops


def _thresholds(setting: Setting, labels: int, seed: int) -> Stops:
    return thresholds.play(setting, labels)


def _library(name: str) -> Play:
    """Return a policy of the library with default parameters."""

    def play(setting: Setting, labels: int, seed: int) -> Stops:
        options = {
            "reveals": 1,
            "context_dim": setting.sees[0] - 1,
            "labels": labels,
            "seed": seed,
        }
        kind = policy_class(name)
        policy = kind(setting.cascade, **{k: v for k, v in options.items() if takes(kind, k)})
        return policy.run_recorded(_record(setting, labels))

    return play


def _record(setting: Setting, labels: int) -> sw.RecordedRounds:
    """Return all rounds as a record, with labels for the policies that request them."""
    i, j = np.triu_indices(setting.cascade.n_arms, 1)  # the order of `Cascade.pairs`
    return sw.RecordedRounds(
        setting.contexts,
        (setting.outputs[:, i] != setting.outputs[:, j]).astype(np.uint8),
        answered=np.full(setting.n, setting.last + 1),
        failed=np.zeros(setting.n, dtype=np.bool_),
        right=~setting.wrong if labels else None,
        labelled=np.ones(setting.n, dtype=np.bool_) if labels else None,
    )
