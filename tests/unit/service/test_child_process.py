"""A child process ends with the call that runs it, and leaves nothing open."""

import asyncio
import gc
import os
import sys
import warnings
from pathlib import Path

import pytest

from stopwise.service.child_process import run_child

ENDLESS = "import os, signal, sys; open(sys.argv[1], 'w').write(str(os.getpid())); signal.pause()"


async def cancelled(note: Path) -> int:
    """Cancel a child that is running; return its process id."""
    call = asyncio.create_task(run_child([sys.executable, "-c", ENDLESS, str(note)]))
    while not (note.exists() and note.read_text()):
        await asyncio.sleep(0.005)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    return int(note.read_text())


def test_a_cancelled_call_leaves_no_process_and_no_open_pipe(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        child = asyncio.run(cancelled(tmp_path / "id"))
        gc.collect()  # an open pipe would warn here, and fail in another test
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


def test_the_output_and_the_exit_status_are_returned() -> None:
    program = "import sys; print(sys.stdin.read()); sys.exit('wrong')"
    finished = asyncio.run(run_child([sys.executable, "-c", program], b"given"))
    assert finished == (1, b"given\n", b"wrong\n")
