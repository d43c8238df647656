"""Where runs are done: in threads, or on a Dask cluster. The numbers are the same."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ThreadPoolExecutor, wait
from importlib import import_module
from itertools import islice
from threading import Event
from typing import Any, Self, TypeAlias

from stopwise.checks import integer
from stopwise.errors import EngineError, InvalidParameterError, MissingPackageError
from stopwise.research.experiments.runs import Trace, execute
from stopwise.research.experiments.spec import ExperimentSpec

Task: TypeAlias = tuple[ExperimentSpec, tuple[int, ...]]
Result: TypeAlias = tuple[ExperimentSpec, list[Trace]]
Arguments: TypeAlias = tuple[Any, ...]

# Tasks handed out ahead, per worker: enough that none waits for the next, few enough that finished
# runs which are not yet stored never fill the memory (heuristic).
AHEAD = 3


class Engine(ABC):
    """Does tasks, and returns the result of each as it finishes, in any order.

    A context manager: leaving it ends the workers.
    """

    jobs: int
    runs_per_task: int = 10  # heuristic: cheap to send to a worker
    _stop: Event  # of the last `run`: set, it ends the runs under way

    @abstractmethod
    def close(self) -> None:
        """End the workers; what is not finished is dropped."""

    @abstractmethod
    def _submit(self, do: Callable[..., Any], task: Arguments, stop: Event) -> "Future[Any]": ...

    def workers(self) -> int:
        """Return how many tasks are done at once."""
        return self.jobs

    def run(
        self, tasks: Iterable[Arguments], do: "Callable[..., Any] | None" = None
    ) -> Generator[Any, None, None]:
        """Do tasks. Closing the generator early drops what is not finished.

        A task is the arguments of ``do``, by default those of a campaign's runs. In threads it gets
        an event too, ``stop``: set, its result is not wanted any more.
        """
        queue, work = iter(tasks), do or _do
        waiting: set[Future[Any]] = set()  # for its end, or for somebody to take its result
        stop = self._stop = Event()
        try:
            while True:
                room = max(0, AHEAD * self.workers() - len(waiting))
                waiting |= {self._submit(work, task, stop) for task in islice(queue, room)}
                if not waiting:
                    return
                done, _ = wait(waiting, return_when=FIRST_COMPLETED)
                # those that failed come last: what is finished is not lost
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


class Threads(Engine):
    """Threads of this process: the native engine lets them run at the same time.

    ``jobs`` is how many; by default one for each processor.
    """

    runs_per_task = 1  # each is stored as soon as it has finished

    def __init__(self, jobs: int | None = None) -> None:
        self.jobs = _checked_jobs(jobs)
        self._stop = Event()
        self._pool = ThreadPoolExecutor(self.jobs)

    def close(self) -> None:
        """End the workers, which drop the runs they are at. A closed engine does no more runs."""
        self._stop.set()
        self._pool.shutdown(cancel_futures=True)

    def _submit(self, do: Callable[..., Any], task: Arguments, stop: Event) -> "Future[Any]":
        return self._pool.submit(do, *task, stop)


class Dask(Engine):
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
            raise MissingPackageError.of("the Dask engine", "dask.distributed", "dask") from error

    def run(
        self, tasks: Iterable[Arguments], do: "Callable[..., Any] | None" = None
    ) -> Generator[Any, None, None]:
        """Do tasks. Closing the generator early drops what is not finished."""
        try:
            yield from super().run(tasks, do)
        except (self._dask.KilledWorker, CancelledError, OSError) as error:
            self.close()
            reason = ": ".join(filter(None, (type(error).__name__, str(error))))
            raise EngineError(
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
            raise EngineError(f"no Dask workers at {target}: {error}") from error
        self._pool = self._client.get_executor(pure=False)
        return self._client

    def _submit(self, do: Callable[..., Any], task: Arguments, stop: Event) -> "Future[Any]":
        return self._pool.submit(do, *task)  # an event cannot travel

    def workers(self) -> int:
        """Return how many tasks are done at once, by the workers there are now."""
        client: Any = self._client or self._start()
        return max(1, sum(client.nthreads().values()))  # workers come and go


def make_engine(
    name: str = "threads", jobs: int | None = None, address: str | None = None
) -> Engine:
    """Return `Threads` or `Dask` by name; ``address`` is that of a Dask scheduler."""
    if name == "dask":
        return Dask(address, jobs)
    if name != "threads":
        raise InvalidParameterError(f"no engine is called {name!r}; there are threads, dask")
    if address is not None:
        raise InvalidParameterError(f"an address is for the engine 'dask', not for {name!r}")
    return Threads(jobs)


def _do(spec: ExperimentSpec, seeds: tuple[int, ...], stop: Event | None = None) -> Result:
    def progress(stage: str, done: int, of: int) -> None:
        if stop is not None and stop.is_set() and done < of:
            raise CancelledError

    return spec, [execute(spec, seed, progress) for seed in seeds]


def _checked_jobs(jobs: int | None) -> int:
    if jobs is None:
        mine = getattr(os, "sched_getaffinity", None)  # what this process may use, where known
        return len(mine(0)) if mine else os.cpu_count() or 1
    return integer("jobs", jobs, least=1)
