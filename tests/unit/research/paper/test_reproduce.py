"""The reproduction: the same numbers by any number of threads, stored runs, early failures."""

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
    settings._features.cache_clear()  # features are found from the contexts of so many rounds
    yield
    settings._features.cache_clear()


@pytest.mark.usefixtures("short_runs")
def test_a_folder_shows_the_last_report_and_stores_the_runs(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    report = reproduce(one, quick=True, only=["supervised"], jobs=1)
    assert [section.name for section in report.sections] == ["supervised"]
    with (one / "numbers" / "curves.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert {row["policy"] for row in rows} >= {"USS-PD", "supervised", "clairvoyant"}
    assert {row["repetitions"] for row in rows} == {str(QUICK)}
    files = [one / "numbers" / "curves.csv", one / "figures" / "supervised-regret.svg"]
    before = [path.read_bytes() for path in files]

    reproduce(two, quick=True, only=["supervised"], jobs=2)
    assert [(two / path.relative_to(one)).read_bytes() for path in files] == before

    (one / "numbers" / "my-notes.txt").write_text("mine")
    reproduce(one, quick=True, only=["table1"])
    left = {path.name for path in (one / "numbers").iterdir()}
    tables = {f"{name}.{kind}" for name in ("claims", "table1") for kind in ("csv", "parquet")}
    assert left == tables | {"my-notes.txt"}
    assert not list((one / "figures").glob("*"))

    progress: list[tuple[str, int, int]] = []
    reproduce(one, quick=True, only=["supervised"], progress=lambda *now: progress.append(now))
    ((_, done, of),) = (now for now in progress if now[0] == "running")
    assert done == of > 0  # nothing was left to run
    assert [path.read_bytes() for path in files] == before


def test_what_cannot_be_done_fails_before_any_run(
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
