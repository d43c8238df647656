"""The page of the dashboard that says what switching on would save."""

import asyncio
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from stopwise.proxy.config import Config
from stopwise.proxy.report import MIN_ROUNDS, Report
from stopwise.service.dashboard.pages import Page, Pages
from stopwise.service.http.request import Request
from stopwise.service.refusals import Refusal
from stopwise.service.server_log import LOG

KEPT = 60.0  # seconds that a report is shown before a new one is made
# Requests come first: it has the lowest priority (where there is such a thing).
COMMAND = "import os; getattr(os, 'nice', int)(19); from stopwise.cli.main import main; main()"


class ShadowPage:
    """Shows the report of ``stopwise proxy report``, made by a process of its own."""

    def __init__(self, config: Config, pages: Pages) -> None:
        self._config = config
        self._pages = pages
        self._making = asyncio.Lock()
        self._reports: dict[str, Report] = {}
        self._made = 0.0  # seconds since 1970

    async def show(self, request: Request) -> Page:
        """Return the page of a cascade."""
        name = self._pages.learner(request, "observe").spec.name
        if name not in self._config.cascades:
            raise Refusal(404, "unknown_path", f"the proxy has no cascade {name!r} now")
        async with self._making:
            if time.time() - self._made > KEPT:
                await self._make()
        values = {"name": name, "report": self._reports.get(name), "time": self._made}
        values["in_shadow"] = name in self._pages.in_shadow
        return "shadow.html", {"title": f"{name} in shadow mode", "least": MIN_ROUNDS, **values}

    async def _make(self) -> None:
        with TemporaryDirectory() as folder:
            words = ["proxy", "report", str(self._config.file), "--out", folder]
            command = [sys.executable, "-c", COMMAND, *words]
            process = await asyncio.create_subprocess_exec(*command, stdout=DEVNULL, stderr=PIPE)
            try:
                _, said = await process.communicate()
            finally:
                with suppress(ProcessLookupError):
                    process.kill()
            if process.returncode != 0:
                LOG.warning("no report", extra={"reason": said.decode(errors="replace")})
                raise Refusal(503, "unavailable", "no report could be made; the log says why")
            found = Path(folder, "report.json").read_bytes()
        self._reports = {one.cascade: one for one in msgspec.json.decode(found, type=list[Report])}
        self._made = time.time()
