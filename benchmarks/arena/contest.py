"""Run every competitor on every setting, on several processes; read and write the results."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

from benchmarks.arena import data
from benchmarks.arena.players import depths, players


class Run(NamedTuple):
    """Mean losses of a competitor and of two fixed depths in one setting."""

    player: str
    cascade: str
    level: float
    order: int
    loss: float
    best: float
    last: float


class Task(NamedTuple):
    """One setting with the titles of its competitors."""

    folder: Path
    cascade: str
    level: float
    order: int
    titles: tuple[str, ...]


def run(
    folder: Path,
    cascades: Sequence[str],
    levels: Sequence[float],
    orders: int,
    titles: Sequence[str],
    jobs: int = 1,
) -> list[Run]:
    """Run all competitors; the order of the results does not depend on the number of processes."""
    for name in cascades:
        data.read(folder, name)  # reports invalid data before the contest
    tasks = [
        Task(folder, name, level, order, tuple(titles))
        for name, level, order in product(cascades, levels, range(orders))
    ]
    runs: list[Run] = []
    for done, results in enumerate(_play_all(tasks, jobs), 1):
        runs += results
        print(f"\r{done}/{len(tasks)} settings", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    rank = {title: k for k, title in enumerate(titles)}
    position = {name: k for k, name in enumerate(cascades)}
    return sorted(runs, key=lambda r: (rank[r.player], position[r.cascade], r.level, r.order))


def _play_all(tasks: list[Task], jobs: int) -> Iterator[list[Run]]:
    if jobs == 1:
        yield from map(play, tasks)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for future in as_completed([pool.submit(play, task) for task in tasks]):
            yield future.result()


def play(task: Task) -> list[Run]:
    """Run all competitors on one setting. The number of the order is the seed."""
    setting = data.setting(data.read(task.folder, task.cascade), task.level, task.order)
    fixed = depths(setting)
    return [
        Run(
            player.title,
            task.cascade,
            task.level,
            task.order,
            float(setting.losses(player.play(setting, player.labels, task.order)).mean()),
            float(fixed.min()),
            float(fixed[-1]),
        )
        for player in players()
        if player.title in task.titles
    ]


def write(path: Path, runs: Iterable[Run]) -> None:
    """Write the runs as CSV."""
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(Run._fields)
        rows.writerows(runs)


def read(path: Path) -> list[Run]:
    """Read a file of `write`."""
    with path.open(newline="", encoding="utf-8") as file:
        return [
            Run(
                row["player"],
                row["cascade"],
                float(row["level"]),
                int(row["order"]),
                float(row["loss"]),
                float(row["best"]),
                float(row["last"]),
            )
            for row in csv.DictReader(file)
        ]
