"""Changes of disagreement are counted, logged once, shown and kept in snapshots."""

import numpy as np
import pytest

from stopwise.service.dashboard import drawing, views
from stopwise.service.domain.cascade import ServedCascade
from stopwise.service.domain.messages import Arm, CascadeSpec
from stopwise.service.persistence.snapshots import restore_snapshot, state_hash, take_snapshot
from stopwise.service.server_log import LOG
from tests.service.dashboard.sample import state_of

SPEC = CascadeSpec(
    "triage",
    [Arm("quick", 0.05), Arm("slow", 0.1)],
    context=1,
    features={"kind": "polynomial", "degree": 1},
    policy={"kind": "uss-pd", "forced_rounds": 10_000},
)


def test_change_is_counted_logged_shown_and_survives_a_snapshot(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(2)
    cascade, replayed = ServedCascade(0, SPEC, 0.0), ServedCascade(0, SPEC, 0.0)
    monkeypatch.setattr(LOG, "propagate", True)  # servers in other tests disable it
    for k in range(900):
        time, position = 10.0 * k, 2 * k + 1
        opened, _ = cascade.open([[float(random.uniform(-1, 1))]], time, position)
        wrong = bool(random.random() < (0.05 if k < 600 else 0.5))
        reported, _ = cascade.report(k, [0, int(wrong)], [], False, time, position + 1)
        assert opened is not None
        assert reported is not None
        replayed.apply_opened(opened, position)
        replayed.apply_reported(reported, position + 1)  # must not log the change
        if k == 610:
            restored = restore_snapshot(take_snapshot(state_of(replayed)))
            assert restored is not None
            replayed = restored.cascades["triage"]
    assert cascade.counts.changes_total == 1
    ((time, change),) = cascade.counts.changes
    assert 5_700 <= 10 * change.round <= 6_300 < time < 8_000
    (line,) = [record for record in caplog.records if "disagreement changed" in record.message]
    assert vars(line)["pair"] == ["quick", "slow"]
    assert vars(line)["before"] < 0.15 < 0.3 < vars(line)["after"]
    assert state_hash(state_of(replayed)) == state_hash(state_of(cascade))
    periods = views.periods(cascade.counts, 60)
    (marked,) = [period for period in periods if period.changes]
    assert marked.begin <= time <= marked.end
    for chart in (
        drawing.depth_chart(periods, ["quick", "slow"]),
        drawing.cost_chart(periods, [0.05, 0.15], saved=True),
    ):
        assert chart.count('class="changed"') == 1
    assert any(value == "1 change" for _, value, _ in views.facts(cascade))
