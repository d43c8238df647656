"""Fixtures: the path of a log in each format."""

from pathlib import Path

import pytest


@pytest.fixture(params=("parquet", "csv", "jsonl"))
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / f"log.{request.param}"


@pytest.fixture(params=("csv", "jsonl"))
def text_path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / f"log.{request.param}"
