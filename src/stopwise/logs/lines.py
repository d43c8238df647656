"""Files of lines: decoding and grouping, so that errors name the line."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from stopwise.errors import InvalidLogError

T = TypeVar("T")

BOM = b"\xef\xbb\xbf"


def decoded(lines: Iterable[bytes], file: str) -> Iterator[str]:
    r"""Decode lines from UTF-8.

    Examples
    --------
    >>> list(decoded([b"caf\xe9\n"], "log.csv"))
    Traceback (most recent call last):
    stopwise.errors.InvalidLogError: log.csv, line 1: not UTF-8 (byte 4 is 0xe9); ...
    """
    for number, line in enumerate(lines, 1):
        try:
            yield (line.removeprefix(BOM) if number == 1 else line).decode()
        except UnicodeDecodeError as error:
            raise InvalidLogError(
                f"{file}, line {number}: not UTF-8 (byte {error.start + 1} is "
                f"0x{line[error.start]:02x}); save the file as UTF-8"
            ) from None


def grouped(records: Iterator[tuple[int, T]], size: int) -> Iterator[tuple[list[int], list[T]]]:
    """Yield up to ``size`` records at a time, lines and rows apart.

    If a record cannot be read, those before it come first, and then the error.

    Examples
    --------
    >>> list(grouped(iter([(2, "a"), (3, "b"), (4, "c")]), 2))
    [([2, 3], ['a', 'b']), ([4], ['c'])]
    """
    lines: list[int] = []
    rows: list[T] = []
    broken = None
    while broken is None:
        try:
            line, row = next(records)
        except StopIteration:
            break
        except InvalidLogError as error:
            broken = error
            break
        lines.append(line)
        rows.append(row)
        if len(rows) == size:
            yield lines, rows
            lines, rows = [], []
    if rows:
        yield lines, rows
    if broken is not None:
        raise broken
