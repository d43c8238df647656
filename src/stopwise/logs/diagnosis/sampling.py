"""Counts and a random sample of a log, in one pass and bounded memory.

Models and the rule need rows on which every arm answered. If a policy stopped rounds early, these
rows are not typical, because it went deep where arms disagree. So the sample is balanced: rows are
grouped by the arm at which the policy decided to stop, and each group has the same share in the
sample as in the log. This is exact if some rounds of each group went to the last arm at random,
and has no effect if every row has every output.
"""

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from stopwise.arrays import Bools, Bytes, Floats, Ints
from stopwise.logs.chunk import Chunk

# Groups below this share of the log do not limit the sample size.
SMALL_GROUP = 0.01
# Keeps sampling independent of a simulated log that was drawn from the same seed.
STREAM = 20201
MAX_STANDARD_ERRORS = 4.0  # of excess disagreement in labelled rows, before they count as selected


class Sample(NamedTuple):
    """Rows on which every arm answered, in the random order of ``key`` (n,).

    ``number`` (n,) is the index of the row in the log; ``contexts`` are (n, d), ``differ`` is
    (n, pairs). ``labelled`` (n,) is whether a row has a label; in rows without one, ``wrong``
    (n, K) is 0.
    """

    key: Floats
    number: Ints
    contexts: Floats
    differ: Bytes
    wrong: Bytes
    labelled: Bools

    @property
    def n(self) -> int:
        """The number of rows."""
        return len(self.number)

    def take(self, which: Any) -> "Sample":
        """Return the rows that an index selects, in the order of the index."""
        columns: Any = self  # of different types
        return Sample(*(column[which] for column in columns))

    @staticmethod
    def joined(parts: Iterable["Sample"]) -> "Sample":
        """Return the rows of all parts, in the order of their keys."""
        columns: Any = zip(*parts, strict=True)
        rows = Sample(*(np.concatenate(column) for column in columns))
        return rows.take(np.argsort(rows.key, kind="stable"))


class LogSurvey(NamedTuple):
    """Counts of a log, a sample of its rows, and ``audited``, a sample of its labelled rows."""

    rows: int
    full_depth: int
    labelled_deep: int
    answered: Ints
    pair_rows: Ints
    pair_differ: Ints
    sample: Sample
    audited: Sample


def survey(chunks: Iterable[Chunk], n_arms: int, *, sample: int, seed: int) -> LogSurvey:
    """Read every chunk once; the result does not depend on the chunk size.

    ``sample`` is the maximum number of rows to hold, ``seed`` the seed of the sample.
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
        keys = random.random(n)  # the rows with the smallest keys form the sample
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
        rows = Sample(keys, number, contexts, differ, wrong, labelled)
        deep = ran == n_arms
        retained.add(rows, group, deep)
        audited.add(rows, group, deep & labelled)
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


def complete_agreement(labelled: Sample, rows: Sample) -> Sample:
    """Return the labelled rows, with agreement as frequent as in all rows.

    If disagreement is clearly more frequent in the labelled rows than in ``rows``, labels were
    requested mainly where arms disagree. Then the labelled rows in which all arms agree are
    replaced by rows of ``rows`` in which all arms agree, with no error counted. All arms share any
    error in these rows, so differences between arms are unbiased. Otherwise ``labelled`` is
    returned unchanged.
    """
    if not labelled.n:
        return rows.take(slice(0))
    disagree = labelled.differ.any(axis=1)
    share = float(rows.differ.any(axis=1).mean())
    n, hits = labelled.n, int(disagree.sum())
    if hits <= n * share + MAX_STANDARD_ERRORS * math.sqrt(n * share * (1 - share)):
        return labelled
    agreed = rows.take(~rows.differ.any(axis=1)).take(slice(round(hits * (1 / share - 1))))
    without_errors = agreed._replace(
        wrong=np.zeros_like(agreed.wrong), labelled=np.ones_like(agreed.labelled)
    )
    return Sample.joined([labelled.take(disagree), without_errors])


class _Groups:
    """For each group, the rows with the smallest keys, up to ``max_rows``."""

    def __init__(self, max_rows: int) -> None:
        self.seen: dict[int, int] = {}  # rows of each group so far
        self._max_rows = max_rows
        self._rows: dict[int, list[Sample]] = {}
        self._max_key: dict[int, float] = {}  # larger keys are no longer retained

    def add(self, rows: Sample, group: Ints, chosen: Bools) -> None:
        for g in np.unique(group[chosen]).tolist():
            members = chosen & (group == g)
            self.seen[g] = self.seen.get(g, 0) + int(members.sum())
            held = self._rows.setdefault(g, [])
            part = rows.take(members & (rows.key < self._max_key.get(g, np.inf)))
            if part.n:
                held.append(part)
            # sort only when a quarter more than needed are held
            if sum(part.n for part in held) > self._max_rows + self._max_rows // 4 + 1024:
                self._rows[g] = [self.least(g)]
                self._max_key[g] = float(self._rows[g][0].key[-1])

    def least(self, g: int) -> Sample:
        """Return the retained rows of a group."""
        return Sample.joined(self._rows[g]).take(slice(self._max_rows))

    def balanced(self, group_rows: Ints) -> Sample:
        """Return a sample in which each group has the same share as in the log."""
        if not self._rows:
            nothing: Any = np.empty((0, 0))
            return Sample(*[nothing] * len(Sample._fields))
        least = {g: self.least(g) for g in sorted(self._rows)}
        covered = sum(int(group_rows[g]) for g in least)
        shares = {g: int(group_rows[g]) / covered for g in least}
        large = [rows.n / shares[g] for g, rows in least.items() if shares[g] >= SMALL_GROUP]
        n = min([float(self._max_rows), *large])
        parts = (rows.take(slice(round(n * shares[g]))) for g, rows in least.items())
        return Sample.joined(parts)
