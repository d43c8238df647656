"""What pages show is what the state holds, and reading it changes nothing."""

import pytest

from stopwise.policies.contextual import Contextual
from stopwise.service.dashboard import views
from stopwise.service.learner import Learner
from stopwise.service.ledger import Counts
from tests.service.dashboard.sample import (
    BASE,
    BEGAN,
    learner_of,
    overview_of,
    page_of,
    spec,
    state_of,
)

STAGED = {"kind": "per_stage", "maps": [{"kind": "identity"}] * 2, "sees": [1, 2]}


@pytest.mark.parametrize("kind", ["uss-pd", "thompson", "uss-ts"])
def test_reading_changes_no_bit(kind: str) -> None:
    shown, other = (learner_of(spec(policy={"kind": kind}), 120) for _ in range(2))
    before = state_of(shown).hash()
    page_of(shown)
    overview_of(shown)
    assert state_of(shown).hash() == before == state_of(other).hash()
    for k in range(120, 160):  # and what comes after is the same, bit for bit
        for learner in (shown, other):
            _, (answer,) = learner.open([[0.01 * k - 1, 0.5]], BEGAN + k, k)
            page_of(shown)
            assert answer.stop is not None
            outputs: list[object] = [0] * (answer.stop + 1)
            learner.report(k, outputs, [], False, BEGAN + k, k)
    assert state_of(shown).hash() == state_of(other).hash()


def test_a_summary_agrees_with_the_api() -> None:
    learner = learner_of(reported=150)
    row, view = views.summary(learner), learner.view()
    assert (row["rounds"], row["open"], row["learned"]) == (200, 50, 150)
    assert list(row["stops"]) == view.stops
    assert row["cost"] == pytest.approx(view.mean_cost)
    assert view.mean_cost is not None
    assert row["saving"] == pytest.approx(1 - view.mean_cost / 0.6)
    assert row["last"] == BEGAN + 1990
    assert sum(share for _, share in row["shares"]) == pytest.approx(1)


@pytest.mark.parametrize("most", [7, 60, 500])
def test_periods_hold_every_round(most: int) -> None:
    learner = learner_of()
    shown = views.periods(learner.counts, most)
    assert len(shown) <= most
    assert sum(one.rounds for one in shown) == 200
    sums = [sum(stops) for stops in zip(*(one.stops for one in shown), strict=True)]
    assert sums == learner.counts.stops_total
    assert views.periods(Counts.blank(3), most) == []
    assert shown[0].begin <= BEGAN < shown[0].end
    assert [one.begin for one in shown[1:]] == [one.end for one in shown[:-1]]


@pytest.mark.parametrize(
    ("rounds", "reported", "word"),
    [
        (0, 0, "new"),
        (5, 0, "exploring"),
        (30, 0, "no outputs"),
        (30, 30, "exploring"),
        (120, 40, "few outputs"),
        (120, 120, "learning"),
    ],
)
def test_health_in_a_word(rounds: int, reported: int, word: str) -> None:
    assert views.health(learner_of(rounds=rounds, reported=reported))[1] == word


def test_exploration_that_ends_by_itself_is_seen_to_end() -> None:
    def kind(rounds: int) -> Learner:
        return learner_of(spec(policy={"kind": "uss-pd", "forced_rounds": "auto"}), rounds)

    assert views.exploration(kind(1))
    assert not views.exploration(kind(200))


def test_fixed_rules_and_retired_cascades_raise_no_alarm() -> None:
    fixed = learner_of(spec(policy={"kind": "fixed-depth"}), 30, reported=0)
    assert views.health(fixed)[1] == "fixed rule"
    retired = learner_of(rounds=30, reported=0)
    retired.status = "retired"
    assert views.health(retired)[0] == "quiet"


def test_facts_are_the_policys_own_counts() -> None:
    learner = learner_of()
    facts = {name: value for name, value, _ in views.facts(learner)}
    assert isinstance(learner.policy, Contextual)
    effort = learner.policy.effort
    assert facts["Learned from"] == "200 rounds"
    assert facts["Refits"] == f"{effort['passes']:,}"
    assert facts["Divergence"] == "0 rounds"
    assert "Refits" not in {n for n, *_ in views.facts(learner_of(spec(policy={"kind": "uss-ts"})))}


def test_many_comparisons_are_cut_to_the_decisive_ones() -> None:
    learner = learner_of(spec(arms=[f"arm {k}" for k in range(15)]), 80)
    recent = learner.recent[-1]
    evidence = recent.evidence()
    shown = views.recent_round(recent)
    assert len(shown["evidence"]) == min(len(evidence), views.MOST_EVIDENCE)
    assert len(shown["evidence"]) + shown["left_out"] == len(evidence) > 0
    # the comparison that the sentence names is among them
    here = [e for e in evidence if e.first == recent.stop]
    if here:
        closest = min(here, key=lambda e: e.gap - e.repair)
        assert (closest.first, closest.second) in [(e.first, e.second) for e in shown["evidence"]]


def test_a_staged_round_on_its_way_counts_as_open_but_stopped_nowhere() -> None:
    learner = Learner(0, spec(features=STAGED), BEGAN)
    learner.open([[0.5]], BEGAN, 1)
    row = views.summary(learner)
    assert (row["rounds"], row["stopped"], row["open"], row["cost"]) == (1, 0, 1, None)
    page = page_of(learner)
    assert f"{BASE}/v1/cascades/triage/rounds" in page
    assert '"revealed": []' in page
