"""`reproduce`: identical numbers for any number of threads, stored runs, early errors."""

import csv
from collections.abc import Iterator
from pathlib import Path

import pytest

from stopwise.errors import InvalidParameterError, MissingPackageError, PersistenceError
from stopwise.research.paper import choices, settings
from stopwise.research.paper.reproduce import QUICK, reproduce


@pytest.fixture
def short_runs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(choices, "ROUNDS", 1000)
    settings._features.cache_clear()  # features depend on the number of rounds
    yield
    settings._features.cache_clear()


@pytest.mark.usefixtures("short_runs")
def test_folder_holds_the_last_report_and_all_runs(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    report = reproduce(first, quick=True, only=["supervised"], jobs=1)
    assert [section.name for section in report.sections] == ["supervised"]
    with (first / "numbers" / "curves.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert {row["policy"] for row in rows} >= {"USS-PD", "supervised", "clairvoyant"}
    assert {row["repetitions"] for row in rows} == {str(QUICK)}
    files = [first / "numbers" / "curves.csv", first / "figures" / "supervised-regret.svg"]
    before = [path.read_bytes() for path in files]

    reproduce(second, quick=True, only=["supervised"], jobs=2)
    assert [(second / path.relative_to(first)).read_bytes() for path in files] == before

    (first / "numbers" / "my-notes.txt").write_text("mine")
    reproduce(first, quick=True, only=["table1"])
    remaining = {path.name for path in (first / "numbers").iterdir()}
    tables = {f"{name}.{kind}" for name in ("claims", "table1") for kind in ("csv", "parquet")}
    assert remaining == tables | {"my-notes.txt"}
    assert not list((first / "figures").glob("*"))

    progress: list[tuple[str, int, int]] = []
    reproduce(first, quick=True, only=["supervised"], progress=lambda *now: progress.append(now))
    ((_, done, total),) = (now for now in progress if now[0] == "running")
    assert done == total > 0  # all runs were stored
    assert [path.read_bytes() for path in files] == before


def test_invalid_arguments_fail_before_any_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidParameterError, match=r"'table9'; did you mean 'table"):
        reproduce(tmp_path / "out", only=["table9"])
    with monkeypatch.context() as patch:
        patch.setattr("stopwise.research.paper.reproduce.find_spec", lambda name: None)
        with pytest.raises(MissingPackageError, match="jinja2 and matplotlib and pyarrow"):
            reproduce(tmp_path / "out")
    assert not (tmp_path / "out").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(PersistenceError, match="cannot create the folder"):
        reproduce(tmp_path / "file")
