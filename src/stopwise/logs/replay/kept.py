"""Decisions kept on disk as they are taken, so that a replay can go on after a crash.

One file for each policy, in a folder ``state``, beside a ``lock`` that keeps other commands out::

    40 bytes  b"SWSTOPS1" and the SHA-256 of what the decisions depend on
    records   8 bytes number of the first round, 4 bytes how many rounds, 4 bytes CRC-32 of
              these and of the decisions; then one byte a round, the stop

A record that was cut off, or whose checksum is wrong, ends what is believed; it is removed.
"""

import os
import struct
import zlib
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

from stopwise.errors import FolderBusyError, StopwiseError

Stops = NDArray[np.uint8]

MAGIC = b"SWSTOPS1"
HEAD = len(MAGIC) + 32
RECORD = struct.Struct("<QI")
CHECK = struct.Struct("<I")
FOLDER, LOCK = "state", "lock"


class Kept:
    """The folder in which a replay keeps what was decided.

    A context manager: entering it locks the folder for this command. On leaving, what was kept
    goes when all ended well (the results are written before) and when something given was wrong:
    what is left after that is left for the same command to go on from. What was kept for another
    question stays.

    Parameters
    ----------
    out : Path
        Where results go; ``state`` is made inside it.

    Raises
    ------
    FolderBusyError
        On entering, if another command is at work in the folder.
    """

    def __init__(self, out: Path) -> None:
        self._folder = out / FOLDER
        # what to remove if nothing comes of it, deepest first
        self._made = [place for place in (out, *out.parents) if not place.exists()]
        if self._folder.exists() and not self._made:
            self._made = [out]  # an earlier command made it
        self._files: list[KeptStops] = []
        self._lock: BinaryIO | None = None

    def stops(self, identity: bytes) -> "KeptStops":
        """Return the decisions of one policy; ``identity`` is a SHA-256 of what they rest on."""
        kept = KeptStops(self._folder / f"{identity.hex()[:16]}.stops", identity)
        self._files.append(kept)
        return kept

    def clear(self) -> None:
        """Remove what was kept for this question."""
        for file in self._files:
            file.close()
            file.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the files, let others in, and leave no folder with nothing in it."""
        for file in self._files:
            file.close()
        if self._lock is None:
            return
        _unlock(self._lock, self._folder / LOCK)
        self._lock = None
        for place in (self._folder, *self._made):
            with suppress(OSError):  # not there, or something else is in it
                place.rmdir()

    def __enter__(self) -> Self:
        self._lock = _locked(self._folder / LOCK)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None or issubclass(kind, StopwiseError):
            self.clear()
        self.close()


class KeptStops:
    """What one policy decided, round by round from the first.

    Examples
    --------
    >>> import hashlib, tempfile
    >>> identity = hashlib.sha256(b"this log, this policy").digest()
    >>> folder = tempfile.TemporaryDirectory()
    >>> kept = KeptStops(Path(folder.name, "state", "one.stops"), identity)
    >>> kept.append(np.array([2, 0, 1]))
    >>> kept.close()
    >>> again = KeptStops(kept.path, identity)
    >>> again.read.tolist()
    [2, 0, 1]
    >>> again.close()
    >>> folder.cleanup()
    """

    def __init__(self, path: Path, identity: bytes) -> None:
        self.path = path
        self._head = MAGIC + identity
        self._file: BinaryIO | None = None
        self.read: Stops = np.empty(0, dtype=np.uint8)
        self._n = 0
        if path.exists():
            self._open()

    def append(self, stops: NDArray[np.int64]) -> None:
        """Keep the decisions of the next rounds."""
        if self._file is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        file = self._file or self._open()
        data = stops.astype(np.uint8).tobytes()
        front = RECORD.pack(self._n, len(data))
        check = CHECK.pack(zlib.crc32(front + data))
        file.write(front + check + data)
        file.flush()
        self._n += len(stops)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> BinaryIO:
        file = os.fdopen(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666), "r+b")
        self._file = file
        content = file.read()
        good = 0
        pieces: list[bytes] = []
        if content[:HEAD] == self._head:
            good = HEAD
            while (piece := self._record(content, good)) is not None:
                pieces.append(piece)
                good += RECORD.size + CHECK.size + len(piece)
                self._n += len(piece)
        file.seek(good)
        file.truncate()
        if not good:
            file.write(self._head)
            file.flush()
        self.read = np.frombuffer(b"".join(pieces), dtype=np.uint8)
        return file

    def _record(self, content: bytes, at: int) -> bytes | None:
        start = at + RECORD.size + CHECK.size
        if len(content) < start:
            return None
        front = content[at : at + RECORD.size]
        first, n = RECORD.unpack(front)
        (check,) = CHECK.unpack_from(content, at + RECORD.size)
        data = content[start : start + n]
        whole = len(data) == n and first == self._n and zlib.crc32(front + data) == check
        return data if whole else None


def _locked(path: Path) -> BinaryIO:
    """Keep other processes out, until the file is closed or the process dies."""
    fcntl = _fcntl()
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "r+b")
        except FileNotFoundError:  # another command has just removed the folder
            continue
        if fcntl is None:
            return file
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            raise FolderBusyError(
                f"another replay is writing to {path.parent.parent}; wait for it, or choose "
                "another folder"
            ) from None
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
        file.close()  # it was removed before it was locked: that keeps nobody out


def _unlock(file: BinaryIO, path: Path) -> None:
    if _fcntl() is None:  # where open files cannot be removed
        file.close()
    with suppress(OSError):
        path.unlink()
    file.close()


def _fcntl() -> Any:
    try:
        return import_module("fcntl")
    except ImportError:  # not on Windows
        return None
