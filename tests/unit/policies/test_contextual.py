"""The contextual policies against small independent computations."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import stopwise as sw
from stopwise.policies.base import MAX_ARMS

Array = NDArray[np.float64]
TWO = sw.Cascade([0.1, 0.3])
THREE = sw.Cascade([0.05, 0.15, 0.2], names=["rule", "model", "expert"])
CONTEXTUAL = [sw.USSPD, sw.USSPDRidge, sw.Thompson, sw.Supervised]
PAIRWISE = [sw.USSPD, sw.USSPDRidge, sw.Thompson]
NAN, INF = math.nan, math.inf
MAPS = {
    "shared": sw.Polynomial(degree=1),
    "per stage": sw.PerStage([sw.Identity(), sw.Polynomial()]),
    "per pair": sw.PerPair(
        {(0, 1): sw.Polynomial(1), (0, 2): sw.Identity(), (1, 2): sw.Polynomial()}
    ),
}


def world(
    seed: int, n: int, d: int = 2, k: int = 3, differ: float = 0.3
) -> tuple[Array, NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    return rng.uniform(-1, 1, (n, d)), (rng.random((n, k)) < differ).astype(np.int64)


def mu(z: float) -> float:
    return 0.5 * (1 + math.tanh(0.5 * z))


# --------------------------------------------------------------------------------- parameters

REFUSED: list[tuple[Any, str, list[Any]]] = [
    (sw.USSPD, "delta", [0, 1, NAN, "x", None]),
    (sw.USSPDRidge, "sigma", [0, -1, INF, None, 10**400]),
    (sw.Supervised, "sigma", [0]),
    (sw.USSPD, "kappa", [0, 0.26, NAN]),
    (sw.USSPD, "ridge", [0, 1e-10, NAN]),
    (sw.USSPDRidge, "lam", [0, -1, INF]),
    (sw.USSPDRidge, "S", [-0.1, NAN]),
    (sw.Thompson, "scale", [-0.1, INF]),
    (sw.Thompson, "ridge", [0]),
    (sw.Thompson, "forced_rounds", [-1, 1.5, "always", NAN, None, [3]]),
    (sw.USSPD, "full_depth_every", [1, 2.5, 10_001, "x"]),
    *((kind, "context_dim", [None, 0]) for kind in CONTEXTUAL),
]


@pytest.mark.parametrize(
    ("kind", "name", "values"), REFUSED, ids=[f"{row[0].__name__} {row[1]}" for row in REFUSED]
)
def test_a_parameter_out_of_range_is_refused_by_name(
    kind: Any, name: str, values: list[Any]
) -> None:
    for value in values:
        with pytest.raises(sw.InvalidParameterError, match=name):
            kind(TWO, **{"context_dim": 2, name: value})


@pytest.mark.parametrize("name", ["thompson", "uss-ts", "random-depth"])
def test_a_seed_is_a_nonnegative_integer(name: str) -> None:
    for seed in (-1, 1.5, "a", 2**70, None):
        with pytest.raises(sw.InvalidParameterError, match="seed"):
            sw.make(name, TWO, context_dim=2, seed=seed)


def test_one_arm_is_no_cascade() -> None:
    with pytest.raises(sw.InvalidCascadeError):
        sw.USSPD(sw.Cascade([0.1]), context_dim=2)


def test_the_largest_cascade_distinguishes_all_its_outputs() -> None:
    policy = sw.USSPD(sw.Cascade([0.01] * MAX_ARMS), context_dim=1, forced_rounds=0)
    for _ in range(5):
        policy.observe(np.array([1.0]), list(range(MAX_ARMS)))
    for _ in range(20):
        policy.observe(np.array([1.0]), [7] * MAX_ARMS)
    theta = [policy.theta(i, j)[0] for i, j in policy.cascade.pairs()]
    np.testing.assert_allclose(theta, math.log(5 / 20), rtol=1e-3)


def test_arms_that_are_no_pair_are_refused() -> None:
    policy = sw.USSPDRidge(THREE, context_dim=2)
    for pair in [(1, 0), (0, 0), (0, 3), (-1, 1)]:
        for ask in (policy.theta, policy.gram, policy.observations, policy.radius):
            with pytest.raises(sw.InvalidParameterError, match="no pair"):
                ask(*pair)


def test_contexts_may_be_any_numbers_in_any_memory() -> None:
    forms: list[Callable[[Array], Any]] = [
        lambda x: x,
        lambda x: x.tolist(),
        lambda x: np.repeat(x, 2)[::2],
        lambda x: x.astype(">f8"),
    ]
    x_all, y_all = world(0, 30, k=2)
    states: list[Any] = []
    for form in forms:
        policy = sw.USSPD(TWO, context_dim=2, forced_rounds=0)
        for x, y in zip(x_all, y_all, strict=True):
            policy.decide(form(x))
            policy.observe(form(x), y.tolist())
        states.append(policy.state()["learner"].tolist())
    assert all(state == states[0] for state in states)


@pytest.mark.parametrize("kind", PAIRWISE)
@pytest.mark.parametrize("forced", [1, 7, np.int64(7)])
def test_the_first_rounds_go_to_the_last_arm(kind: Any, forced: Any) -> None:
    policy = kind(sw.Cascade([0, 2.0, 2.0]), context_dim=2, forced_rounds=forced)
    contexts, outputs = world(1, 20)
    stops = policy.run(contexts, outputs)
    assert stops.tolist() == [2] * int(forced) + [0] * (20 - int(forced))


@pytest.mark.parametrize(
    "features", [sw.Identity(), sw.PerStage([sw.Identity(), sw.Polynomial(1)])]
)
def test_auto_goes_on_until_every_gram_matrix_has_eigenvalues_of_one(features: Any) -> None:
    policy = sw.USSPD(sw.Cascade([0, 2.0, 2.0]), features, 2, forced_rounds="auto")
    contexts, outputs = world(2, 60)
    pairs = policy.cascade.pairs()
    exploring, ended = True, 0
    for t, (x, y) in enumerate(zip(contexts, outputs, strict=True)):
        if t:
            phi = {p: policy.features.transform(contexts[:t], *p) for p in pairs}
            least = min(np.linalg.eigvalsh(f.T @ f)[0] for f in phi.values())
            if exploring and least >= 1:
                exploring, ended = False, t
        stop = policy.decide(x).stop
        assert stop == (2 if exploring else 0)
        policy.observe(x, y.tolist())
    assert 4 < ended < 55


def test_auto_ends_when_the_eigenvalue_is_one_exactly() -> None:
    policy = sw.USSPD(sw.Cascade([0, 2.0]), context_dim=1, forced_rounds="auto")
    assert policy.decide([1.0]).stop == 1
    policy.observe([1.0], [0, 0])
    assert policy.decide([1.0]).stop == 0


@pytest.mark.parametrize("kind", [sw.USSPD, sw.Supervised])
def test_without_forced_rounds_the_first_decision_is_the_last_arm(kind: Any) -> None:
    policy = kind(sw.Cascade([0.1, 0.8, 0.9]), context_dim=2, forced_rounds=0)
    assert policy.decide([0.5, 0.5]).stop == 2


@pytest.mark.parametrize("kind", PAIRWISE)
def test_a_free_arm_always_runs_and_one_that_costs_more_than_one_never_does(kind: Any) -> None:
    contexts, _ = world(3, 300)
    policy = kind(sw.Cascade([0.1, 0.0, 0.9]), context_dim=2, forced_rounds=2)
    assert set(policy.run(contexts, np.ones((300, 3)))) == {1, 2}  # they always agree
    policy = kind(sw.Cascade([0.1, 1.5]), context_dim=2, forced_rounds=0)
    assert set(policy.run(contexts, np.tile([0, 1], (300, 1)))) == {0}  # they always disagree


def agree(x: Array, y: NDArray[np.int64]) -> None:
    y[:] = 1


def disagree(x: Array, y: NDArray[np.int64]) -> None:
    y[:] = np.arange(3)


def separable(x: Array, y: NDArray[np.int64]) -> None:
    y[:, 1] = y[:, 0] ^ (x[:, 0] > 0)
    y[:, 2] = y[:, 0]


def constant(x: Array, y: NDArray[np.int64]) -> None:
    x[:] = [0.5, -0.5]


def collinear(x: Array, y: NDArray[np.int64]) -> None:
    x[:, 1] = x[:, 0] / 3


def zero(x: Array, y: NDArray[np.int64]) -> None:
    x[:] = 0.0


@pytest.mark.parametrize("data", [agree, disagree, separable, constant, collinear, zero])
@pytest.mark.parametrize("kind", CONTEXTUAL)
def test_degenerate_data_give_finite_answers(kind: Any, data: Any) -> None:
    features = sw.Identity() if data is zero else sw.Polynomial(degree=1)
    policy = kind(sw.Cascade([0.05, 0.3, 0.3]), features, 2, forced_rounds=5)
    contexts, outputs = world(5, 250)
    data(contexts, outputs)
    policy.run(contexts, outputs, **({"labels": outputs[:, 2]} if kind is sw.Supervised else {}))
    low, high = (-INF, INF) if kind is sw.Supervised else (0.0, 1.0)
    for x in (*contexts[:10], [1.0, -1.0], [0.0, 0.0]):  # the last two were never seen
        decision = policy.decide(x)
        for e in decision.evidence:
            for value in (e.disagreement, e.disagreement_ucb):
                assert math.isfinite(value)
                assert low <= value <= high
            assert e.gap_won or e.first < decision.stop
    if data is agree:
        assert policy.decide(contexts[0]).stop == 0
    if data is disagree and kind is not sw.Supervised:
        assert policy.decide(contexts[0]).stop == 2


def test_thompson_without_noise_is_the_greedy_rule() -> None:
    policy = sw.Thompson(THREE, context_dim=2, scale=0, forced_rounds=10, seed=1)
    contexts, outputs = world(8, 200, differ=0.2)
    stops: list[int] = []
    for t, (x, y) in enumerate(zip(contexts, outputs, strict=True)):
        stop = policy.decide(x).stop
        if t >= 10:
            phi = policy.features.transform(x)[0]
            going_on = {
                i for i, j in THREE.pairs() if THREE.gaps[i, j] <= mu(phi @ policy.theta(i, j))
            }
            assert stop == min({0, 1, 2} - going_on)
            stops.append(stop)
        policy.observe(x, y[: stop + 1].tolist())
    assert len(set(stops)) > 1


def test_thompson_draws_differently_with_another_seed() -> None:
    contexts, outputs = world(9, 300)
    runs = [
        sw.Thompson(THREE, context_dim=2, forced_rounds=5, seed=s).run(contexts, outputs).tolist()
        for s in (1, 1, 2)
    ]
    assert runs[0] == runs[1] != runs[2]


def test_the_radius_of_uss_pd_is_alpha() -> None:
    policy = sw.USSPD(THREE, sw.Polynomial(), 2, delta=0.01, sigma=0.3, kappa=0.2, forced_rounds=3)
    contexts, outputs = world(10, 40)
    for n in range(40):
        inside = 6 / 2 * math.log(1 + 2 * n / 6) + math.log(9 / (2 * 0.01))
        assert policy.radius == pytest.approx(2 * 0.3 / 0.2 * math.sqrt(inside), rel=1e-13)
        policy.observe(contexts[n], outputs[n].tolist())


def test_the_radius_of_uss_pd_ridge_is_beta_of_the_pairs_own_count() -> None:
    policy = sw.USSPDRidge(THREE, context_dim=2, delta=0.1, sigma=0.2, kappa=0.1, lam=0.3, S=1.7)
    contexts, outputs = world(11, 30)
    for n in range(30):
        policy.observe(contexts[n], outputs[n, : 1 + n % 3].tolist())
    for (i, j), count in {(0, 1): 20, (0, 2): 10, (1, 2): 10}.items():
        assert policy.observations(i, j) == count
        inside = 2 / 2 * math.log(1 + count / (2 * 0.3)) + math.log(9 / (2 * 0.1))
        beta = 2 * 0.2 / 0.1 * math.sqrt(inside) + 2 * math.sqrt(0.3) * 1.7
        assert policy.radius(i, j) == pytest.approx(beta, rel=1e-13)


@pytest.mark.parametrize("features", MAPS)
@pytest.mark.parametrize("kind", [sw.USSPD, sw.USSPDRidge])
def test_evidence_is_what_theta_gram_and_radius_say(kind: Any, features: str) -> None:
    policy = kind(sw.Cascade([0.05, 0.35, 0.45]), MAPS[features], 2, forced_rounds=10)
    contexts, outputs = world(12, 300, differ=0.15)
    policy.run(contexts[:250], outputs[:250])
    seen: set[int] = set()
    for x in contexts[250:]:
        decision = policy.decide(x)
        evidence = decision.evidence
        seen.add(decision.stop)
        assert [(e.first, e.second) for e in evidence] == [
            (i, j) for i, j in policy.cascade.pairs() if i <= decision.stop
        ]
        for e in evidence:
            pair = e.first, e.second
            phi = policy.features.transform(x, *pair)[0]
            _, inverse = policy.gram(*pair)
            radius = policy.radius if kind is sw.USSPD else policy.radius(*pair)
            z = phi @ policy.theta(*pair)
            assert e.gap == policy.cascade.gaps[pair]
            assert e.disagreement == pytest.approx(mu(z), rel=1e-9)
            upper = mu(z + radius * math.sqrt(phi @ inverse @ phi))
            assert e.disagreement_ucb == pytest.approx(upper, rel=1e-9)
            assert e.gap_won == (e.gap > e.disagreement_ucb)
        for i in range(min(decision.stop, 1) + 1):
            wins = all(e.gap_won for e in evidence if e.first == i)
            assert wins == (i == decision.stop)
    assert len(seen) > 1


@pytest.mark.parametrize("name", ["uss-pd", "uss-pd-ridge", "thompson", "uss-ucb", "uss-ts"])
def test_evidence_supports_the_decision_whatever_is_learned_later(name: str) -> None:
    policy: Any = sw.make(name, THREE, context_dim=2)
    contexts, outputs = world(14, 300, differ=0.1)
    policy.run(contexts, outputs)
    for t, x in enumerate(contexts[:50]):
        decision = policy.decide(x)
        before = decision.evidence if t % 2 else None  # or first asked for after learning
        policy.observe(x, [1, 0, 1])
        evidence = decision.evidence
        assert before in (None, evidence)
        here = [e for e in evidence if e.first == decision.stop]
        assert len(here) == 2 - decision.stop
        assert all(e.gap_won for e in here)
        for i in range(decision.stop):
            assert not all(e.gap_won for e in evidence if e.first == i)


def test_a_decision_says_whether_it_was_forced_stopped_or_went_to_the_last_arm() -> None:
    policy = sw.USSPD(sw.Cascade([0.05, 0.3], names=["rule", "model"]), context_dim=1)
    x = [1.0]
    assert policy.decide(x).evidence == ()
    assert "not decided by evidence" in str(policy.decide(x))
    for outputs, times, start in (
        ([1, 1], 200, "Stop at arm 0 (rule), cost 0.05: "),
        ([1, 0], 400, "Stop at arm 1 (model), cost 0.35, the last: "),
    ):
        for _ in range(times):
            policy.observe(x, outputs)
        assert str(policy.decide(x)).startswith(start)


@pytest.mark.parametrize(("cost", "stop"), [(0.0, 1), (1.0, 0), (2.0, 0)])
def test_evidence_covers_gaps_that_no_probability_reaches(cost: float, stop: int) -> None:
    policy = sw.USSPD(sw.Cascade([0.1, cost]), context_dim=2, forced_rounds=0)
    policy.observe([1.0, 0.0], [1, 1])
    decision = policy.decide([0.0, 1.0])  # a direction never seen: the bound rounds to 1
    assert decision.stop == stop
    (e,) = decision.evidence
    assert (e.gap, e.gap_won) == (cost, stop == 0)


def test_slots_of_different_sizes_do_not_mix() -> None:
    contexts, outputs = world(15, 150)
    apart = sw.USSPD(THREE, MAPS["per pair"], 2, forced_rounds=150)
    apart.run(contexts, outputs)
    for (i, j), d in {(0, 1): 3, (0, 2): 2, (1, 2): 6}.items():
        phi = apart.features.transform(contexts, i, j)
        assert phi.shape == (150, d)
        v, inverse = apart.gram(i, j)
        np.testing.assert_allclose(v, phi.T @ phi, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(v @ inverse, np.eye(d), atol=1e-6)
        theta = apart.theta(i, j)
        assert theta.shape == (d,)
        differ = outputs[:, i] != outputs[:, j]
        residual = phi.T @ (differ - 1 / (1 + np.exp(-phi @ theta))) - apart.ridge * theta
        np.testing.assert_allclose(residual, 0, atol=1e-8)


def test_many_features_are_warned_of_and_need_no_estimate_before_as_many_rounds() -> None:
    sw.USSPD(TWO, context_dim=250)  # a warning would be an error here
    with pytest.warns(sw.WideFeaturesWarning, match="400 features"):
        policy = sw.USSPD(THREE, context_dim=400, forced_rounds=10)
    contexts = np.random.default_rng(0).uniform(-1, 1, (60, 400))
    stops = policy.run(contexts, np.zeros((60, 3), dtype=np.int64))
    assert (stops == 2).all()  # every context has directions that were never seen
    assert policy.effort["passes"] == 0
