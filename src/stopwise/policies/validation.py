"""Validation of outputs, stops, disagreements and recorded rounds."""

import warnings
from collections.abc import Hashable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stopwise.arrays import Bools, Disagreements, Ints
from stopwise.cascade import Cascade
from stopwise.checks import as_table, comparable, integer, numbers, real, short_repr, unlike_labels
from stopwise.errors import (
    InvalidContextError,
    InvalidOutputsError,
    InvalidParameterError,
    InvalidStopError,
    LabelWarning,
)
from stopwise.records import LabelRequest, RecordedRounds

Pairs: TypeAlias = Mapping[tuple[int, int], bool] | ArrayLike


MAX_ARMS = 15  # a 64-bit integer encodes the outputs in 4 bits each
RAREST = 1e-40  # smallest probability of a label request, so that (1/p)² does not overflow
NOT_A_BOOL = "a disagreement must be True or False, got"  # the value follows


def checked_cascade(cascade: Cascade) -> Cascade:
    """Return the cascade; raise if it is not a `Cascade` or has too many arms."""
    if not isinstance(cascade, Cascade) or cascade.n_arms > MAX_ARMS:  # pyright: ignore[reportUnnecessaryIsInstance] (callers may have no types)
        raise InvalidParameterError(
            f"the first argument must be a Cascade of at most {MAX_ARMS} arms, such as "
            f"Cascade(costs=[0.1, 0.2]), got {short_repr(cascade)}"
        )
    return cascade


def encode_outputs(outputs: Sequence[Hashable], n_arms: int) -> tuple[int, int]:
    """Return the number of outputs and their 4-bit codes; equal outputs have equal codes."""
    first: dict[Hashable, int] = {}
    codes = arm = 0
    if isinstance(outputs, str | bytes):
        raise InvalidOutputsError(
            "outputs must be a list with one output per arm, got one "
            f"{type(outputs).__name__}; use [{outputs!r}, …]"
        )
    try:
        for y in outputs:
            codes |= first.setdefault(y, arm) << 4 * arm
            if y != y:
                raise InvalidOutputsError(
                    f"the output of arm {arm} is NaN, which never equals itself; if the arm "
                    "failed, pass only the outputs before it"
                )
            arm += 1
    except TypeError as error:
        raise InvalidOutputsError(
            "outputs must be a sequence of hashable values (numbers, strings, tuples …), "
            f"one for each arm that ran, got {short_repr(outputs)} ({error})"
        ) from None
    if not 0 < arm <= n_arms:
        raise InvalidOutputsError(
            f"outputs must have one value for each arm from 0 to the stop (1 to {n_arms} values), "
            f"got {arm} values"
        )
    return arm, codes


def differing(codes: int, n: int) -> Bools:
    """Return an (n, n) table of which outputs differ, given the codes of n outputs."""
    values = np.array([codes >> 4 * arm & 15 for arm in range(n)])
    return values[:, None] != values[None, :]


def first_equals(differ: Bools, n: int) -> list[int]:
    """Return, for each of n arms, the first arm with an equal output.

    Two arms have the same first arm if and only if their outputs are equal. Only the part of
    ``differ`` above the diagonal is read.

    Examples
    --------
    >>> first_equals(np.array([[0, 1, 0], [0, 0, 1], [0, 0, 0]], dtype=np.bool_), 3)
    [0, 1, 0]
    """
    return [next((j for j in range(k) if not differ[j, k]), k) for k in range(n)]


def checked_stop(stop: int, n_arms: int, name: str = "stop") -> int:
    """Return a stop as an int; raise if it is out of range."""
    return integer(name, stop, most=n_arms - 1, error=InvalidStopError)


def checked_request(request: LabelRequest | None) -> tuple[float, float, int] | None:
    """Return a label request in the engine's format; raise if it is invalid."""
    if request is None:
        return None
    probability = real("request.probability", request.probability, least=RAREST, most=1)
    explored = real("request.explored", request.explored, least=0, most=1)
    rounds = integer("request.round", request.round)
    return probability, explored if explored >= RAREST else 0.0, rounds


def checked_pairs(pairs: Pairs, stop: int, n_arms: int) -> Bools:
    """Return a round's disagreements as a (K, K) table, False on and below the diagonal."""
    differ = np.zeros((n_arms, n_arms), dtype=np.bool_)
    required = [(i, j) for j in range(stop + 1) for i in range(j)]
    if isinstance(pairs, Mapping):
        by_pair = cast(Mapping[tuple[int, int], object], pairs)
        if set(by_pair) != set(required):
            raise InvalidOutputsError(
                f"pairs must contain exactly {required} for a round that stopped at arm {stop}, "
                f"got {[*by_pair]}"
            )
        values: list[object] = [by_pair[pair] for pair in required]
    else:
        table = np.asarray(pairs)
        if table.ndim != 2 or table.shape[0] != table.shape[1] or len(table) <= stop:
            raise InvalidOutputsError(
                f"pairs must be a square table with at least {stop + 1} rows, got shape "
                f"{table.shape}"
            )
        values = [table[pair].item() for pair in required]
    for pair, value in zip(required, values, strict=True):
        if value not in (0, 1):
            raise InvalidOutputsError(f"pair {pair}: {NOT_A_BOOL} {value!r}")
        differ[pair] = bool(value)
    return differ


def label_column(labels: ArrayLike, n: int) -> NDArray[Any]:
    """Return the labels of n rounds as an array, with None where unknown."""
    values = as_table(labels)
    if values.shape != (n,):
        raise InvalidParameterError(
            f"labels must have one value for each of the {n} rounds, got shape {values.shape}"
        )
    if bool(np.any(values != values)):
        raise InvalidOutputsError("labels must not be NaN; use None for unknown labels")
    return values


def right_arms(outputs: NDArray[Any], labels: NDArray[Any]) -> tuple[Bools, Bools]:
    """Return which outputs, of shape (n, K), equal the round's label, and which rounds have one."""
    answers = labels.tolist()
    labelled = np.array([answer is not None for answer in answers], dtype=np.bool_)
    right = np.ascontiguousarray(outputs == labels[:, None]).astype(np.bool_)
    right &= labelled[:, None]
    if labelled.any():
        first = int(labelled.argmax())
        examples = short_repr(answers[first]), short_repr(outputs[first].tolist()[0])
        if warning := unlike_labels(bool(right.any()), int(labelled.sum()), *examples):
            warnings.warn(warning, LabelWarning, stacklevel=3)
    return right, labelled


def output_table(outputs: ArrayLike, n_rounds: int, n_arms: int) -> NDArray[Any]:
    """Return the outputs of n rounds as a table with one column per arm."""
    table = _table("outputs", "arms", outputs, n_rounds, n_arms)
    for t, arm in np.argwhere(table != table):
        raise InvalidOutputsError(
            f"the output of arm {arm} in round {t} is NaN, which never equals itself; use a value "
            "that does, such as None"
        )
    if table.dtype.kind == "O":
        for (t, arm), y in np.ndenumerate(table):
            if not comparable(y):
                raise InvalidOutputsError(
                    "outputs must be hashable values (numbers, strings, tuples …), got "
                    f"{short_repr(y)} for arm {arm} in round {t}"
                )
    return table


def differ_table(differ: ArrayLike, n_rounds: int, cascade: Cascade) -> Disagreements:
    """Return the disagreements of n rounds as a table with one column per pair."""
    pairs = cascade.pairs()
    table = _table("disagreements", "pairs", differ, n_rounds, len(pairs))
    for t, k in np.argwhere((table != 0) & (table != 1)):
        raise InvalidOutputsError(
            f"pair {pairs[k]} in round {t}: {NOT_A_BOOL} {short_repr(table[t, k])}"
        )
    return np.ascontiguousarray(table, dtype=np.uint8)


def _table(name: str, of: str, values: ArrayLike, n: int, columns: int) -> NDArray[Any]:
    table = as_table(values)
    if table.shape != (n, columns):
        raise InvalidOutputsError(
            f"{name} must be a table of {n} rounds by {columns} {of}, got shape {table.shape}"
        )
    return table


def disagreements(outputs: NDArray[Any], cascade: Cascade) -> Disagreements:
    """Return an (n, K(K−1)/2) table of whether each pair of arms gave different outputs."""
    differ = [outputs[:, i] != outputs[:, j] for i, j in cascade.pairs()]
    return np.stack(differ, axis=1).astype(np.uint8)


@lru_cache
def _above_diagonal(n_arms: int) -> tuple[Ints, Ints]:
    return np.triu_indices(n_arms, 1)


def square(pairs: NDArray[Any], n_arms: int) -> NDArray[Any]:
    """Arrange ``pairs``, given in ``cascade.pairs()`` order, as an upper triangular matrix."""
    table = np.zeros((n_arms, n_arms), dtype=pairs.dtype)
    table[_above_diagonal(n_arms)] = pairs
    return table


def checked_rounds(rounds: RecordedRounds, cascade: Cascade, uses_context: bool) -> RecordedRounds:
    """Validate recorded rounds; return them with normalised array types."""
    n, n_arms = rounds.n, cascade.n_arms
    if uses_context:
        contexts = numbers("contexts", rounds.contexts, InvalidContextError)
    else:
        contexts = as_table(rounds.contexts)
    if contexts.shape[:1] != (n,) or (uses_context and contexts.ndim != 2):
        raise InvalidContextError(
            f"contexts must be a table with {n} rows, one per round, got shape {contexts.shape}"
        )
    answered = np.ascontiguousarray(rounds.answered, dtype=np.int64)
    if answered.ndim != 1 or not ((answered >= 0) & (answered <= n_arms)).all():
        raise InvalidOutputsError(
            "answered must be the number of arms that answered in each round, from 0 to "
            f"{n_arms}, got {short_repr(rounds.answered)}"
        )
    failed = np.asarray(rounds.failed, dtype=np.bool_)
    if failed.shape != (n,):
        raise InvalidOutputsError(
            f"failed must have {n} values, one per round, got shape {failed.shape}"
        )
    right, labelled = _checked_labels(rounds, n_arms)
    differ = differ_table(rounds.differ, n, cascade)
    return RecordedRounds(contexts, differ, answered, failed, right, labelled)


def _checked_labels(rounds: RecordedRounds, n_arms: int) -> tuple[Bools, Bools] | tuple[None, None]:
    """Return which arms were right, and which rounds have labels; (None, None) without labels."""
    if rounds.right is None and rounds.labelled is None:
        return None, None
    if rounds.right is None or rounds.labelled is None:
        missing = "right" if rounds.right is None else "labelled"
        raise InvalidOutputsError(
            f"{missing} is missing; pass both right (which arms were right) and labelled (which "
            "rounds have a label), or neither"
        )
    right, labelled = np.asarray(rounds.right), np.asarray(rounds.labelled)
    for name, values, shape in (
        ("right", right, (rounds.n, n_arms)),
        ("labelled", labelled, (rounds.n,)),
    ):
        if values.shape != shape or values.dtype != np.bool_:
            raise InvalidOutputsError(
                f"{name} must be an array of booleans of shape {shape}, got {values.dtype} of "
                f"shape {values.shape}"
            )
    return right, labelled


def stop_column(stops: ArrayLike, n: int, n_arms: int) -> Ints:
    """Return the stops of n rounds as an array, with −1 where no arm answered."""
    column = np.array(stops, dtype=np.int64)
    if column.shape != (n,):
        raise InvalidStopError(
            f"stops must have {n} values, one per round, got shape {column.shape}"
        )
    if not ((column >= -1) & (column < n_arms)).all():
        raise InvalidStopError(
            f"stops must be arms from 0 to {n_arms - 1}, or -1 if no arm answered, got "
            f"{short_repr(stops)}"
        )
    return column


def learned_arms(rounds: RecordedRounds, stops: ArrayLike, n_arms: int) -> Ints:
    """Return how many arms to learn from in rounds that ended at ``stops``; 0 means skip."""
    arms = stop_column(stops, rounds.n, n_arms) + 1
    arms = np.where(rounds.failed, np.minimum(arms, rounds.answered), arms)
    return np.where(arms <= rounds.answered, arms, 0)


def learned_end(rounds: RecordedRounds, t: int, stop: int) -> int | None:
    """Return the last arm to learn from if round t ends at ``stop``, or None to skip the round."""
    last = int(rounds.answered[t]) - 1
    end = min(stop, last) if rounds.failed[t] else stop
    return end if 0 <= end <= last else None
