"""Reading failed cascades from the log again, one at a time and with pauses."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress

from stopwise.errors import StopwiseError
from stopwise.service.server_log import LOG

# A cascade that fails again and again costs at most a tenth of the time: it is read again after a
# pause of nine times what the last reading took.
SHARE = 9.0
FIRST_PAUSE = 1.0  # seconds after a reading that failed; each further one doubles it
LONGEST_PAUSE = 60.0


class Reloader:
    """Reads failed cascades again: ``failed`` returns their names, ``load`` reads one.

    A cascade is read at once when it fails. Then there is a pause: short where reading it takes
    little, doubled where it fails.
    """

    def __init__(
        self, failed: Callable[[], Collection[str]], load: Callable[[str], Awaitable[None]]
    ) -> None:
        self._failed = failed
        self._load = load
        self._pauses: dict[str, float] = {}  # seconds after the latest attempt
        self._due: dict[str, float] = {}  # when a cascade may be read again
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Look now which cascades have failed."""
        self._woken.set()

    async def run(self) -> None:
        """Read failed cascades, until cancelled."""
        while True:
            self._woken.clear()
            pause = None
            waiting = {name: self._due.get(name, 0.0) for name in self._failed()}
            if waiting:
                name = min(waiting, key=lambda one: waiting[one])
                pause = waiting[name] - time.monotonic()
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
            defect = None if isinstance(error, StopwiseError) else error
            LOG.error("a failed cascade could not be read again", extra=fields, exc_info=defect)
        else:
            seconds = time.monotonic() - began
            pause = min(SHARE * seconds, LONGEST_PAUSE)
            fields = {"cascade": name, "seconds": round(seconds, 3)}
            LOG.warning("a failed cascade was read again", extra=fields)
        self._pauses[name] = pause
        self._due[name] = time.monotonic() + pause
