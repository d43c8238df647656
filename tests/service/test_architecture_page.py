"""docs/architecture.md: the files that it names are those that a decision passes."""

import asyncio
import re
import threading
from pathlib import Path
from types import FrameType
from typing import Any

from tests.service.harness import SPEC, keys_in, served

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
SOURCE = ROOT / "src" / "stopwise"
FILE = r"`([\w/]+\.py)`"


def test_a_decision_passes_the_files_on_the_page(tmp_path: Path) -> None:
    rows = re.findall(r"(?m)^\| ((?:`[\w/]+\.py`(?:, )?)+) \|", PAGE)
    files_on_page = {name for row in rows for name in re.findall(FILE, row)}
    assert 5 < len(rows) <= 12
    called: set[str] = set()
    recording = threading.Event()

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        if recording.is_set() and event == "call":
            called.add(frame.f_code.co_filename)

    threading.setprofile(profile)  # of the threads that are started from now on
    try:
        path, keys = keys_in(tmp_path)
        with served(tmp_path, keys=path) as service:
            service.post("/v1/cascades", SPEC, key=keys["admin"])
            recording.set()
            url = "/v1/cascades/triage/rounds"
            answer = service.post(url, {"context": [0.2, 0.7]}, key=keys["decide"])
            service.run(asyncio.sleep(0))  # the answer is counted after it was sent
            recording.clear()
            assert answer.status_code == 201
    finally:
        threading.setprofile(None)
    files = {Path(one) for one in called if Path(one).is_relative_to(SOURCE / "service")}
    passed = {file.relative_to(SOURCE / "service").as_posix() for file in files}
    no_calls = {"domain/messages.py"}  # types only
    announcing = {"serve.py"}  # may report at that moment that the service is ready
    assert passed - announcing == files_on_page - no_calls


def test_every_file_on_the_page_exists() -> None:
    for name in re.findall(FILE, PAGE):
        found = [folder / name for folder in (SOURCE / "service", SOURCE, ROOT)]
        assert any(path.exists() for path in found), name
