import numpy as np
import pytest

import stopwise as sw
from stopwise.logs.diagnosis.audit import Rows, read_audit, weak_dominance
from stopwise.logs.diagnosis.plug_in import plug_in_stops


def logistic_arms(costs):
    weights = [[1, 0, 0, 0], [3, 2, 0, 0], [6, 5, 3, 0]]
    return sw.LogisticArms(sw.Cascade(costs), weights, [8, 6, 4, 0])


def rows_of(environment, n, seed):
    """Contexts with their true p_ij(x), whether each arm erred, and whether WD holds."""
    batch = environment.sample(n, np.random.default_rng(seed))
    cascade = environment.cascade
    p = np.column_stack([batch.disagreement[:, i, j] for i, j in cascade.pairs()])
    wrong = (batch.outputs != batch.labels[:, None]).astype(np.uint8)
    return Rows(batch.contexts, p), wrong, batch.dominant


@pytest.mark.parametrize(
    "costs", [(0.05, 0.05, 0.05), (0.01, 0.2, 0.2), (0.01, 0.05, 0.4), (0.01, 0.3, 0.45)]
)
def test_the_share_of_weak_dominance_is_found(costs):
    """Within the interval, and the interval narrow enough to mean something."""
    labelled, wrong, _ = rows_of(logistic_arms(costs), 4000, 0)
    everyone, _, dominant = rows_of(logistic_arms(costs), 10_000, 1)
    found = weak_dominance(
        logistic_arms(costs).cascade,
        labelled.contexts,
        wrong,
        everyone,
        degree=2,
        random=np.random.default_rng(0),
    )
    assert found.low - 0.05 <= dominant.mean() <= found.high + 0.05
    assert found.high - found.low < 0.35


def test_few_labels_leave_a_wide_interval():
    environment = logistic_arms((0.01, 0.2, 0.2))
    everyone, _, _ = rows_of(environment, 5000, 1)
    width = []
    for n in (100, 10_000):
        labelled, wrong, _ = rows_of(environment, n, 0)
        found = weak_dominance(
            environment.cascade,
            labelled.contexts,
            wrong,
            everyone,
            degree=1,
            random=np.random.default_rng(0),
        )
        width.append(found.high - found.low)
    assert width[0] > 1.5 * width[1]


def test_everything_else_by_hand():
    environment = logistic_arms((0.01, 0.2, 0.2))
    labelled, wrong, _ = rows_of(environment, 500, 0)
    cascade = environment.cascade
    found = read_audit(
        cascade, labelled, wrong, labelled, degree=1, random=np.random.default_rng(0)
    )
    assert found.rows == 500
    assert [e.value for e in found.errors] == wrong.mean(axis=0).tolist()
    for pair in found.pairs:
        first, second = wrong[:, pair.first], wrong[:, pair.second]
        assert pair.harm.value == ((first == 0) & (second == 1)).mean()
        assert pair.repair.value == ((first == 1) & (second == 0)).mean()
        # γ_i − γ_j is what j repairs less what it spoils
        assert pair.repair.value - pair.harm.value == pytest.approx(first.mean() - second.mean())
    losses = wrong + cascade.cumulative
    stops = plug_in_stops(cascade, labelled.predicted)
    rule = losses[np.arange(500), stops]
    assert found.best_fixed == np.argmin(losses.mean(axis=0))
    assert found.rule_loss.value == pytest.approx(rule.mean())
    paired = rule - losses[:, found.best_fixed]
    assert found.lost.value == pytest.approx(paired.mean())
    half = 1.95996 * paired.std(ddof=1) / 500**0.5
    assert found.lost.high - found.lost.value == pytest.approx(half, rel=1e-5)
