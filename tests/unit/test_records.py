"""Records: frozen, comparable, readable."""

import pytest

from stopwise.records import Decision, PairEvidence, Truth


def evidence(first: int, second: int, gap: float, ucb: float) -> PairEvidence:
    return PairEvidence(first, second, gap, ucb / 2, ucb, gap > ucb)


class Source:
    """Explains every decision by the same evidence."""

    def __init__(self, *found: PairEvidence) -> None:
        self.found = found

    def explain(self, decision: Decision) -> tuple[PairEvidence, ...]:
        assert isinstance(decision, Decision)
        return self.found


@pytest.mark.parametrize(
    ("record", "field"),
    [(Decision(0, "a", 0.1), "stop"), (evidence(0, 1, 0.2, 0.1), "gap"), (Truth(), "label")],
    ids=["decision", "evidence", "truth"],
)
def test_records_are_frozen(record: object, field: str) -> None:
    with pytest.raises(AttributeError):
        setattr(record, field, 1)


def test_decisions_are_equal_by_what_they_show() -> None:
    one = Decision(1, "b", 0.25, note=bytes(24), round=4)
    others = [Decision(0, "b", 0.25), Decision(1, "c", 0.25), Decision(1, "b", 0.5)]
    assert one == Decision(1, "b", 0.25)
    assert len({one, Decision(1, "b", 0.25), *others}) == 4
    assert one != (1, "b", 0.25)


def test_a_stop_names_the_deeper_arm_that_came_closest() -> None:
    found = (evidence(0, 1, 0.1, 0.4), evidence(1, 2, 0.35, 0.3), evidence(1, 3, 0.9, 0.4))
    decision = Decision(1, "rule", 0.1, source=Source(*found))
    assert decision.evidence == found
    assert str(decision) == (
        "Stop at arm 1 (rule), cost 0.1: going on to arm 2 would cost 0.35 more and could repair "
        "at most 0.3."
    )


def test_the_last_arm_says_why_the_one_before_was_not_enough() -> None:
    found = (evidence(0, 1, 0.1, 0.9), evidence(0, 2, 0.2, 0.9), evidence(1, 2, 0.125, 0.5))
    assert str(Decision(2, "expert", 0.4, source=Source(*found))) == (
        "Stop at arm 2 (expert), cost 0.4, the last: stopping at arm 1 would save 0.125 but could "
        "miss up to 0.5."
    )
    assert Decision(2, "expert", 0.4).evidence == ()
    assert "not decided by evidence" in str(Decision(2, "expert", 0.4))


@pytest.mark.parametrize(
    ("gap", "ucb", "verdict"), [(0.2, 0.1, "not worth it"), (0.1, 0.2, "may be worth it")]
)
def test_evidence_reads_as_a_sentence(gap: float, ucb: float, verdict: str) -> None:
    assert str(evidence(0, 2, gap, ucb)) == (
        f"0 → 2: costs {gap:g} more, could repair at most {ucb:g} (estimate {ucb / 2:g}): {verdict}"
    )


def test_a_rounding_error_is_written_as_0() -> None:
    assert "could repair at most 0 (" in str(PairEvidence(0, 1, 0.2, 0.1, 5.55e-17, True))
