"""Executors that run tasks in threads or on a Dask cluster, with identical results."""

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

# Unfinished tasks per worker (heuristic): enough to keep workers busy, but few enough that results
# which have yet to be stored do not fill the memory.
AHEAD = 3


class Executor(ABC):
    """Run tasks on workers and yield each result as soon as its task finishes, in any order.

    An executor is a context manager; leaving its ``with`` block stops the workers.
    """

    jobs: int
    runs_per_task: int = 10  # runs of a campaign (heuristic: makes sending a task cheap)
    _stop: Event  # set to stop the last `run`'s tasks in progress

    @abstractmethod
    def close(self) -> None:
        """Stop the workers and drop unfinished tasks."""

    @abstractmethod
    def _submit(self, work: Callable[..., T], task: Arguments, stop: Event) -> "Future[T]": ...

    def workers(self) -> int:
        """Return the number of tasks that run at the same time."""
        return self.jobs

    def run(self, work: Callable[..., T], tasks: Iterable[Arguments]) -> Generator[T, None, None]:
        """Call a function with the arguments of each task.

        Closing the generator cancels the remaining tasks.

        Thread executors pass an additional last argument, an event that is set when the result is
        no longer needed.
        """
        queue = iter(tasks)
        waiting: set[Future[T]] = set()  # unfinished, or not yet yielded
        stop = self._stop = Event()
        try:
            while True:
                room = max(0, AHEAD * self.workers() - len(waiting))
                waiting |= {self._submit(work, task, stop) for task in islice(queue, room)}
                if not waiting:
                    return
                done, _ = wait(waiting, return_when=FIRST_COMPLETED)
                # Failures come last, because raising one must not lose finished results.
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
    """Run tasks in threads of this process; the native engine releases the GIL.

    ``jobs`` is the number of threads, by default one per processor.
    """

    runs_per_task = 1  # so that each run is stored as soon as it finishes

    def __init__(self, jobs: int | None = None) -> None:
        self.jobs = _checked_jobs(jobs)
        self._stop = Event()
        self._pool = ThreadPoolExecutor(self.jobs)

    def close(self) -> None:
        """Stop the threads and drop their tasks; a closed executor cannot be used again."""
        self._stop.set()
        self._pool.shutdown(cancel_futures=True)

    def _submit(self, work: Callable[..., T], task: Arguments, stop: Event) -> "Future[T]":
        return self._pool.submit(work, *task, stop)


class DaskExecutor(Executor):
    """Run tasks on a Dask cluster of several machines, or in local worker processes.

    The tasks of a lost worker are reassigned. All workers must have the same package
    versions.

    ``address`` is the address of a scheduler, such as ``"tcp://10.0.0.5:8786"``. Without it, a
    local cluster is started with ``jobs`` workers, by default one per processor.
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
        """Call a function with each task's arguments (see `Executor.run`)."""
        try:
            yield from super().run(work, tasks)
        except (self._dask.KilledWorker, CancelledError, OSError) as error:
            self.close()
            reason = ": ".join(filter(None, (type(error).__name__, str(error))))
            raise ExecutorError(
                f"the Dask cluster failed ({reason}). Check that its scheduler and workers are "
                "running, then start the same command again; finished runs of a campaign are stored"
            ) from error

    def close(self) -> None:
        """Disconnect from the cluster; shut it down if it is local."""
        for connection in (self._client, self._cluster):
            if connection is not None:
                connection.close()
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
        """Return how many tasks run at the same time on the workers that are connected."""
        client: Any = self._client or self._start()
        return max(1, sum(client.nthreads().values()))  # may change at any time


EXECUTORS = ("threads", "dask")


def make_executor(
    name: str = "threads", jobs: int | None = None, address: str | None = None
) -> Executor:
    """Return a `ThreadExecutor`, or a `DaskExecutor` for the scheduler at ``address``."""
    if name == "dask":
        return DaskExecutor(address, jobs)
    if name != "threads":
        raise InvalidParameterError(f"unknown executor {name!r}; {suggestion(name, EXECUTORS)}")
    if address is not None:
        raise InvalidParameterError(f"address requires executor 'dask', got executor {name!r}")
    return ThreadExecutor(jobs)


def _checked_jobs(jobs: int | None) -> int:
    if jobs is None:
        affinity = getattr(os, "sched_getaffinity", None)  # Linux: the process may be restricted
        return len(affinity(0)) if affinity else os.cpu_count() or 1
    return integer("jobs", jobs, least=1)
