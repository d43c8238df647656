"""Run commands in child processes, for work that would delay requests."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

PIPE = asyncio.subprocess.PIPE


class ChildResult(NamedTuple):
    """The exit status and the output of a process."""

    status: int
    output: bytes
    errors: bytes


async def run_child(command: Sequence[str], stdin: bytes = b"") -> ChildResult:
    """Run a command and return its output.

    If the call is cancelled, the process is killed and waited for.

    Examples
    --------
    >>> asyncio.run(run_child(["tr", "a-z", "A-Z"], b"text"))
    ChildResult(status=0, output=b'TEXT', errors=b'')
    """
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, stderr=PIPE)
    try:
        output, errors = await process.communicate(stdin)
    except BaseException:
        with suppress(ProcessLookupError):
            process.kill()
        await process.communicate()  # so that its pipes close before the event loop does
        raise
    assert process.returncode is not None  # `communicate` waits for the process
    return ChildResult(process.returncode, output, errors)
