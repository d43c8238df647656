"""Where runs are done: in this process, in several, or on a cluster. The numbers are the same."""

import os
import signal
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from importlib import import_module
from itertools import islice
from multiprocessing import get_context
from multiprocessing.connection import Connection
from threading import Thread
from typing import Any, Self, TypeAlias

from stopwise.checks import integer
from stopwise.errors import EngineError, InvalidParameterError, missing_package
from stopwise.experiments.runs import Trace, execute
from stopwise.experiments.spec import ExperimentSpec

Task: TypeAlias = tuple[ExperimentSpec, tuple[int, ...]]
Runs: TypeAlias = Generator[list[Trace], None, None]

# Tasks handed out ahead, per worker: enough that none ever waits for the next, few enough that
# what is finished but not yet taken never fills the memory (heuristic).
AHEAD = 3
# Workers share the processor among them already: a second thread in each would only get in the way.
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
RESUME = "Finished runs are kept: start the same campaign again to do the rest"


class Engine(ABC):
    """Does tasks, and hands back the runs of each as it is finished, in any order.

    A context manager: leaving it ends the workers. They are started by the first `run`, and serve
    later ones too.
    """

    @abstractmethod
    def run(self, tasks: Iterable[Task]) -> Runs:
        """Do tasks. Closing the generator early drops what is not finished."""

    @abstractmethod
    def close(self) -> None:
        """End the workers, whatever they are doing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()


class InProcess(Engine):
    """One run after another, here.

    Examples
    --------
    >>> from stopwise.experiments.spec import EnvironmentSpec, PolicySpec
    >>> arms = {"arms": [[1, 0], [4, 0]], "label": [8, 0]}
    >>> where = EnvironmentSpec("logistic-arms", (0.1, 0.2), arms)
    >>> spec = ExperimentSpec(where, PolicySpec("uss-ucb"), rounds=100)
    >>> with InProcess() as engine:
    ...     [[trace.seed for trace in traces] for traces in engine.run([(spec, (3, 4))])]
    [[3, 4]]
    """

    def run(self, tasks: Iterable[Task]) -> Runs:
        """Do tasks."""
        for task in tasks:
            yield _do(*task)

    def close(self) -> None:
        """Nothing to end."""


class Processes(Engine):
    """Several processes of this machine, which end with this one, however it ends.

    A script that uses it must keep what it does under ``if __name__ == "__main__":``, as workers
    import it.

    Parameters
    ----------
    jobs : int, optional
        How many; by default one for each processor.
    """

    def __init__(self, jobs: int | None = None) -> None:
        self.jobs = _checked_jobs(jobs)
        self._pool: ProcessPoolExecutor | None = None
        self._lifeline: tuple[Connection, Connection] | None = None

    def run(self, tasks: Iterable[Task]) -> Runs:
        """Do tasks."""
        queue = iter(tasks)
        waiting: set[Future[list[Trace]]] = set()
        pool = self._started()
        try:
            while True:
                room = AHEAD * self.jobs - len(waiting)
                with _fit_for_workers():
                    waiting |= {pool.submit(_do, *task) for task in islice(queue, room)}
                if not waiting:
                    break
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                for future in sorted(done, key=_failed):  # what is finished is kept
                    yield future.result()
        except BrokenProcessPool as error:
            self.close()
            raise EngineError(
                f"a worker process ended before its work did: killed, or out of memory? {RESUME}, "
                "with fewer jobs if memory was short"
            ) from error
        finally:
            for future in waiting:
                future.cancel()

    def close(self) -> None:
        """End the workers, whatever they are doing."""
        if self._lifeline is not None:
            for end in self._lifeline:
                end.close()
            self._lifeline = None
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None

    def _started(self) -> ProcessPoolExecutor:
        if self._pool is not None:
            return self._pool
        context = get_context("spawn")  # a fork would inherit threads and locks in any state
        self._lifeline = context.Pipe(duplex=False)
        self._pool = ProcessPoolExecutor(
            self.jobs, context, initializer=_live_by, initargs=(self._lifeline[0],)
        )
        try:
            with _fit_for_workers():
                begun = self._pool.submit(os.getpid)  # starts them all
            begun.result()
        except BaseException as error:
            self.close()  # workers that did not begin must serve no later run
            if isinstance(error, BrokenProcessPool):
                raise EngineError(
                    "a worker process ended before it could begin. Workers import the script that "
                    'starts them: is what it does under if __name__ == "__main__":, and is it a '
                    "file (not read from standard input)?"
                ) from error
            raise
        return self._pool


class Dask(Engine):
    """A Dask cluster: many machines, or worker processes of this one.

    The tasks of a worker that is lost are given to others. All must run the same versions.

    Parameters
    ----------
    address : str, optional
        Of a scheduler, as in ``"tcp://10.0.0.5:8786"``; by default a cluster is made here.
    jobs : int, optional
        How many workers to make where there is no address; by default one for each processor.

    Raises
    ------
    MissingPackageError
        If dask.distributed is not installed.
    """

    def __init__(self, address: str | None = None, jobs: int | None = None) -> None:
        self.address = address
        self.jobs = _checked_jobs(jobs)
        self._client: Any = None
        self._cluster: Any = None
        try:
            self._dask: Any = import_module("distributed")
        except ImportError as error:
            raise missing_package("the Dask engine", "dask.distributed", "dask") from error

    def run(self, tasks: Iterable[Task]) -> Runs:
        """Do tasks."""
        with self._understood():
            client = self._client or self._start()
            queue = iter(tasks)
            coming = self._dask.as_completed(loop=client.loop)
            self._fill(client, coming, queue)
            for future in coming:
                traces = future.result()
                self._fill(client, coming, queue)
                yield traces

    def close(self) -> None:
        """Leave the cluster, or end it if it was made here."""
        for held in (self._client, self._cluster):
            if held is not None:
                held.close()
        self._client = self._cluster = None

    @contextmanager
    def _understood(self) -> Generator[None, None, None]:
        """Say what Dask's errors mean here, and leave the cluster unless all went well."""
        finished = False
        try:
            yield
            finished = True
        except (self._dask.KilledWorker, self._dask.CancelledError, OSError) as error:
            raise EngineError(f"the Dask cluster failed ({error}). {RESUME}") from error
        finally:
            if not finished:
                self.close()

    def _fill(self, client: Any, coming: Any, queue: Iterator[Task]) -> None:
        threads = sum(client.nthreads().values())  # workers come and go
        room = max(0, AHEAD * max(threads, 1) - coming.count())
        coming.update([client.submit(_do, *task, pure=False) for task in islice(queue, room)])

    def _start(self) -> Any:
        if self.address is None:
            self._cluster = self._dask.LocalCluster(  # which gives workers one thread each
                n_workers=self.jobs, threads_per_worker=1, dashboard_address=None
            )
        target = self._cluster or self.address
        try:
            self._client = self._dask.Client(target, set_as_default=False)
            self._client.wait_for_workers(1, timeout=60)
        except (OSError, TimeoutError) as error:
            raise EngineError(f"no Dask workers to be reached at {target}: {error}") from error
        return self._client


def make_engine(name: str, jobs: int | None = None, address: str | None = None) -> Engine:
    """Make an engine by its name.

    Parameters
    ----------
    name : {"in-process", "processes", "dask"}
        Which.
    jobs : int, optional
        How many workers to start, by default one for each processor.
    address : str, optional
        Of a Dask scheduler.

    Examples
    --------
    >>> make_engine("processes", jobs=3).jobs
    3
    """
    if address is not None and name != "dask":
        raise InvalidParameterError(f"an address is for the engine 'dask', not for {name!r}")
    match name:
        case "in-process":
            return InProcess()
        case "processes":
            return Processes(jobs)
        case "dask":
            return Dask(address, jobs)
        case _:
            raise InvalidParameterError(
                f"no engine is called {name!r}; there are in-process, processes, dask"
            )


def _do(spec: ExperimentSpec, seeds: tuple[int, ...]) -> list[Trace]:
    return [execute(spec, seed) for seed in seeds]


def _failed(future: Future[list[Trace]]) -> bool:
    return future.exception() is not None


def _live_by(lifeline: Connection) -> None:
    """Set a worker up: it ends when the other end of the lifeline is closed, by a crash too."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent to answer

    def watch() -> None:
        with suppress(EOFError, OSError):
            lifeline.recv_bytes()
        os._exit(1)

    Thread(target=watch, daemon=True).start()


@contextmanager
def _fit_for_workers() -> Generator[None, None, None]:
    """Let processes started meanwhile have one thread each, and leave Ctrl-C to this one.

    Both are inherited: libraries ask for the number of threads when they are loaded, and a worker
    may be interrupted before any code of ours runs in it.
    """
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, "1"))
    mask: set[int] | None = None
    if hasattr(signal, "pthread_sigmask"):  # not on Windows
        mask = set(signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        if mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _checked_jobs(jobs: int | None) -> int:
    if jobs is None:
        mine = getattr(os, "sched_getaffinity", None)  # what this process may use, where known
        return len(mine(0)) if mine else os.cpu_count() or 1
    return integer("jobs", jobs, least=1)
