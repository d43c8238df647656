"""The values that travel: frozen, comparable, readable."""

import pytest

from stopwise.records import Decision, PairEvidence, Truth


def evidence(first: int, second: int, gap: float, ucb: float) -> PairEvidence:
    return PairEvidence(first, second, gap, ucb / 2, ucb, gap > ucb)


class Told:
    """Explains every decision by the same evidence."""

    def __init__(self, *said: PairEvidence) -> None:
        self.said = said

    def explain(self, decision: Decision) -> tuple[PairEvidence, ...]:
        assert isinstance(decision, Decision)
        return self.said


@pytest.mark.parametrize(
    ("record", "field"),
    [(Decision(0, "a", 0.1), "stop"), (evidence(0, 1, 0.2, 0.1), "gap"), (Truth(), "label")],
    ids=["decision", "evidence", "truth"],
)
def test_records_are_frozen(record: object, field: str) -> None:
    with pytest.raises(AttributeError):
        setattr(record, field, 1)


def test_decisions_are_equal_if_they_show_the_same_whatever_they_rest_on() -> None:
    one = Decision(1, "b", 0.25, note=bytes(24), round=4)
    assert one == Decision(1, "b", 0.25)
    assert hash(one) == hash(Decision(1, "b", 0.25))
    assert one != Decision(0, "b", 0.25)
    assert one != Decision(1, "c", 0.25)
    assert one != Decision(1, "b", 0.5)
    assert one != (1, "b", 0.25)
    assert len({one, Decision(1, "b", 0.25), Decision(0, "a", 0.1)}) == 2


def test_a_decision_without_source_has_no_evidence() -> None:
    assert Decision(1, "b", 0.25).evidence == ()


def test_evidence_is_asked_of_the_source() -> None:
    said = evidence(0, 1, 0.3, 0.1)
    assert Decision(0, "a", 0.1, source=Told(said)).evidence == (said,)


def test_a_stop_names_the_deeper_arm_that_came_closest() -> None:
    source = Told(evidence(0, 1, 0.3, 0.1), evidence(0, 2, 0.35, 0.3), evidence(0, 3, 0.9, 0.4))
    assert str(Decision(0, "rule", 0.1, source=source)) == (
        "Stop at arm 0 (rule), cost 0.1: going on to arm 2 would cost 0.35 more and could repair "
        "at most 0.3."
    )


def test_a_stop_in_the_middle_speaks_of_what_lies_deeper_not_before() -> None:
    source = Told(evidence(0, 1, 0.1, 0.4), evidence(1, 2, 0.3, 0.2))
    assert "going on to arm 2 would cost 0.3 more" in str(Decision(1, "b", 0.2, source=source))


def test_the_last_arm_says_why_the_one_before_was_not_enough() -> None:
    source = Told(evidence(0, 1, 0.1, 0.9), evidence(0, 2, 0.2, 0.9), evidence(1, 2, 0.125, 0.5))
    assert str(Decision(2, "expert", 0.4, source=source)) == (
        "Stop at arm 2 (expert), cost 0.4, the last: stopping at arm 1 would save 0.125 but could "
        "miss up to 0.5."
    )


def test_without_evidence_it_says_so() -> None:
    assert str(Decision(2, "expert", 0.4)).endswith(
        "not decided by evidence (exploration, or a fixed rule)."
    )


@pytest.mark.parametrize(
    ("gap", "ucb", "verdict"), [(0.2, 0.1, "not worth it"), (0.1, 0.2, "may be worth it")]
)
def test_evidence_reads_as_a_sentence(gap: float, ucb: float, verdict: str) -> None:
    assert str(evidence(0, 2, gap, ucb)) == (
        f"0 → 2: costs {gap:g} more, could repair at most {ucb:g} (estimate {ucb / 2:g}): {verdict}"
    )


def test_evidence_compares_by_value() -> None:
    assert evidence(0, 1, 0.2, 0.1) == evidence(0, 1, 0.2, 0.1)
    assert evidence(0, 1, 0.2, 0.1) != evidence(0, 1, 0.2, 0.15)


def test_truth_says_nothing_unless_told() -> None:
    truth = Truth()
    assert (truth.label, truth.optimal, truth.disagreement) == (None, None, None)
