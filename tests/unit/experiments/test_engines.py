"""Engines by name, and what they ask of the machine."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stopwise.errors import InvalidParameterError, MissingPackageError
from stopwise.experiments import engines
from stopwise.experiments.engines import Dask, InProcess, Processes, make_engine


def test_engines_have_names() -> None:
    assert isinstance(make_engine("in-process", jobs=2), InProcess)
    made = make_engine("processes", jobs=5)
    assert isinstance(made, Processes)
    assert made.jobs == 5
    assert Processes().jobs == len(os.sched_getaffinity(0))
    made = make_engine("dask", address="tcp://127.0.0.1:1")
    assert isinstance(made, Dask)
    assert made.address == "tcp://127.0.0.1:1"
    for name in ("in-process", "processes", "dask"):
        make_engine(name, jobs=1).close()  # never used


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "spark"}, "there are in-process, processes, dask"),
        ({"name": "processes", "address": "tcp://127.0.0.1:1"}, "is for the engine 'dask'"),
        ({"name": "processes", "jobs": 0}, "jobs must be"),
        ({"name": "processes", "jobs": 1.5}, "jobs must be"),
    ],
)
def test_wrong_engines_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        make_engine(**arguments)


def test_without_the_package_dask_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)  # how Python notes that there is none
    with pytest.raises(MissingPackageError, match=r"pip install .*\[dask\]'") as caught:
        make_engine("dask")
    assert isinstance(caught.value, ImportError)


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


def test_a_script_without_a_guard_is_told_what_to_do(tmp_path: Path) -> None:
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
