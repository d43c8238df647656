"""`diagnose` end to end, on real files."""

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
from tests.helpers.log_files import save

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


def test_diagnosis_round_trips_through_json_with_finite_numbers(tmp_path):
    drawn = good_cascade(2000, 0)
    calls = []
    log = log_of(tmp_path, drawn, labelled=0.2)
    diagnosis = diagnose(log, drawn.cascade, progress=lambda *call: calls.append(call))
    assert {stage for stage, _, _ in calls} == {"reading", "fitting", "estimating"}
    assert calls[-1] == ("estimating", 2, 2)
    text = msgspec.json.encode(diagnosis)
    assert msgspec.json.decode(text, type=Diagnosis) == diagnosis
    assert all(np.isfinite(numbers_in(msgspec.json.decode(text))))
    assert (diagnosis.log, diagnosis.rows, diagnosis.used) == ("log.parquet", 2000, 2000)
    assert diagnosis.audit is not None
    assert diagnosis.labelled == diagnosis.audit.rows == pytest.approx(400, abs=80)
    assert diagnosis.logged_cost == pytest.approx(drawn.cascade.cumulative[-1])


def test_the_same_seed_gives_the_same_diagnosis(tmp_path):
    drawn = good_cascade(3000, 0)
    log = log_of(tmp_path, drawn, labelled=0.2)
    first = diagnose(log, drawn.cascade, sample=500, seed=3)
    assert first == diagnose(log, drawn.cascade, sample=500, seed=3)
    assert first != diagnose(log, drawn.cascade, sample=500, seed=4)
    assert first.used == 500
    assert first.audit is not None
    assert first.audit.rows == 500  # labels are scarce, so they have a separate sample


def test_labelled_rows_are_predicted_by_models_not_fitted_on_them(tmp_path):
    # 70 features on 60 rows could memorise which of these rows disagree
    drawn = simulated(120, 0, (0.1, 0.1), (0.3, 0.3))
    diagnosis = diagnose(log_of(tmp_path, drawn, labelled=1.0), drawn.cascade, degree=4)
    first, second = drawn.outputs.T
    assert diagnosis.audit is not None
    # a model that memorised its rows would continue exactly where they disagree
    memorised = (0.1 + 0.1 * (first != second) + (second != drawn.labels)).mean()
    assert diagnosis.audit.rule_loss.value > memorised + 0.01
    # all rows have labels, so decisions must be the same as without labels
    depth = sum(k * arm.stops.value for k, arm in enumerate(diagnosis.arms))
    assert diagnosis.audit.rule_depth == pytest.approx(depth)
    (pair,) = diagnosis.pairs
    assert pair.reliability.calibration_error > 0.1
    assert pair.gain is not None
    better = (second == drawn.labels).astype(int) - (first == drawn.labels)
    assert pair.gain.value == pytest.approx(better[first != second].mean())


def test_a_log_with_two_arms_and_no_context_is_diagnosed(text_log):
    log = text_log("output.one output.two", [("a", "a")] * 150 + [("a", "b")] * 50)
    diagnosis = diagnose(log, TWO)
    assert diagnosis.context == ()
    assert diagnosis.pairs[0].rate.value == 0.25
    assert diagnosis.arms[0].stops.value == 1.0  # 0.25 < 0.3 everywhere
    assert diagnosis.saving.per_round.value == pytest.approx(0.3)
    assert diagnosis.verdict.answer == "nothing to learn"
    assert diagnosis.plan.labels == 0  # 0.3 exceeds what the second arm could correct
    assert diagnosis.arms[1].name == "two"


def test_a_truncated_log_with_forced_depth_gives_the_rates_of_all_rows(text_log):
    """Rounds go deep where arms disagree; of the others, one in ten does at random."""
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
    diagnosis = diagnose(text_log("context.x output.one output.two stop rule_stop", rows), TWO)
    assert diagnosis.full_depth == deep.sum()
    assert diagnosis.pairs[0].rate.value > 0.38  # of the rows that went deep
    assert diagnosis.arms[0].disagreement.value == pytest.approx(0.3, abs=0.04)  # of all
    assert diagnosis.arms[0].stops.value == pytest.approx(0.5, abs=0.06)
    assert any("stop before two" in note for note in diagnosis.notes)
    assert diagnosis.logged_cost == pytest.approx(0.1 + 0.3 * deep.mean())


def test_revealed_context_is_used_by_later_arms(text_log):
    random = np.random.default_rng(0)
    sure = random.random(4000)
    rows = [
        (f"{random.random():.3f}", f"{s:.4f}", "a", "a", "b" if random.random() < s else "a")
        for s in sure
    ]
    log = text_log("context.x revealed.two.sure output.one output.two output.three", rows)
    diagnosis = diagnose(log, sw.Cascade([0.1, 0.0, 0.5]))
    assert diagnosis.context == ("x", "two.sure")
    # arm one cannot distinguish the rows; arm two can, and continues on half of them
    assert diagnosis.arms[0].stops.value < 0.6
    blind, seeing = ([b.predicted for b in diagnosis.pairs[k].reliability.bins] for k in (1, 2))
    assert seeing[0] < 0.1 < 0.9 < seeing[-1]
    assert all(abs(p - 0.5) < 0.1 for p in blind)


@pytest.mark.parametrize(
    ("cascade", "options", "match"),
    [
        (sw.Cascade([0.1, 0.3, 0.1]), {}, r"2 arms \(one, two\), but the cascade has 3"),
        (TWO, {"degree": 5}, "degree"),
        (TWO, {"sample": 10}, "sample"),
    ],
)
def test_invalid_arguments_are_rejected(text_log, cascade, options, match):
    log = text_log("output.one output.two", [("a", "b")] * 60)
    with pytest.raises(sw.errors.InvalidParameterError, match=match):
        diagnose(log, cascade, **options)


@pytest.mark.parametrize("n", [0, 40])
def test_a_log_with_too_few_complete_rows_is_rejected(text_log, n):
    log = text_log("output.one output.two", [("a", "b")] * n + [("a", None)] * 500)
    with pytest.raises(sw.errors.InvalidLogError, match=f"log.csv: only {n} rows have the outputs"):
        diagnose(log, TWO)


def test_labels_that_equal_no_output_are_rejected(text_log):
    columns = "output.one output.two label"
    rows = [("yes", "no", "Yes"), ("no", "no", "No")] * 40
    with pytest.raises(sw.errors.InvalidLogError, match=r"80 labelled rounds.* 'Yes'.* 'yes'"):
        diagnose(text_log(columns, rows), TWO)
    assert diagnose(text_log(columns, [*rows, ("yes", "yes", "yes")]), TWO).labelled == 81


@pytest.mark.parametrize(("labels", "answer"), [(0, "labels needed"), (306, "probably")])
def test_shared_mistakes_of_cheap_arms_do_not_mislead_the_rule(tmp_path, labels, answer):
    """The best arm agrees least with the others, and the rule beats every fixed depth."""
    drawn = shared_mistakes(8000, 0)
    diagnosis = diagnose(log_of(tmp_path, drawn, labelled=labels / 8000), drawn.cascade)
    assert diagnosis.verdict.answer == answer
    losses = (drawn.outputs != drawn.labels[:, None]) + drawn.cascade.cumulative
    policy = sw.USSPD(drawn.cascade, sw.Polynomial(degree=1), context_dim=2)
    stops = policy.run(drawn.contexts, drawn.outputs)
    assert losses[np.arange(8000), stops].mean() < 0.84 * losses.mean(axis=0).min()


def test_requested_labels_give_the_same_verdict_as_all_labels(tmp_path):
    """Label the requested rows and diagnose again, until no labels are requested.

    Losses differ by a constant. The standard error of the difference is below 0.03 for 200 labels;
    a false alarm needs more than three.
    """
    drawn = shared_mistakes(8000, 0)
    table = {f"context.x{c}": drawn.contexts[:, c].tolist() for c in (0, 1)}
    table |= {
        f"output.{a}": drawn.outputs[:, k].tolist() for k, a in enumerate(drawn.cascade.names)
    }
    to_label: set[int] = set()
    few, rounds = diagnose(log_of(tmp_path, drawn), drawn.cascade), 0
    while few.plan.labels:
        assert few.plan.labels == len(few.plan.rows)
        assert to_label.isdisjoint(few.plan.rows)
        to_label.update(few.plan.rows)
        rounds += 1
        assert rounds < 10
        labels = [y if k in to_label else None for k, y in enumerate(drawn.labels.tolist())]
        path = save(tmp_path / "labelled.csv", table | {"label": labels})
        few = diagnose(Log(path), drawn.cascade)
    full = diagnose(log_of(tmp_path, drawn, labelled=1.0), drawn.cascade)
    assert few.audit is not None
    assert full.audit is not None
    assert (few.audit.differing, full.audit.differing) == (True, False)
    assert few.audit.rows == len(to_label)
    assert few.audit.best_fixed == full.audit.best_fixed == 1
    assert few.audit.lost.value == pytest.approx(full.audit.lost.value, abs=0.1)
    assert few.audit.lost.low < full.audit.lost.value < few.audit.lost.high
    assert any("are not counted" in note for note in few.notes)
    assert few.plan.gain is not None
    assert full.plan.gain is not None
    worth = few.plan.gain.value >= few.plan.needed
    assert worth == (full.plan.gain.value >= full.plan.needed)


@pytest.mark.parametrize(("degree", "misses"), [(1, True), (2, False)])
def test_a_linear_model_that_misses_a_curve_suggests_a_higher_degree(text_log, degree, misses):
    random = np.random.default_rng(0)
    rows = [
        (f"{v:.4f}", "a", "b" if r < 0.5 * v * v else "a")
        for v, r in zip(random.uniform(-1, 1, 4000), random.random(4000), strict=True)
    ]
    log = text_log("context.x output.one output.two", rows)
    verdict = diagnose(log, sw.Cascade([0.1, 0.25]), degree=degree).verdict
    text = f"{verdict.reason} {verdict.points}"
    assert all(advice in text for advice in ("does not fit well", "--degree 2")) == misses


def test_amounts_are_in_the_unit_of_the_costs(text_log):
    log = text_log("output.one output.two", [("a", "b")] * 60)
    diagnosis = diagnose(log, sw.Cascade.from_prices([100, 300], error_cost=1000))
    assert [arm.cost for arm in diagnosis.arms] == pytest.approx([100, 300])
    assert [arm.total for arm in diagnosis.arms] == pytest.approx([100, 400])
    assert diagnosis.notes[0].startswith("Warning: 'one' and 'two' have no answer in common")
    assert diagnosis.notes[1] == (
        "Costs are in the currency of your prices (one wrong answer costs 1,000)."
    )
    assert diagnose(log, TWO).notes[1] == "Costs are in units of one wrong answer."


@pytest.mark.parametrize("labelled", [0.0, 0.2])
def test_prices_change_only_the_unit(tmp_path, labelled):
    drawn = good_cascade(2000, 0)
    log = log_of(tmp_path, drawn, labelled=labelled)
    prices = 50 * drawn.cascade.costs
    errors = diagnose(log, drawn.cascade)
    money = diagnose(log, sw.Cascade.from_prices(prices, 50, drawn.cascade.names))
    assert (errors.error_cost, money.error_cost) == (1.0, 50.0)

    def amounts(diagnosis):
        values = [x for arm in diagnosis.arms for x in (arm.cost, arm.total)]
        values += [p.gap for p in diagnosis.pairs] + [p.cost for p in diagnosis.frontier]
        values += [diagnosis.plan.gap, diagnosis.logged_cost, diagnosis.recommendation.cost]
        intervals = [diagnosis.saving.per_round, diagnosis.recommendation.loss]
        if diagnosis.audit is not None:
            intervals += [
                diagnosis.audit.lost,
                diagnosis.audit.rule_loss,
                diagnosis.audit.best_fixed_loss,
            ]
            intervals += diagnosis.audit.over_fixed
            intervals += [arm.loss for arm in diagnosis.arms if arm.loss is not None]
        return np.array([*values, *(x for i in intervals for x in (i.value, i.low, i.high))])

    assert amounts(money) == pytest.approx(50 * amounts(errors))
    assert [p.weight for p in money.frontier] == [p.weight for p in errors.frontier]
    assert money.verdict.headline == errors.verdict.headline
    assert money.recommendation.name == errors.recommendation.name
    assert money.plan.labels == errors.plan.labels
    assert money.plan.needed == pytest.approx(errors.plan.needed)
    assert money.saving.share.value == pytest.approx(errors.saving.share.value)


def test_trade_off_weights_apply_to_costs(text_log):
    log = text_log("output.one output.two output.three", [("a", "b", "a")] * 60)
    cascade = sw.Cascade([0.1, 0.7, 0.3], tradeoff=[0.3, 0.3, 0.7])
    diagnosis = diagnose(log, cascade)
    assert [a.total for a in diagnosis.arms] == pytest.approx(cascade.cumulative, rel=1e-15)
    assert diagnosis.logged_cost == pytest.approx(cascade.cumulative[-1])
    gaps = [cascade.gaps[pair] for pair in cascade.pairs()]
    assert [p.gap for p in diagnosis.pairs] == pytest.approx(gaps, rel=1e-13)


def test_each_tenant_is_diagnosed_as_if_it_were_alone(tmp_path):
    drawn = good_cascade(1500, 0)
    table = pq.read_table(write_log(drawn, tmp_path / "log.parquet", labelled=0.2)).to_pydict()
    table["clinic"] = ["few" if t < 40 else ("north", "south")[t % 2] for t in range(1500)]
    log = Log(save(tmp_path / "all.csv", table))
    diagnosis = diagnose(log, drawn.cascade, by="clinic", jobs=2)
    assert [tenant.name for tenant in diagnosis.tenants][2:] == ["few"]
    assert diagnosis.tenants[2].rows == 40
    assert diagnosis.tenants[2].saving is None
    assert "only 40 rows" in diagnosis.tenants[2].problem
    for tenant in diagnosis.tenants[:2]:
        rows = [t for t in range(1500) if table["clinic"][t] == tenant.name]
        subset = {name: [column[t] for t in rows] for name, column in table.items()}
        alone = diagnose(Log(save(tmp_path / f"{tenant.name}.csv", subset)), drawn.cascade)
        assert (tenant.rows, tenant.answer) == (alone.rows, alone.verdict.answer)
        assert tenant.saving == alone.saving
    largest, smallest = (t.saving.per_round.value for t in diagnosis.tenants[:2] if t.saving)
    assert largest >= smallest
    assert msgspec.structs.replace(diagnosis, by=None, tenants=()) == diagnose(log, drawn.cascade)
    assert msgspec.json.decode(msgspec.json.encode(diagnosis), type=Diagnosis) == diagnosis
    (section,) = [section for section in sections(diagnosis) if section.name == "tenants"]
    rows = section.panels[0].table.rows
    assert [row[0] for row in rows] == [tenant.name for tenant in diagnosis.tenants]
    assert rows[2][2:] == ("too few rows", "–", "–")
