"""``stopwise serve`` in processes of its own, which can be killed."""

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
from collections import deque
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import stopwise as sw

# Imports everything once; then every line that it reads becomes a new process, which runs the
# command as the shell would. Two hundred starts would take half an hour otherwise.
NURSERY = """
import json, os, sys
import litestar, psycopg, uvicorn
import stopwise.service.http.app
from stopwise.cli.main import main

litestar.Litestar([])  # looks for plugins, once
for line in iter(sys.stdin.readline, ""):
    child = os.fork()
    if child == 0:
        sys.argv[1:] = json.loads(line)
        main()
        sys.exit(0)
    print("born", child, flush=True)
    print("ended", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
ROOT = Path(__file__).parents[3]


class Nursery:
    """Starts servers of one store, one after the other.

    Parameters
    ----------
    store : str
        Its address.
    **flags
        Of ``stopwise serve``.
    """

    def __init__(self, store: str, **flags: Any) -> None:
        flags = {"log_level": "warning", "log_requests": "none", **flags}
        self._command = ["serve", "--store", store, "--port", "0"]
        for name, value in flags.items():
            self._command += ["--" + name.replace("_", "-"), str(value)]
        self.said: deque[str] = deque(maxlen=200)  # on stderr, the newest
        self.port = self.pid = 0
        self._process: asyncio.subprocess.Process | None = None
        self._hearing: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start a server; return when it listens (it may still have its log to read)."""
        process = self._process = self._process or await self._opened()
        assert process.stdin is not None
        process.stdin.write(json.dumps(self._command).encode() + b"\n")
        self.pid = int((await self._line(r"born (\d+)"))[1])
        self.port = int((await self._line(r"listens on http://127.0.0.1:(\d+)"))[1])

    async def kill(self) -> None:
        """End the server as a power cut would."""
        await self._end(signal.SIGKILL)

    async def stop(self) -> int:
        """Ask the server to end; return its exit code."""
        return await self._end(signal.SIGTERM)

    async def close(self) -> None:
        """Leave no process behind."""
        if self.pid:
            await self.kill()
        if self._process is not None:
            assert self._process.stdin is not None
            assert self._hearing is not None
            self._process.stdin.close()
            await self._process.wait()
            await self._hearing
            self._process = None

    async def _end(self, how: signal.Signals) -> int:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, how)
        self.pid = 0
        return int((await self._line(r"ended (-?\d+)"))[1])

    async def _opened(self) -> asyncio.subprocess.Process:
        package = Path(str(sw.__file__)).parents[1]
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            NURSERY,
            env=os.environ | {"PYTHONPATH": f"{package}{os.pathsep}{ROOT}"},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        self._hearing = asyncio.create_task(self._hear(process))
        return process

    async def _hear(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        async for line in process.stderr:
            self.said.append(line.decode(errors="replace").rstrip())

    async def _line(self, pattern: str) -> re.Match[str]:
        assert self._process is not None
        assert self._process.stdout is not None
        while line := (await self._process.stdout.readline()).decode():
            if found := re.search(pattern, line):
                return found
            assert not line.startswith("ended"), f"{line}{chr(10).join(self.said)}"
        raise AssertionError("\n".join(self.said))


@contextlib.asynccontextmanager
async def nursery(store: str, **flags: Any) -> AsyncIterator[Nursery]:
    made = Nursery(store, **flags)
    try:
        yield made
    finally:
        await made.close()
