"""The certified engine takes the decisions of an implementation that solves every round.

Seeds are chosen so that no round is a tie to 1e-9, which is asserted: nothing excuses a difference.
"""

from dataclasses import dataclass, replace
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stopwise.cascade import Cascade
from stopwise.features import FeaturesLike, Identity, PerPair, PerStage, Polynomial
from stopwise.policies.supervised import Supervised
from stopwise.policies.thompson import Thompson
from stopwise.policies.uss_pd import USSPD, USSPDRidge
from stopwise.records import Truth
from tests.oracles import solve_every_round as oracle

TIE = 1e-9


# ------------------------------------------------------------------- features, written twice


def identity(x: oracle.Array) -> oracle.Array:
    return x / np.sqrt(len(x))


def square(x: oracle.Array) -> oracle.Array:
    products = [a * b for a, b in combinations_with_replacement([1.0, *x], 2)]
    # 1·1, 1·x₀, …, x₀x₀, …: the polynomial of degree two, in its usual order
    return np.array(products) / np.sqrt(len(products))


def front(x: oracle.Array) -> oracle.Array:
    return np.array([1.0, x[0]]) / np.sqrt(2)


MAPS: dict[str, tuple[Any, Any]] = {
    "identity": (Identity(), identity),
    "square": (Polynomial(degree=2), square),
    "front": (front, front),
}


def both_maps(name: str, k: int) -> tuple[FeaturesLike, Any]:
    """Return stopwise's features and the referee's, for a name or one of "stage" and "pair"."""
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


# ----------------------------------------------------------------------------------- worlds


@dataclass(frozen=True)
class Case:
    """One instance and one policy; ``levels`` makes contexts repeat."""

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
        rule = {
            "delta": self.delta,
            "sigma": self.sigma,
            "kappa": self.kappa,
            "forced_rounds": self.forced,
            "ridge": self.ridge,
        }
        return rule if self.lam is None else rule | {"lam": self.lam, "S": self.S}

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

    def referee(self) -> oracle.Played:
        contexts, outputs, _ = self.world()
        phi = oracle.tabulate(contexts, both_maps(self.features, self.k)[1], self.k)
        return oracle.uss_pd(phi, oracle.disagreements(outputs), self.cumulative(), **self.rule)


def assert_same(stops: NDArray[np.int64], referee: oracle.Played) -> None:
    assert referee.closest.min() > TIE
    differs = np.flatnonzero(stops != referee.stops)
    assert not differs.size, f"first at round {differs[0]} of {len(stops)}"


def assert_mixed(stops: NDArray[np.int64], depths: int = 2) -> None:
    found = np.bincount(stops)
    assert np.count_nonzero(found >= 5) >= depths, f"a test of one depth shows nothing: {found}"


# -------------------------------------------------------------------------------- the tests

QUICK = [
    Case(),
    Case(k=2, d=2, ridge=1e-6, forced=20),
    Case(k=4, d=6, ridge=0.1, sigma=0.05, kappa=0.2, step=0.15),
    Case(k=6, d=3, n=400, step=0.12, tradeoff=(1.0, 0.9, 1.1, 1.0, 1.2, 0.8)),
    Case(k=5, d=2, n=300, ridge=1.0, tradeoff=0.6, delta=0.5),
    Case(d=8, features="square", n=300, sigma=0.003, forced=70),  # d' = 45
    Case(d=5, features="square", n=300, ridge=1e-6, sigma=0.01, forced=40),
    Case(k=4, features="stage", n=400, forced=40),
    Case(k=4, features="pair", n=400, forced=40, ridge=1e-2, step=0.3, sigma=0.01),
    Case(levels=2, n=800, ridge=1e-6),
    Case(k=4, d=3, levels=3, features="square", n=600, forced=40, sigma=0.02),
    Case(d=2, forced="auto", n=400),
    Case(lam=1.0, forced=1, S=0.1),
    Case(k=4, lam=0.01, forced=1, S=0.5, ridge=1e-6, n=400, step=0.15),
    Case(lam=3.0, S=0.05, forced=0, features="stage", n=400),
    Case(d=8, lam=0.3, S=0.4, features="square", sigma=0.02, forced=1, n=250),
]


@pytest.mark.parametrize("case", QUICK, ids=str)
def test_every_decision_is_that_of_solving_every_round(case: Case) -> None:
    contexts, outputs, _ = case.world()
    stops = case.policy().run(contexts, outputs)
    assert_same(stops, case.referee())
    assert_mixed(stops)


def test_decisions_stay_exact_when_history_outgrows_its_table_of_distinct_contexts() -> None:
    case = Case(k=2, d=2, n=4600, step=0.25, sigma=0.1, ridge=1e-6)
    contexts, outputs, _ = case.world()
    policy = case.policy()
    stops = policy.run(contexts, outputs)
    assert policy.effort["rows_kept"] > 4096
    assert_same(stops, case.referee())
    assert_mixed(stops[4096:])


@pytest.mark.parametrize(
    "case", [Case(k=4), Case(k=4, features="pair", step=0.3), Case(lam=0.5)], ids=str
)
def test_round_by_round_equals_a_whole_run(case: Case) -> None:
    contexts, outputs, _ = case.world()
    whole, single, told = case.policy(), case.policy(), case.policy()
    stops = whole.run(contexts, outputs)
    for x, y, stop in zip(contexts, outputs, stops, strict=True):
        assert single.decide(x).stop == told.decide(x).stop == stop
        single.observe(x, y[: stop + 1].tolist())
        differ = {(i, j): bool(y[i] != y[j]) for i, j in oracle.pairs(stop + 1)}
        told.observe_disagreements(x, int(stop), differ)
    assert_mixed(stops)
    for name, array in whole.state().items():  # to the last bit, and not only the decisions
        np.testing.assert_array_equal(array, single.state()[name], err_msg=name)
        np.testing.assert_array_equal(array, told.state()[name], err_msg=name)


def test_disagreements_alone_give_the_run_of_outputs() -> None:
    case = Case(k=4)
    contexts, outputs, _ = case.world()
    differ = np.stack(list(oracle.disagreements(outputs).values()), axis=1)
    by_outputs, by_pairs = case.policy(), case.policy()
    stops = by_outputs.run(contexts, outputs)
    np.testing.assert_array_equal(by_pairs.run_disagreements(contexts, differ), stops)
    assert_mixed(stops)
    for name, array in by_outputs.state().items():
        np.testing.assert_array_equal(array, by_pairs.state()[name], err_msg=name)


def test_deciding_many_at_once_is_deciding_each() -> None:
    case = Case(k=4)
    contexts, outputs, _ = case.world()
    policy = case.policy()
    policy.run(contexts, outputs)
    fresh = np.random.default_rng(5).uniform(-1, 1, (300, case.d))
    stops = policy.decide_many(fresh)
    assert [policy.decide(x).stop for x in fresh] == stops.tolist()
    assert_mixed(stops)


THOMPSON = [
    (Case(n=400), 1.0),
    (Case(k=4, features="pair", n=300, ridge=0.1, step=0.3), 2.0),
    (Case(k=2, d=3, levels=3, ridge=1e-2, forced=10, n=400), 0.5),
]


def thompson_pair(case: Case, scale: float) -> tuple[Thompson, oracle.Played]:
    features, own = both_maps(case.features, case.k)
    rule: dict[str, Any] = {
        "scale": scale,
        "forced_rounds": case.forced,
        "ridge": case.ridge,
    }
    policy = Thompson(case.cascade(), features, case.d, seed=case.seed + 9, **rule)
    contexts, outputs, _ = case.world()
    noise = np.random.Generator(np.random.PCG64(case.seed + 9)).standard_normal(
        (case.n, len(oracle.pairs(case.k)))
    )
    phi = oracle.tabulate(contexts, own, case.k)
    differ = oracle.disagreements(outputs)
    return policy, oracle.thompson(phi, differ, case.cumulative(), noise, **rule)


@pytest.mark.parametrize(("case", "scale"), THOMPSON, ids=str)
def test_thompson_draws_from_the_exact_posterior(case: Case, scale: float) -> None:
    policy, referee = thompson_pair(case, scale)
    contexts, outputs, _ = case.world()
    stops = policy.run(contexts, outputs)
    assert_same(stops, referee)
    assert_mixed(stops)


def test_thompson_round_by_round_equals_a_whole_run() -> None:
    case = Case(n=300)
    policy, referee = thompson_pair(case, 1.0)
    contexts, outputs, _ = case.world()
    for x, y, stop in zip(contexts, outputs, referee.stops, strict=True):
        assert policy.decide(x).stop == stop
        policy.observe(x, y[: stop + 1].tolist())


SUPERVISED = [
    Case(n=400, sigma=0.02),
    Case(k=4, d=3, levels=3, sigma=0.01, ridge=1e-6, n=400, step=0.1),
    Case(k=2, d=5, features="square", sigma=0.005, n=300),
]


@pytest.mark.parametrize("case", SUPERVISED, ids=str)
def test_the_supervised_comparator_is_exact_too(case: Case) -> None:
    features, own = both_maps(case.features, case.k)
    contexts, outputs, labels = case.world()
    phi = np.array([own(x) for x in contexts])
    wrong = outputs != labels[:, None]
    referee = oracle.supervised(phi, wrong, case.cumulative(), **case.rule)
    whole = Supervised(case.cascade(), features, case.d, **case.rule)
    single = Supervised(case.cascade(), features, case.d, **case.rule)
    stops = whole.run(contexts, outputs, labels)
    assert_same(stops, referee)
    assert_mixed(stops)
    for t, stop in enumerate(stops):
        assert single.decide(contexts[t]).stop == stop
        single.observe(contexts[t], outputs[t, : stop + 1].tolist(), Truth(label=labels[t]))


# ---------------------------------------------------------------------------- the large sweep


def drawn(seed: int) -> Case:
    """Return a random case, across everything a policy can be given."""
    rng = np.random.default_rng(seed)
    k = int(rng.integers(2, 7))
    features = str(rng.choice(["identity", "square", "stage", "pair"]))
    d = int(rng.integers(2, 9))
    width = (d + 1) * (d + 2) // 2 if features != "identity" else d
    case = Case(
        k=k,
        d=d,
        n=int(rng.integers(300, 1500)),
        features=features,
        ridge=float(10.0 ** rng.uniform(-6, 0)),
        sigma=float(rng.uniform(0.02, 0.2) / width),
        kappa=float(rng.uniform(0.1, 0.25)),
        delta=float(rng.uniform(0.01, 0.5)),
        forced=int(width * rng.uniform(1.5, 3)),
        step=float(rng.uniform(0.5, 0.9) / k),
        tradeoff=tuple(rng.uniform(0.8, 1.25, k)),
        levels=None if rng.random() < 0.7 else int(rng.integers(3, 5)),
        seed=seed,
    )
    if rng.random() < 0.3:
        lam, bound = float(10.0 ** rng.uniform(-2, 1)), float(rng.uniform(0, 0.3))
        return replace(case, lam=lam, S=bound, forced=int(rng.integers(0, 3)))
    return case


@pytest.mark.full
@pytest.mark.parametrize("seed", range(80))
def test_every_decision_of_a_random_case_is_exact(seed: int) -> None:
    case = drawn(1000 + seed)
    contexts, outputs, _ = case.world()
    assert_same(case.policy().run(contexts, outputs), case.referee())


@pytest.mark.full
def test_the_random_cases_stop_at_every_depth() -> None:
    depths = np.zeros(6, dtype=np.int64)
    for seed in range(80):
        case = drawn(1000 + seed)
        contexts, outputs, _ = case.world()
        depths += np.bincount(case.policy().run(contexts, outputs), minlength=6)
    assert depths.min() > 100, depths


@pytest.mark.full
@pytest.mark.parametrize("levels", [None, 40])
def test_decisions_stay_exact_far_beyond_the_table(levels: int | None) -> None:
    case = Case(k=3, d=3, n=12_000, sigma=0.15, step=0.25, levels=levels, ridge=1e-4, seed=3)
    contexts, outputs, _ = case.world()
    stops = case.policy().run(contexts, outputs)
    assert_same(stops, case.referee())
    assert_mixed(stops[4096:])
