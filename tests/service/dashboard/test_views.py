"""What pages show is what the state holds, and looking changes nothing."""

import numpy as np
import pytest

from stopwise.policies.contextual import Contextual
from stopwise.service.dashboard import views
from stopwise.service.dashboard.values import Stretch, merged
from stopwise.service.learner import Learner
from tests.service.dashboard.sample import (
    BASE,
    BEGAN,
    at_work,
    overview_of,
    page_of,
    spec,
    state_of,
)


@pytest.mark.parametrize("kind", ["uss-pd", "uss-pd-ridge", "thompson", "uss-ucb", "uss-ts"])
def test_looking_changes_no_bit(kind: str) -> None:
    looked, other = (at_work(spec(policy={"kind": kind}), 120) for _ in range(2))
    before = state_of(looked).hash()
    page_of(looked)
    overview_of(looked)
    assert state_of(looked).hash() == before == state_of(other).hash()
    for k in range(120, 160):  # and what comes after is the same, bit for bit
        x = np.array([[0.01 * k - 1, 0.5]])
        for learner in (looked, other):
            stop = learner.decide(x.copy(), BEGAN + k, None, k)[0].stops[0]
            outputs = dict.fromkeys(range(stop + 1), b"0")
            page_of(looked)
            learner.tell(k, outputs, final=False, time=BEGAN + k, position=k)
    assert state_of(looked).hash() == state_of(other).hash()


def test_a_glance_agrees_with_the_api() -> None:
    learner = at_work(told=150)
    glance, view = views.glance(learner), learner.view()
    assert (glance.decisions, glance.open, glance.learned) == (200, 50, 150)
    assert list(glance.stops) == view.stops
    assert glance.cost == pytest.approx(view.mean_cost)
    assert view.mean_cost is not None
    assert glance.saving == pytest.approx(1 - view.mean_cost / 0.6)
    assert glance.last == BEGAN + 1990


def test_stretches_hold_every_decision_and_comparison() -> None:
    learner = at_work()
    whole = views.whole(learner, BASE)
    for shown in (whole.stretches, merged(whole.stretches, 7)):
        assert sum(one.decisions for one in shown) == 200
        seen = [sum(s) for s in zip(*(one.seen for one in shown), strict=True)]
        assert seen == [pair.seen for pair in whole.pairs] == learner.tally.seen_total
    assert len(merged(whole.stretches, 7)) <= 7
    assert whole.stretches[0].begin <= BEGAN < whole.stretches[0].end


def test_merging_leaves_nothing_between() -> None:
    ticks = [Stretch(k, k + 1, (k, 1), (1,), (0,)) for k in range(241)]
    for most in (1, 24, 60, 240, 241, 500):
        shown = merged(ticks, most)
        assert len(shown) <= most
        ends = [one.end for one in shown]
        assert [one.begin for one in shown] == [0, *ends[:-1]]
        assert sum(one.decisions for one in shown) == sum(one.decisions for one in ticks)


@pytest.mark.parametrize(
    ("rounds", "told", "word"),
    [
        (0, 0, "new"),
        (5, 0, "exploring"),
        (30, 0, "hears nothing"),
        (30, 30, "exploring"),
        (120, 40, "few outputs"),
        (120, 120, "learning"),
    ],
)
def test_health_in_a_word(rounds: int, told: int, word: str) -> None:
    assert views.health(at_work(rounds=rounds, told=told)).word == word


def test_exploration_that_ends_by_itself_is_seen_to_end() -> None:
    def kind(rounds: int) -> Learner:
        return at_work(spec(policy={"kind": "uss-pd", "forced_rounds": "auto"}), rounds)

    assert views.exploration(kind(1))
    assert not views.exploration(kind(200))


def test_rules_that_do_not_learn_and_cascades_at_rest_raise_no_alarm() -> None:
    fixed = at_work(spec(policy={"kind": "fixed-depth"}), 30, told=0)
    assert views.health(fixed).word == "fixed rule"
    retired = at_work(rounds=30, told=0)
    retired.status = "retired"
    assert views.health(retired).mood == "quiet"


def test_facts_are_the_policys_own_counts() -> None:
    learner = at_work()
    facts = {fact.name: fact for fact in views.facts(learner)}
    assert isinstance(learner.policy, Contextual)
    effort = learner.policy.effort
    assert facts["Learned from"].value == "200 rounds"
    assert facts["Refits"].value.split()[0] == f"{effort['passes']:,}"
    assert facts["Rows kept"].value == f"{effort['rows_kept']:,}"
    assert facts["Forced exploration"].value == "over"
    assert facts["Divergence"].value == "0 decisions"


def test_active_cascades_come_first_in_an_order_that_stays() -> None:
    first, second, gone = (at_work(spec(name), 1) for name in ("b", "c", "a"))
    gone.status = "retired"
    names = [one.spec.name for one in views.ordered([gone, second, first])]
    assert names == ["b", "c", "a"]


def test_many_comparisons_are_cut_to_the_telling_ones() -> None:
    learner = at_work(spec(arms=[f"arm {k}" for k in range(15)]), 80)
    recent = learner.recent[-1]
    evidence = recent.evidence()
    shown = views.made(recent)
    if len(evidence) > views.MOST_COMPARED:
        assert len(shown.compared) <= views.MOST_COMPARED
    assert len(shown.compared) + shown.left_out == len(evidence) > 0
    # the comparison that the sentence names is among them
    here = [e for e in evidence if e.first == recent.stop]
    if here:
        closest = min(here, key=lambda e: e.gap - e.repair)
        assert (closest.first, closest.second) in [(c.first, c.second) for c in shown.compared]


def test_a_round_on_its_way_counts_as_open_but_stopped_nowhere() -> None:
    features = {"kind": "per_stage", "maps": [{"kind": "identity"}] * 2, "sees": [1, 2]}
    learner = Learner(0, spec(features=features), BEGAN)
    learner.start(np.array([0.5]), BEGAN, None, 1)
    glance = views.glance(learner)
    assert (glance.decisions, glance.stopped, glance.open, glance.cost) == (1, 0, 1, None)
    assert f"{BASE}/v1/cascades/triage/rounds" in views.whole(learner, BASE).try_this
