"""Validated rows of a log as arrays."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec
import numpy as np

from stopwise.arrays import Bools, Bytes, Floats, Ints
from stopwise.logs.encoding import Column, Encoding, column_numbers
from stopwise.logs.rows import (
    EXACT,
    MAX_LISTED,
    Cells,
    Family,
    Layout,
    Problems,
    RowBatch,
    is_blank,
    parse_number,
)
from stopwise.records import RecordedRounds
from stopwise.text import suggestion

Codes: TypeAlias = list[Ints]

BOOLS = {"1": True, "1.0": True, "true": True, "0": False, "0.0": False, "false": False}
SYNONYMS = {"true": "1", "yes": "1", "false": "0", "no": "0"}
ALLOWED = "text, bools or 64-bit numbers"


class Chunk(msgspec.Struct, frozen=True, eq=False):
    """Rows ``first``, ``first + 1``, … of a log."""

    first: int  # from 0
    rounds: RecordedRounds  # the input of a replay
    codes: Ints  # (n, K): outputs, equal within this chunk if their codes are; −1 if missing
    labels: Ints  # (n,): the right answers in the same codes; −1 if unknown
    values: tuple[Any, ...] | None  # the answer of each code; None if codes are the answers
    stops: Ints  # (n,): the arm at which each round stopped; −1 if no arm answered
    rule_stop: Ints  # (n,): the stop of the rule itself if the log has it; else ``stops``
    costs: Floats | None  # (n, K): actual costs of the calls; NaN if unknown

    @property
    def n(self) -> int:
        """The number of rows."""
        return len(self.stops)

    @property
    def labelled(self) -> Bools:
        """The rows in which the correctness of every arm that answered is known."""
        labelled = self.rounds.labelled
        return np.zeros(self.n, dtype=np.bool_) if labelled is None else labelled

    def answer(self, code: int) -> Any:
        """Return the answer that a code ≥ 0 stands for."""
        return code if self.values is None else self.values[code]


def make_chunk(
    batch: RowBatch,
    layout: Layout,
    expected: Family | None,
    file: str,
    encoding: Encoding,
    normalise: bool = False,
) -> tuple[Chunk, Family | None]:
    """Return validated rows as arrays, and the family (number or text) of all outputs so far.

    ``expected`` is the family of the outputs in earlier rows; None if there were none. Raises
    `InvalidLogError` for invalid cells.
    """
    problems = Problems(file, batch.first, batch.lines)
    answers = [batch.cells(name, "answer") for name in layout.answers]
    if normalise:
        answers = [normalised_cells(batch, name) for name in layout.answers]
    stop, _ = _named_arms(batch, layout.stop, layout)
    # The label follows the arms, so every stop is below its index.
    answers = [without_blanks(cells, stop >= i) for i, cells in enumerate(answers)]
    columns, values, family = encode(answers, layout.answers, expected, problems)
    outputs = columns[: len(layout.arms)]
    labels = columns[-1] if layout.label is not None else np.full(batch.n, -1)

    answered = _answered(outputs, layout, problems)
    problems.raise_any()
    stops, rule_stop, failed = _stops(batch, layout, answered, problems)
    contexts = _contexts(batch, layout, answered, problems, encoding)
    costs = _costs(batch, layout, problems)
    codes = np.stack(outputs, axis=1)
    right, evaluated = _right(batch, layout, codes, labels, problems)
    problems.raise_any()

    # Rows with some arms evaluated are unlabelled: depths must be compared on the same rows.
    labelled = (answered > 0) & (evaluated | (codes < 0)).all(axis=1)
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
    """Return the number of arms with an output; record outputs after a missing one."""
    answered = np.zeros(len(outputs[0]), dtype=np.int64)
    for i, codes in enumerate(outputs):
        has_output = codes >= 0
        gap = has_output & (answered < i)
        for row in np.flatnonzero(gap)[:MAX_LISTED].tolist():
            problems.at(
                row,
                layout.outputs[int(answered[row])],
                f"is empty, but {layout.outputs[i]!r} of a later arm is not; an arm runs only "
                "after all earlier arms",
            )
        answered[has_output & ~gap] = i + 1
    return answered


def _stops(
    batch: RowBatch, layout: Layout, answered: Ints, problems: Problems
) -> tuple[Ints, Ints, Bools]:
    """Return the stops of the rounds, the stops of the rule, and whether an arm failed."""
    arm = _arms(batch, layout.failed, layout, problems)
    failed = arm >= 0
    problems.where(
        failed & (arm != answered),
        layout.failed or "",
        lambda row: (
            f"is {layout.arms[arm[row]]!r}, but the failed arm must be the one after the last "
            f"output ({_arm_name(layout, int(answered[row]))})"
        ),
    )
    problems.where(
        (answered == 0) & ~failed,
        layout.outputs[0],
        "is empty, as are all other outputs of this row; fill them in, or if the first arm failed, "
        "name it in 'failed'",
    )
    stop, last = _arms(batch, layout.stop, layout, problems), answered - 1
    problems.where(
        (stop > last) & ~failed,
        layout.stop or "",
        lambda row: (
            f"is {layout.arms[stop[row]]!r}, but the last arm with an output is "
            f"{_arm_name(layout, int(last[row]))}"
        ),
    )
    stops = np.where(stop >= 0, np.minimum(stop, last), last)
    rule_stop = _arms(batch, layout.rule_stop, layout, problems)
    if layout.rule_stop is None:  # a stop beyond the failed arm is the rule's
        rule_stop = stop
    return stops, np.where(rule_stop >= 0, rule_stop, stops), failed


def _arm_name(layout: Layout, arm: int) -> str:
    return repr(layout.arms[arm]) if 0 <= arm < len(layout.arms) else "none"


def _arms(batch: RowBatch, name: str | None, layout: Layout, problems: Problems) -> Ints:
    """Return the arms in a column, −1 for empty cells, and record unknown arms."""
    arms, unknown = _named_arms(batch, name, layout)
    if name is not None:
        cells, highest = batch.cells(name, "text"), len(layout.arms) - 1
        problems.where(
            unknown,
            name,
            lambda row: (
                f"is {cells.describe(row)}, which is not an arm or a number from 0 to {highest}; "
                f"{suggestion(cells.texts[int(cells.values[row])], layout.arms)}"
            ),
        )
    return arms


def _named_arms(batch: RowBatch, name: str | None, layout: Layout) -> tuple[Ints, Bools]:
    """Return arms by name or 0-based number, −1 for empty cells, and which are unknown."""
    if name is None:
        return np.full(batch.n, -1), np.zeros(batch.n, dtype=np.bool_)
    cells, k = batch.cells(name, "text"), len(layout.arms)
    index = {f"{i}{suffix}": i for i in range(k) for suffix in ("", ".0")}
    index |= {arm: i for i, arm in enumerate(layout.arms)}
    texts = cells.texts or ("",)  # an empty column has no texts
    arms = np.array([index.get(text, -1) for text in texts])[cells.values]
    unknown = np.array([not is_blank(text) and text not in index for text in texts])[cells.values]
    arms[cells.null] = -1
    return arms, unknown & ~cells.null


def _contexts(
    batch: RowBatch, layout: Layout, answered: Ints, problems: Problems, encoding: Encoding
) -> Floats:
    blocks: list[Floats] = [encoding.rows(batch, layout.sources, problems)]
    columns = [(arm, name) for arm, names in enumerate(layout.revealed) for name in names]
    for arm, name in columns:
        values, null = _numbers(batch, name, problems)
        ran, arm_name = answered > arm, layout.arms[arm]
        problems.where(
            null & ran, name, f"is empty, but {arm_name!r} answered; write the value it revealed"
        )
        problems.where(
            ~null & ~ran,
            name,
            lambda row, v=values, arm_name=arm_name: (
                f"is {v[row]}, but {arm_name!r} has no output; leave the cell empty"
            ),
        )
        blocks.append(np.where(ran, values, 0.0)[:, None])
    return np.hstack(blocks)


def _costs(batch: RowBatch, layout: Layout, problems: Problems) -> Floats | None:
    if not layout.costs:
        return None
    costs = np.full((batch.n, len(layout.arms)), np.nan)
    for arm, name in enumerate(layout.costs):
        if name is not None:
            values, null = _numbers(batch, name, problems)
            problems.where(
                values < 0, name, lambda row, v=values: f"is {v[row]}; a cost must be at least 0"
            )
            costs[~null, arm] = values[~null]
    return costs


def _right(
    batch: RowBatch, layout: Layout, codes: Ints, labels: Ints, problems: Problems
) -> tuple[Bools, Bools]:
    """Return which arms were right, and for which arms that is known; both (n, K).

    A label evaluates every arm that answered, a column ``right.<arm>`` only its arm. A log may
    have both if they agree.
    """
    evaluated = (codes >= 0) & (labels >= 0)[:, None]
    right = evaluated & (codes == labels[:, None])
    for arm, name in enumerate(layout.right):
        if name is None:
            continue
        cells = batch.cells(name, "text")
        texts, arm_name = cells.texts or ("",), layout.arms[arm]  # an empty column has no texts
        bools = [BOOLS.get(text.strip().lower()) for text in texts]
        filled = ~cells.null & np.array([not is_blank(text) for text in texts])[cells.values]
        valid = np.array([value is not None for value in bools])[cells.values]
        value = np.array([value is True for value in bools])[cells.values]
        problems.where(
            filled & ~valid,
            name,
            lambda row, cells=cells: (
                f"is {cells.describe(row)}; write 1 or true for a right answer, 0 or false for a "
                "wrong one, and leave the cell empty if unknown"
            ),
        )
        problems.where(
            filled & (codes[:, arm] < 0),
            name,
            f"is not empty, but {arm_name!r} has no output; leave the cell empty",
        )
        filled &= valid
        problems.where(
            filled & evaluated[:, arm] & (right[:, arm] != value),
            name,
            lambda row, value=value, arm_name=arm_name: (
                f"marks {arm_name!r} as {'right' if value[row] else 'wrong'}, which contradicts "
                f"{layout.label!r}; correct one of them, or ignore one: Columns(right=()) reads "
                "only the label, and Columns(label='') reads only the right.* columns"
            ),
        )
        right[:, arm] = np.where(filled, value, right[:, arm])
        evaluated[:, arm] |= filled
    return right, evaluated


def _numbers(batch: RowBatch, name: str, problems: Problems) -> tuple[Floats, Bools]:
    """Return a column of finite numbers, 0 in empty cells, and which cells are empty."""
    values, null = column_numbers(Column(name, fill=0.0), batch, name, problems).T
    return values, null > 0


def _differ(outputs: list[Ints]) -> Bytes:
    """Return whether each pair of arms disagreed; 0 where the later arm has no output."""
    pairs = [
        (first != second) & (second >= 0)
        for i, first in enumerate(outputs)
        for second in outputs[i + 1 :]
    ]
    return np.stack(pairs, axis=1).view(np.uint8)


def encode(
    columns: Sequence[Cells], names: Sequence[str], expected: Family | None, problems: Problems
) -> tuple[Codes, tuple[Any, ...] | None, Family | None]:
    """Return columns of answers as codes: equal for equal answers, −1 for missing ones.

    Also returns the answer of each code (None if the codes are the answers) and the family of all
    answers so far; ``expected`` is the family of earlier rows.
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


def mixed_types(value: str, expected: Family | None) -> str:
    """Return the error message for numbers and text in one log."""
    return (
        f"mixed types: {value} after outputs that are {'text' if expected == 'text' else 'numbers'}"
        "; outputs and labels must be all numbers or all text (--normalise-answers or "
        "Log(normalise_answers=True) treats 1, true and yes as equal)"
    )


def normalise(answer: Any) -> str:
    """Return the normal form of an answer: "1" for 1, 1.0, true and " Yes"."""
    text = str(answer).strip().casefold()
    number = parse_number(text)
    if isinstance(number, float) and number.is_integer():
        number = int(number)
    return SYNONYMS.get(text, text if number is None else str(number))


def normalised_cells(batch: RowBatch, name: str) -> Cells:
    """Return a column of answers as normalised texts; blank texts count as missing."""
    invalid = batch.cells(name, "answer").invalid.items()
    cells = batch.cells(name, "text")
    texts = [normalise(text) for text in cells.texts]
    index = {text: k for k, text in enumerate(dict.fromkeys(texts))}
    codes = np.array([index[text] for text in texts] or [0])[cells.values]
    null = cells.null | (codes == index.get("", -1))
    unusable = {row: cell for row, cell in invalid if cell.family is None}
    return Cells("text", codes, null, tuple(index), unusable)


def without_blanks(cells: Cells, answered: Bools) -> Cells:
    """Return a column in which blank texts count as missing, like empty cells in CSV.

    In rows where ``answered`` is true, the column ``stop`` records that the arm answered, so a
    blank text is its answer.

    Examples
    --------
    >>> cells = Cells("text", np.array([0, 1, 0]), np.zeros(3, dtype=np.bool_), ("", "cat"))
    >>> without_blanks(cells, np.array([False, False, True])).null.tolist()
    [True, False, False]
    """
    if cells.family != "text":
        return cells
    blank = np.array([is_blank(text) for text in cells.texts] or [False])
    return msgspec.structs.replace(cells, null=cells.null | (blank[cells.values] & ~answered))


def _family(
    columns: Sequence[Cells], names: Sequence[str], expected: Family | None, problems: Problems
) -> Family | None:
    """Return whether answers are numbers or texts; record cells of another type."""
    filled = [np.flatnonzero(~cells.null) for cells in columns]
    first_rows = [(int(rows[0]), i) for i, rows in enumerate(filled) if len(rows)]
    if expected is None and first_rows:
        expected = columns[min(first_rows)[1]].family
    for cells, name, rows in zip(columns, names, filled, strict=True):
        if cells.family != expected:
            for row in rows[:MAX_LISTED].tolist():
                problems.at(row, name, mixed_types(cells.describe(row), expected))
        for row, cell in cells.invalid.items():
            if cell.family in (None, expected or "number"):
                message = f"is {cell.description}; outputs and labels must be {ALLOWED}"
            else:
                message = mixed_types(cell.description, expected)
            problems.at(row, name, message)
    return expected


def _text_codes(columns: Sequence[Cells]) -> tuple[Codes, tuple[Any, ...]]:
    index: dict[str, int] = {}
    codes: Codes = []
    for cells in columns:
        table = [index.setdefault(text, len(index)) for text in cells.texts]
        codes.append(np.array(table or [-1])[cells.values])  # a column without texts is empty
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
                message = "is too large to compare exactly with fractions; write answers as text"
                problems.where(large, name, message)
            problems.where(
                ~np.isfinite(values),
                name,
                lambda row, v=values: (
                    f"is {v[row]}, which cannot be compared; leave the cell empty (null) if the "
                    "arm did not answer"
                ),
            )
    values, codes = np.unique(np.concatenate(numbers), return_inverse=True)
    return list(codes.astype(np.int64).reshape(len(columns), -1)), tuple(values.tolist())
