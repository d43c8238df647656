"""One pass over a log, in bounded memory: counts of all rows, a random sample for models.

Models and the rule need rows on which every arm answered. Where a policy stopped rounds early
those rows are not typical: it went deep where arms disagree. So the sample is balanced: rows are
grouped by where the policy decided to stop, and every group gets the share in the sample that it
has in the log. That is exact where some rounds of each group went to the last arm at random, and
changes nothing where every row has every output.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from stopwise.logs.chunk import Chunk
from stopwise.records import Progress, no_progress

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]

# More different outputs than this count as free text.
MOST_CLASSES = 50
# A group smaller than this share of the log must not decide how large the sample is.
SMALL_GROUP = 0.01
UNKNOWN = 2  # in Sample.wrong
# A simulated log may have been drawn from the same seed: the choice of its rows must not repeat it.
STREAM = 20201


class Sample(NamedTuple):
    """Rows on which every arm answered, in random order.

    ``number`` (n,) of the row in the log; ``contexts`` (n, d); ``differ`` (n, pairs);
    ``outputs`` (n, K), the same codes throughout the sample, −1 for free text; ``wrong`` (n, K):
    1, 0, or 2 where no label says.
    """

    number: Ints
    contexts: Floats
    differ: Bytes
    outputs: NDArray[np.int16]
    wrong: Bytes

    @property
    def n(self) -> int:
        """How many rows there are."""
        return len(self.number)


class LogSurvey(NamedTuple):
    """What one pass over a log found.

    ``classes`` is the number of different outputs, None for free text; ``audited`` a sample of
    labelled rows; ``unseen`` the share of rows in groups none of whose rows went deep. Of the
    ``comparable`` labelled rows with an output, the label is one of the outputs in ``matched``;
    ``unlike`` is an example of a label and an output that differ.
    """

    rows: int
    full_depth: int
    labelled: int
    labelled_deep: int
    answered: Ints
    pair_rows: Ints
    pair_differ: Ints
    classes: int | None
    sample: Sample
    audited: Sample
    unseen: float
    comparable: int = 0
    matched: int = 0
    unlike: tuple[str, str] = ("", "")


def survey(
    chunks: Iterable[Chunk],
    n_arms: int,
    context_dim: int,
    *,
    sample: int,
    seed: int,
    rows: int | None = None,
    progress: Progress = no_progress,
) -> LogSurvey:
    """Read every chunk once; the result does not depend on how rows are cut into chunks.

    ``sample`` is the most rows to hold, ``seed`` that of their choice; ``rows``, how many there
    will be, is for ``progress("reading", done, of)``.
    """
    pairs = [(i, j) for i in range(n_arms) for j in range(i + 1, n_arms)]
    deeper = np.array([j for _, j in pairs])
    random = np.random.default_rng([seed, STREAM])
    outputs = _Outputs()
    retained, audited = _Groups(sample), _Groups(sample)
    done = full_depth = labelled = comparable = matched = 0
    unlike = "", ""
    answered = np.zeros(n_arms, dtype=np.int64)
    pair_rows, pair_differ = np.zeros((2, len(pairs)), dtype=np.int64)
    group_rows = np.zeros(n_arms + 1, dtype=np.int64)
    for chunk in chunks:
        reach, differ = chunk.rounds.reach, chunk.rounds.differ
        n = len(reach)
        keys = random.random(n)  # the rows with the least keys are the sample
        answered += (reach[:, None] >= np.arange(n_arms)).sum(axis=0)
        seen = reach[:, None] >= deeper
        pair_rows += seen.sum(axis=0)
        pair_differ += (seen & (differ > 0)).sum(axis=0)
        group = np.clip(chunk.rule_stop, -1, n_arms - 1) + 1
        group_rows += np.bincount(group, minlength=n_arms + 1)
        codes = outputs.codes(chunk.codes, chunk.values)
        known = chunk.labels >= 0
        asked = known & (reach >= 0)
        equal = (chunk.codes == chunk.labels[:, None]).any(axis=1) & asked
        comparable += int(asked.sum())
        matched += int(equal.sum())
        if not unlike[0] and (asked & ~equal).any():
            row = int(np.argmax(asked & ~equal))
            unlike = (
                _written(chunk, int(chunk.labels[row])),
                _written(chunk, int(chunk.codes[row, 0])),
            )
        wrong = np.where(known[:, None], chunk.codes != chunk.labels[:, None], UNKNOWN)
        number = chunk.first + np.arange(n)
        everything = Sample(number, chunk.rounds.contexts, differ, codes, wrong.astype(np.uint8))
        deep = reach == n_arms - 1
        retained.add(everything, keys, group, deep)
        audited.add(everything, keys, group, deep & known)
        full_depth += int(deep.sum())
        labelled += int(known.sum())
        done += n
        progress("reading", done, max(done, rows or 0))
    empty = _empty(n_arms, context_dim)
    return LogSurvey(
        rows=done,
        full_depth=full_depth,
        labelled=labelled,
        labelled_deep=int(sum(audited.seen.values())),
        answered=answered,
        pair_rows=pair_rows,
        pair_differ=pair_differ,
        classes=outputs.count(),
        sample=retained.balanced(group_rows, empty),
        audited=audited.balanced(group_rows, empty),
        unseen=float(sum(group_rows[g] for g in range(n_arms + 1) if g not in retained.seen))
        / max(done, 1),
        comparable=comparable,
        matched=matched,
        unlike=unlike,
    )


def _written(chunk: Chunk, code: int) -> str:
    return repr(cast(object, code if chunk.values is None else chunk.values[code]))


class _Outputs:
    """Gives equal outputs equal codes in all chunks, until there are too many."""

    def __init__(self) -> None:
        self._codes: dict[Any, int] = {}

    def count(self) -> int | None:
        """How many there are; None for free text."""
        return None if len(self._codes) > MOST_CLASSES else len(self._codes)

    def codes(self, local: Ints, values: tuple[Any, ...] | None) -> NDArray[np.int16]:
        """Translate the codes of a chunk; −1 for all once this is free text."""
        result = np.full(local.shape, -1, dtype=np.int16)
        if self.count() is None:
            return result
        present, place = np.unique(local, return_inverse=True)
        named = np.full(len(present), -1, dtype=np.int16)
        for k, code in enumerate(present.tolist()):
            if code < 0:
                continue  # beyond the reach
            value = cast(object, code if values is None else values[code])
            named[k] = self._codes.setdefault(value, len(self._codes))
            if self.count() is None:
                return result
        return named[place.reshape(local.shape)]


class _Groups:
    """Of every group the rows with the least random keys, as many as may be retained."""

    def __init__(self, most: int) -> None:
        self.seen: dict[int, int] = {}  # rows of each group so far
        self._most = most
        self._rows: dict[int, list[tuple[Floats, Sample]]] = {}
        self._limit: dict[int, float] = {}  # keys above cannot be among the least any more

    def add(self, rows: Sample, keys: Floats, group: Ints, chosen: NDArray[np.bool_]) -> None:
        for g in np.unique(group[chosen]).tolist():
            mine = chosen & (group == g)
            self.seen[g] = self.seen.get(g, 0) + int(mine.sum())
            mine &= keys < self._limit.get(g, np.inf)
            if not mine.any():
                continue
            held = self._rows.setdefault(g, [])
            held.append((keys[mine], _take(rows, mine)))
            # a quarter more are allowed, so that sorting is rare
            if sum(len(k) for k, _ in held) > self._most + self._most // 4 + 1024:
                self._settle(g)

    def _settle(self, g: int) -> tuple[Floats, Sample]:
        """Drop all but the least keys of a group; sort them."""
        held = self._rows[g]
        keys = np.concatenate([k for k, _ in held])
        rows = _joined([r for _, r in held])
        order = np.argsort(keys, kind="stable")[: self._most]
        if len(order) == self._most:
            self._limit[g] = float(keys[order[-1]])
        self._rows[g] = [(keys[order], _take(rows, order))]
        return self._rows[g][0]

    def balanced(self, group_rows: Ints, empty: Sample) -> Sample:
        """Return a sample in which every group has the share it has in the log."""
        if not self._rows:
            return empty
        settled = {g: self._settle(g) for g in sorted(self._rows)}
        covered = sum(int(group_rows[g]) for g in settled)
        shares = {g: int(group_rows[g]) / covered for g in settled}
        n = float(self._most)
        for g, (keys, _) in settled.items():
            if shares[g] >= SMALL_GROUP:
                n = min(n, len(keys) / shares[g])
        parts = [
            (keys[:m], _take(rows, slice(0, m)))
            for g, (keys, rows) in settled.items()
            for m in [round(n * shares[g])]
        ]
        order = np.argsort(np.concatenate([k for k, _ in parts]), kind="stable")
        return _take(_joined([r for _, r in parts]), order)


def _take(rows: Sample, which: Any) -> Sample:
    columns: Any = rows  # each has its own type
    return Sample(*(column[which] for column in columns))


def _joined(parts: list[Sample]) -> Sample:
    columns: Any = zip(*parts, strict=True)
    return Sample(*(np.concatenate(column) for column in columns))


def _empty(n_arms: int, context_dim: int) -> Sample:
    return Sample(
        np.empty(0, dtype=np.int64),
        np.empty((0, context_dim)),
        np.empty((0, n_arms * (n_arms - 1) // 2), dtype=np.uint8),
        np.empty((0, n_arms), dtype=np.int16),
        np.empty((0, n_arms), dtype=np.uint8),
    )
