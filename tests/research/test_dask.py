"""A Dask cluster with a scheduler and workers, one of which is killed."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, cast

import dask.config
import distributed
import pytest

import stopwise as sw
from stopwise.errors import ExecutorError
from stopwise.executors import DaskExecutor
from stopwise.logs import partitions
from stopwise.research.experiments.campaign import run_task
from tests.cli.conftest import rounds
from tests.helpers.log_files import save
from tests.research.campaigns import TASKS, done, expected, python, same, wait_until

LOCAL = ("--host", "127.0.0.1", "--no-dashboard", "--dashboard-address", "127.0.0.1:0")


@contextmanager
def running(*arguments: str) -> Iterator[int]:
    """Run a dask command during the block; yield its process id."""
    process = python("-m", "dask", *arguments)
    try:
        yield process.pid
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[str, dict[str, int]]]:
    """Yield the address of a scheduler, and its process id and those of three workers by name."""
    file = tmp_path / "scheduler.json"
    worker = ("worker", *LOCAL, "--scheduler-file", str(file), "--nthreads", "1", "--no-nanny")
    with ExitStack() as stack:
        scheduler = ("scheduler", *LOCAL, "--port", "0", "--scheduler-file", str(file))
        pids = {"scheduler": stack.enter_context(running(*scheduler))}
        wait_until(file.exists)
        pids |= {
            name: stack.enter_context(
                running(*worker, "--name", name, "--local-directory", str(tmp_path))
            )
            for name in ("a", "b", "c")
        }
        with distributed.Client(scheduler_file=str(file), set_as_default=False) as client:
            client.wait_for_workers(3, timeout=60)
        yield json.loads(file.read_text())["address"], pids


def replay_by_tenants(
    address: str, victim: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replay a log while a worker is killed, with the same result."""
    monkeypatch.setattr(partitions, "MAX_TASK_ROWS", 400)  # many tasks
    columns = {name: column.tolist() for name, column in rounds(6000).items()}
    columns["clinic"] = [f"clinic {t * t % 17}" for t in range(6000)]
    log = sw.Log(save(tmp_path / "log.parquet", columns))
    cascade = sw.Cascade([0.02, 0.1, 0.25], names=log.arms)
    options: dict[str, Any] = {
        "policies": ["uss-pd", "thompson"],
        "by": "clinic",
        "weights": (1, 2),
    }
    expected = sw.replay(log, cascade, jobs=1, **options).to_json()
    remaining: list[int] = []

    def progress(stage: str, done: int, total: int) -> None:
        if stage == "replaying" and not remaining:
            remaining.append(total - done)
            os.kill(victim, signal.SIGKILL)

    replay = sw.replay(log, cascade, executor="dask", address=address, progress=progress, **options)
    assert remaining[0] > 2
    assert replay.to_json() == expected


def test_tasks_of_a_killed_worker_are_repeated_and_a_lost_cluster_is_reported(
    cluster: tuple[str, dict[str, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, pids = cluster
    replay_by_tenants(address, pids["a"], tmp_path, monkeypatch)
    with (
        DaskExecutor(address) as executor,
        distributed.Client(address, set_as_default=False) as observer,
    ):
        wait_until(lambda: len(observer.scheduler_info()["workers"]) == 2)  # of three
        results = executor.run(run_task, TASKS)
        traces = done([next(results)])

        def holders() -> list[str]:  # workers with results that have not been fetched
            keys = cast("dict[str, list[str]]", observer.has_what())  # the client is not async
            return [worker for worker, held in keys.items() if held]

        wait_until(lambda: bool(holders()))
        victim = observer.scheduler_info()["workers"][holders()[0]]["name"]
        os.kill(pids[victim], signal.SIGKILL)
        wait_until(lambda: len(observer.scheduler_info()["workers"]) == 1)
        traces |= done(results)
        assert same(traces, expected())
        results = executor.run(run_task, TASKS)
        next(results)
        os.kill(pids["scheduler"], signal.SIGKILL)
        with pytest.raises(ExecutorError, match=r"failed \(\w+: .*start the same command again"):
            done(results)


@pytest.mark.slow
def test_local_cluster_gives_the_same_traces() -> None:
    with DaskExecutor(jobs=1) as executor:
        traces = done(executor.run(run_task, TASKS[:3]))
        traces |= done(executor.run(run_task, TASKS[20:23]))
    assert len(traces) == 6
    assert all(trace.agrees(expected()[name]) for name, trace in traces.items())


def test_unreachable_scheduler_is_reported() -> None:
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "500ms"}),
        DaskExecutor("tcp://127.0.0.1:1") as executor,
        pytest.raises(ExecutorError, match=r"tcp://127\.0\.0\.1:1"),
    ):
        next(executor.run(run_task, TASKS))
