import numpy as np
import pytest

from stopwise.logs.diagnosis.disagreement import group_disagreements


def test_groups_cover_every_row_once():
    random = np.random.default_rng(0)
    x = np.column_stack([random.normal(size=900), random.integers(0, 3, 900)]).astype(np.float64)
    differ = random.integers(0, 2, (900, 3)).astype(np.uint8)
    found = group_disagreements(["age", "ward"], x, differ)
    assert [(g.coordinate, g.rows) for g in found[:3]] == [("age", 300)] * 3
    assert [g.group for g in found[3:]] == ["0", "1", "2"]
    for place, group in enumerate(found[3:]):
        mine = x[:, 1] == place
        assert group.rows == mine.sum()
        assert [r.value for r in group.rates] == pytest.approx(differ[mine].mean(axis=0))
    low, high = np.quantile(x[:, 0], [1 / 3, 2 / 3])
    assert found[0].rates[0].value == differ[x[:, 0] <= low, 0].mean()
    assert f"{high:.4g}" in found[2].group
