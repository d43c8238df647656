"""``stopwise serve`` as a real process that tests can kill and start again on the same port."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

import stopwise as sw

START = 120.0  # seconds: the machine may be busy


class Process:
    def __init__(self, store: Path, *flags: str) -> None:
        self._store = store
        self._flags = flags
        self._port = 0  # the first start takes a free one, later ones the same
        self._process: subprocess.Popen[str] | None = None
        self._restarting: threading.Thread | None = None
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed in stop)
        self.url = ""

    def start(self) -> Self:
        command = [sys.executable, "-m", "stopwise", "serve", "--port", str(self._port)]
        paths = [str(Path(str(sw.__file__)).parents[1]), os.environ.get("PYTHONPATH", "")]
        self._process = subprocess.Popen(
            [*command, "--store", str(self._store), *self._flags],
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        words = [word for word in line.split() if word.startswith("http://")]
        if not words:
            self.kill()
            self._log.seek(0)
            raise RuntimeError(f"the service did not start: {line}{self._log.read()}")
        self.url = words[0]
        self._port = int(self.url.rpartition(":")[2])
        return self

    def ready(self) -> Self:
        with sw.Client(self.url) as client:
            assert client.ready(wait=START)
        return self

    def kill_and_restart(self) -> None:
        """Kill it, and start it again in the background."""
        self.kill()
        self._restarting = threading.Thread(target=self.start)
        self._restarting.start()

    def kill(self) -> None:
        """kill -9: it cannot close anything."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)
        self._log.close()

    def _end(self, how: signal.Signals) -> None:
        if self._restarting is not None:
            self._restarting.join()
            self._restarting = None
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(how)
            process.wait(30)
            assert process.stdout is not None
            process.stdout.close()

    def __enter__(self) -> Self:
        return self.start().ready()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
