"""The check of wordings in `make lint`."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

PATH = Path(__file__).parents[2] / ".ci/wording.py"


@pytest.fixture(scope="module")
def wording() -> Any:
    spec = importlib.util.spec_from_file_location("wording", PATH)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("suffix", "text", "line", "finding"),
    [
        (".md", "Text.\n\nIt asks, lest it forget.\n", 3, "lest"),
        (".md", "A text is no\nnumber.\n", 1, "is no number"),
        (".py", "# what is known\n# of the arms\n", 1, "what is known of"),
        (".h", "// in a file of its\n// own\n", 1, "of its own"),
        (".py", "x = 1\nfound = x\n", 2, "found"),
        (".py", "def known(x):\n    pass\n", 1, "known"),
        (".py", "values = [one for one in range(3)]\n", 1, "one"),
        (".py", "def f(given):\n    pass\n", 1, "given"),
    ],
)
def test_reports_a_banned_wording(
    wording: Any, tmp_path: Path, suffix: str, text: str, line: int, finding: str
) -> None:
    path = tmp_path / f"sample{suffix}"
    path.write_text(text)
    (result,) = wording.check(path)
    assert (result.line, result.text) == (line, finding)
    assert str(result).startswith(f"{path}:{line}: ")


@pytest.mark.parametrize(
    "text",
    [
        "There is no label, and there are none to request.",
        "It is no longer open; the cost is no larger than one.",
        "One of them was found, here and there, and the whole is known.",
        "It may not be needed: a policy of your own.",
        "There is no file on this path.",
    ],
)
def test_accepts_ordinary_english(wording: Any, tmp_path: Path, text: str) -> None:
    path = tmp_path / "sample.md"
    path.write_text(text)
    assert list(wording.check(path)) == []


def test_accepts_attributes_that_other_libraries_name(wording: Any, tmp_path: Path) -> None:
    path = tmp_path / "sample.py"
    path.write_text("import m\n\nresult = m.found\nm.call(given=result)\n")
    assert list(wording.check(path)) == []
