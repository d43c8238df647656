"""Write a snapshot in a process of its own, from the newest snapshot and the events since.

So no request waits while a state is copied, and no replica needs all of it. ``python -m`` runs this
module; the address of the store, which may contain a password, comes on stdin.
"""

import asyncio
import os
import sys
from contextlib import suppress

from stopwise.errors import StopwiseError, StoreError
from stopwise.service.recovery import recover_state
from stopwise.service.state import State
from stopwise.service.tools.reading import existing


async def write_snapshot(where: str, state: State | None = None) -> int:
    """Write a snapshot of a log or of the state at its end; return its position, 0 if others do."""
    async with existing(where) as store:
        if not await store.claim_snapshot():
            return 0
        snapshot = (state or await recover_state(store)).snapshot()
        State.restored(snapshot)  # it must be readable, since it replaces an older one that is
        await store.save_snapshot(snapshot)
        return snapshot.position


async def snapshot_process(where: str) -> int:
    """Run `write_snapshot` in another process, which ends with this call."""
    pipe = asyncio.subprocess.PIPE
    command = (sys.executable, "-m", "stopwise.service.snapshotting")
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe)
    try:
        written, failed = await process.communicate(where.encode())
    finally:
        with suppress(ProcessLookupError):
            process.kill()
    if process.returncode != 0:
        raise StoreError(failed.decode().strip() or f"it ended with code {process.returncode}")
    return int(written)


if __name__ == "__main__":
    with suppress(AttributeError):  # Windows
        os.nice(19)  # requests come first
    try:
        sys.stdout.write(str(asyncio.run(write_snapshot(sys.stdin.read()))))
    except StopwiseError as error:
        sys.exit(str(error))
