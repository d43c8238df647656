"""The exhibits: the paper's numbers, the choices, and the tests of claims."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
import pytest
from matplotlib import rc_context
from msgspec.structs import replace

from stopwise.intervals import Interval, mean_interval
from stopwise.reporting.drawing import STYLE
from stopwise.research.experiments.runs import Trace, build_environment
from stopwise.research.experiments.spec import ExperimentSpec, PolicySpec
from stopwise.research.paper import choices, instances, margin_regret
from stopwise.research.paper.catalogue import EXHIBITS
from stopwise.research.paper.evidence import BOTH, Cell, ClaimEvidence
from stopwise.research.paper.reproduce import QUICK, repetitions
from stopwise.research.paper.section import (
    FAILED,
    HELD,
    UNDECIDED,
    Claim,
    Exhibit,
    Verdict,
    all_of,
    verdict,
)
from stopwise.research.paper.settings import LITERAL, NAMES, NEAR_GREEDY, SETTINGS, forced_rounds
from stopwise.research.paper.tables import margins_of

EVERYWHERE = {"USS-PD", "USS-PD-λI", "Thompson", "USS-UCB", "USS-TS", "clairvoyant"}
Curves: TypeAlias = Mapping[tuple[str, str, str], Sequence[Sequence[float]]]

# ---------------------------------------------------------------------------------- required runs


def test_catalogue_has_every_table_and_figure_of_the_paper() -> None:
    assert list(EXHIBITS) == [
        "table1",
        "table2",
        "synthetic-regret",
        "supervised",
        "pima-cost",
        "margin-regret",
        "heart-cost",
        "realizable-4",
        "realizable-5",
    ]


@pytest.mark.parametrize("exhibit", EXHIBITS.values(), ids=EXHIBITS.keys())
def test_plots_have_all_policies_with_the_same_parameters_in_each_setting(
    exhibit: Exhibit,
) -> None:
    cells = exhibit.cells()
    if not cells:
        assert exhibit.name.startswith("table")
        return
    evidence = ClaimEvidence(cells, {cell.spec.key: () for cell in cells})
    assert {cell.spec.rounds for cell in cells} == {5000}
    for setting in SETTINGS:
        for instance in evidence.instances():
            policies = evidence.policies(setting.name, instance)
            assert set(policies) >= EVERYWHERE
            assert len(policies) == len(set(policies))
        for cell in cells:
            if (cell.setting, cell.policy) == (setting.name, "USS-PD"):
                parameters = dict(cell.spec.policy.parameters)
                assert parameters.pop("forced_rounds") > 0  # determined by the contexts
                fixed = {"delta": 0.05, "kappa": 0.25, "ridge": 1e-3}
                assert parameters == fixed | {"sigma": setting.sigma}
    # policies with the same parameters in both settings share their runs
    specs = {(c.setting, c.instance, c.policy): c.spec for c in cells}
    for (setting, instance, policy), spec in specs.items():
        if setting == "literal" and spec.environment.name == "synthetic":
            shared = spec == specs["near-greedy", instance, policy]
            assert shared == (policy == "Thompson")


def test_repetitions_are_those_of_the_paper() -> None:
    four, pima = EXHIBITS["realizable-4"], EXHIBITS["pima-cost"]
    full = [repetitions(four, policy, quick=False) for policy in ("USS-PD", "Thompson")]
    assert full == [500, 100]
    assert {repetitions(pima, cell.policy, quick=False) for cell in pima.cells()} == {100}
    assert repetitions(four, "USS-PD", quick=True) == QUICK >= 2  # one run has no interval


# -------------------------------------------------------------------------- the paper's own numbers


def test_weak_dominance_fractions_match_the_printed_ones() -> None:
    nothing = ClaimEvidence([], {})
    claims = [c for name in ("table1", "table2") for c in EXHIBITS[name].build(nothing).claims]
    assert [claim.verdict for claim in claims] == [HELD] * 3
    # table 1 lists ξ; the figure plots the same instances at ξ₅
    for costs in list(choices.SYNTHETIC_COSTS.values())[1:]:
        overall, last = margins_of(instances.synthetic(costs))
        assert 0 < overall < 1e-3 < last
        assert margin_regret.plotted_margin(instances.synthetic(costs)) == last
    assert choices.SYNTHETIC_FRACTIONS == (0.997, 1.0, 1.0, 1.0)
    assert choices.PIMA_FRACTIONS == (0.0692, 0.1192, 0.2204)
    assert choices.HEART_FRACTIONS == (0.1384, 0.1454, 0.2426)


@pytest.mark.parametrize(("n_arms", "step"), [(4, 0.09), (5, 0.06)])
def test_realizable_instances_match_the_captions_and_the_report(n_arms: int, step: float) -> None:
    for case, xi in choices.REALIZABLE_MARGINS.items():
        cumulative = [0.1 + i * (step + (case - 1) * 0.01) for i in range(n_arms)]
        assert np.cumsum(choices.realizable_costs(n_arms, case)) == pytest.approx(cumulative)
        batch = build_environment(instances.realizable(n_arms, case, xi)).sample(
            5000, np.random.default_rng(1)
        )
        assert np.bincount(batch.optimal, minlength=n_arms).min() > 100
        assert batch.margins.min() >= xi
    # the formula in the report; sampling rejects an impossible θ
    environment = build_environment(instances.realizable(n_arms, 1, 0.0))
    batch = environment.sample(20_000, np.random.default_rng(0))
    x = batch.contexts
    f = [x[:, 1], x[:, 2], -x[:, 1], -x[:, 2]]
    for i, j in environment.cascade.pairs():
        logit = -1.9 + 1.6 * x[:, 0] - 0.6 * i + 0.2 * f[i] + 0.03 * (j - i - 1)
        p = batch.disagreement[:, i, j]
        np.testing.assert_allclose(p, 1 / (1 + np.exp(-logit)), atol=1e-12)


def test_with_summed_costs_of_the_captions_the_fifth_arm_is_never_optimal() -> None:
    for case in choices.REALIZABLE_MARGINS:
        summed = np.cumsum(np.cumsum(choices.realizable_costs(5, case)))
        assert summed[4] - summed[0] >= 1 - 1e-12  # more than any p_15 < 1


def test_near_greedy_setting_uses_the_degree_that_its_rounds_allow() -> None:
    first = choices.REAL_COSTS["instance 1"]
    heart = instances.heart(first)
    for environment, expected in (
        (instances.synthetic(choices.SYNTHETIC_COSTS["instance 2"]), (2, 100)),
        (instances.pima(first), (1, 90)),
        (heart, (1, 130)),
    ):
        features = NEAR_GREEDY.features(environment)
        assert (features.degree, forced_rounds(features, environment)) == expected
        assert LITERAL.features(environment).degree == 2
    independent = LITERAL.features(heart)
    assert (len(independent.monomials(12)), len(independent.without)) == (88, 3)


# ----------------------------------------------------------------------------------------- evidence


def evidence_of(curves: Curves) -> ClaimEvidence:
    """Return evidence from a few curves for every (setting, instance, policy)."""
    cells, traces = [], {}
    environment = instances.pima(choices.REAL_COSTS["instance 1"])
    for k, (cell, runs) in enumerate(curves.items()):
        spec = ExperimentSpec(environment, PolicySpec("uss-ucb"), rounds=5000 + k)
        cells.append(Cell(*cell, spec))
        traces[spec.key] = []
        for seed, run in enumerate(runs):
            y = np.array(run, dtype=np.float64)
            t = np.arange(1, len(y) + 1) * 1000
            traces[spec.key].append(Trace(spec.key, seed, t, y, y, y, np.zeros(3, int), y))
    return ClaimEvidence(cells, traces)


def runs_like(curve: Sequence[float]) -> list[list[float]]:
    """Return 20 runs around a curve."""
    return [[c * factor for c in curve] for factor in (0.97, 1.03, 0.99, 1.01)] * 5


def noisy(curve: Sequence[float]) -> list[list[float]]:
    """Return 52 runs whose fifths vary by a few percent around those of a curve."""
    added = np.diff(curve, prepend=0.0)
    signs = np.array([[1, -1, 1, -1, 1], [-1, 1, 1, -1, -1], [1, 1, -1, 1, -1], [-1, -1, -1, 1, 1]])
    return np.cumsum(added * (1 + 0.02 * np.tile(signs, (13, 1))), axis=1).tolist()


def steady(total: float) -> list[list[float]]:
    """Return four linear runs with final values close to a total."""
    finals = (total - 1, total + 1, total - 0.5, total + 0.5)
    return [[final * share for share in (0.2, 0.4, 0.6, 0.8, 1.0)] for final in finals]


def test_added_is_the_increase_over_a_part_of_the_rounds() -> None:
    evidence = evidence_of({("s", "i", "p"): [[1, 3, 6, 10, 15], [0, 0, 0, 0, 7]]})
    assert evidence.added("s", "i", "p") == [15.0, 7.0]
    assert evidence.added("s", "i", "p", part=(0.2, 0.4)) == [2.0, 0.0]
    assert evidence.added("s", "i", "p", part=(0.8, 1.0)) == [5.0, 7.0]
    assert evidence.cost_per_round("s", "i", "p").value == pytest.approx(11 / 5000)


def test_policies_without_a_setting_appear_in_all_settings() -> None:
    evidence = evidence_of(
        {("s", "i", "mine"): [[1.0]], (BOTH, "i", "shared"): [[2.0]], ("t", "i", "mine"): [[3.0]]}
    )
    assert evidence.policies("t", "i") == ["mine", "shared"]
    assert evidence.added("t", "i", "mine") == [3.0]
    assert evidence.added("t", "i", "shared") == evidence.added("s", "i", "shared") == [2.0]


def test_lead_is_paired_by_seed() -> None:
    runs = [[float(k)] for k in (100, 200, 300, 400)]
    better = [[v - d] for (v,), d in zip(runs, (10, 11, 9, 10), strict=True)]
    lead = evidence_of({("s", "i", "a"): better, ("s", "i", "b"): runs}).lead("s", "i", "a", "b")
    assert lead.value == pytest.approx(10)
    assert lead.low > 8  # the spread of either alone is over 100


# ------------------------------------------------------------------------------------------- claims

LINE = (20, 40, 60, 80, 100)
FLAT = (50, 70, 78, 83, 86)  # 20 in the second fifth, 3 in the last
ROOT = (100, 141, 173, 200, 224)  # the last fifth adds more than half of the second
SLOW = (10, 12, 14, 16, 18)


def claims_of(exhibit: str, curves: Curves, text: str = "") -> list[Claim]:
    claims = EXHIBITS[exhibit].build(evidence_of(curves)).claims
    return [claim for claim in claims if text in claim.text]


def verdicts(exhibit: str, curves: Curves, text: str = "") -> list[str]:
    return [claim.verdict for claim in claims_of(exhibit, curves, text)]


@pytest.mark.parametrize(
    ("uss", "clairvoyant", "verdict", "learning", "rule"),
    [
        (3000, 2500, HELD, "", ""),
        (4000, 2500, FAILED, "0.300", "-0.200"),  # the rule wins, learning loses it
        (4000, 3600, FAILED, "0.080", "0.020"),  # a part each
    ],
)
def test_failed_comparisons_split_the_loss_into_learning_and_rule(
    uss: float, clairvoyant: float, verdict: str, learning: str, rule: str
) -> None:
    exhibit = EXHIBITS["pima-cost"]
    totals = {"USS-PD": uss, "clairvoyant": clairvoyant}
    curves = {c[:3]: steady(totals.get(c.policy, 3500)) for c in exhibit.cells()}
    claims = claims_of("pima-cost", curves)
    assert len(claims) == 2 * 3 * 3
    for claim in claims:
        assert claim.verdict == verdict
        assert (f"{learning} is due to learning" in claim.why) == bool(learning)
        assert (f"{rule} to the rule itself" in claim.why) == bool(rule)


@pytest.mark.parametrize(
    ("curve", "sublinear", "linear"),
    [(FLAT, HELD, FAILED), (ROOT, UNDECIDED, UNDECIDED), (LINE, FAILED, HELD)],
)
def test_growth_claims_are_tested_by_the_linear_part(
    curve: Sequence[float], sublinear: str, linear: str
) -> None:
    cases = {(s, case, "USS-PD"): noisy(curve) for s in NAMES for case in ("case 1", "case 2")}
    assert verdicts("realizable-4", cases) == [sublinear] * 8  # both forms of pseudo-regret
    curves = synthetic(curve, FLAT, LINE, LINE)
    assert verdicts("synthetic-regret", curves, "grows linearly") == [linear] * 4
    assert verdicts("synthetic-regret", curves, "sub-linear") == [HELD, FAILED, FAILED] * 2


def test_growth_is_undecided_for_inconsistent_runs() -> None:
    wild = [[50, 50 + s, 50 + s, 50 + s, 50 + s + e] for s, e in ((20, 1), (1, 30), (9, 9))] * 20
    cases = {(s, "case 1", "USS-PD"): wild for s in NAMES}
    claims = claims_of("realizable-4", cases)
    assert [claim.verdict for claim in claims] == [UNDECIDED] * 4
    assert all("undecided at this horizon" in claim.numbers for claim in claims)


def test_growth_is_not_estimated_from_few_runs() -> None:
    few = {(s, "case 1", "USS-PD"): noisy(FLAT)[:3] for s in NAMES}
    for claim in claims_of("realizable-4", few):
        assert claim.verdict == UNDECIDED
        assert claim.numbers == "3 runs are too few to fit the growth of the curve"


def test_only_failed_claims_have_a_reason() -> None:
    curves = synthetic(FLAT, LINE, ROOT, FLAT)
    claims = claims_of("synthetic-regret", curves)
    assert {claim.verdict for claim in claims} == {HELD, FAILED, UNDECIDED}
    for claim in claims:
        assert claim.verdict == FAILED or not claim.why
    assert any(claim.why for claim in claims)


def test_few_runs_need_a_wider_interval() -> None:
    """Three runs: t is 4.3 for 95 % and 31.6 for 99.9 %, for which the verdict is undecided."""
    clear, doubtful = Interval(10.0, 9.0, 11.0, 3), Interval(10.0, 5.0, 15.0, 3)
    assert [verdict(clear), verdict(doubtful)] == [HELD, UNDECIDED]
    assert verdict(replace(doubtful, n=20)) == HELD
    assert verdict(Interval(-10.0, -11.0, -9.0, 3)) == FAILED
    assert verdict(mean_interval([10.0])) == UNDECIDED


def synthetic(*of_instances: Sequence[float]) -> Curves:
    """Return curves of USS-PD on the four instances; the clairvoyant rule loses nothing."""
    curves: dict[tuple[str, str, str], list[list[float]]] = {}
    for instance, curve in zip(choices.SYNTHETIC_COSTS, of_instances, strict=True):
        curves |= {(setting, instance, "USS-PD"): noisy(curve) for setting in NAMES}
        curves[BOTH, instance, "clairvoyant"] = [[0.0] * 5] * 4
    return curves


@pytest.mark.parametrize(
    ("finals", "expected"),
    [
        ((300, 200, 100), HELD),
        ((300, 200, 250), FAILED),  # a single increase is enough
        ((300, 200, 200), UNDECIDED),
    ],
)
def test_falling_regret_must_fall_at_every_step(finals: Sequence[float], expected: str) -> None:
    curves = synthetic(LINE, *([final * s / 5 for s in range(1, 6)] for final in finals))
    assert verdicts("synthetic-regret", curves, "Regret falls from") == [expected] * 2


@pytest.mark.parametrize(
    ("ours", "with_labels", "below", "closes"),
    [
        (FLAT, SLOW, HELD, HELD),
        (SLOW, LINE, FAILED, UNDECIDED),  # reversed, with constant rates
        # an initial gap and then equal increases: the average gap shrinks, but the gap per round
        # does not
        ((120, 140, 160, 180, 200), (10, 20, 30, 40, 50), HELD, UNDECIDED),
        ((10, 20, 40, 70, 120), (10, 15, 20, 25, 30), HELD, FAILED),
    ],
)
def test_supervised_regret_is_lower_and_the_gap_per_round_closes(
    ours: Sequence[float], with_labels: Sequence[float], below: str, closes: str
) -> None:
    curves = {
        (setting, "instance 3", policy): runs_like(curve)
        for setting in NAMES
        for policy, curve in (("USS-PD", ours), ("supervised", with_labels))
    }
    assert verdicts("supervised", curves, "lower with labels") == [below] * 2
    assert verdicts("supervised", curves, "gap in regret") == [closes] * 2


@pytest.mark.parametrize(
    ("finals", "expected"),
    [((400, 300, 200, 100), HELD), ((400, 100, 200, 90), FAILED)],
)
def test_regret_that_rises_at_any_step_does_not_fall_with_the_margin(
    finals: Sequence[float], expected: str
) -> None:
    curves = {
        (setting, name, "USS-PD"): steady(finals[min(k, len(finals) - 1)] - k)
        for family in margin_regret.FAMILIES.values()
        for k, name in enumerate(family)
        for setting in NAMES
    }
    assert verdicts("margin-regret", curves) == [expected] * 4


def test_legends_lie_inside_their_figures() -> None:
    exhibit = EXHIBITS["supervised"]
    evidence = evidence_of({cell[:3]: steady(100) for cell in exhibit.cells()})
    for picture in exhibit.build(evidence).pictures:
        with rc_context(STYLE):
            figure = picture.draw()
            figure.draw_without_rendering()
        (legend,) = figure.legends
        box = legend.get_window_extent()
        assert min(box.x0, box.y0) >= 0
        assert box.x1 <= figure.bbox.x1


def test_verdicts_follow_from_the_interval_and_the_worst_part() -> None:
    intervals = [Interval(2.0, low, high, 100) for low, high in ((1, 3), (-1, 5), (-5, -1))]
    verdicts: list[Verdict] = [verdict(interval) for interval in intervals]
    assert verdicts == [HELD, UNDECIDED, FAILED]
    assert [all_of(verdicts[:k]) for k in (1, 2, 3)] == verdicts
