"""The page of the dashboard that says what switching on would save."""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from stopwise.proxy.config import Config
from stopwise.proxy.report import MIN_ROUNDS, Report
from stopwise.service.child_process import run_child
from stopwise.service.dashboard.pages import Page, Pages
from stopwise.service.domain.errors import Unavailable
from stopwise.service.http.errors import UnknownPath
from stopwise.service.http.request import Request
from stopwise.service.server_log import LOG

KEPT = 60.0  # seconds that a report is shown before a new one is made
SHARE = 10.0  # of the time that a page is open, a tenth at most goes into making reports
# Requests come first: it has the lowest priority (where there is such a thing).
COMMAND = "import os; getattr(os, 'nice', int)(19); from stopwise.cli.main import main; main()"


class ShadowPage:
    """Shows the report of ``stopwise proxy report``, made by a process of its own."""

    def __init__(
        self, config: Config, pages: Pages, background: Callable[[Awaitable[Any]], object]
    ) -> None:
        self._config = config
        self._pages = pages
        self._background = background
        self._making = asyncio.Lock()
        self._reports: dict[str, Report] = {}
        self._made = 0.0  # seconds since 1970
        # On the clock of time.monotonic, which nobody sets.
        self._old_at = 0.0  # when `show` makes another
        self._next = 0.0  # when `latest` makes another

    async def show(self, request: Request) -> Page:
        """Return the page of a cascade."""
        name = self._pages.allowed_cascade(request, "observe").spec.name
        if name not in self._config.cascades:
            raise UnknownPath(f"the proxy has no cascade {name!r} now")
        async with self._making:
            if time.monotonic() >= self._old_at:
                await self._make()
        values = {"name": name, "report": self._reports.get(name), "time": self._made}
        values["in_shadow"] = self._config.cascades[name].mode == "shadow"
        return "shadow.html", {"title": f"{name} in shadow mode", "least": MIN_ROUNDS, **values}

    def latest(self, name: str) -> Report | None:
        """Return the newest report of a cascade; if it is old, a newer one is begun."""
        if time.monotonic() >= self._next and not self._making.locked():
            self._next = time.monotonic() + KEPT  # also if it fails
            self._background(self._renew())
        return self._reports.get(name)

    async def _renew(self) -> None:
        async with self._making:
            began = time.monotonic()
            await self._make()
            now = time.monotonic()
            self._next = now + max(KEPT, SHARE * (now - began))

    async def _make(self) -> None:
        self._reports = {one.cascade: one for one in await self._reported()}
        self._made, self._old_at = time.time(), time.monotonic() + KEPT

    async def _reported(self) -> list[Report]:
        """Return the reports that a process of its own makes now."""
        with TemporaryDirectory() as folder:
            words = ["proxy", "report", str(self._config.file), "--out", folder]
            command = [sys.executable, "-c", COMMAND, *words]
            finished = await run_child(command)
            if finished.status != 0:
                reason = finished.errors.decode(errors="replace")
                LOG.warning("no report", extra={"reason": reason})
                raise Unavailable("no report could be made; the log says why")
            found = Path(folder, "report.json").read_bytes()
        return msgspec.json.decode(found, type=list[Report])
