"""Records: frozen, comparable, readable."""

import pytest

from stopwise.records import Decision, PairEvidence


def evidence(first: int, second: int, gap: float, ucb: float) -> PairEvidence:
    return PairEvidence(first, second, gap, ucb / 2, ucb, gap > ucb)


def decided(stop: int, arm: str, cost: float, *found: PairEvidence) -> Decision:
    """Return a decision of a source that explains every decision by the same evidence."""
    decision = Decision(stop, arm, cost, explain=lambda decision: found)
    assert decision.evidence == found
    return decision


def test_records_are_frozen_and_decisions_equal_by_what_they_show() -> None:
    one, same = Decision(1, "b", 0.25, trace=bytes(24)), Decision(1, "b", 0.25)
    for record, field in ((one, "stop"), (evidence(0, 1, 0.2, 0.1), "gap")):
        with pytest.raises(AttributeError):
            setattr(record, field, 1)
    others = [Decision(0, "b", 0.25), Decision(1, "c", 0.25), Decision(1, "b", 0.5)]
    assert one == same
    assert len({one, same, *others}) == 4
    assert one != (1, "b", 0.25)


def test_a_decision_names_the_comparison_that_mattered_most() -> None:
    found = (evidence(0, 1, 0.1, 0.4), evidence(1, 2, 0.35, 0.3), evidence(1, 3, 0.9, 0.4))
    assert str(decided(1, "rule", 0.1, *found)) == (
        "Stop at arm 1 (rule), cost 0.1: continuing to arm 2 would cost 0.35 more and could "
        "correct at most 0.3."
    )
    found = (evidence(0, 1, 0.1, 0.9), evidence(0, 2, 0.2, 0.9), evidence(1, 2, 0.125, 0.5))
    assert str(decided(2, "expert", 0.4, *found)) == (
        "Stop at arm 2 (expert), cost 0.4, the last arm: stopping at arm 1 would save 0.125 but "
        "could miss up to 0.5."
    )
    assert Decision(2, "expert", 0.4).evidence == ()
    assert "no evidence (exploration" in str(Decision(2, "expert", 0.4))


def test_evidence_reads_as_a_sentence() -> None:
    for gap, ucb, verdict in ((0.2, 0.1, "not worth it"), (0.1, 0.2, "may be worth it")):
        assert str(evidence(0, 2, gap, ucb)) == (
            f"0 → 2: costs {gap:g} more, could correct at most {ucb:g} (estimate {ucb / 2:g}): "
            f"{verdict}"
        )
    assert "at most 0 (" in str(PairEvidence(0, 1, 0.2, 0.1, 5.55e-17, True))  # a rounding error
    assert "at most 0 (estimate 0)" in str(PairEvidence(0, 1, 0.2, 1.3e-39, 2e-39, True))
