"""Pages whose examples are run: their blocks, and answers in which … stands for anything."""

import re
from pathlib import Path


def blocks(page: Path, language: str) -> list[str]:
    """Return the code blocks of a language, in order."""
    fenced = re.compile(rf"^```{language}\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    found = fenced.findall(page.read_text(encoding="utf-8"))
    assert found, f"{page.name} has no {language} blocks"
    return found


def agrees(received: str, shown: str) -> bool:
    """Say whether a text is the one shown, where … stands for anything."""
    pattern = ".*".join(re.escape(part) for part in shown.split("…"))
    return re.fullmatch(pattern, received, re.DOTALL) is not None
