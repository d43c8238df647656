"""Rows of a log as checked arrays."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec
import numpy as np

from stopwise.arrays import Bools, Bytes, Floats, Ints
from stopwise.logs.encoding import Column, Encoding, column_numbers
from stopwise.logs.rows import (
    EXACT,
    MOST,
    Cells,
    Family,
    Layout,
    Problems,
    RowBatch,
    is_blank,
    parse_number,
)
from stopwise.records import RecordedRounds

Codes: TypeAlias = list[Ints]

TRUTH = {"1": True, "1.0": True, "true": True, "0": False, "0.0": False, "false": False}
SAME = {"true": "1", "yes": "1", "false": "0", "no": "0"}
ALLOWED = "text, bools or numbers of 64 bits"


class Chunk(msgspec.Struct, frozen=True, eq=False):
    """Rows ``first``, ``first + 1``, … of a log."""

    first: int  # from 0
    rounds: RecordedRounds  # what a policy needs to run them
    codes: Ints  # (n, K): equal codes mean equal outputs, within this chunk; −1 where there is none
    labels: Ints  # (n,): the right answers in the same codes; −1 where unknown
    values: tuple[Any, ...] | None  # of each code; None where codes are the answers themselves
    stops: Ints  # (n,): where rounds stopped, perhaps before the last answer; −1 if none answered
    rule_stop: Ints  # (n,): where the rule would have stopped, if the log says; else ``stops``
    costs: Floats | None  # (n, K): what calls really cost; NaN where the log does not say

    @property
    def n(self) -> int:
        """How many rows there are."""
        return len(self.stops)

    @property
    def labelled(self) -> Bools:
        """Of which rows it is known whether each arm that answered was right."""
        labelled = self.rounds.labelled
        return np.zeros(self.n, dtype=np.bool_) if labelled is None else labelled

    def answer(self, code: int) -> Any:
        """Return the answer that a code ≥ 0 means."""
        return code if self.values is None else self.values[code]


def make_chunk(
    batch: RowBatch,
    layout: Layout,
    expected: Family | None,
    file: str,
    encoding: Encoding,
    normalise: bool = False,
) -> tuple[Chunk, Family | None]:
    """Check rows and turn them into arrays.

    ``expected`` is the family of the outputs of earlier rows, None if they held none; that of all
    rows so far is returned too. ``encoding`` is that of the context; ``normalise`` says whether
    answers are normalised. Raises `InvalidLogError` if cells are wrong.
    """
    problems = Problems(file, batch.first, batch.lines)
    answers = [batch.cells(name, "answer") for name in layout.answers]
    if normalise:
        answers = [normalised(batch, name) for name in layout.answers]
    stop, _ = _named_arms(batch, layout.stop, layout)
    # the label comes after the arms, so no stop reaches it
    answers = [without_blanks(cells, stop >= i) for i, cells in enumerate(answers)]
    columns, values, family = encode(answers, layout.answers, expected, problems)
    outputs = columns[: len(layout.arms)]
    labels = columns[-1] if layout.label is not None else np.full(batch.n, -1)

    answered = _answered(outputs, layout, problems)
    problems.raise_any()
    stops, rule_stop, failed = _ends(batch, layout, answered, problems)
    contexts = _contexts(batch, layout, answered, problems, encoding)
    costs = _costs(batch, layout, problems)
    codes = np.stack(outputs, axis=1)
    right, judged = _right(batch, layout, codes, labels, problems)
    problems.raise_any()

    # what is known of some arms only is left out: depths must be compared on the same rows
    labelled = (answered > 0) & (judged | (codes < 0)).all(axis=1)
    has_labels = layout.label is not None or bool(layout.right)
    rounds = RecordedRounds(
        contexts=contexts,
        differ=_differ(outputs),
        answered=answered,
        failed=failed,
        right=right if has_labels else None,
        labelled=labelled if has_labels else None,
    )
    return Chunk(batch.first, rounds, codes, labels, values, stops, rule_stop, costs), family


def _answered(outputs: list[Ints], layout: Layout, problems: Problems) -> Ints:
    """Return how many arms have an output, and record outputs that follow a missing one."""
    answered = np.zeros(len(outputs[0]), dtype=np.int64)
    for i, codes in enumerate(outputs):
        has_output = codes >= 0
        hole = has_output & (answered < i)
        for row in np.flatnonzero(hole)[:MOST].tolist():
            problems.at(
                row,
                layout.outputs[int(answered[row])],
                f"is empty, but {layout.outputs[i]!r}, a deeper arm, is not; an arm is run only "
                "after all before it",
            )
        answered[has_output & ~hole] = i + 1
    return answered


def _ends(
    batch: RowBatch, layout: Layout, answered: Ints, problems: Problems
) -> tuple[Ints, Ints, Bools]:
    """Return where rounds stopped, where the rule stopped them, and whether an arm failed."""
    arm = _arms(batch, layout.failed, layout, problems)
    failed = arm >= 0
    problems.where(
        failed & (arm != answered),
        layout.failed or "",
        lambda row: (
            f"says that {layout.arms[arm[row]]!r} failed, but the arm that comes after the "
            f"last output is {_arm_name(layout, int(answered[row]))}"
        ),
    )
    problems.where(
        (answered == 0) & ~failed,
        layout.outputs[0],
        "is empty, and so are all outputs of this row; that is a round only if 'failed' names "
        "the first arm",
    )
    stop, last = _arms(batch, layout.stop, layout, problems), answered - 1
    problems.where(
        (stop > last) & ~failed,
        layout.stop or "",
        lambda row: (
            f"says {layout.arms[stop[row]]!r}, but the last output is that of "
            f"{_arm_name(layout, int(last[row]))}"
        ),
    )
    stops = np.where(stop >= 0, np.minimum(stop, last), last)
    rule_stop = _arms(batch, layout.rule_stop, layout, problems)
    if layout.rule_stop is None:  # a stop beyond a failure is that of the rule
        rule_stop = stop
    return stops, np.where(rule_stop >= 0, rule_stop, stops), failed


def _arm_name(layout: Layout, arm: int) -> str:
    return repr(layout.arms[arm]) if 0 <= arm < len(layout.arms) else "none"


def _arms(batch: RowBatch, name: str | None, layout: Layout, problems: Problems) -> Ints:
    """Return the arms in a column, −1 where there is none, and record cells that name no arm."""
    arms, unknown = _named_arms(batch, name, layout)
    if name is not None:
        cells = batch.cells(name, "text")
        naming = (
            f"it must name an arm ({', '.join(map(repr, layout.arms))}) or give its number, from "
            f"0 to {len(layout.arms) - 1}"
        )
        problems.where(unknown, name, lambda row: f"is {cells.describe(row)}; {naming}")
    return arms


def _named_arms(batch: RowBatch, name: str | None, layout: Layout) -> tuple[Ints, Bools]:
    """Return arms given by name or 0-based number, −1 for none, and which cells name no arm."""
    if name is None:
        return np.full(batch.n, -1), np.zeros(batch.n, dtype=np.bool_)
    cells, k = batch.cells(name, "text"), len(layout.arms)
    known = {f"{i}{end}": i for i in range(k) for end in ("", ".0")}
    known |= {arm: i for i, arm in enumerate(layout.arms)}
    words = cells.words or ("",)  # an empty column has no words
    arms = np.array([known.get(word, -1) for word in words])[cells.values]
    unknown = np.array([not is_blank(word) and word not in known for word in words])[cells.values]
    arms[cells.null] = -1
    return arms, unknown & ~cells.null


def _contexts(
    batch: RowBatch, layout: Layout, answered: Ints, problems: Problems, encoding: Encoding
) -> Floats:
    parts: list[Floats] = [encoding.rows(batch, layout.sources, problems)]
    columns = [(arm, name) for arm, names in enumerate(layout.revealed) for name in names]
    for arm, name in columns:
        values, null = _numbers(batch, name, problems)
        ran, who = answered > arm, layout.arms[arm]
        problems.where(
            null & ran, name, f"is empty, but {who!r} answered; it must hold what it revealed"
        )
        problems.where(
            ~null & ~ran,
            name,
            lambda row, v=values, who=who: (
                f"is {v[row]}, but {who!r} gave no output that would reveal it"
            ),
        )
        parts.append(np.where(ran, values, 0.0)[:, None])
    return np.hstack(parts)


def _costs(batch: RowBatch, layout: Layout, problems: Problems) -> Floats | None:
    if not layout.costs:
        return None
    costs = np.full((batch.n, len(layout.arms)), np.nan)
    for arm, name in enumerate(layout.costs):
        if name is not None:
            values, null = _numbers(batch, name, problems)
            problems.where(
                values < 0, name, lambda row, v=values: f"is {v[row]}; a call costs a number ≥ 0"
            )
            costs[~null, arm] = values[~null]
    return costs


def _right(
    batch: RowBatch, layout: Layout, codes: Ints, labels: Ints, problems: Problems
) -> tuple[Bools, Bools]:
    """Return which arms were right (n, K), and of which arms that is known.

    The label says it of every arm that answered, the columns ``right.<arm>`` of one arm each. A log
    may have both where they agree.
    """
    judged = (codes >= 0) & (labels >= 0)[:, None]
    right = judged & (codes == labels[:, None])
    for arm, name in enumerate(layout.right):
        if name is None:
            continue
        cells = batch.cells(name, "text")
        words, who = cells.words or ("",), layout.arms[arm]  # an empty column has no words
        truth = [TRUTH.get(word.strip().lower()) for word in words]
        filled = ~cells.null & np.array([not is_blank(word) for word in words])[cells.values]
        valid = np.array([known is not None for known in truth])[cells.values]
        value = np.array([known is True for known in truth])[cells.values]
        problems.where(
            filled & ~valid,
            name,
            lambda row, cells=cells: (
                f"is {cells.describe(row)}; write 1 or true if the answer was right, 0 or false if "
                "it was wrong, and leave the cell empty if that is unknown"
            ),
        )
        problems.where(
            filled & (codes[:, arm] < 0),
            name,
            f"is not empty, but {who!r} gave no output that could be right",
        )
        filled &= valid
        problems.where(
            filled & judged[:, arm] & (right[:, arm] != value),
            name,
            lambda row, value=value, who=who: (
                f"says that {who!r} was {'right' if value[row] else 'wrong'}, and "
                f"{layout.label!r} says the opposite; correct one, or choose: Columns(right=()) "
                "reads only the label, Columns(label='') only whether arms were right"
            ),
        )
        right[:, arm] = np.where(filled, value, right[:, arm])
        judged[:, arm] |= filled
    return right, judged


def _numbers(batch: RowBatch, name: str, problems: Problems) -> tuple[Floats, Bools]:
    """Return a column of finite numbers, and which cells are empty."""
    values, null = column_numbers(Column(name, fill=0.0), batch, name, problems).T
    return values, null > 0


def _differ(outputs: list[Ints]) -> Bytes:
    """Return whether each pair disagreed; a pair is known where its deeper arm answered."""
    pairs = [
        (first != second) & (second >= 0)
        for i, first in enumerate(outputs)
        for second in outputs[i + 1 :]
    ]
    return np.stack(pairs, axis=1).view(np.uint8)


def encode(
    columns: Sequence[Cells], names: Sequence[str], expected: Family | None, problems: Problems
) -> tuple[Codes, tuple[Any, ...] | None, Family | None]:
    """Give equal answers equal codes ≥ 0, and missing ones −1.

    Returns the numbers of each column; what they mean, or None where they are the answers
    themselves; and the family of all answers so far. ``expected`` is that of earlier rows.
    """
    expected = _family(columns, names, expected, problems)
    problems.raise_any()
    if expected == "number":
        codes, values = _number_codes(columns, names, problems)
    else:
        codes, values = _text_codes(columns)
    for column, cells in zip(codes, columns, strict=True):
        column[cells.null] = -1
    return codes, values, expected


def mixed(found: str, expected: Family | None) -> str:
    """Word the error of two kinds of outputs in one log."""
    return (
        f"mixed types: is {found}, where the outputs so far are {expected}s; outputs and labels "
        "must be all numbers or all text, to be compared (--normalise-answers, "
        "Log(normalise_answers=True) reads 1, true and yes alike)"
    )


def normal(answer: Any) -> str:
    """Return an answer in its normal form: "1" for 1, 1.0, true and " Yes"."""
    text = str(answer).strip().casefold()
    number = parse_number(text)
    if isinstance(number, float) and number.is_integer():
        number = int(number)
    return SAME.get(text, text if number is None else str(number))


def normalised(batch: RowBatch, name: str) -> Cells:
    """Return answers in their normal form, all of them texts; blank ones are missing."""
    wrong = batch.cells(name, "answer").wrong.items()
    cells = batch.cells(name, "text")
    words = [normal(word) for word in cells.words]
    index = {word: k for k, word in enumerate(dict.fromkeys(words))}
    codes = np.array([index[word] for word in words] or [0])[cells.values]
    null = cells.null | (codes == index.get("", -1))
    neither = {row: cell for row, cell in wrong if cell.family is None}  # a text nor a number
    return Cells("text", codes, null, tuple(index), neither)


def without_blanks(cells: Cells, answered: Bools) -> Cells:
    """Return a column in which blank texts are missing, as empty cells are in CSV.

    ``answered`` says of each row whether its ``stop`` records that the arm did answer: there an
    empty text is what it said.

    Examples
    --------
    >>> cells = Cells("text", np.array([0, 1, 0]), np.zeros(3, dtype=np.bool_), ("", "cat"))
    >>> without_blanks(cells, np.array([False, False, True])).null.tolist()
    [True, False, False]
    """
    if cells.family != "text":
        return cells
    blank = np.array([is_blank(word) for word in cells.words] or [False])
    return msgspec.structs.replace(cells, null=cells.null | (blank[cells.values] & ~answered))


def _family(
    columns: Sequence[Cells], names: Sequence[str], expected: Family | None, problems: Problems
) -> Family | None:
    """Return whether answers are numbers or texts, and record the cells that are not."""
    filled = [np.flatnonzero(~cells.null) for cells in columns]
    begins = [(int(rows[0]), i) for i, rows in enumerate(filled) if len(rows)]
    if expected is None and begins:
        expected = columns[min(begins)[1]].family
    for cells, name, rows in zip(columns, names, filled, strict=True):
        if cells.family != expected:
            for row in rows[:MOST].tolist():
                problems.at(row, name, mixed(cells.describe(row), expected))
        for row, cell in cells.wrong.items():
            if cell.family in (None, expected or "number"):
                problems.at(row, name, f"is {cell.words}; outputs and labels must be {ALLOWED}")
            else:
                problems.at(row, name, mixed(cell.words, expected))
    return expected


def _text_codes(columns: Sequence[Cells]) -> tuple[Codes, tuple[Any, ...]]:
    index: dict[str, int] = {}
    codes: Codes = []
    for cells in columns:
        table = [index.setdefault(word, len(index)) for word in cells.words]
        codes.append(np.array(table or [-1])[cells.values])  # a column without words is empty
    return codes, tuple(index)


def _number_codes(
    columns: Sequence[Cells], names: Sequence[str], problems: Problems
) -> tuple[Codes, tuple[Any, ...] | None]:
    numbers = [cells.values for cells in columns]
    if all(values.dtype == np.int64 for values in numbers):
        if min(int(values.min()) for values in numbers) >= 0:
            return [values.copy() for values in numbers], None
    else:
        for values, name in zip(numbers, names, strict=True):
            if values.dtype == np.int64:
                large = (values > EXACT) | (values < -EXACT)
                message = "is too large a number to be compared with fractions; write text"
                problems.where(large, name, message)
            problems.where(
                ~np.isfinite(values),
                name,
                lambda row, v=values: (
                    f"is {v[row]}, which cannot be compared; leave a cell empty (null) where there "
                    "is no answer"
                ),
            )
    values, codes = np.unique(np.concatenate(numbers), return_inverse=True)
    return list(codes.astype(np.int64).reshape(len(columns), -1)), tuple(values.tolist())
