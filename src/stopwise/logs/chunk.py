"""A few rows of a log as arrays, checked."""

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from stopwise.logs.answers import encode, family
from stopwise.logs.cells import Cells, Family, RowBatch
from stopwise.logs.columns import Layout
from stopwise.logs.problems import MOST, Problems
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
        What a policy needs to run them.
    codes : ndarray of int64, shape (n, K)
        Equal codes mean equal outputs, within this chunk; −1 beyond reach.
    labels : ndarray of int64, shape (n,)
        The right answers in the same codes; −1 where unknown. A right answer that no arm gave
        has a code of its own.
    values : tuple or None
        What a code stands for, ``values[code]``; there may be values that no row has. None
        where codes are the answers themselves, whole numbers.
    stops : ndarray of int64, shape (n,)
        The last arm that answered when the round was recorded; −1 if none did. (``rounds.reach``
        is deeper where further arms were run besides.)
    rule_stop : ndarray of int64, shape (n,)
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
    rule_stop: Ints
    costs: Floats | None

    @property
    def n(self) -> int:
        """How many rows there are."""
        return len(self.stops)


def make_chunk(
    batch: RowBatch, layout: Layout, expected: Family | None, file: str
) -> tuple[Chunk, Family | None]:
    """Check rows and make arrays of them.

    ``expected`` is the family of outputs of earlier rows, None if they held none; with the chunk
    comes that of the rows so far. Raises `InvalidLogError` if cells are wrong.
    """
    problems = Problems(file, batch.first, batch.lines)
    answers = [batch.cells(name, "answer") for name in layout.answers]
    kind = family(answers, layout.answers, expected, problems)
    problems.raise_any()
    columns, values = encode(answers, layout.answers, problems)
    outputs = columns[: len(layout.arms)]
    labels = columns[-1] if layout.label is not None else np.full(batch.n, -1)

    reach = _reach(outputs, layout, problems)
    problems.raise_any()
    stops, rule_stop, failed = _ends(batch, layout, reach, problems)
    contexts = _contexts(batch, layout, reach, problems)
    costs = _costs(batch, layout, problems)
    problems.raise_any()

    codes = np.stack(outputs, axis=1)
    rounds = Rounds(
        contexts=contexts,
        differ=_differ(outputs),
        reach=reach,
        failed=failed,
        wrong=None if layout.label is None else _wrong(codes, labels),
    )
    return Chunk(batch.first, rounds, codes, labels, values, stops, rule_stop, costs), kind


def _reach(outputs: list[Ints], layout: Layout, problems: Problems) -> Ints:
    """Return the last arm that answered, and note answers that come after an arm without one."""
    reach = np.full(len(outputs[0]), -1)
    for i, codes in enumerate(outputs):
        answered = codes >= 0
        hole = answered & (reach < i - 1)
        for row in np.flatnonzero(hole)[:MOST].tolist():
            problems.at(
                row,
                layout.outputs[int(reach[row]) + 1],
                f"is empty, but {layout.outputs[i]!r}, a deeper arm, is not; an arm is run only "
                "after all before it",
            )
        reach[answered & ~hole] = i
    return reach


def _ends(
    batch: RowBatch, layout: Layout, reach: Ints, problems: Problems
) -> tuple[Ints, Ints, Bools]:
    """Return where rounds stopped, where the rule stopped them, and whether an arm failed."""
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
    stops = rule_stop = reach.copy()  # each array its own: somebody may change one
    if layout.stop is not None:
        found = _arms(batch.cells(layout.stop, "arm"), layout.stop, layout, problems)
        problems.where(
            (found > reach) & ~failed,
            layout.stop,
            lambda row: (
                f"says {layout.arms[found[row]]!r}, but the last output is that of "
                f"{_arm_name(layout, int(reach[row]))}"
            ),
        )
        rule_stop = np.where(found >= 0, found, reach)
        stops = np.minimum(rule_stop, reach)
    if layout.rule_stop is not None:
        found = _arms(batch.cells(layout.rule_stop, "arm"), layout.rule_stop, layout, problems)
        rule_stop = np.where(found >= 0, found, stops)
    return stops, rule_stop if rule_stop is not stops else stops.copy(), failed


def _arm_name(layout: Layout, arm: int) -> str:
    return repr(layout.arms[arm]) if 0 <= arm < len(layout.arms) else "none"


def _arms(cells: Cells, name: str, layout: Layout, problems: Problems) -> Ints:
    """Return arms given by name or 0-based number; −1 where none is given."""
    for row, cell in cells.wrong.items():
        problems.at(row, name, f"is {cell.words}; {_naming(layout)}")
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

    problems.where(arms == -2, name, lambda row: f"is {cells.describe(row)}; {_naming(layout)}")
    return arms


def _naming(layout: Layout) -> str:
    return (
        f"it must name an arm ({', '.join(map(repr, layout.arms))}) or give its number, from 0 "
        f"to {len(layout.arms) - 1}"
    )


COST = "what a call cost is a number ≥ 0"
FINITE = "contexts must be finite numbers (with a decimal point)"


def _contexts(batch: RowBatch, layout: Layout, reach: Ints, problems: Problems) -> Floats:
    contexts = np.empty((batch.n, len(layout.context)))
    for k, name in enumerate(layout.base):
        contexts[:, k], null = _numbers(batch, name, FINITE, problems)
        problems.where(null, name, "is empty; contexts must be known in every row")
    columns = [(arm, name) for arm, names in enumerate(layout.revealed) for name in names]
    for k, (arm, name) in enumerate(columns, len(layout.base)):
        values, null = _numbers(batch, name, FINITE, problems)
        answered, who = reach >= arm, layout.arms[arm]
        problems.where(
            null & answered, name, f"is empty, but {who!r} answered; it must hold what it revealed"
        )
        problems.where(
            ~null & ~answered,
            name,
            lambda row, v=values, who=who: (
                f"is {v[row]}, but {who!r} gave no output that would reveal it"
            ),
        )
        contexts[:, k] = np.where(answered, values, 0.0)
    return contexts


def _costs(batch: RowBatch, layout: Layout, problems: Problems) -> Floats | None:
    if not layout.costs:
        return None
    costs = np.full((batch.n, len(layout.arms)), np.nan)
    for arm, name in enumerate(layout.costs):
        if name is not None:
            values, null = _numbers(batch, name, COST, problems)
            problems.where(~null & (values < 0), name, lambda row, v=values: f"is {v[row]}; {COST}")
            costs[~null, arm] = values[~null]
    return costs


def _numbers(
    batch: RowBatch, name: str, needed: str, problems: Problems
) -> tuple[NDArray[Any], Bools]:
    """Return a column of finite numbers, and which cells are empty."""
    cells = batch.cells(name, "number")
    null = np.zeros(batch.n, dtype=np.bool_) if cells.null is None else cells.null
    for row, cell in cells.wrong.items():
        problems.at(row, name, f"is {cell.words}; {needed}")
    values = cells.values
    if cells.kind == "text":
        problems.where(~null, name, lambda row: f"is {cells.describe(row)}; {needed}")
        return np.zeros(batch.n), null
    if values.dtype == np.float64:
        problems.where(
            ~null & ~np.isfinite(values), name, lambda row: f"is {values[row]}; {needed}"
        )
    return values, null


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
