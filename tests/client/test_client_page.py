"""docs/client.md, run from top to bottom against a real service."""

import io
import re
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from tests.client.pages import agrees, blocks
from tests.service.harness import served

PAGE = Path(__file__).parents[2] / "docs" / "client.md"
# what a line prints stands behind it
SHOWN = re.compile(r"^\s*print\(.*\)  # (?P<shown>.+)$", re.MULTILINE)


def test_the_page_does_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names: dict[str, object] = {"__name__": "page"}
    with served(tmp_path) as service:
        monkeypatch.setenv("STOPWISE_URL", service.url)
        for number, code in enumerate(blocks(PAGE, "python")):
            printed = io.StringIO()
            with redirect_stdout(printed):
                exec(compile(code, f"client.md, block {number}", "exec"), names)
            shown = [match["shown"] for match in SHOWN.finditer(code)]
            assert len(shown) == code.count("print(")
            received = printed.getvalue().splitlines()
            assert len(received) == len(shown), code
            for line, wanted in zip(received, shown, strict=True):
                assert agrees(line, wanted), f"{line!r} is not {wanted!r}"
