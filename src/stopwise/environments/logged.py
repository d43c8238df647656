"""A log in which every arm was run, replayed to see what a policy would have done."""

import csv
from collections.abc import Hashable, Sequence
from os import PathLike
from pathlib import Path
from typing import ClassVar, cast

import numpy as np
from numpy.typing import ArrayLike

from stopwise.cascade import Cascade
from stopwise.checks import table
from stopwise.environments.base import Batch, Environment, Ints, round_robin, shuffled
from stopwise.errors import InvalidParameterError
from stopwise.theory.dominance import dominance_margins, first_candidates
from stopwise.theory.regret import optimal_arms


class Logged(Environment):
    """Rounds of a log that holds the output of every arm, in the order of the log.

    The truth of such an environment is hindsight, not probability: p_ij is 1 where the two arms
    did disagree and 0 where they did not. With labels, γ_i is likewise 1 where the arm was wrong,
    and the optimal arm is the cheapest that turned out right, if being right was worth it.
    Without labels there are no error rates, and the optimal arm is that of the paper's Lemma 2,
    min{i : C_j − C_i > p_ij for all j > i}, with the disagreements of the round. Regret measured
    against it is regret against one who knew each round's outcome, which nobody can reach.

    Parameters
    ----------
    cascade : Cascade
        The arms and their costs.
    contexts : array_like of shape (n, d)
        One context a round.
    outputs : array_like of shape (n, K)
        What every arm said: values of any kind, compared for equality.
    labels : array_like of shape (n,), optional
        The right answers.
    shuffle : bool
        Whether to play the rounds in random order instead. Past the end of the log it is
        played again, in a fresh order if shuffled.

    Examples
    --------
    >>> import stopwise as sw
    >>> outputs = [["cat", "cat"], ["cat", "dog"]]
    >>> env = Logged(sw.Cascade(costs=[0.1, 0.2]), [[0.0], [1.0]], outputs, ["cat", "dog"])
    >>> batch = env.sample(3, np.random.default_rng(0))
    >>> batch.optimal.tolist(), batch.error_rates.tolist()
    ([0, 1, 0], [[0.0, 0.0], [1.0, 0.0], [0.0, 0.0]])
    """

    name: ClassVar[str] = "logged"

    def __init__(
        self,
        cascade: Cascade,
        contexts: ArrayLike,
        outputs: ArrayLike,
        labels: ArrayLike | None = None,
        *,
        shuffle: bool = False,
    ) -> None:
        self.cascade = cascade
        self.shuffle = bool(shuffle)
        self._contexts = table("contexts", contexts)
        self.context_dim = self._contexts.shape[1]
        n, arms = len(self._contexts), cascade.n_arms
        said = _values(outputs, "outputs", (n, arms), f"one of each of {arms} arms for each round")
        right = [] if labels is None else _values(labels, "labels", (n,), "one for each round")
        codes = _encode(said + right)  # together: outputs are compared with labels too
        self._outputs = codes[: n * arms].reshape(n, arms)
        self._labels = None if labels is None else codes[n * arms :]

    @classmethod
    def from_csv(
        cls,
        path: "str | PathLike[str]",
        cascade: Cascade,
        *,
        context: Sequence[str],
        outputs: Sequence[str],
        label: str | None = None,
        shuffle: bool = False,
    ) -> "Logged":
        r"""Read a log from a CSV file whose first row names the columns.

        Parameters
        ----------
        path : str or path
            The file, in UTF-8.
        cascade : Cascade
            The arms and their costs.
        context : sequence of str
            The columns of the context; they hold numbers.
        outputs : sequence of str
            The columns of the arms' outputs, in cascade order. They and the labels are compared
            as numbers if all of them are numbers, otherwise as text.
        label : str, optional
            The column of the right answers.
        shuffle : bool
            As in `Logged`.

        Examples
        --------
        >>> import stopwise as sw
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "log.csv")
        ...     _ = path.write_text("age,small,large\n0.3,cat,cat\n0.9,cat,dog\n")
        ...     cascade = sw.Cascade(costs=[0.1, 0.2])
        ...     env = Logged.from_csv(path, cascade, context=["age"], outputs=["small", "large"])
        >>> env.sample(2, np.random.default_rng(0)).optimal.tolist()
        [0, 1]
        """
        answers = [*outputs, *([] if label is None else [label])]
        if len(outputs) != cascade.n_arms:
            raise InvalidParameterError(
                f"outputs must name a column for each of {cascade.n_arms} arms, not {len(outputs)}"
            )
        numbers: list[list[float]] = []
        texts: list[list[str]] = []
        with Path(path).open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            header = list(reader.fieldnames or ())
            for column in (*context, *answers):
                if column not in header:
                    raise InvalidParameterError(
                        f"{path} has no column {column!r}; its columns are {', '.join(header)}"
                    )
            for cells in reader:
                where = f"{path}, line {reader.line_num}"
                numbers.append([_number(cells[column], column, where) for column in context])
                texts.append([_text(cells[column], column, where) for column in answers])
        if not numbers:
            raise InvalidParameterError(f"{path} has no rows below its header")
        values = np.array(_as_numbers(texts) or texts)
        right = None if label is None else values[:, -1]
        said = values[:, : cascade.n_arms]
        return cls(cascade, numbers, said, right, shuffle=shuffle)

    def sample(self, rounds: int, random: np.random.Generator) -> Batch:
        """Play the log; ``random`` is used only to shuffle it."""
        n = len(self._contexts)
        rows = shuffled(n, rounds, random) if self.shuffle else round_robin(n, rounds)
        outputs = self._outputs[rows]
        differ = (outputs[:, :, None] != outputs[:, None, :]).astype(np.float64)
        labels = None if self._labels is None else self._labels[rows]
        errors = None if labels is None else (outputs != labels[:, None]).astype(np.float64)
        optimal = (
            first_candidates(self.cascade, differ)
            if errors is None
            else optimal_arms(self.cascade, errors)
        )
        return Batch(
            contexts=self._contexts[rows],
            disagreement=differ,
            optimal=optimal,
            margins=dominance_margins(self.cascade, differ, optimal),
            outputs=outputs,
            labels=labels,
            error_rates=errors,
        )


def _values(values: ArrayLike, what: str, shape: tuple[int, ...], need: str) -> list[Hashable]:
    """Return values of any kind, row by row in one list."""
    array = np.array(values, dtype=object)  # object: else numpy would turn 1 beside "a" into "1"
    if array.shape != shape:
        raise InvalidParameterError(
            f"{what} needs {need}, in shape {shape}; this has shape {array.shape}"
        )
    flat = cast("list[Hashable]", array.ravel().tolist())
    for place, value in enumerate(flat):
        if value is None or value != value:  # NaN alone differs from itself
            raise InvalidParameterError(
                f"{what} of round {place // (len(flat) // shape[0])} has {value!r}; a log to "
                "replay holds every answer"
            )
    return flat


def _encode(values: list[Hashable]) -> Ints:
    """Give equal values equal whole numbers; whole numbers stay what they are."""
    if all(isinstance(value, int) and abs(value) < 2**63 for value in values):
        return np.array(values, dtype=np.int64)
    codes: dict[Hashable, int] = {}
    try:
        coded = [codes.setdefault(value, len(codes)) for value in values]
    except TypeError as reason:
        raise InvalidParameterError(f"outputs and labels must be hashable: {reason}") from None
    return np.array(coded, dtype=np.int64)


def _number(text: str | None, column: str, where: str) -> float:
    try:
        return float(_text(text, column, where))
    except ValueError:
        raise InvalidParameterError(
            f"{where}: {column} is {text!r}, which is not a number"
        ) from None


def _text(text: str | None, column: str, where: str) -> str:
    if text is None or not text.strip():
        raise InvalidParameterError(f"{where}: {column} is empty")
    return text.strip()


def _as_numbers(texts: list[list[str]]) -> list[list[float]] | None:
    try:
        return [[float(text) for text in row] for row in texts]
    except ValueError:
        return None
