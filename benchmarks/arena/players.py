"""The competitors. To add one, write a function and name it in `players`."""

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
)  # policies that learn nothing from labels
LABELLED = ("uss-laplace", "uss-pd", "uss-pd-ridge")

Stops = NDArray[np.int64]
Play = Callable[[Setting, int, int], Stops]


@dataclass(frozen=True)
class Player:
    """Somebody who plays. ``play(setting, labels, seed)`` returns the arm each round stopped at.

    The stops include every round spent on learning, so nothing else needs to be charged.
    """

    name: str
    play: Play
    labels: int = 0

    @property
    def title(self) -> str:
        return f"{self.name}, {self.labels} labels" if self.labels else self.name


def players() -> list[Player]:
    """Return everybody, in the order of the tables."""
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
    """Return the mean loss of every fixed depth, known when all rounds are over."""
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
    """Run two arms; stop if they agree. If not, the arms so far never all agree: go to the last."""
    return np.where(setting.outputs[:, 0] == setting.outputs[:, 1], 1, setting.last)


def _two_agree(setting: Setting, labels: int, seed: int) -> Stops:
    """Stop at the first arm that says what an earlier one said."""
    stops = np.full(setting.n, setting.last)
    for arm in reversed(range(1, setting.last)):
        repeats = (setting.outputs[:, :arm] == setting.outputs[:, [arm]]).any(axis=1)
        stops[repeats] = arm
    return stops


def _thresholds(setting: Setting, labels: int, seed: int) -> Stops:
    return thresholds.play(setting, labels)


def _library(name: str) -> Play:
    """A policy of the library by its name, given what it takes, all else by default."""

    def play(setting: Setting, labels: int, seed: int) -> Stops:
        offered = {
            "reveals": 1,
            "context_dim": setting.sees[0] - 1,
            "labels": labels,
            "seed": seed,
        }
        kind = policy_class(name)
        policy = kind(setting.cascade, **{k: v for k, v in offered.items() if takes(kind, k)})
        return policy.run_recorded(_record(setting, labels))

    return play


def _record(setting: Setting, labels: int) -> sw.RecordedRounds:
    """All rounds for a policy of the library, with the answers to the labels it asks for."""
    i, j = np.triu_indices(setting.cascade.n_arms, 1)  # the order of `Cascade.pairs`
    return sw.RecordedRounds(
        setting.contexts,
        (setting.outputs[:, i] != setting.outputs[:, j]).astype(np.uint8),
        answered=np.full(setting.n, setting.last + 1),
        failed=np.zeros(setting.n, dtype=np.bool_),
        right=~setting.wrong if labels else None,
        labelled=np.ones(setting.n, dtype=np.bool_) if labels else None,
    )
