"""Dashboard page with the shadow report."""

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

MAX_AGE = 60.0  # seconds for which a report is kept
MIN_IDLE = 10.0  # pause before the next report, as a multiple of the time that the last one took
# Run at the lowest priority, where the system supports it, so as not to delay requests.
COMMAND = "import os; getattr(os, 'nice', int)(19); from stopwise.cli.main import main; main()"


class ShadowPage:
    """Shows the output of ``stopwise proxy report``, which runs as a separate process."""

    def __init__(
        self, config: Config, pages: Pages, background: Callable[[Awaitable[Any]], object]
    ) -> None:
        self._config = config
        self._pages = pages
        self._background = background
        self._making = asyncio.Lock()
        self._reports: dict[str, Report] = {}
        self._made = 0.0  # seconds since 1970
        # Both in time.monotonic() seconds:
        self._expires = 0.0  # when `show` makes a new report
        self._next = 0.0  # when `latest` makes a new report

    async def show(self, request: Request) -> Page:
        """Return the shadow report page of a cascade; make a new report if the last one is old."""
        name = self._pages.allowed_cascade(request, "observe").spec.name
        if name not in self._config.cascades:
            raise UnknownPath(f"the proxy does not serve cascade {name!r}")
        async with self._making:
            if time.monotonic() >= self._expires:
                await self._make()
        values = {
            "title": f"{name} in shadow mode",
            "name": name,
            "report": self._reports.get(name),
            "time": self._made,
            "in_shadow": self._config.cascades[name].mode == "shadow",
            "min_rounds": MIN_ROUNDS,
        }
        return "shadow.html", values

    def latest(self, name: str) -> Report | None:
        """Return a cascade's newest report; if it is old, start a new one in the background."""
        if time.monotonic() >= self._next and not self._making.locked():
            self._next = time.monotonic() + MAX_AGE  # also applies if making the report fails
            self._background(self._renew())
        return self._reports.get(name)

    async def _renew(self) -> None:
        async with self._making:
            began = time.monotonic()
            await self._make()
            now = time.monotonic()
            self._next = now + max(MAX_AGE, MIN_IDLE * (now - began))

    async def _make(self) -> None:
        self._reports = {report.cascade: report for report in await self._run_report()}
        self._made, self._expires = time.time(), time.monotonic() + MAX_AGE

    async def _run_report(self) -> list[Report]:
        """Run ``stopwise proxy report`` in a separate process and return its reports."""
        with TemporaryDirectory() as folder:
            arguments = ["proxy", "report", str(self._config.file), "--out", folder]
            finished = await run_child([sys.executable, "-c", COMMAND, *arguments])
            if finished.status != 0:
                reason = finished.errors.decode(errors="replace")
                LOG.warning("shadow report failed", extra={"reason": reason})
                raise Unavailable("the shadow report failed; see the log of the proxy")
            reports = Path(folder, "report.json").read_bytes()
        return msgspec.json.decode(reports, type=list[Report])
