"""One pass over a log, in bounded memory: counts of all rows, a random sample for models.

Models and the rule need rows on which every arm answered. Where a policy stopped rounds early
those rows are not typical: it went deep where arms disagree. So the sample is balanced: rows are
grouped by where the policy decided to stop, and every group gets the share in the sample that it
has in the log. That is exact where some rounds of each group went to the last arm at random, and
changes nothing where every row has every output.
"""

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from stopwise.arrays import Bools, Bytes, Floats, Ints
from stopwise.logs.chunk import Chunk

# A group smaller than this share of the log must not decide how large the sample is.
SMALL_GROUP = 0.01
# A simulated log may have been drawn from the same seed: the choice of its rows must not repeat it.
STREAM = 20201
CHOSEN = 4.0  # standard errors by which labels are too often of rows in which arms disagree


class Sample(NamedTuple):
    """Rows on which every arm answered, in random order: that of ``key`` (n,).

    ``number`` (n,) of the row in the log; ``contexts`` (n, d); ``differ`` (n, pairs); ``wrong``
    (n, K), known of the rows that are ``labelled`` (n,), and 0 in others.
    """

    key: Floats
    number: Ints
    contexts: Floats
    differ: Bytes
    wrong: Bytes
    labelled: Bools

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
    """What one pass over a log found; ``audited`` is a sample of labelled rows."""

    rows: int
    full_depth: int
    labelled_deep: int
    answered: Ints
    pair_rows: Ints
    pair_differ: Ints
    sample: Sample
    audited: Sample


def survey(chunks: Iterable[Chunk], n_arms: int, *, sample: int, seed: int) -> LogSurvey:
    """Read every chunk once; the result does not depend on how rows are cut into chunks.

    ``sample`` is the most rows to hold, ``seed`` that of their choice.
    """
    deeper = np.array([j for i in range(n_arms) for j in range(i + 1, n_arms)])
    random = np.random.default_rng([seed, STREAM])
    retained, audited = _Groups(sample), _Groups(sample)
    done = full_depth = 0
    answered = np.zeros(n_arms, dtype=np.int64)
    pair_rows, pair_differ = np.zeros((2, len(deeper)), dtype=np.int64)
    group_rows = np.zeros(n_arms + 1, dtype=np.int64)
    for chunk in chunks:
        n, ran, differ = chunk.n, chunk.rounds.answered, chunk.rounds.differ
        keys = random.random(n)  # the rows with the least keys are the sample
        answered += (ran[:, None] > np.arange(n_arms)).sum(axis=0)
        both = ran[:, None] > deeper
        pair_rows += both.sum(axis=0)
        pair_differ += (both & (differ > 0)).sum(axis=0)
        group = np.clip(chunk.rule_stop, -1, n_arms - 1) + 1
        group_rows += np.bincount(group, minlength=n_arms + 1)
        labelled = chunk.labelled
        wrong = np.zeros((n, n_arms), dtype=np.uint8)
        if chunk.rounds.right is not None:
            wrong[labelled] = ~chunk.rounds.right[labelled]
        number, contexts = chunk.first + np.arange(n), chunk.rounds.contexts
        everything = Sample(keys, number, contexts, differ, wrong, labelled)
        deep = ran == n_arms
        retained.add(everything, group, deep)
        audited.add(everything, group, deep & labelled)
        full_depth += int(deep.sum())
        done += n
    return LogSurvey(
        rows=done,
        full_depth=full_depth,
        labelled_deep=sum(audited.seen.values()),
        answered=answered,
        pair_rows=pair_rows,
        pair_differ=pair_differ,
        sample=retained.balanced(group_rows),
        audited=audited.balanced(group_rows),
    )


def with_agreed(labelled: Sample, rows: Sample) -> Sample:
    """Return labelled rows with the share of agreement that all rows have.

    Labels may have been asked for only where arms disagree. Then rows of the sample in which all
    agree are added, with no error counted: whatever it is, all arms make it, so that differences
    between arms are right. Where labels seem a random choice of rows, nothing is changed.
    """
    if not labelled.n:
        return rows.take(slice(0))
    some, share = labelled.differ.any(axis=1), float(rows.differ.any(axis=1).mean())
    n, hits = labelled.n, int(some.sum())
    if hits <= n * share + CHOSEN * math.sqrt(n * share * (1 - share)):
        return labelled
    agreed = rows.take(~rows.differ.any(axis=1)).take(slice(round(hits * (1 / share - 1))))
    without_errors = agreed._replace(
        wrong=np.zeros_like(agreed.wrong), labelled=np.ones_like(agreed.labelled)
    )
    return Sample.joined([labelled.take(some), without_errors])


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
                self._rows[g] = [self.least(g)]
                self._limit[g] = float(self._rows[g][0].key[-1])

    def least(self, g: int) -> Sample:
        """Return the rows of a group that are retained."""
        return Sample.joined(self._rows[g]).take(slice(self._most))

    def balanced(self, group_rows: Ints) -> Sample:
        """Return a sample in which every group has the share it has in the log."""
        if not self._rows:
            nothing: Any = np.empty((0, 0))
            return Sample(*[nothing] * len(Sample._fields))
        least = {g: self.least(g) for g in sorted(self._rows)}
        covered = sum(int(group_rows[g]) for g in least)
        shares = {g: int(group_rows[g]) / covered for g in least}
        large = [rows.n / shares[g] for g, rows in least.items() if shares[g] >= SMALL_GROUP]
        n = min([float(self._most), *large])
        parts = (rows.take(slice(round(n * shares[g]))) for g, rows in least.items())
        return Sample.joined(parts)
