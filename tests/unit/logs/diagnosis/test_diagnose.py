"""The complete diagnosis, on real files."""

import msgspec
import numpy as np
import pyarrow.parquet as pq
import pytest

import stopwise as sw
from stopwise.logs.diagnosis.diagnose import diagnose
from stopwise.logs.diagnosis.findings import Diagnosis
from stopwise.logs.diagnosis.sections import sections
from stopwise.logs.log import Columns, Log
from tests.helpers.cascades import good_cascade, shared_mistakes, simulated, write_log
from tests.unit.logs.test_log import save

TWO = sw.Cascade([0.1, 0.3])


def log_of(folder, drawn, **kind):
    return Log(write_log(drawn, folder / "log.parquet", **kind))


@pytest.fixture
def text_log(tmp_path):
    """Write a table as CSV; ``columns`` are context.…, output.… or others."""

    def written(columns, rows):
        path = tmp_path / "log.csv"
        header = columns.split()
        lines = [header, *(["" if c is None else str(c) for c in row] for row in rows)]
        path.write_text("".join(",".join(line) + "\n" for line in lines))
        return Log(path, None if columns.startswith("context.") else Columns(context=()))

    return written


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
    assert (found.log, found.rows, found.used) == ("log.parquet", 2000, 2000)
    assert found.audit is not None
    assert found.labelled == found.audit.rows == pytest.approx(400, abs=80)
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
    one, two = drawn.outputs.T
    assert found.audit is not None
    # an oracle of its own rows would go on exactly where they disagree
    by_heart = (0.1 + 0.1 * (one != two) + (two != drawn.labels)).mean()
    assert found.audit.rule_loss.value > by_heart + 0.01
    # all rows have labels: they must be decided as where the labels are not looked at
    depth = sum(k * arm.stops.value for k, arm in enumerate(found.arms))
    assert found.audit.rule_depth == pytest.approx(depth)
    (pair,) = found.pairs
    assert pair.reliability.calibration_error > 0.1
    assert pair.gain is not None
    better = (two == drawn.labels).astype(int) - (one == drawn.labels)
    assert pair.gain.value == pytest.approx(better[one != two].mean())


def test_two_arms_and_no_context(text_log):
    log = text_log("output.one output.two", [("a", "a")] * 150 + [("a", "b")] * 50)
    found = diagnose(log, TWO)
    assert found.context == ()
    assert found.pairs[0].rate.value == 0.25
    assert found.arms[0].stops.value == 1.0  # 0.25 < 0.3 everywhere
    assert found.saving.per_round.value == pytest.approx(0.3)
    assert found.verdict.answer == "nothing to learn"
    assert found.plan.labels == 0  # 0.3 is more than the second could correct
    assert found.arms[1].name == "two"


def test_a_truncated_log_with_forced_depth_gives_the_rates_of_all_rows(text_log):
    """Rounds go deep where arms disagree; one in ten of the others does at random."""
    random = np.random.default_rng(0)
    x = random.random(20_000)
    differs = random.random(20_000) < 0.6 * x
    rule_stop = np.where(x > 0.5, 1, 0)
    deep = (rule_stop == 1) | (random.random(20_000) < 0.1)
    arms = ("one", "two")
    rows = [
        (f"{v:.4f}", "a", None if not d else "b" if diff else "a", arms[d], arms[w])
        for v, d, diff, w in zip(x, deep.astype(int), differs, rule_stop, strict=True)
    ]
    found = diagnose(text_log("context.x output.one output.two stop rule_stop", rows), TWO)
    assert found.full_depth == deep.sum()
    assert found.pairs[0].rate.value > 0.38  # of the rows that went deep
    assert found.arms[0].disagreement.value == pytest.approx(0.3, abs=0.04)  # of all
    assert found.arms[0].stops.value == pytest.approx(0.5, abs=0.06)
    assert any("stop before two" in note for note in found.notes)
    assert found.logged_cost == pytest.approx(0.1 + 0.3 * deep.mean())


def test_what_stages_reveal_is_used_from_there_on(text_log):
    random = np.random.default_rng(0)
    sure = random.random(4000)
    rows = [
        (f"{random.random():.3f}", f"{s:.4f}", "a", "a", "b" if random.random() < s else "a")
        for s in sure
    ]
    log = text_log("context.x revealed.two.sure output.one output.two output.three", rows)
    found = diagnose(log, sw.Cascade([0.1, 0.0, 0.5]))
    assert found.context == ("x", "two.sure")
    # arm one cannot distinguish the rows; arm two can: half of them are worth going on
    assert found.arms[0].stops.value < 0.6
    blind, seeing = ([b.predicted for b in found.pairs[k].reliability.bins] for k in (1, 2))
    assert seeing[0] < 0.1 < 0.9 < seeing[-1]
    assert all(abs(p - 0.5) < 0.1 for p in blind)


def test_what_cannot_be_diagnosed_is_refused(text_log):
    log = text_log("output.one output.two", [("a", "b")] * 60)
    wrong = [
        (sw.Cascade([0.1, 0.3, 0.1]), {}, r"2 arms \(one, two\) but there are 3 costs"),
        (TWO, {"degree": 5}, "degree"),
        (TWO, {"sample": 10}, "sample"),
    ]
    for cascade, options, match in wrong:
        with pytest.raises(sw.errors.InvalidParameterError, match=match):
            diagnose(log, cascade, **options)
    for n in (0, 40):
        log = text_log("output.one output.two", [("a", "b")] * n + [("a", None)] * 500)
        with pytest.raises(
            sw.errors.InvalidLogError, match=f"log.csv: only {n} rows have the outputs"
        ):
            diagnose(log, TWO)


def test_labels_that_no_arm_ever_outputs_are_refused(text_log):
    columns = "output.one output.two label"
    rows = [("yes", "no", "Yes"), ("no", "no", "No")] * 40
    with pytest.raises(sw.errors.InvalidLogError, match=r"80 labelled rounds.* 'Yes'.* 'yes'"):
        diagnose(text_log(columns, rows), TWO)
    assert diagnose(text_log(columns, [*rows, ("yes", "yes", "yes")]), TWO).labelled == 81


@pytest.mark.parametrize(("labels", "answer"), [(0, "labels needed"), (306, "probably")])
def test_shared_mistakes_of_cheap_arms_do_not_mislead_the_rule(tmp_path, labels, answer):
    """The best arm agrees least with the others, and the rule beats every fixed depth."""
    drawn = shared_mistakes(8000, 0)
    found = diagnose(log_of(tmp_path, drawn, labelled=labels / 8000), drawn.cascade)
    assert found.verdict.answer == answer
    losses = (drawn.outputs != drawn.labels[:, None]) + drawn.cascade.cumulative
    policy = sw.USSPD(drawn.cascade, sw.Polynomial(degree=1), context_dim=2)
    stops = policy.run(drawn.contexts, drawn.outputs)
    assert losses[np.arange(8000), stops].mean() < 0.84 * losses.mean(axis=0).min()


def test_labels_that_were_asked_for_give_the_verdict_that_all_labels_give(tmp_path):
    """The label file is filled in and the log diagnosed again, until nothing is asked any more.

    Losses differ by a constant. The standard error of the difference is below 0.03 for 200 labels;
    a false alarm needs more than three.
    """
    drawn = shared_mistakes(8000, 0)
    table = {f"context.x{c}": drawn.contexts[:, c].tolist() for c in (0, 1)}
    table |= {
        f"output.{a}": drawn.outputs[:, k].tolist() for k, a in enumerate(drawn.cascade.names)
    }
    wanted: set[int] = set()
    asked, rounds = diagnose(log_of(tmp_path, drawn), drawn.cascade), 0
    while asked.plan.labels:
        assert asked.plan.labels == len(asked.plan.rows)
        assert wanted.isdisjoint(asked.plan.rows)
        wanted.update(asked.plan.rows)
        rounds += 1
        assert rounds < 10
        labels = [y if k in wanted else None for k, y in enumerate(drawn.labels.tolist())]
        path = save(tmp_path / "asked.csv", table | {"label": labels})
        asked = diagnose(Log(path), drawn.cascade)
    every = diagnose(log_of(tmp_path, drawn, labelled=1.0), drawn.cascade)
    assert asked.audit is not None
    assert every.audit is not None
    assert (asked.audit.differing, every.audit.differing) == (True, False)
    assert asked.audit.rows == len(wanted)
    assert asked.audit.best_fixed == every.audit.best_fixed == 1
    assert asked.audit.lost.value == pytest.approx(every.audit.lost.value, abs=0.1)
    assert asked.audit.lost.low < every.audit.lost.value < asked.audit.lost.high
    assert any("are not counted" in note for note in asked.notes)
    assert asked.plan.gain is not None
    assert every.plan.gain is not None
    worth = asked.plan.gain.value >= asked.plan.needed
    assert worth == (every.plan.gain.value >= every.plan.needed)


def test_a_straight_line_that_misses_a_bend(text_log):
    random = np.random.default_rng(0)
    rows = [
        (f"{v:.4f}", "a", "b" if r < 0.5 * v * v else "a")
        for v, r in zip(random.uniform(-1, 1, 4000), random.random(4000), strict=True)
    ]
    log = text_log("context.x output.one output.two", rows)
    for degree, misses in ((1, True), (2, False)):
        verdict = diagnose(log, sw.Cascade([0.1, 0.25]), degree=degree).verdict
        advice = "does not fit well", "--degree 2"
        assert all(a in f"{verdict.reason} {verdict.points}" for a in advice) == misses


def test_costs_are_in_one_unit(text_log):
    log = text_log("output.one output.two", [("a", "b")] * 60)
    found = diagnose(log, sw.Cascade.from_prices([100, 300], error_cost=1000))
    assert [arm.cost for arm in found.arms] == pytest.approx([100, 300])
    assert [arm.total for arm in found.arms] == pytest.approx([100, 400])
    assert found.notes[0].startswith("Warning: 'one' and 'two' have no answer in common")
    assert found.notes[1] == (
        "Costs are in the currency of your prices (one wrong answer costs 1,000)."
    )
    assert diagnose(log, TWO).notes[1] == "Costs are in units of one wrong answer."


@pytest.mark.parametrize("labelled", [0.0, 0.2])
def test_with_prices_only_the_unit_changes(tmp_path, labelled):
    drawn = good_cascade(2000, 0)
    log = log_of(tmp_path, drawn, labelled=labelled)
    prices = 50 * drawn.cascade.costs
    one = diagnose(log, drawn.cascade)
    dear = diagnose(log, sw.Cascade.from_prices(prices, 50, drawn.cascade.names))
    assert (one.error_cost, dear.error_cost) == (1.0, 50.0)

    def amounts(found):
        values = [x for arm in found.arms for x in (arm.cost, arm.total)]
        values += [p.gap for p in found.pairs] + [p.cost for p in found.frontier]
        values += [found.plan.gap, found.logged_cost, found.recommendation.cost]
        intervals = [found.saving.per_round, found.recommendation.loss]
        if found.audit is not None:
            intervals += [found.audit.lost, found.audit.rule_loss, found.audit.best_fixed_loss]
            intervals += found.audit.over_fixed
            intervals += [arm.loss for arm in found.arms if arm.loss is not None]
        return np.array([*values, *(x for i in intervals for x in (i.value, i.low, i.high))])

    assert amounts(dear) == pytest.approx(50 * amounts(one))
    assert [p.weight for p in dear.frontier] == [p.weight for p in one.frontier]
    assert dear.verdict.headline == one.verdict.headline
    assert dear.recommendation.name == one.recommendation.name
    assert (dear.plan.labels, dear.plan.needed) == pytest.approx((one.plan.labels, one.plan.needed))
    assert dear.saving.share.value == pytest.approx(one.saving.share.value)


def test_costs_have_their_weights(text_log):
    log = text_log("output.one output.two output.three", [("a", "b", "a")] * 60)
    cascade = sw.Cascade([0.1, 0.7, 0.3], tradeoff=[0.3, 0.3, 0.7])
    found = diagnose(log, cascade)
    assert [a.total for a in found.arms] == pytest.approx(cascade.cumulative, rel=1e-15)
    assert found.logged_cost == pytest.approx(cascade.cumulative[-1])
    gaps = [cascade.gaps[pair] for pair in cascade.pairs()]
    assert [p.gap for p in found.pairs] == pytest.approx(gaps, rel=1e-13)


def test_each_value_of_a_column_is_diagnosed_as_if_it_were_alone(tmp_path):
    drawn = good_cascade(1500, 0)
    table = pq.read_table(write_log(drawn, tmp_path / "log.parquet", labelled=0.2)).to_pydict()
    table["clinic"] = ["few" if t < 40 else ("north", "south")[t % 2] for t in range(1500)]
    log = Log(save(tmp_path / "all.csv", table))
    found = diagnose(log, drawn.cascade, by="clinic", jobs=2)
    assert [one.name for one in found.tenants][2:] == ["few"]
    assert found.tenants[2].rows == 40
    assert found.tenants[2].saving is None
    assert "only 40 rows" in found.tenants[2].problem
    for one in found.tenants[:2]:
        mine = [t for t in range(1500) if table["clinic"][t] == one.name]
        part = {name: [column[t] for t in mine] for name, column in table.items()}
        alone = diagnose(Log(save(tmp_path / f"{one.name}.csv", part)), drawn.cascade)
        assert (one.rows, one.answer) == (alone.rows, alone.verdict.answer)
        assert one.saving == alone.saving
    most, least = (one.saving.per_round.value for one in found.tenants[:2] if one.saving)
    assert most >= least
    assert msgspec.structs.replace(found, by=None, tenants=()) == diagnose(log, drawn.cascade)
    assert msgspec.json.decode(msgspec.json.encode(found), type=Diagnosis) == found
    (section,) = [one for one in sections(found) if one.name == "tenants"]
    rows = section.panels[0].table.rows
    assert [row[0] for row in rows] == [one.name for one in found.tenants]
    assert rows[2][2:] == ("too few rows", "–", "–")
