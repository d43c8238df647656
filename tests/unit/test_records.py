"""Tests of decisions and evidence: immutability, equality and text."""

import pytest

from stopwise.records import Decision, PairEvidence


def evidence(first: int, second: int, gap: float, ucb: float) -> PairEvidence:
    return PairEvidence(first, second, gap, ucb / 2, ucb, gap > ucb)


def explained(stop: int, arm: str, cost: float, *comparisons: PairEvidence) -> Decision:
    """Return a decision with this evidence."""
    decision = Decision(stop, arm, cost, explain=lambda decision: comparisons)
    assert decision.evidence == comparisons
    return decision


@pytest.mark.parametrize(
    ("record", "field"), [(Decision(1, "b", 0.25), "stop"), (evidence(0, 1, 0.2, 0.1), "gap")]
)
def test_records_are_immutable(record: object, field: str) -> None:
    with pytest.raises(AttributeError):
        setattr(record, field, 1)


def test_decisions_compare_by_stop_arm_and_cost() -> None:
    decision, same = Decision(1, "b", 0.25, trace=bytes(24)), Decision(1, "b", 0.25)
    others = [Decision(0, "b", 0.25), Decision(1, "c", 0.25), Decision(1, "b", 0.5)]
    assert decision == same
    assert len({decision, same, *others}) == 4
    assert decision != (1, "b", 0.25)


def test_a_decision_names_the_decisive_comparison() -> None:
    comparisons = (evidence(0, 1, 0.1, 0.4), evidence(1, 2, 0.35, 0.3), evidence(1, 3, 0.9, 0.4))
    assert str(explained(1, "rule", 0.1, *comparisons)) == (
        "Stop at arm 1 (rule), cost 0.1: continuing to arm 2 would cost 0.35 more and could "
        "correct at most 0.3."
    )
    comparisons = (evidence(0, 1, 0.1, 0.9), evidence(0, 2, 0.2, 0.9), evidence(1, 2, 0.125, 0.5))
    assert str(explained(2, "expert", 0.4, *comparisons)) == (
        "Stop at arm 2 (expert), cost 0.4, the last arm: stopping at arm 1 would save 0.125 but "
        "could miss up to 0.5."
    )
    assert Decision(2, "expert", 0.4).evidence == ()
    assert "no evidence (exploration" in str(Decision(2, "expert", 0.4))


@pytest.mark.parametrize(
    ("gap", "ucb", "verdict"), [(0.2, 0.1, "not worth it"), (0.1, 0.2, "may be worth it")]
)
def test_evidence_prints_a_sentence(gap: float, ucb: float, verdict: str) -> None:
    assert str(evidence(0, 2, gap, ucb)) == (
        f"0 → 2: costs {gap:g} more, could correct at most {ucb:g} (estimate {ucb / 2:g}): "
        f"{verdict}"
    )


def test_evidence_prints_a_tiny_bound_as_zero() -> None:
    assert "at most 0 (" in str(PairEvidence(0, 1, 0.2, 0.1, 5.55e-17, True))  # rounding error
    assert "at most 0 (estimate 0)" in str(PairEvidence(0, 1, 0.2, 1.3e-39, 2e-39, True))
