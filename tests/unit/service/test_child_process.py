"""Child processes end with the call that runs them."""

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
    """Cancel a call while its child runs; return the process id."""
    call = asyncio.create_task(run_child([sys.executable, "-c", ENDLESS, str(note)]))
    while not (note.exists() and note.read_text()):
        await asyncio.sleep(0.005)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    return int(note.read_text())


def test_cancelled_call_leaves_no_process_and_no_open_pipe(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        child = asyncio.run(cancelled(tmp_path / "id"))
        gc.collect()  # an open pipe would otherwise warn in a later test
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


def test_run_child_returns_output_and_exit_status() -> None:
    program = "import sys; print(sys.stdin.read()); sys.exit('wrong')"
    result = asyncio.run(run_child([sys.executable, "-c", program], b"input"))
    assert result == (1, b"input\n", b"wrong\n")
