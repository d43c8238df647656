"""The arena's cascades, and the settings that competitors run on."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import stopwise as sw

LEVELS = (0.05, 0.1, 0.2, 0.4)  # cost of running all arms, in wrong answers

SOURCES = """\
The data are public and not part of this project. Download them from these repositories on GitHub,
both under the Apache License 2.0:
  lchen001/FrugalML        six cascades of commercial services
  TIGER-AI-Lab/MMLU-Pro    published answers of language models
Then convert them and pass the folder:
  python -m benchmarks.arena.convert --frugalml FOLDER --mmlu-pro FOLDER --out FOLDER
  python -m benchmarks.arena --data FOLDER"""


class ArenaError(Exception):
    """An error with a message for the user."""


@dataclass(frozen=True)
class Recorded:
    """A recorded cascade: every arm's answer to every case, in the order of the file.

    ``contexts`` are the columns available before the last arm runs: the first ``sees[i]`` after arm
    i has run, of which the last is revealed by arm i.
    """

    name: str
    arms: tuple[str, ...]
    prices: NDArray[np.float64]
    contexts: NDArray[np.float64]
    sees: tuple[int, ...]
    confident: bool  # whether arms reveal a confidence
    outputs: NDArray[np.int64]
    labels: NDArray[np.int64]


@dataclass(frozen=True)
class Setting:
    """A cascade at a cost level, with its rounds in one order.

    ``labels`` are for evaluation. A competitor may use only the labels that it requested, in rounds
    that ran every arm.
    """

    name: str
    level: float
    order: int
    cascade: sw.Cascade
    contexts: NDArray[np.float64]
    sees: tuple[int, ...]
    confident: bool
    outputs: NDArray[np.int64]
    labels: NDArray[np.int64]

    @property
    def n(self) -> int:
        return len(self.labels)

    @property
    def last(self) -> int:
        return self.cascade.n_arms - 1

    @property
    def wrong(self) -> NDArray[np.bool_]:
        """Whether each arm is wrong in each round."""
        return self.outputs != self.labels[:, None]

    def revealed(self, arm: int) -> NDArray[np.float64]:
        """Return the column that an arm, other than the last, reveals."""
        return self.contexts[:, self.sees[arm] - 1]

    def losses(self, stops: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return C_stop + 1{the answer at the stop is wrong} of each round."""
        return self.cascade.cumulative[stops] + self.wrong[np.arange(self.n), stops]


def setting(recorded: Recorded, level: float, order: int) -> Setting:
    """Scale the prices so that running all arms costs ``level``, and shuffle the rounds."""
    shuffled = np.random.default_rng([order, 1]).permutation(len(recorded.labels))
    costs = level * recorded.prices / recorded.prices.sum()
    return Setting(
        recorded.name,
        level,
        order,
        sw.Cascade(costs, names=recorded.arms),
        recorded.contexts[shuffled],
        recorded.sees,
        recorded.confident,
        recorded.outputs[shuffled],
        recorded.labels[shuffled],
    )


def names(folder: Path) -> tuple[str, ...]:
    """Return the names of the cascades in a folder."""
    return tuple(_catalogue(folder))


@cache
def read(folder: Path, name: str) -> Recorded:
    """Read one cascade; lengths become log₁₀(1 + characters)/4, options a tenth of their number."""
    about = _catalogue(folder)[name]
    try:
        arms, prices = tuple(about["arms"]), np.array(about["price"], dtype=np.float64)
    except KeyError as error:
        raise ArenaError(f"arena.json has no {error} for {name}.\n{SOURCES}") from error
    columns = _columns(folder / f"{name}.parquet")
    try:
        confident = f"confidence.{arms[0]}" in columns
        if confident:
            start = []
            reveals = [columns[f"confidence.{arm}"] for arm in arms[:-1]]
        else:
            start = [_length(columns["question_characters"]), columns["options"] / 10]
            reveals = [_length(columns[f"characters.{arm}"]) for arm in arms[:-1]]
        answers = np.column_stack([columns[f"output.{arm}"] for arm in arms] + [columns["label"]])
    except KeyError as error:
        raise ArenaError(f"{name}.parquet has no column {error}.\n{SOURCES}") from error
    codes = np.unique(answers, return_inverse=True)[1].reshape(answers.shape)
    sees = tuple(len(start) + 1 + arm for arm in range(len(reveals)))
    contexts = np.column_stack([*start, *reveals]).astype(np.float64)
    return Recorded(name, arms, prices, contexts, sees, confident, codes[:, :-1], codes[:, -1])


def _length(characters: NDArray[Any]) -> NDArray[np.float64]:
    return np.log10(1.0 + characters) / 4


@cache
def _catalogue(folder: Path) -> dict[str, Any]:
    try:
        return json.loads((folder / "arena.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ArenaError(f"{folder}/arena.json cannot be read ({error}).\n{SOURCES}") from error


def _columns(path: Path) -> dict[str, NDArray[Any]]:
    try:
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise ArenaError("install pyarrow to read the data: pip install stopwise[paper]") from error
    try:
        table = parquet.read_table(path)
    except (OSError, ValueError) as error:
        raise ArenaError(f"{path.name} cannot be read ({error}).\n{SOURCES}") from error
    return {name: np.array(table[name].to_pylist()) for name in table.schema.names}
