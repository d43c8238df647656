"""Reload failed cascades from the log, one at a time and with pauses."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress

from stopwise.errors import StopwiseError
from stopwise.service.server_log import LOG

# The pause after a reload, as a multiple of its duration. If a cascade keeps failing, its reloads
# then take at most a tenth of the time.
PAUSE_FACTOR = 9.0
FIRST_PAUSE = 1.0  # seconds after the first failed reload; doubled after each further failure
LONGEST_PAUSE = 60.0


class Reloader:
    """Reloads failed cascades: ``failed`` returns their names, ``load`` reads one from the log.

    A cascade is reloaded as soon as it fails. If it fails again, there is a pause before the next
    attempt.
    """

    def __init__(
        self, failed: Callable[[], Collection[str]], load: Callable[[str], Awaitable[None]]
    ) -> None:
        self._failed = failed
        self._load = load
        self._pauses: dict[str, float] = {}  # seconds after the latest attempt
        self._due: dict[str, float] = {}  # earliest time of the next attempt
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Check for failed cascades now."""
        self._woken.set()

    async def run(self) -> None:
        """Reload failed cascades until cancelled."""
        while True:
            self._woken.clear()
            pause = None
            due = {name: self._due.get(name, 0.0) for name in self._failed()}
            if due:
                name = min(due, key=due.__getitem__)
                pause = due[name] - time.monotonic()
                if pause <= 0:
                    await self._attempt(name)
                    continue
            with suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), pause)

    async def _attempt(self, name: str) -> None:
        began = time.monotonic()
        try:
            await self._load(name)
        except Exception as error:
            pause = min(max(FIRST_PAUSE, 2 * self._pauses.get(name, 0.0)), LONGEST_PAUSE)
            fields = {"cascade": name, "reason": str(error), "pause": pause}
            traceback = None if isinstance(error, StopwiseError) else error
            LOG.error("cannot reload a failed cascade", extra=fields, exc_info=traceback)
        else:
            seconds = time.monotonic() - began
            pause = min(PAUSE_FACTOR * seconds, LONGEST_PAUSE)
            fields = {"cascade": name, "seconds": round(seconds, 3)}
            LOG.warning("a failed cascade was reloaded", extra=fields)
        self._pauses[name] = pause
        self._due[name] = time.monotonic() + pause
