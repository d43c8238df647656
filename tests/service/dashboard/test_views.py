"""Values of the pages, compared with the state; reading has no side effects."""

import pytest

from stopwise.service.dashboard import views
from stopwise.service.domain.cascade import ServedCascade
from stopwise.service.domain.counts import Counts
from stopwise.service.persistence.snapshots import state_hash
from tests.service.dashboard.sample import (
    BEGAN,
    STAGED,
    cascade_of,
    overview_of,
    page_of,
    spec,
    state_of,
)


@pytest.mark.parametrize("kind", ["uss-pd", "thompson", "uss-ts"])
def test_rendering_does_not_change_the_state(kind: str) -> None:
    shown, other = (cascade_of(spec(policy={"kind": kind}), 70) for _ in range(2))
    before = state_hash(state_of(shown))
    page_of(shown)
    overview_of(shown)
    assert state_hash(state_of(shown)) == before == state_hash(state_of(other))
    for k in range(70, 90):  # later rounds are the same, too
        page_of(shown)
        for cascade in (shown, other):
            _, (answer,) = cascade.open([[0.02 * k - 1, 0.5]], BEGAN + k, k)
            assert answer.stop is not None
            outputs: list[object] = [0] * (answer.stop + 1)
            cascade.report(k, outputs, [], False, BEGAN + k, k)
    assert state_hash(state_of(shown)) == state_hash(state_of(other))


def test_a_summary_agrees_with_the_api() -> None:
    cascade = cascade_of(reported=150)
    row, view = views.summary(cascade), cascade.view()
    assert (row["rounds"], row["open"], row["learned"]) == (200, 50, 150)
    assert list(row["stops"]) == view.stops
    assert row["cost"] == pytest.approx(view.mean_cost)
    assert view.mean_cost is not None
    assert row["saving"] == pytest.approx(1 - view.mean_cost / 0.6)
    assert row["last"] == BEGAN + 1990
    assert sum(share for _, share in row["shares"]) == pytest.approx(1)


@pytest.mark.parametrize("most", [7, 60, 500])
def test_periods_are_adjacent_and_contain_all_stops(most: int) -> None:
    cascade = cascade_of(reported=150)
    periods = views.periods(cascade.counts, most)
    assert len(periods) <= most
    stops_by_arm = zip(*(period.stops for period in periods), strict=True)
    sums = [sum(stops) for stops in stops_by_arm]
    assert sums == cascade.counts.stops_total
    assert periods[0].begin <= BEGAN < periods[0].end
    assert [period.begin for period in periods[1:]] == [period.end for period in periods[:-1]]
    assert views.periods(Counts.blank(3), 7) == []


AUTO = {"kind": "uss-pd", "forced_rounds": "auto"}


@pytest.mark.parametrize(
    ("rounds", "reported", "policy", "word"),
    [
        (0, 0, {}, "new"),
        (5, 0, {}, "exploring"),
        (30, 0, {}, "no outputs"),
        (30, 30, {}, "exploring"),
        (120, 40, {}, "few outputs"),
        (120, 120, {}, "learning"),
        (1, 1, AUTO, "exploring"),
        (200, 200, AUTO, "learning"),
        (30, 0, {"kind": "fixed-depth"}, "fixed rule"),
    ],
)
def test_the_health_of_a_cascade_follows_from_its_rounds_and_policy(
    rounds: int, reported: int, policy: dict[str, str], word: str
) -> None:
    features = {"kind": "polynomial", "degree": 1}
    definition = spec(policy=policy or {"kind": "uss-pd"}, features=features)
    cascade = cascade_of(definition, rounds, reported=reported)
    assert views.health(cascade)[1] == word
    cascade.status = "retired"
    assert views.health(cascade)[0] == "quiet"  # no warnings for retired cascades


def test_a_cascade_page_shows_the_counts_of_the_policy() -> None:
    cascade = cascade_of()
    facts = {name: value for name, value, _ in views.facts(cascade)}
    assert facts["Learned"] == "200 rounds"
    assert facts["Least-observed pair"] == "history → insulin"
    assert facts["Divergence"] == "0 rounds"
    assert "Least-observed pair" not in {
        n for n, *_ in views.facts(cascade_of(spec(policy={"kind": "uss-ts"})))
    }


def test_only_the_decisive_comparisons_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "MAX_EVIDENCE", 5)  # fewer than any round of 15 arms has
    recent = cascade_of(spec(arms=[f"arm {k}" for k in range(15)]), 12).recent[-1]
    evidence, shown = recent.evidence(), views.recent_round(recent)
    assert len(shown["evidence"]) == min(len(evidence), views.MAX_EVIDENCE)
    assert len(shown["evidence"]) + shown["omitted"] == len(evidence) > views.MAX_EVIDENCE
    at_stop = [e for e in evidence if e.first == recent.stop]  # the reason mentions one of these
    assert not at_stop or min(at_stop, key=lambda e: e.gap - e.repair) in shown["evidence"]


def test_an_open_staged_round_has_no_stop() -> None:
    cascade = ServedCascade(0, spec(**STAGED, context=1), BEGAN)
    cascade.open([[0.5]], BEGAN, 1)
    row = views.summary(cascade)
    assert (row["rounds"], row["stopped"], row["open"], row["cost"]) == (1, 0, 1, None)
    assert '"revealed": []' in page_of(cascade)
