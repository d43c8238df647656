"""The certified engine makes the same decisions as implementations that solve every round.

They are `stopwise.reference` and `tests.oracles.solve_every_round`, which supports more features
and rules and measures the distance to a tie. No round of these seeds is a tie to 1e-9.
"""

from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stopwise import research
from stopwise.cascade import Cascade
from stopwise.features import FeaturesLike, Identity, PerPair, PerStage, Polynomial
from stopwise.policies.thompson import Thompson
from stopwise.policies.uss_pd import USSPD
from stopwise.policies.uss_pd_ridge import USSPDRidge
from stopwise.reference import ReferenceUSSPD
from tests.oracles import solve_every_round as oracle

TIE = 1e-9


def scaled_identity(x: oracle.Array) -> oracle.Array:
    return x / np.sqrt(len(x))


def square(x: oracle.Array) -> oracle.Array:
    products = [a * b for a, b in combinations_with_replacement([1.0, *x], 2)]
    # 1·1, 1·x₀, …, x₀x₀, …: the polynomial of degree two, in its usual order
    return np.array(products) / np.sqrt(len(products))


def first_coordinate(x: oracle.Array) -> oracle.Array:
    return np.array([1.0, x[0]]) / np.sqrt(2)


MAPS: dict[str, tuple[Any, Any]] = {
    "identity": (Identity(), scaled_identity),
    "square": (Polynomial(degree=2), square),
    "front": (first_coordinate, first_coordinate),
}


def both_maps(name: str, k: int) -> tuple[FeaturesLike, Any]:
    """Return the features for Stopwise and for the referee by name, "stage" or "pair"."""
    if name in MAPS:
        return MAPS[name]
    kinds = list(MAPS.values())
    if name == "stage":
        chosen = {(i, j): kinds[i % 3] for i, j in oracle.pairs(k)}
        ours: FeaturesLike = PerStage([kinds[i % 3][0] for i in range(k - 1)])
    else:
        chosen = {(i, j): kinds[(i + 2 * j) % 3] for i, j in oracle.pairs(k)}
        ours = PerPair({p: m[0] for p, m in chosen.items()})
    return ours, {p: m[1] for p, m in chosen.items()}


@dataclass(frozen=True)
class Case:
    """An instance and a policy; ``levels`` makes contexts repeat."""

    k: int = 3
    d: int = 4
    n: int = 500
    features: str = "identity"
    ridge: float = 1e-3
    sigma: float = 0.03
    kappa: float = 0.25
    delta: float = 0.05
    forced: int | str = 60
    step: float = 0.2  # cost of an arm
    tradeoff: float | tuple[float, ...] = 1.0
    levels: int | None = None
    lam: float | None = None
    S: float = 0.5
    seed: int = 0

    def __str__(self) -> str:
        changed = {n: v for n, v in vars(self).items() if v != getattr(Case, n)}
        return ",".join(f"{n}={v}" for n, v in changed.items()) or "default"

    @property
    def rule(self) -> dict[str, Any]:
        names = ["delta", "sigma", "kappa", "ridge", *(["lam", "S"] if self.lam else [])]
        return {name: getattr(self, name) for name in names} | {"forced_rounds": self.forced}

    def world(self) -> tuple[oracle.Array, NDArray[np.int64], NDArray[np.int64]]:
        """Return contexts, outputs and labels: deeper arms err less, more on one side."""
        rng = np.random.default_rng(self.seed)
        if self.levels is None:
            contexts = rng.uniform(-1, 1, (self.n, self.d))
        else:
            contexts = rng.choice(np.linspace(-1, 1, self.levels), (self.n, self.d))
        contexts[:, 0] = 0.8 + 0.2 * contexts[:, 0]  # nearly constant, so that rates can be low
        label = rng.integers(0, 2, self.n)
        slope = 4.0 * rng.choice([-1, 1], self.d) / np.sqrt(self.d)
        logits = (contexts @ slope)[:, None] - 1.5 - 0.8 * np.arange(self.k)
        errs = rng.random((self.n, self.k)) < oracle.mu(logits)
        return contexts, label[:, None] ^ errs, label

    def cascade(self) -> Cascade:
        return Cascade(np.full(self.k, self.step), tradeoff=self.tradeoff)

    def cumulative(self) -> oracle.Array:
        """λ_i·C_i by hand."""
        return np.ones(self.k) * self.tradeoff * self.step * np.arange(1, self.k + 1)

    def policy(self) -> USSPD | USSPDRidge:
        features, _ = both_maps(self.features, self.k)
        kind = USSPD if self.lam is None else USSPDRidge
        return kind(self.cascade(), features, self.d, **self.rule)

    def referee(self) -> oracle.Run:
        contexts, outputs, _ = self.world()
        phi = oracle.tabulate(contexts, both_maps(self.features, self.k)[1], self.k)
        return oracle.uss_pd(phi, oracle.disagreements(outputs), self.cumulative(), **self.rule)


def assert_same(stops: NDArray[np.int64], referee: oracle.Run, depths: int = 2) -> None:
    assert referee.closest.min() > TIE
    np.testing.assert_array_equal(stops, referee.stops)
    counts = np.bincount(stops)
    assert np.count_nonzero(counts >= 5) >= depths, f"stops must vary: {counts}"


def assert_exact(case: Case, depths: int = 2) -> NDArray[np.int64]:
    """Check every decision of a case against both implementations; return the stops."""
    contexts, outputs, _ = case.world()
    policy = case.policy()
    stops = policy.run(contexts, outputs)
    assert_same(stops, case.referee(), depths)
    if case.features in MAPS:
        phi = np.array([MAPS[case.features][1](x) for x in contexts])
        reference = ReferenceUSSPD(case.cumulative(), phi.shape[1], **case.rule)
        for x, y, stop in zip(phi, outputs, stops, strict=True):
            assert reference.decide(x) == stop
            reference.observe(x, y[: stop + 1].tolist())
        for pair, theta in reference.theta_hat.items():
            np.testing.assert_allclose(policy.theta(*pair), theta, rtol=1e-6, atol=1e-9)
    return stops


QUICK = [
    Case(n=300),
    Case(k=2, d=2, ridge=1e-6, forced=20),
    Case(k=6, d=3, n=200, step=0.12, tradeoff=(1.0, 0.9, 1.1, 1.0, 1.2, 0.8)),
    Case(d=8, features="square", n=300, sigma=0.003, forced=70),  # d' = 45
    Case(k=4, features="stage", n=200, forced=40),
    Case(k=4, features="pair", n=250, forced=40, ridge=1e-2, step=0.3, sigma=0.01),
    Case(levels=2, n=500, ridge=1e-6),
    Case(d=2, forced="auto", n=300),
    Case(lam=1.0, forced=1, S=0.1),
    Case(k=4, lam=0.01, forced=1, S=0.5, ridge=1e-6, n=200, step=0.15),
]


@pytest.mark.parametrize("case", QUICK, ids=str)
def test_decisions_equal_those_of_solving_every_round(case: Case) -> None:
    assert_exact(case)


@pytest.mark.parametrize("lam", [0.0, 0.5])
def test_transitive_decisions_equal_those_of_the_reference(lam: float) -> None:
    """On data for which ``transitive`` changes many decisions.

    Errors are nested, so that both disagreements and their bounds add up along the arms.
    """
    rng, n = np.random.default_rng(0), 400
    contexts = np.column_stack([np.ones(n), rng.uniform(-1, 1, n)])
    outputs = (rng.random((n, 1)) < [0.0, 0.15, 0.25, 0.4, 0.45]).astype(np.int64)
    costs = np.array([0.0, 0.2, 0.15, 0.2, 0.1])
    rule: dict[str, Any] = {"sigma": 0.02, "forced_rounds": 20}
    rule |= {"lam": lam, "S": 0.1} if lam else {}
    kind = USSPDRidge if lam else USSPD
    policy = kind(Cascade(costs), Identity(), 2, transitive=True, **rule)
    reference = ReferenceUSSPD(np.cumsum(costs), 2, transitive=True, **rule)
    shallower = 0
    for x, y in zip(contexts, outputs, strict=True):
        decision, phi = policy.decide(x), scaled_identity(x)
        assert reference.closest(phi) > TIE
        assert decision.stop == reference.decide(phi)
        for e in decision.evidence:
            if e.through is not None:
                assert e.gap <= e.disagreement_ucb
                assert reference.passes(phi, e.first, e.through)
                assert reference.passes(phi, e.through, e.second)
            assert e.gap_won == reference.passes(phi, e.first, e.second)
        reference.transitive = False
        shallower += reference.decide(phi) > decision.stop
        reference.transitive = True
        policy.observe(x, y[: decision.stop + 1].tolist())
        reference.observe(phi, y[: decision.stop + 1].tolist())
    assert shallower > 5


def test_evidence_read_after_learning_has_the_verdicts_of_exact_evidence() -> None:
    """Also if another pair decided before the chains of a lost pair were settled (round 54)."""
    rng = np.random.default_rng(15)
    k = int(rng.integers(4, 7))
    costs, wrong = rng.uniform(0.03, 0.3, k), np.sort(rng.uniform(0, 0.6, k))
    policy = USSPD(Cascade(costs), None, 2, transitive=True, sigma=0.02, forced_rounds=15)
    compared = 0
    for _ in range(60):
        x = np.array([0.7, rng.uniform(-0.7, 0.7)])
        exact, reread = policy.decide(x), policy.decide(x)
        won = {(e.first, e.second): e.gap_won for e in exact.evidence}
        policy.observe(x, (rng.random() < wrong).astype(int)[: exact.stop + 1].tolist())
        assert all(won[e.first, e.second] == e.gap_won for e in reread.evidence)
        compared += len(reread.evidence)
    assert compared > 50


THOMPSON = [
    (Case(n=200), 1.0),
    (Case(n=200), 0.0),
    (Case(k=4, features="pair", n=200, ridge=0.1, step=0.3), 2.0),
]


@pytest.mark.parametrize(("case", "scale"), THOMPSON, ids=str)
def test_thompson_samples_from_the_exact_posterior(case: Case, scale: float) -> None:
    features, maps = both_maps(case.features, case.k)
    rule: dict[str, Any] = {"scale": scale, "forced_rounds": case.forced, "ridge": case.ridge}
    policy = Thompson(case.cascade(), features, case.d, seed=9, **rule)
    contexts, outputs, _ = case.world()
    noise = oracle.normals(9, case.n, len(oracle.pairs(case.k)))
    phi, differ = oracle.tabulate(contexts, maps, case.k), oracle.disagreements(outputs)
    referee = oracle.thompson(phi, differ, case.cumulative(), noise, **rule)
    assert_same(policy.run(contexts, outputs), referee)


SUPERVISED = [
    Case(n=250, sigma=0.02),
    Case(k=4, d=3, levels=3, sigma=0.01, ridge=1e-6, n=250, step=0.1),
]


@pytest.mark.parametrize("case", SUPERVISED, ids=str)
def test_supervised_decisions_equal_those_of_solving_every_round(case: Case) -> None:
    features, maps = both_maps(case.features, case.k)
    contexts, outputs, labels = case.world()
    phi = np.array([maps(x) for x in contexts])
    wrong = outputs != labels[:, None]
    referee = oracle.supervised(phi, wrong, case.cumulative(), **case.rule)
    policy = research.Supervised(case.cascade(), features, case.d, **case.rule)
    assert_same(policy.run(contexts, outputs, labels=labels), referee)


def random_case(seed: int) -> Case:
    """Return a random case that covers all options of a policy."""
    rng = np.random.default_rng(seed)
    k = int(rng.integers(2, 7))
    features = str(rng.choice(["identity", "square", "stage", "pair"]))
    d = int(rng.integers(2, 9))
    width = (d + 1) * (d + 2) // 2 if features != "identity" else d
    lam = float(10.0 ** rng.uniform(-2, 1)) if rng.random() < 0.3 else None
    return Case(
        k=k,
        d=d,
        n=int(rng.integers(300, 1500)),
        features=features,
        ridge=float(10.0 ** rng.uniform(-6, 0)),
        sigma=float(rng.uniform(0.02, 0.2) / width),
        kappa=float(rng.uniform(0.1, 0.25)),
        delta=float(rng.uniform(0.01, 0.5)),
        forced=int(width * rng.uniform(1.5, 3)) if lam is None else int(rng.integers(0, 3)),
        step=float(rng.uniform(0.5, 0.9) / k),
        tradeoff=tuple(rng.uniform(0.8, 1.25, k)),
        levels=None if rng.random() < 0.7 else int(rng.integers(3, 5)),
        lam=lam,
        S=float(rng.uniform(0, 0.3)),
        seed=seed,
    )


@pytest.mark.slow
def test_decisions_of_random_cases_are_exact() -> None:
    depths = np.zeros(6, dtype=np.int64)
    for seed in range(80):
        depths += np.bincount(assert_exact(random_case(1000 + seed), 1), minlength=6)
    assert depths.min() > 100, depths


@pytest.mark.slow
@pytest.mark.parametrize("levels", [None, 40])
def test_decisions_remain_exact_beyond_the_counted_rows(levels: int | None) -> None:
    case = Case(k=3, d=3, n=12_000, sigma=0.15, step=0.25, levels=levels, ridge=1e-4, seed=3)
    contexts, outputs, _ = case.world()
    stops = case.policy().run(contexts, outputs)
    assert_same(stops, case.referee())
    assert len(set(stops[4096:])) > 1
