"""Engines by name, and what they ask of the machine."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import dask.config
import pytest

from stopwise.errors import EngineError, InvalidParameterError, MissingPackageError
from stopwise.experiments import engines
from stopwise.experiments.engines import Dask, InProcess, Processes, make_engine


def test_engines_have_names() -> None:
    assert isinstance(make_engine("in-process", jobs=2), InProcess)
    made = make_engine("processes", jobs=5)
    assert isinstance(made, Processes)
    assert made.jobs == 5
    with pytest.raises(InvalidParameterError, match="there are in-process, processes, dask"):
        make_engine("spark")


def test_the_dask_engine_has_an_address() -> None:
    made = make_engine("dask", address="tcp://127.0.0.1:1")
    assert isinstance(made, Dask)
    assert made.address == "tcp://127.0.0.1:1"


def test_an_address_is_for_dask_only() -> None:
    with pytest.raises(InvalidParameterError, match="an address is for the engine 'dask'"):
        make_engine("processes", address="tcp://127.0.0.1:1")


@pytest.mark.parametrize("jobs", [0, -1, 1.5])
def test_jobs_are_a_whole_number(jobs: Any) -> None:
    with pytest.raises(InvalidParameterError, match="jobs must be a whole number, 1 or more"):
        make_engine("processes", jobs)


def test_by_default_there_is_a_job_for_each_processor() -> None:
    assert Processes().jobs == len(os.sched_getaffinity(0))


def test_an_engine_that_was_never_used_closes() -> None:
    for name in ("in-process", "processes", "dask"):
        with make_engine(name, jobs=1) as engine:
            pass
        engine.close()


def test_without_the_package_dask_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)  # how Python notes that there is none
    with pytest.raises(MissingPackageError, match=r"pip install 'stopwise\[dask\]'") as caught:
        make_engine("dask")
    assert isinstance(caught.value, ImportError)


def test_the_package_is_imported_only_for_the_engine_that_needs_it() -> None:
    code = (
        "import sys; from stopwise.experiments.engines import make_engine;"
        "make_engine('processes'); sys.exit('distributed' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_workers_start_with_one_thread_and_the_environment_is_as_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    before = dict(os.environ)
    names = engines.THREADS
    code = f"import os; print([os.environ[name] for name in {names!r}])"
    with engines._fit_for_workers():
        seen = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert seen.strip() == str(["1"] * len(names))
    assert dict(os.environ) == before


def test_running_starts_workers_once() -> None:
    with Processes(jobs=1) as engine:
        assert list(engine.run([])) == []
        pool = engine._pool
        assert pool is not None
        assert list(engine.run([])) == []
        assert engine._pool is pool


def test_a_dask_cluster_that_is_not_there_is_noticed() -> None:
    with make_engine("dask", address="tcp://127.0.0.1:1") as engine:
        soon = dask.config.set({"distributed.comm.timeouts.connect": "1s"})
        with soon, pytest.raises(EngineError, match="no Dask workers to be reached at tcp://127"):
            list(engine.run([]))


def test_a_script_without_a_guard_is_told_so(tmp_path: Path) -> None:
    script = tmp_path / "campaign.py"
    script.write_text(
        "from stopwise.experiments.engines import Processes\nlist(Processes(jobs=1).run([]))\n"
    )
    ended = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    last = ended.stderr.strip().splitlines()[-1]
    assert last.startswith("stopwise.errors.EngineError")
    assert 'if __name__ == "__main__":' in last
    assert "memory" not in last
