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

import pytest

import stopwise as sw

# Imports everything once; then every line that it reads becomes a new process, which runs the
# command as the shell would. Two hundred starts would take half an hour otherwise.
LAUNCHER = """
import json, os, sys
import granian.server.embed, psycopg, uvloop
import stopwise.service.http.app
from stopwise.cli.main import main

for line in iter(sys.stdin.readline, ""):
    child = os.fork()
    if child == 0:
        sys.argv[1:] = json.loads(line)
        main()
        sys.exit(0)
    print("started", child, flush=True)
    print("ended", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
ROOT = Path(__file__).parents[3]


class Ended(Exception):
    """A server ended: its exit code, and the last lines that it printed."""

    def __init__(self, code: int, printed: str) -> None:
        super().__init__(f"exit code {code}\n{printed}")
        self.code = code
        self.printed = printed


class Server:
    """A server that can be started, killed and started again.

    Parameters
    ----------
    store : str
        The address of its store.
    **flags
        Of ``stopwise serve``.
    """

    def __init__(self, store: str, **flags: Any) -> None:
        self._store = store
        self._flags = {"log_level": "warning", "log_requests": "none", **flags}
        self.printed: deque[str] = deque(maxlen=200)  # on stdout and stderr, the newest
        self.port = self.pid = 0
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._lines: asyncio.Queue[str] = asyncio.Queue()

    async def start(self, store: str | None = None) -> None:
        """Start a server; return when it listens (it may still have its log to read).

        Raises
        ------
        Ended
            If it ends instead.
        """
        process = self._process = self._process or await self._launcher()
        command = ["serve", "--store", store or self._store, "--port", "0"]
        for name, value in self._flags.items():
            command += ["--" + name.replace("_", "-"), str(value)]
        assert process.stdin is not None
        self.printed.clear()
        process.stdin.write(json.dumps(command).encode() + b"\n")
        self.pid = int((await self._line(r"^started (\d+)"))[1])
        self.port = int((await self._line(r"listens on http://127.0.0.1:(\d+)"))[1])

    async def kill(self) -> None:
        """End the server as a power cut would."""
        await self._end(signal.SIGKILL)

    async def stop(self) -> int:
        """Ask the server to end; return its exit code."""
        return await self._end(signal.SIGTERM)

    async def ended(self) -> Ended:
        """Wait until the server has ended by itself."""
        with pytest.raises(Ended) as caught:
            await self._line("(?!)")
        return caught.value

    async def close(self) -> None:
        """Leave no process behind."""
        if self.pid:
            await self.kill()
        if self._process is not None:
            assert self._process.stdin is not None
            assert self._reading is not None
            self._process.stdin.close()
            await self._process.wait()
            await self._reading
            self._process = None

    async def _end(self, how: signal.Signals) -> int:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, how)
        return (await self.ended()).code

    async def _launcher(self) -> asyncio.subprocess.Process:
        package = Path(str(sw.__file__)).parents[1]
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            LAUNCHER,
            env=os.environ | {"PYTHONPATH": f"{package}{os.pathsep}{ROOT}"},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,  # so that the end comes after all that was printed
            start_new_session=True,
        )
        self._reading = asyncio.create_task(self._read(process))
        return process

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            self._lines.put_nowait(line.decode(errors="replace").rstrip())
        self._lines.put_nowait("ended 99")  # the launcher itself

    async def _line(self, pattern: str) -> re.Match[str]:
        """Wait for a line; raise `Ended` if the server has ended."""
        while True:
            line = await self._lines.get()
            self.printed.append(line)
            if found := re.search(pattern, line):
                return found
            if found := re.search(r"^ended (-?\d+)$", line):
                self.pid = 0
                raise Ended(int(found[1]), "\n".join(self.printed))


@contextlib.asynccontextmanager
async def server(store: str, **flags: Any) -> AsyncIterator[Server]:
    made = Server(store, **flags)
    try:
        yield made
    finally:
        await made.close()
