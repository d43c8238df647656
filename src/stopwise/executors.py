"""Executors: run tasks in threads or on a Dask cluster. The numbers are the same."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ThreadPoolExecutor, wait
from importlib import import_module
from itertools import islice
from threading import Event
from typing import Any, Self, TypeAlias, TypeVar

from stopwise.checks import integer
from stopwise.errors import ExecutorError, InvalidParameterError, MissingPackageError
from stopwise.text import suggestion

T = TypeVar("T")
Arguments: TypeAlias = tuple[Any, ...]

# Tasks submitted ahead, per worker: enough that no worker is idle, few enough that results which
# are not yet stored never fill the memory (heuristic).
AHEAD = 3


class Executor(ABC):
    """Runs tasks on workers and yields the result of each as it finishes, in any order.

    A context manager: leaving it ends the workers.
    """

    jobs: int
    runs_per_task: int = 10  # of a campaign; heuristic: cheap to send to a worker
    _stop: Event  # of the last `run`: set, it ends the tasks in progress

    @abstractmethod
    def close(self) -> None:
        """End the workers; unfinished tasks are dropped."""

    @abstractmethod
    def _submit(self, work: Callable[..., T], task: Arguments, stop: Event) -> "Future[T]": ...

    def workers(self) -> int:
        """Return how many tasks run at once."""
        return self.jobs

    def run(self, work: Callable[..., T], tasks: Iterable[Arguments]) -> Generator[T, None, None]:
        """Call a function with the arguments of each task. Closing the generator drops the rest.

        In threads the function gets one more argument, an event that is set when its result is no
        longer needed.
        """
        queue = iter(tasks)
        waiting: set[Future[T]] = set()  # to finish, or for its result to be taken
        stop = self._stop = Event()
        try:
            while True:
                room = max(0, AHEAD * self.workers() - len(waiting))
                waiting |= {self._submit(work, task, stop) for task in islice(queue, room)}
                if not waiting:
                    return
                done, _ = wait(waiting, return_when=FIRST_COMPLETED)
                # Failed tasks come last, so that no finished result is lost.
                for future in sorted(done, key=lambda f: f.cancelled() or bool(f.exception())):
                    yield future.result()
                    waiting.discard(future)
        finally:
            stop.set()
            for future in waiting:
                future.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()


class ThreadExecutor(Executor):
    """Threads of this process: the native engine lets them run at the same time.

    ``jobs`` is the number of threads, by default one for each processor.
    """

    runs_per_task = 1  # each is stored as soon as it has finished

    def __init__(self, jobs: int | None = None) -> None:
        self.jobs = _checked_jobs(jobs)
        self._stop = Event()
        self._pool = ThreadPoolExecutor(self.jobs)

    def close(self) -> None:
        """End the threads, which drop their tasks. A closed executor runs no more tasks."""
        self._stop.set()
        self._pool.shutdown(cancel_futures=True)

    def _submit(self, work: Callable[..., T], task: Arguments, stop: Event) -> "Future[T]":
        return self._pool.submit(work, *task, stop)


class DaskExecutor(Executor):
    """A Dask cluster: many machines, or worker processes of this one.

    The tasks of a lost worker are given to others. All must run the same versions.

    ``address`` is that of a scheduler, as in ``"tcp://10.0.0.5:8786"``; without one, a cluster of
    ``jobs`` workers is started here, by default one for each processor.
    """

    def __init__(self, address: str | None = None, jobs: int | None = None) -> None:
        self.address = address
        self.jobs = _checked_jobs(jobs)
        self._client: Any = None
        self._cluster: Any = None
        self._pool: Any = None
        try:
            self._dask: Any = import_module("distributed")
        except ImportError as error:
            raise MissingPackageError.of("the Dask executor", "dask.distributed", "dask") from error

    def run(self, work: Callable[..., T], tasks: Iterable[Arguments]) -> Generator[T, None, None]:
        """Call a function with the arguments of each task. Closing the generator drops the rest."""
        try:
            yield from super().run(work, tasks)
        except (self._dask.KilledWorker, CancelledError, OSError) as error:
            self.close()
            reason = ": ".join(filter(None, (type(error).__name__, str(error))))
            raise ExecutorError(
                f"the Dask cluster failed ({reason}). Are its scheduler and workers running? "
                "Start the same command again; runs of a campaign that have finished are stored"
            ) from error

    def close(self) -> None:
        """Leave the cluster, or end it if it was started here."""
        for held in (self._client, self._cluster):
            if held is not None:
                held.close()
        self._client = self._cluster = None

    def _start(self) -> Any:
        if self.address is None:
            self._cluster = self._dask.LocalCluster(
                n_workers=self.jobs, threads_per_worker=1, dashboard_address=None
            )
        target = self._cluster or self.address
        try:
            self._client = self._dask.Client(target, set_as_default=False)
            self._client.wait_for_workers(1, timeout=60)
        except (OSError, TimeoutError) as error:
            raise ExecutorError(f"no Dask workers at {target}: {error}") from error
        self._pool = self._client.get_executor(pure=False)
        return self._client

    def _submit(self, work: Callable[..., T], task: Arguments, stop: Event) -> "Future[T]":
        return self._pool.submit(work, *task)  # an event cannot be sent to another process

    def workers(self) -> int:
        """Return how many tasks the current workers run at once."""
        client: Any = self._client or self._start()
        return max(1, sum(client.nthreads().values()))  # workers come and go


EXECUTORS = ("threads", "dask")


def make_executor(
    name: str = "threads", jobs: int | None = None, address: str | None = None
) -> Executor:
    """Return a `ThreadExecutor`, or a `DaskExecutor` for the scheduler at ``address``."""
    if name == "dask":
        return DaskExecutor(address, jobs)
    if name != "threads":
        raise InvalidParameterError(
            f"no executor is called {name!r}; {suggestion(name, EXECUTORS)}"
        )
    if address is not None:
        raise InvalidParameterError(f"an address is for the executor 'dask', not for {name!r}")
    return ThreadExecutor(jobs)


def _checked_jobs(jobs: int | None) -> int:
    if jobs is None:
        affinity = getattr(os, "sched_getaffinity", None)  # processors of this process, on Linux
        return len(affinity(0)) if affinity else os.cpu_count() or 1
    return integer("jobs", jobs, least=1)
