"""A few rows of a log as arrays, checked."""

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from stopwise.logs.answers import Family, encode, family
from stopwise.logs.cells import Batch, Cells, shown
from stopwise.logs.columns import Layout
from stopwise.logs.problems import Problems
from stopwise.policies.recorded import Rounds

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class Chunk(msgspec.Struct, frozen=True, eq=False):
    r"""Rows ``first``, ``first + 1``, … of a log.

    Attributes
    ----------
    first : int
        The number of the first of them, from 0.
    rounds : Rounds
        What a policy needs to play them.
    codes : ndarray of int64, shape (n, K)
        Equal codes mean equal outputs, within this chunk; −1 beyond reach.
    labels : ndarray of int64, shape (n,)
        The right answers in the same codes; −1 where unknown. A right answer that no arm gave
        has a code of its own.
    values : tuple or None
        What a code stands for, ``values[code]``; there may be values that no row has. None
        where codes are the answers themselves, whole numbers.
    stops : ndarray of int64, shape (n,)
        The last arm that answered when the round was played; −1 if none did. (``rounds.reach``
        is deeper where further arms were run beside it.)
    wanted : ndarray of int64, shape (n,)
        Where the rule would have stopped, as far as the log says; else ``stops``.
    costs : ndarray of float64, shape (n, K), or None
        What each call really cost; NaN where the log does not say.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from stopwise.logs.log import Log
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "log.csv")
    ...     _ = path.write_text("context.age,output.a,output.b\n0.3,cat,cat\n0.9,cat,dog\n")
    ...     (chunk,) = Log(path).chunks()
    >>> chunk.codes.tolist(), chunk.values, chunk.rounds.differ.tolist()
    ([[0, 0], [0, 1]], ('cat', 'dog'), [[0], [1]])
    """

    first: int
    rounds: Rounds
    codes: Ints
    labels: Ints
    values: tuple[Any, ...] | None
    stops: Ints
    wanted: Ints
    costs: Floats | None

    @property
    def n(self) -> int:
        """How many rows there are."""
        return len(self.stops)


def make_chunk(
    batch: Batch, layout: Layout, expected: Family | None, file: str
) -> tuple[Chunk, Family | None]:
    """Check rows and make arrays of them.

    Parameters
    ----------
    batch : Batch
        The rows.
    layout : Layout
        What their columns mean.
    expected : {"number", "text"} or None
        What outputs earlier rows held; None if none did.
    file : str
        To be named in errors.

    Returns
    -------
    Chunk
        The rows.
    {"number", "text"} or None
        What outputs rows so far held.

    Raises
    ------
    InvalidLogError
        Naming the first row that is not as it must be.
    """
    problems = Problems(file, batch.first, batch)
    answers = [batch.cells(name, "answer") for name in layout.answers]
    kind = family(answers, layout.answers, expected, problems)
    problems.tell()
    columns, values = encode(answers, layout.answers, problems)
    outputs = columns[: len(layout.arms)]
    labels = columns[-1] if layout.label is not None else np.full(batch.n, -1)

    reach = _reach(outputs, layout, problems)
    stops, wanted, failed = _ends(batch, layout, reach, problems)
    contexts = _contexts(batch, layout, reach, problems)
    costs = _costs(batch, layout, problems)
    problems.tell()

    codes = np.stack(outputs, axis=1)
    rounds = Rounds(
        contexts=contexts,
        differ=_differ(outputs),
        reach=reach,
        failed=failed,
        wrong=None if layout.label is None else _wrong(codes, labels),
    )
    return Chunk(batch.first, rounds, codes, labels, values, stops, wanted, costs), kind


def _reach(outputs: list[Ints], layout: Layout, problems: Problems) -> Ints:
    """Return the last arm that answered, and note answers that come after a silent arm."""
    reach = np.full(len(outputs[0]), -1)
    for i, codes in enumerate(outputs):
        answered = codes >= 0
        hole = answered & (reach < i - 1)
        if hole.any():
            row = int(hole.argmax())
            problems.at(
                row,
                layout.outputs[int(reach[row]) + 1],
                f"is empty, but {layout.outputs[i]!r}, a deeper arm, is not; an arm is run only "
                "after all before it",
            )
        reach[answered & ~hole] = i
    return reach


def _ends(
    batch: Batch, layout: Layout, reach: Ints, problems: Problems
) -> tuple[Ints, Ints, Bools]:
    """Return where rounds stopped, where the rule wanted them to, and whether an arm failed."""
    n = batch.n
    failed = np.zeros(n, dtype=np.bool_)
    if layout.failed is not None:
        arm = _arms(batch.cells(layout.failed, "arm"), layout.failed, layout, problems)
        failed = arm >= 0
        problems.where(
            failed & (arm != reach + 1),
            layout.failed,
            lambda row: (
                f"says that {layout.arms[arm[row]]!r} failed, but the arm that comes after the "
                f"last output is {_arm_name(layout, int(reach[row]) + 1)}"
            ),
        )
    problems.where(
        (reach < 0) & ~failed,
        layout.outputs[0],
        "is empty, and so are all outputs of this row; that is a round only if 'failed' names "
        "the first arm",
    )
    stops = wanted = reach.copy()  # each array its own: somebody may change one
    if layout.stop is not None:
        said = _arms(batch.cells(layout.stop, "arm"), layout.stop, layout, problems)
        problems.where(
            (said > reach) & ~failed,
            layout.stop,
            lambda row: (
                f"says {layout.arms[said[row]]!r}, but the last output is that of "
                f"{_arm_name(layout, int(reach[row]))}"
            ),
        )
        wanted = np.where(said >= 0, said, reach)
        stops = np.minimum(wanted, reach)
    if layout.wanted is not None:
        said = _arms(batch.cells(layout.wanted, "arm"), layout.wanted, layout, problems)
        wanted = np.where(said >= 0, said, stops)
    return stops, wanted if wanted is not stops else stops.copy(), failed


def _arm_name(layout: Layout, arm: int) -> str:
    return repr(layout.arms[arm]) if 0 <= arm < len(layout.arms) else "none"


def _arms(cells: Cells, name: str, layout: Layout, problems: Problems) -> Ints:
    """Return arms given by name or 0-based number; −1 where none is given."""
    if cells.odd is not None:
        problems.at(cells.odd.row, name, f"is {cells.odd.words}; {_naming(layout)}")
    if cells.kind == "empty":
        return np.full(len(cells.values), -1)
    if cells.kind == "text":
        known = {arm: i for i, arm in enumerate(layout.arms)}
        known = {str(i): i for i in range(len(layout.arms))} | known
        table = np.array([known.get(word, -2) for word in cells.words], dtype=np.int64)
        arms = table[cells.values]
    elif cells.kind == "bool":
        arms = np.full(len(cells.values), -2)
    else:
        numbers = cells.values
        good = (numbers >= 0) & (numbers < len(layout.arms)) & (numbers == np.floor(numbers))
        arms = np.where(good, numbers, -2).astype(np.int64)
    if cells.null is not None:
        arms[cells.null] = -1

    def words(row: int) -> str:
        value = cells.values[row]
        said = repr(cells.words[int(value)]) if cells.kind == "text" else str(value)
        return f"is {said}; {_naming(layout)}"

    problems.where(arms == -2, name, words)
    return arms


def _naming(layout: Layout) -> str:
    return (
        f"it must name an arm ({', '.join(map(repr, layout.arms))}) or give its number, from 0 "
        f"to {len(layout.arms) - 1}"
    )


def _contexts(batch: Batch, layout: Layout, reach: Ints, problems: Problems) -> Floats:
    contexts = np.empty((batch.n, len(layout.context)))
    for k, name in enumerate(layout.base):
        contexts[:, k] = _numbers(batch.cells(name, "number"), name, problems)
    k = len(layout.base)
    for arm, names in enumerate(layout.revealed):
        for name in names:
            contexts[:, k] = _revealed(
                batch.cells(name, "number"), name, reach >= arm, layout.arms[arm], problems
            )
            k += 1
    return contexts


def _numbers(cells: Cells, name: str, problems: Problems) -> NDArray[Any]:
    """Return a column in which every cell must hold a finite number."""
    if _are_numbers(cells, name, problems):
        if cells.null is not None:
            problems.where(cells.null, name, "is empty; contexts must be known in every row")
        if cells.values.dtype == np.float64:
            wrong = ~np.isfinite(cells.values)
            if cells.null is not None:
                wrong &= ~cells.null
            problems.where(wrong, name, lambda row: f"is {cells.values[row]}; {FINITE}")
        return cells.values
    return np.zeros(len(cells.values))


FINITE = "contexts must be finite numbers"


def _revealed(
    cells: Cells, name: str, answered: Bools, arm: str, problems: Problems
) -> NDArray[Any]:
    """Return a column that must hold a finite number exactly where its arm answered, else 0."""
    if not _are_numbers(cells, name, problems):
        return np.zeros(len(cells.values))
    null = np.zeros(len(answered), dtype=np.bool_) if cells.null is None else cells.null
    problems.where(
        null & answered, name, f"is empty, but {arm!r} answered; it must hold what it revealed"
    )
    problems.where(
        ~null & ~answered,
        name,
        lambda row: f"is {cells.values[row]}, but {arm!r} gave no output that would reveal it",
    )
    problems.where(
        ~null & ~np.isfinite(cells.values),
        name,
        lambda row: f"is {cells.values[row]}; {FINITE}",
    )
    return np.where(answered, cells.values, 0.0)


def _are_numbers(cells: Cells, name: str, problems: Problems) -> bool:
    """Tell whether cells are numbers, and note those that are not; nulls are left to the caller."""
    if cells.odd is not None:
        problems.at(cells.odd.row, name, f"is {cells.odd.words}; {FINITE}")
    if cells.kind == "text":
        row = 0 if cells.null is None else int(cells.null.argmin())
        problems.at(row, name, f"is {shown(cells.words[cells.values[row]])}; {FINITE}")
        return False
    return True


def _costs(batch: Batch, layout: Layout, problems: Problems) -> Floats | None:
    if not layout.costs:
        return None
    costs = np.full((batch.n, len(layout.arms)), np.nan)
    for arm, name in enumerate(layout.costs):
        if name is None:
            continue
        cells = batch.cells(name, "number")
        if not _are_numbers(cells, name, problems):
            continue
        known = np.ones(batch.n, dtype=np.bool_) if cells.null is None else ~cells.null
        problems.where(
            known & ~((cells.values >= 0) & np.isfinite(cells.values)),
            name,
            lambda row, v=cells.values: f"is {v[row]}; what a call cost is a number ≥ 0",
        )
        costs[known, arm] = cells.values[known]
    return costs


def _differ(outputs: list[Ints]) -> NDArray[np.uint8]:
    """Return whether each pair disagreed; a pair is known where its deeper arm answered."""
    pairs = [
        (first != second) & (second >= 0)
        for i, first in enumerate(outputs)
        for second in outputs[i + 1 :]
    ]
    return np.stack(pairs, axis=1).view(np.uint8)


def _wrong(codes: Ints, labels: Ints) -> NDArray[np.uint8]:
    """Return 1 where an arm was wrong, 0 where it was right, 2 where that is not known."""
    wrong = (codes != labels[:, None]).view(np.uint8)
    wrong[(codes < 0) | (labels < 0)[:, None]] = 2
    return wrong
