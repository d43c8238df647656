"""Counts and samples of a log."""

import tracemalloc

import numpy as np
import pytest
from scipy.stats import chisquare

from stopwise.logs.chunk import Chunk
from stopwise.logs.diagnosis.sampling import complete_agreement, survey
from stopwise.records import RecordedRounds

K = 3
PAIRS = [(0, 1), (0, 2), (1, 2)]


class Table:
    """Rows that can be read in chunks; with ``values``, codes are local to each chunk."""

    def __init__(self, n, *, rule_stop=None, reach=None, classes=4):
        random = np.random.default_rng(0)
        self.contexts = random.normal(size=(n, 2))
        self.reach = np.full(n, K - 1) if reach is None else reach
        beyond = np.arange(K) > self.reach[:, None]
        self.codes = np.where(beyond, -1, random.integers(0, classes, (n, K)))
        self.labels = np.where(random.random(n) < 0.3, random.integers(0, classes, n), -1)
        self.rule_stop = self.reach if rule_stop is None else rule_stop

    def chunks(self, size, values=None):
        for first in range(0, len(self.reach), size):
            rows = slice(first, first + size)
            codes, labels, names = self.codes[rows], self.labels[rows], None
            if values is not None:  # each chunk numbers the outputs differently
                names = tuple(np.roll(values, first).tolist())
                place = {v: k for k, v in enumerate(names)}
                translate = np.array([place[v] for v in values] + [-1])
                codes, labels = translate[codes], translate[labels]
            differ = np.stack(
                [(codes[:, i] != codes[:, j]) & (codes[:, j] >= 0) for i, j in PAIRS], axis=1
            ).astype(np.uint8)
            reach = self.reach[rows]
            rounds = RecordedRounds(
                self.contexts[rows],
                differ,
                answered=reach + 1,
                failed=np.zeros(len(reach), np.bool_),
                right=codes == labels[:, None],
                labelled=(labels >= 0) & (reach >= 0),
            )
            yield Chunk(first, rounds, codes, labels, names, reach, self.rule_stop[rows], None)


def read(table, *, sample=100, seed=0, size=64, values=None):
    return survey(table.chunks(size, values), K, sample=sample, seed=seed)


def test_all_rows_are_counted():
    reach = np.random.default_rng(1).integers(-1, K, 1000)
    table = Table(1000, reach=reach)
    surveyed = read(table)
    assert (surveyed.rows, surveyed.full_depth) == (1000, (reach == 2).sum())
    assert surveyed.answered.tolist() == [(reach >= i).sum() for i in range(K)]
    for k, (i, j) in enumerate(PAIRS):
        both = reach >= j
        assert surveyed.pair_rows[k] == both.sum()
        assert surveyed.pair_differ[k] == (table.codes[both, i] != table.codes[both, j]).sum()
    labelled = (table.labels >= 0) & (reach >= 0)  # a label without an output is not used
    assert sum(chunk.labelled.sum() for chunk in table.chunks(64)) == labelled.sum()
    assert surveyed.labelled_deep == (labelled & (reach == 2)).sum()


@pytest.mark.parametrize("sample", [100, 5000])
@pytest.mark.parametrize("size", [7, 256])
def test_the_result_does_not_depend_on_the_chunk_size(sample, size):
    table = Table(3000, rule_stop=np.random.default_rng(2).integers(0, K, 3000))
    expected = read(table, sample=sample, size=3000)
    other = read(table, sample=sample, size=size)
    for a, b in zip(expected.sample + expected.audited, other.sample + other.audited, strict=True):
        assert np.array_equal(a, b)


def test_sampled_rows_keep_their_columns_together():
    table = Table(2000)
    surveyed = read(table, values=["a", "b", "c", "d"])
    rows = surveyed.sample
    assert rows.n == np.unique(rows.number).size == 100
    assert np.array_equal(rows.contexts, table.contexts[rows.number])
    codes = table.codes[rows.number]
    for k, (i, j) in enumerate(PAIRS):
        assert np.array_equal(codes[:, i] != codes[:, j], rows.differ[:, k] == 1)
    labels = table.labels[rows.number, None]
    wrong = (labels >= 0) & (table.codes[rows.number] != labels)
    assert np.array_equal(rows.wrong, wrong)
    assert np.array_equal(rows.labelled, labels[:, 0] >= 0)


def test_rows_are_sampled_uniformly():
    """False alarms: one in a thousand."""
    table = Table(1000)
    counts = np.zeros(1000)
    for seed in range(200):
        counts[read(table, seed=seed, size=300).sample.number] += 1
    assert chisquare(counts.reshape(10, 100).sum(axis=1)).pvalue > 0.001
    assert counts.min() > 0  # a row is never sampled with probability 0.9²⁰⁰ = 7e-10
    rows = read(Table(90)).sample  # a small log is used completely, in random order
    assert sorted(rows.number) == list(range(90)) != rows.number.tolist()


def test_rows_forced_deep_represent_their_group():
    random = np.random.default_rng(3)
    rule_stop = np.where(random.random(20_000) < 0.8, 0, 2)
    deep = (rule_stop == 2) | (random.random(20_000) < 0.05)
    table = Table(20_000, rule_stop=rule_stop, reach=np.where(deep, 2, 0))
    surveyed = read(table, sample=10_000, size=1000)
    kind = rule_stop[surveyed.sample.number]
    assert (kind == 0).mean() == pytest.approx((rule_stop == 0).mean(), abs=0.002)
    assert surveyed.sample.n == pytest.approx(1000, rel=0.15)  # all rows of the rare group are used


def test_only_labels_of_disagreement_are_completed():
    table = Table(4000, classes=2)  # all three agree in a quarter of the rows
    random = np.random.default_rng(7)
    truth = table.codes[:, 0].copy()
    same = (table.codes == table.codes[:, :1]).all(axis=1)
    table.labels = np.where(random.random(4000) < 0.3, truth, -1)
    surveyed = read(table, sample=10_000)
    assert complete_agreement(surveyed.audited, surveyed.sample) is surveyed.audited
    table.labels[same] = -1
    surveyed = read(table, sample=10_000)
    rows = complete_agreement(surveyed.audited, surveyed.sample)
    agreed = ~rows.differ.any(axis=1)
    assert agreed.mean() == pytest.approx(same.mean(), abs=0.001)
    assert not rows.wrong[agreed].any()
    assert rows.labelled.all()
    # differences between arms match labels on all rows: 0.5, within five standard errors
    wrong = rows.wrong.mean(axis=0)
    assert wrong[0] == 0
    assert wrong[1] == pytest.approx(0.5, abs=5 * (0.25 / rows.n) ** 0.5)
    table.labels[:] = -1
    surveyed = read(table)
    assert complete_agreement(surveyed.audited, surveyed.sample).n == 0


def test_memory_is_bounded():
    table = Table(200_000)
    tracemalloc.start()
    read(table, sample=1000, size=2000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3e6  # all rows would be 10 MB
