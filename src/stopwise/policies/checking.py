"""Checks of what a policy is given: outputs, stops, disagreements, recorded rounds."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stopwise.cascade import Cascade
from stopwise.checks import as_table, hashable, integer, short_repr
from stopwise.errors import (
    InvalidContextError,
    InvalidOutputsError,
    InvalidParameterError,
    InvalidStopError,
    TruthRequiredError,
)
from stopwise.policies.recorded import Rounds

Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]
Differ: TypeAlias = NDArray[np.uint8]  # 1 where two arms disagree: a column for each pair
Pairs: TypeAlias = Mapping[tuple[int, int], bool] | ArrayLike
LazyDiffer: TypeAlias = Callable[[], Differ]
GivenTruth: TypeAlias = Mapping[str, ArrayLike | None]
KnownTruth: TypeAlias = Mapping[str, NDArray[Any]]

TRUTH = ("labels", "optimal", "disagreement")  # what a policy may need, as `run` takes it


def coded(outputs: Sequence[Hashable], n_arms: int) -> tuple[int, int]:
    """Return how many outputs there are, and their codes, four bits an arm.

    Equal outputs have equal codes: an integer is the quickest thing to pass to the engine.
    """
    first: dict[Hashable, int] = {}
    codes = arm = 0
    if isinstance(outputs, str | bytes):
        raise InvalidOutputsError(
            f"outputs must be a list of the arms' outputs, not one text: [{outputs!r}, …]"
        )
    try:
        for y in outputs:
            codes |= first.setdefault(y, arm) << 4 * arm
            if y != y:
                raise InvalidOutputsError(
                    f"the output of arm {arm} is NaN, which equals nothing, itself included; "
                    "if the arm failed, give the outputs before it only"
                )
            arm += 1
    except TypeError as error:
        raise InvalidOutputsError(
            "outputs must be a sequence of hashable values (numbers, strings, tuples …), "
            f"one for each arm that ran; got {short_repr(outputs)} ({error})"
        ) from None
    if not 0 < arm <= n_arms:
        raise InvalidOutputsError(
            f"{arm} outputs for a cascade of {n_arms} arms: give the outputs of arms 0 to the "
            f"stop, which is between 1 and {n_arms} values"
        )
    return arm, codes


def decoded(codes: int, n: int) -> Bools:
    """Return which of n outputs differ, (n, n), from their codes."""
    values = np.array([codes >> 4 * arm & 15 for arm in range(n)])
    return values[:, None] != values[None, :]


def checked_stop(stop: int, n_arms: int) -> int:
    """Return a stop as an int."""
    return integer("stop", stop, most=n_arms - 1, error=InvalidStopError)


def checked_pairs(pairs: Pairs, stop: int, n_arms: int) -> Bools:
    """Return the disagreements of a round as a table (K, K), filled above the diagonal."""
    differ = np.zeros((n_arms, n_arms), dtype=np.bool_)
    required = [(i, j) for j in range(stop + 1) for i in range(j)]
    if isinstance(pairs, Mapping):
        given = cast(Mapping[tuple[int, int], object], pairs)
        missing = [pair for pair in required if pair not in given]
        extra = [pair for pair in given if pair not in required]
        if missing or extra:
            raise InvalidOutputsError(
                f"a round that stopped at arm {stop} has the pairs {required}; "
                + (f"missing: {missing}. " if missing else "")
                + (f"not among them: {extra}." if extra else "")
            )
        values: list[object] = [given[pair] for pair in required]
    else:
        table = np.asarray(pairs)
        if table.ndim != 2 or table.shape[0] != table.shape[1] or len(table) <= stop:
            raise InvalidOutputsError(
                f"a table of disagreements must be square and reach arm {stop}; this has shape "
                f"{table.shape}"
            )
        values = [table[pair].item() for pair in required]
    for (i, j), value in zip(required, values, strict=True):
        if value not in (0, 1):
            raise InvalidOutputsError(
                f"pair ({i}, {j}): whether two arms disagreed is True or False, not {value!r}"
            )
        differ[i, j] = bool(value)
    return differ


def checked_truth(name: str, needed: Sequence[str], n: int, truth: GivenTruth) -> KnownTruth:
    """Return the truth that a policy needs, one value a round, or refuse what was given."""
    if unknown := truth.keys() - set(TRUTH if needed else ()):
        raise InvalidParameterError(f"{name} has no use for {', '.join(sorted(unknown))}")
    checked: dict[str, NDArray[Any]] = {}
    for kind in needed:
        if (given := truth.get(kind)) is None:
            raise TruthRequiredError(f"{name} needs {kind}=, one value for each round")
        values = checked[kind] = as_table(given) if kind == "labels" else np.asarray(given)
        if values.ndim == 0 or len(values) != n:
            raise InvalidParameterError(f"{kind} must have one value for each of {n} rounds")
        if kind == "labels" and bool(np.any(values != values)):
            raise InvalidOutputsError("labels must be right answers, none of them NaN")
    return checked


def output_table(outputs: ArrayLike, n_rounds: int, n_arms: int) -> NDArray[Any]:
    """Return the outputs of n rounds, one column an arm."""
    table = as_table(outputs)
    if table.shape != (n_rounds, n_arms):
        raise InvalidOutputsError(
            f"outputs must be a table of {n_rounds} rounds by {n_arms} arms, not {table.shape}"
        )
    if table.dtype.kind not in "biuSU":
        unequal = np.asarray(table != table, dtype=np.bool_)
        if unequal.any():
            t, arm = np.argwhere(unequal)[0]
            raise InvalidOutputsError(
                f"the output of arm {arm} in round {t} is NaN, which equals nothing, itself "
                "included"
            )
    if table.dtype.kind == "O":
        for place, y in enumerate(table.flat):
            if not hashable(y):
                t, arm = divmod(place, n_arms)
                raise InvalidOutputsError(
                    f"outputs must be hashable values (numbers, strings, tuples …); that of arm "
                    f"{arm} in round {t} is {short_repr(y)}"
                )
    return table


def differ_table(differ: ArrayLike, n_rounds: int, cascade: Cascade) -> Differ:
    """Return the disagreements of n rounds, one column a pair."""
    table, pairs = as_table(differ), cascade.pairs()
    if table.shape != (n_rounds, len(pairs)):
        raise InvalidOutputsError(
            f"disagreements must be a table of {n_rounds} rounds by {len(pairs)} pairs, not "
            f"{table.shape}"
        )
    if table.dtype.kind != "b":
        neither = np.asarray((table != 0) & (table != 1), dtype=np.bool_)
        if neither.any():
            t, k = np.argwhere(neither)[0].tolist()
            raise InvalidOutputsError(
                f"pair {pairs[k]} in round {t}: whether two arms disagreed is True or False, "
                f"not {short_repr(table[t, k])}"
            )
    return np.ascontiguousarray(table, dtype=np.uint8)


def compared(outputs: NDArray[Any], cascade: Cascade) -> Differ:
    """Return whether each pair of arms gave different outputs: (n, K) → (n, K(K−1)/2)."""
    pairs = cascade.pairs()
    differ = np.empty((len(outputs), len(pairs)), dtype=np.uint8)
    for k, (i, j) in enumerate(pairs):
        differ[:, k] = outputs[:, i] != outputs[:, j]
    return differ


def square(differ: Differ, n_arms: int) -> Bools:
    """Return the disagreements of one round, in the order of ``cascade.pairs()``, as a table."""
    table = np.zeros((n_arms, n_arms), dtype=np.bool_)
    table[_above_diagonal(n_arms)] = differ
    return table


def checked_rounds(rounds: Rounds, cascade: Cascade) -> Rounds:
    """Return recorded rounds that fit a cascade, in one kind of array."""
    n, last = rounds.n, cascade.n_arms - 1
    contexts = np.asarray(rounds.contexts, dtype=np.float64)
    if contexts.ndim != 2 or len(contexts) != n:
        raise InvalidContextError(
            f"a record of {n} rounds needs a table of as many contexts, not {contexts.shape}"
        )
    reach = np.ascontiguousarray(rounds.reach, dtype=np.int64)
    if reach.ndim != 1 or (n and not -1 <= int(reach.min()) <= int(reach.max()) <= last):
        raise InvalidStopError(f"reach is an arm for each round, from -1 to {last}")
    failed = np.asarray(rounds.failed, dtype=np.bool_)
    if failed.shape != (n,):
        raise InvalidOutputsError(f"failed must be {n} values, not of shape {failed.shape}")
    wrong, audited = rounds.wrong, rounds.audited
    if audited is not None and (audited.shape != (n,) or wrong is None):
        raise InvalidOutputsError("audited rounds need a flag each, and `wrong` beside it")
    if wrong is not None and wrong.shape != (n, last + 1):
        raise InvalidOutputsError(f"wrong must be {n} rounds by {last + 1} arms")
    return Rounds(contexts, differ_table(rounds.differ, n, cascade), reach, failed, wrong, audited)


def learned_ends(rounds: Rounds, stops: ArrayLike, n_arms: int) -> Ints:
    """Return the last arm to learn from if rounds ended at ``stops``; −1 where none."""
    ends = np.array(stops, dtype=np.int64)
    if ends.shape != (rounds.n,):
        raise InvalidStopError(f"there are {rounds.n} rounds, but stops of shape {ends.shape}")
    if len(ends) and not -1 <= int(ends.min()) <= int(ends.max()) < n_arms:
        raise InvalidStopError(f"stops must be arms, 0 to {n_arms - 1}")
    ends = np.where(rounds.failed, np.minimum(ends, rounds.reach), ends)
    return np.where(ends <= rounds.reach, ends, -1)


@lru_cache
def _above_diagonal(n_arms: int) -> tuple[Ints, Ints]:
    return np.triu_indices(n_arms, 1)
