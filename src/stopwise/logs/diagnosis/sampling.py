"""One pass over a log, in bounded memory: counts of all rows, a random sample for models.

Models and the rule need rows on which every arm answered. Where a policy stopped rounds early
those rows are not typical: it went deep where arms disagree. So the sample is balanced: rows are
grouped by where the policy decided to stop, and every group gets the share in the sample that it
has in the log. That is exact where some rounds of each group went to the last arm at random, and
changes nothing where every row has every output.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stopwise.logs.chunk import Bools, Bytes, Chunk, Floats, Ints
from stopwise.logs.labels import LabelCheck

# More different outputs than this count as free text.
MOST_CLASSES = 50
# A group smaller than this share of the log must not decide how large the sample is.
SMALL_GROUP = 0.01
UNKNOWN = 2  # in Sample.wrong
# A simulated log may have been drawn from the same seed: the choice of its rows must not repeat it.
STREAM = 20201


class Sample(NamedTuple):
    """Rows on which every arm answered, in random order: that of ``key`` (n,).

    ``number`` (n,) of the row in the log; ``contexts`` (n, d); ``differ`` (n, pairs);
    ``outputs`` (n, K), the same codes throughout the sample, meaningless for free text; ``wrong``
    (n, K): 1, 0, or 2 where there is no label.
    """

    key: Floats
    number: Ints
    contexts: Floats
    differ: Bytes
    outputs: NDArray[np.int16]
    wrong: Bytes

    @property
    def n(self) -> int:
        """How many rows there are."""
        return len(self.number)

    def take(self, which: Any) -> "Sample":
        """Return some of the rows, in the order given."""
        columns: Any = self  # each has its own type
        return Sample(*(column[which] for column in columns))

    @staticmethod
    def joined(parts: Iterable["Sample"]) -> "Sample":
        """Return the rows of all parts, in the order of their keys."""
        columns: Any = zip(*parts, strict=True)
        rows = Sample(*(np.concatenate(column) for column in columns))
        return rows.take(np.argsort(rows.key, kind="stable"))


class LogSurvey(NamedTuple):
    """What one pass over a log found; ``labelled`` rows have a label and an output.

    ``classes`` is the number of different outputs, None for free text; ``audited`` a sample of
    labelled rows; ``unseen`` the share of rows in groups none of whose rows went deep; ``unlike``
    says, if no label equals an output, how they differ.
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
    unlike: str | None


def survey(
    chunks: Iterable[Chunk],
    n_arms: int,
    *,
    sample: int,
    seed: int,
) -> LogSurvey:
    """Read every chunk once; the result does not depend on how rows are cut into chunks.

    ``sample`` is the most rows to hold, ``seed`` that of their choice.
    """
    deeper = np.array([j for i in range(n_arms) for j in range(i + 1, n_arms)])
    random = np.random.default_rng([seed, STREAM])
    outputs = _Outputs()
    retained, audited = _Groups(sample), _Groups(sample)
    done = full_depth = 0
    labels = LabelCheck()
    answered = np.zeros(n_arms, dtype=np.int64)
    pair_rows, pair_differ = np.zeros((2, len(deeper)), dtype=np.int64)
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
        known = labels.add(chunk)
        unequal = chunk.codes != chunk.labels[:, None]
        wrong = np.where(known[:, None], unequal, UNKNOWN).astype(np.uint8)
        number, contexts = chunk.first + np.arange(n), chunk.rounds.contexts
        everything = Sample(keys, number, contexts, differ, outputs.codes(chunk), wrong)
        deep = reach == n_arms - 1
        retained.add(everything, group, deep)
        audited.add(everything, group, deep & known)
        full_depth += int(deep.sum())
        done += n
    unseen = sum(int(group_rows[g]) for g in range(n_arms + 1) if g not in retained.seen)
    return LogSurvey(
        rows=done,
        full_depth=full_depth,
        labelled=labels.rows,
        labelled_deep=sum(audited.seen.values()),
        answered=answered,
        pair_rows=pair_rows,
        pair_differ=pair_differ,
        classes=outputs.count(),
        sample=retained.balanced(group_rows),
        audited=audited.balanced(group_rows),
        unseen=unseen / max(done, 1),
        unlike=labels.unlike(),
    )


class _Outputs:
    """Gives equal outputs equal codes in all chunks, until there are too many."""

    def __init__(self) -> None:
        self._codes: dict[Any, int] = {}

    def count(self) -> int | None:
        """Return how many there are; None for free text."""
        return None if len(self._codes) > MOST_CLASSES else len(self._codes)

    def codes(self, chunk: Chunk) -> NDArray[np.int16]:
        """Translate the codes of a chunk; −1 beyond the reach, and once this is free text."""
        if self.count() is None:
            return np.full(chunk.codes.shape, -1, dtype=np.int16)
        present, place = np.unique(chunk.codes, return_inverse=True)
        named = np.full(len(present), -1, dtype=np.int16)
        for k, code in enumerate(present.tolist()):
            if code >= 0 and self.count() is not None:
                named[k] = self._codes.setdefault(chunk.meaning(code), len(self._codes))
        return named[place.reshape(chunk.codes.shape)]


class _Groups:
    """Of every group the rows with the least keys, as many as may be retained."""

    def __init__(self, most: int) -> None:
        self.seen: dict[int, int] = {}  # rows of each group so far
        self._most = most
        self._rows: dict[int, list[Sample]] = {}
        self._limit: dict[int, float] = {}  # keys above cannot be among the least any more

    def add(self, rows: Sample, group: Ints, chosen: Bools) -> None:
        for g in np.unique(group[chosen]).tolist():
            mine = chosen & (group == g)
            self.seen[g] = self.seen.get(g, 0) + int(mine.sum())
            held = self._rows.setdefault(g, [])
            part = rows.take(mine & (rows.key < self._limit.get(g, np.inf)))
            if part.n:
                held.append(part)
            # a quarter more are allowed, so that sorting is rare
            if sum(part.n for part in held) > self._most + self._most // 4 + 1024:
                self._rows[g] = [self._least(g)]
                self._limit[g] = float(self._rows[g][0].key[-1])

    def _least(self, g: int) -> Sample:
        return Sample.joined(self._rows[g]).take(slice(self._most))

    def balanced(self, group_rows: Ints) -> Sample:
        """Return a sample in which every group has the share it has in the log."""
        if not self._rows:
            nothing: Any = np.empty((0, 0))
            return Sample(*[nothing] * len(Sample._fields))
        least = {g: self._least(g) for g in sorted(self._rows)}
        covered = sum(int(group_rows[g]) for g in least)
        shares = {g: int(group_rows[g]) / covered for g in least}
        large = [rows.n / shares[g] for g, rows in least.items() if shares[g] >= SMALL_GROUP]
        n = min([float(self._most), *large])
        parts = (rows.take(slice(round(n * shares[g]))) for g, rows in least.items())
        return Sample.joined(parts)
