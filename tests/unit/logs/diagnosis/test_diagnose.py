"""The whole diagnosis, on real files."""

import msgspec
import numpy as np
import pytest

import stopwise as sw
from stopwise.logs.columns import Columns
from stopwise.logs.diagnosis.diagnose import diagnose
from stopwise.logs.diagnosis.findings import Diagnosis
from stopwise.logs.diagnosis.words import main_numbers
from stopwise.logs.log import Log
from tests.helpers.cascades import bad_cascade, good_cascade, simulated, write_log


def log_of(folder, drawn, **kind):
    return Log(write_log(drawn, folder / "log.parquet", **kind))


def text_log(path, header, rows):
    lines = [",".join(header), *(",".join("" if c is None else str(c) for c in r) for r in rows)]
    path.write_text("\n".join(lines) + "\n")
    known = any(name.startswith("context.") for name in header)
    return Log(path, None if known else Columns(context=()))


def numbers_in(value):
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [n for v in value for n in numbers_in(v)]
    return [value] if isinstance(value, float) else []


def test_it_survives_json_and_holds_only_numbers(tmp_path):
    drawn = good_cascade(2000, 0)
    calls = []
    log = log_of(tmp_path, drawn, labelled=0.2)
    found = diagnose(log, drawn.cascade, progress=lambda *call: calls.append(call))
    assert {stage for stage, _, _ in calls} == {"reading", "fitting", "estimating"}
    assert calls[-1] == ("estimating", 2, 2)
    text = msgspec.json.encode(found)
    assert msgspec.json.decode(text, type=Diagnosis) == found
    assert all(np.isfinite(numbers_in(msgspec.json.decode(text))))
    assert found.log == "log.parquet"
    assert (found.rows, found.used, found.full_depth) == (2000, 2000, 2000)
    assert found.audit is not None
    assert found.labelled == found.audit.rows == pytest.approx(400, abs=80)
    assert found.plan is found.hint is None
    assert found.logged_cost == pytest.approx(drawn.cascade.cumulative[-1])


def test_the_same_seed_gives_the_same_diagnosis(tmp_path):
    drawn = good_cascade(3000, 0)
    log = log_of(tmp_path, drawn, labelled=0.2)
    one = diagnose(log, drawn.cascade, sample=500, seed=3)
    assert one == diagnose(log, drawn.cascade, sample=500, seed=3)
    assert one != diagnose(log, drawn.cascade, sample=500, seed=4)
    assert one.used == 500
    assert one.audit is not None
    assert one.audit.rows == 500  # labels are scarce: they have a sample of their own


def test_labels_are_judged_by_models_that_never_saw_their_row(tmp_path):
    # 70 features on 60 rows would repeat by heart which of their own rows disagree
    drawn = simulated(120, 0, (0.1, 0.1), (0.3, 0.3))
    found = diagnose(log_of(tmp_path, drawn, labelled=1.0), drawn.cascade, degree=4)
    differ = drawn.outputs[:, 0] != drawn.outputs[:, 1]
    assert found.audit is not None
    # an oracle of its own rows would go on exactly where they disagree
    by_heart = (0.1 + 0.1 * differ + (drawn.outputs[:, 1] != drawn.labels)).mean()
    assert found.audit.rule_loss.value > by_heart + 0.01
    assert found.reliability[0].calibration_error > 0.1


def test_two_arms_and_no_context(tmp_path):
    rows = [("a", "a")] * 150 + [("a", "b")] * 50
    log = text_log(tmp_path / "log.csv", ["output.one", "output.two"], rows)
    found = diagnose(log, sw.Cascade([0.1, 0.3]))
    assert (found.context, found.groups, found.hint) == ((), (), None)
    assert found.pairs[0].rate.value == 0.25
    assert found.stops[0].share.value == 1.0  # 0.25 < 0.3 everywhere
    assert found.saving.per_round.value == pytest.approx(0.3)
    assert found.verdict.answer == "probably"
    assert found.plan is not None
    assert found.plan.enough == 100
    assert found.arms[1].name == "two"


def test_a_truncated_log_with_forced_depth_gives_the_rates_of_all_rows(tmp_path):
    """Rounds go deep where arms disagree; one in ten of the others does at random."""
    random = np.random.default_rng(0)
    x = random.random(20_000)
    differs = random.random(20_000) < 0.6 * x
    rule_stop = np.where(x > 0.5, 1, 0)
    deep = (rule_stop == 1) | (random.random(20_000) < 0.1)
    rows = [
        (
            f"{v:.4f}",
            "a",
            None if not d else "b" if diff else "a",
            ("one", "two")[d],
            ("one", "two")[w],
        )
        for v, d, diff, w in zip(x, deep.astype(int), differs, rule_stop, strict=True)
    ]
    header = ["context.x", "output.one", "output.two", "stop", "rule_stop"]
    log = text_log(tmp_path / "log.csv", header, rows)
    found = diagnose(log, sw.Cascade([0.1, 0.3]))
    assert found.full_depth == deep.sum()
    assert found.pairs[0].rate.value > 0.38  # of the rows that went deep
    assert found.fixed[0].disagreement.value == pytest.approx(0.3, abs=0.04)  # of all
    assert found.stops[0].share.value == pytest.approx(0.5, abs=0.06)
    assert any("stop before two" in note for note in found.notes)
    assert found.logged_cost == pytest.approx(0.1 + 0.3 * deep.mean())


def test_what_stages_reveal_is_used_from_there_on(tmp_path):
    random = np.random.default_rng(0)
    calls = random.random(4000)
    differs = random.random(4000) < calls
    rows = [
        (f"{random.random():.3f}", f"{r:.4f}", "a", "a", "b" if d else "a")
        for r, d in zip(calls, differs, strict=True)
    ]
    header = ["context.x", "revealed.two.sure", "output.one", "output.two", "output.three"]
    found = diagnose(text_log(tmp_path / "log.csv", header, rows), sw.Cascade([0.1, 0.0, 0.5]))
    assert found.context == ("x", "two.sure")
    # arm one cannot tell the rows apart; arm two can: half of them are worth going on
    assert found.stops[0].share.value < 0.6
    assert (
        found.reliability[2].bins[0].predicted < 0.1 < 0.9 < found.reliability[2].bins[-1].predicted
    )
    assert all(abs(b.predicted - 0.5) < 0.1 for b in found.reliability[1].bins)


@pytest.mark.parametrize("n", [0, 40])
def test_too_few_rows_are_refused(tmp_path, n):
    rows = [("a", "b")] * n + [("a", None)] * 500
    log = text_log(tmp_path / "few.csv", ["output.one", "output.two"], rows)
    with pytest.raises(sw.InvalidLogError, match=f"few.csv: only {n} rows have the outputs"):
        diagnose(log, sw.Cascade([0.1, 0.3]))


def test_wrong_arguments_are_refused(tmp_path):
    log = text_log(tmp_path / "log.csv", ["output.one", "output.two"], [("a", "b")] * 60)
    with pytest.raises(
        sw.InvalidParameterError, match=r"2 arms \(one, two\) but there are 3 costs"
    ):
        diagnose(log, sw.Cascade([0.1, 0.3, 0.1]))
    with pytest.raises(sw.InvalidParameterError, match="degree"):
        diagnose(log, sw.Cascade([0.1, 0.3]), degree=5)
    with pytest.raises(sw.InvalidParameterError, match="sample"):
        diagnose(log, sw.Cascade([0.1, 0.3]), sample=10)


def test_labels_that_no_arm_ever_says_are_refused(tmp_path):
    header = ["output.one", "output.two", "label"]
    rows = [("yes", "no", "Yes"), ("no", "no", "No")] * 40
    log = text_log(tmp_path / "log.csv", header, rows)
    with pytest.raises(sw.InvalidLogError, match=r"80 labelled rows .* 'Yes' .* 'yes'"):
        diagnose(log, sw.Cascade([0.1, 0.3]))
    log = text_log(tmp_path / "log.csv", header, [*rows, ("yes", "yes", "yes")])
    assert diagnose(log, sw.Cascade([0.1, 0.3])).labelled == 81


def test_kinds_of_rows_that_never_went_deep_come_first(tmp_path):
    rows = [("a", None, "one", "one")] * 300 + [
        ("a", "b", "two", "two"),
        ("a", "a", "two", "two"),
    ] * 100
    header = ["output.one", "output.two", "stop", "rule_stop"]
    found = diagnose(text_log(tmp_path / "log.csv", header, rows), sw.Cascade([0.1, 0.6]))
    assert found.unseen == pytest.approx(0.6)
    assert found.verdict.reason.startswith("60 % of the rows are of kinds that never went to two")
    assert "for 40\u00a0% of the rows only" in main_numbers(found)[0].words


def test_costs_above_one_are_doubted(tmp_path):
    log = text_log(tmp_path / "log.csv", ["output.one", "output.two"], [("a", "b")] * 60)
    doubt = "not in units of one error"
    assert any(doubt in n for n in diagnose(log, sw.Cascade([1, 300])).notes)
    assert not any(doubt in n for n in diagnose(log, sw.Cascade([0.5, 0.6])).notes)


def test_a_straight_line_that_misses_a_bend(tmp_path):
    random = np.random.default_rng(0)
    x = random.uniform(-1, 1, 4000)
    rows = [
        (f"{v:.4f}", "a", "b" if r < 0.5 * v * v else "a")
        for v, r in zip(x, random.random(4000), strict=True)
    ]
    log = text_log(tmp_path / "log.csv", ["context.x", "output.one", "output.two"], rows)
    found = diagnose(log, sw.Cascade([0.1, 0.25]))
    calls = [found.verdict.reason, *found.verdict.points]
    assert any("does not fit" in p and "--degree 2" in p for p in calls)
    bent = diagnose(log, sw.Cascade([0.1, 0.25]), degree=2)
    assert not any("does not fit" in p for p in [bent.verdict.reason, *bent.verdict.points])


def test_costs_keep_their_last_bit_and_their_weights(tmp_path):
    drawn = bad_cascade(500, 0)
    cascade = sw.Cascade([0.1, 0.7, 0.1, 0.3], tradeoff=[0.3, 0.3, 0.3, 0.7])
    found = diagnose(log_of(tmp_path, drawn), cascade)
    assert [a.total for a in found.arms] == pytest.approx(cascade.cumulative, rel=1e-15)
    assert [p.gap for p in found.pairs] == pytest.approx(
        [cascade.gaps[pair] for pair in cascade.pairs()], rel=1e-13
    )
