"""USS-Laplace and USS-Anchor make the same decisions as a referee that solves every round.

With labels, so are requests and their probabilities. No comparison of these seeds is a tie to
1e-9.
"""

import math
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
import pytest

import stopwise as sw
from stopwise.arrays import Ints
from tests.helpers import archive
from tests.helpers.labels import label_of
from tests.oracles.solve_every_round import Array, Referee, exploring, mu

TIE = 1e-9


def world(k: int, n: int, seed: int, d: int = 2, best: int = -1) -> tuple[Array, Ints, Ints]:
    """Contexts, outputs and labels; cases differ in difficulty, and arm ``best`` errs least."""
    rng = np.random.default_rng([k, seed])
    x = rng.uniform(-1, 1, (n, d))
    labels = rng.integers(0, 3, n)
    offset = -0.4 - 1.0 * np.arange(k)
    offset[best] = -4.0
    wrong = rng.random((n, k)) < mu(2.5 * x[:, :1] + offset)
    shift = rng.integers(1, 3, (n, k))
    return x, np.where(wrong, (labels[:, None] + shift) % 3, labels[:, None]), labels


def square(x: Array) -> Array:
    """The polynomial of degree two, in its usual order."""
    ones = np.column_stack([np.ones(len(x)), x])
    products = [ones[:, a] * ones[:, b] for a, b in combinations_with_replacement(range(3), 2)]
    return np.column_stack(products) / math.sqrt(len(products))


def standard(x: Array, fit: Array | None, degree: int = 2) -> tuple[list[Array], int]:
    """Unscaled `Standard` features in plain numpy, and the number of linear ones.

    ``fit`` are the contexts so far.
    """
    d = x.shape[1]
    center, scale, two = np.zeros(d), np.ones(d), np.zeros(d, dtype=bool)
    if fit is not None:
        center, scale = fit.mean(axis=0), fit.std(axis=0)
        scale[scale < 1e-9] = 1.0
        two = np.array([len(set(column)) <= 2 for column in fit.T.tolist()])
    z = np.clip((x - center) / scale, -3, 3)
    columns = [np.full(len(x), 3.0), *z.T]
    largest = [3.0] + [3.0] * d
    for a, b in combinations_with_replacement(range(d), 2) if degree == 2 else ():
        if a != b or not two[a]:
            columns.append(0.5 * z[:, a] * z[:, b])
            largest.append(4.5)
    return [np.column_stack(columns), np.array(largest)], 1 + d


def scaled(parts: list[list[Array]]) -> tuple[list[Array], float]:
    """Features of all arms, scaled to a norm of at most one, and the ridge."""
    size = 1 / max(math.sqrt(float(largest @ largest)) for _, largest in parts)
    return [size * rows for rows, _ in parts], size**2


CASES: dict[str, tuple[type[Any], int, dict[str, Any], dict[str, Any]]] = {
    "laplace": (sw.USSLaplace, 3, {"transitive": False}, {"z": 0.5}),
    "laplace, transitive": (sw.USSLaplace, 5, {}, {"z": 0.5, "transitive": True}),
    "laplace, z": (sw.USSLaplace, 2, {"z": 2.0}, {"z": 2.0}),
    "anchor": (sw.USSAnchor, 3, {"explore": 0}, {"z": 0.25, "anchor": True}),
    "anchor, z": (sw.USSAnchor, 5, {"z": 1.0, "explore": 0}, {"z": 1.0, "anchor": True}),
}


@pytest.mark.parametrize("name", CASES)
def test_decisions_equal_those_of_the_referee(name: str) -> None:
    kind, k, settings, rule = CASES[name]
    n, cascade = 250, sw.Cascade(np.full(k, 0.35 / k))
    x, outputs, _ = world(k, n, 0)
    policy = kind(cascade, sw.Polynomial(2), 2, ridge=0.05, **settings)
    referee = Referee([square(x)] * (k - 1), outputs, cascade.cumulative, 0.05, **rule)
    stops = policy.run(x, outputs).tolist()
    assert [referee.play(t) for t in range(n)] == stops
    assert referee.closest > TIE
    assert len(set(stops)) > 1


def test_standard_features_are_fitted_until_1024_rounds() -> None:
    n, cascade = 1100, sw.Cascade([0.05, 0.3])
    x, outputs, _ = world(2, n, 4)
    x = x * [100.0, 0.01] + [7.0, 0.2]
    x[600:] += [50.0, 0.0]  # the distribution changes; the last fit counts
    policy = sw.USSLaplace(cascade, context_dim=2)
    rows, ridge = scaled([standard(x, None, 1)[0]])
    referee = Referee(rows, outputs, cascade.cumulative, ridge, 0.5)
    stops: list[int] = []
    for t in range(n):
        stops.append(referee.play(t))
        if t + 1 in (8, 16, 32, 64, 128, 256, 512, 1024):
            referee.relearn(*scaled([standard(x, x[: t + 1])[0]]), 0)
    assert policy.run(x, outputs).tolist() == stops
    assert referee.closest > TIE
    assert len(set(stops[1024:])) > 1
    assert policy.features.to_spec()["maps"][0]["center"] == pytest.approx(x[:1024].mean(axis=0))


# ------------------------------------------------------------------------------- revealed contexts

REVEALED: dict[str, tuple[type[Any], int, dict[str, Any]]] = {
    "laplace, three arms": (sw.USSLaplace, 3, {"z": 0.5}),
    "laplace, four arms": (sw.USSLaplace, 4, {"z": 0.3}),
    "anchor, three arms": (sw.USSAnchor, 3, {"z": 0.25, "anchor": True}),
    "anchor, four arms": (sw.USSAnchor, 4, {"z": 0.25, "anchor": True}),
}


def visible_at(x: Array, outputs: Ints, arm: int) -> Array:
    """The context available at an arm, if it starts with one number and each arm adds one."""
    agree = [outputs[:, a] == outputs[:, b] for b in range(arm + 1) for a in range(b)]
    return np.column_stack([x[:, : arm + 2], *agree]).astype(float)


@pytest.mark.parametrize("scales", [False, True], ids=["fixed features", "standard"])
@pytest.mark.parametrize("name", REVEALED)
def test_drawn_answers_equal_those_of_the_exact_estimates(name: str, scales: bool) -> None:
    referees = [play_revealed(name, scales, seed) for seed in (3, 4)]
    assert sum(referee.drawn for referee in referees) > 8
    assert sum(referee.corrected for referee in referees) > 0


def play_revealed(name: str, scales: bool, seed: int) -> Referee:
    """Play a world with the policy and the referee; compare decisions and learned answers."""
    kind, k, rule = REVEALED[name]
    n, cascade = 250, sw.Cascade(np.full(k, (0.5 if "anchor" in rule else 0.7) / k))
    x, outputs, _ = world(k, n, 9, d=k)
    features = None if scales else sw.Polynomial(1, bound=1)
    ridge = None if scales else 0.05
    more = {"ridge": ridge, "explore": 0.3, "seed": seed}
    policy = kind(cascade, features, 1, reveals=1, z=rule["z"], **more)
    chance = exploring(seed, n)
    surprising = chance < 0.05  # all of these rounds explore, which corrects biased models
    outputs[surprising, -1] = (outputs[surprising, -2] + 1) % 3
    visible = [visible_at(x, outputs, arm) for arm in range(k - 1)]

    def fitted(stops: list[int] | None) -> tuple[list[Array], float]:
        if not scales:
            rows = [np.column_stack([np.ones(n), v]) for v in visible]
            return [v / math.sqrt(v.shape[1]) for v in rows], 0.05
        reached = [
            None if stops is None else v[: len(stops)][np.array(stops) >= arm]
            for arm, v in enumerate(visible)
        ]
        degree = 1 if stops is None else 2
        return scaled([standard(v, r, degree)[0] for v, r in zip(visible, reached, strict=True)])

    more = {"explore": 0.3, "revealed": True, "seed": seed}
    referee = Referee(*_first(fitted(None), outputs, cascade), **rule, **more)
    stops: list[int] = []
    for t in range(n):
        stops.append(referee.play(t, chance=chance[t]))
        if scales and len(stops) >= 8 and len(stops) & (len(stops) - 1) == 0:
            referee.relearn(*fitted(stops), 0)
    assert policy.run(x, outputs).tolist() == stops
    assert referee.closest > TIE
    learned = np.sum([row.positives for row in archive.rows(policy)], axis=0)
    assert learned.tolist() == [sum(answers) for answers in referee.answers.values()]
    return referee


def _first(fitted: tuple[list[Array], float], outputs: Ints, cascade: sw.Cascade) -> Any:
    visible, ridge = fitted
    return visible, outputs, cascade.cumulative, ridge


# ------------------------------------------------------------------------------------------ labels

LABELLED: dict[str, dict[str, Any]] = {
    "a number": {"labels": 40},
    "a share": {"labels": 0.2},
    "no exploration": {"labels": 60, "explore": 0.0},
    "much exploration": {"labels": 300, "explore": 0.5, "seed": 1},
    "a rule that is too deep": {"labels": 0.9, "z": 30.0},  # a fixed depth is better
}


@pytest.mark.parametrize("scales", [False, True], ids=["fixed features", "standard"])
@pytest.mark.parametrize("name", LABELLED)
def test_label_requests_and_gains_equal_those_of_the_referee(name: str, scales: bool) -> None:
    """Arm 1 is the best of four: labels show that the last arms are not worth it."""
    options = LABELLED[name]
    n, k, cascade = 300, 4, sw.Cascade([0.02, 0.06, 0.05, 0.05])
    x, outputs, labels = world(k, n, 2, best=1)
    x[:, 1] = np.sign(x[:, 1])  # two values: such a coordinate has no square
    settings: dict[str, Any] = options if scales else {**options, "ridge": 0.05}
    policy = sw.USSLaplace(cascade, None if scales else sw.Polynomial(2), 2, **settings)

    def fitted(seen: int) -> tuple[list[Array], float, int]:
        if not scales:
            return [square(x)] * (k - 1), 0.05, 3
        parts, linear = standard(x, x[:seen] if seen else None, 2 if seen else 1)
        rows, ridge = scaled([parts])
        return rows * (k - 1), ridge, linear

    rows, ridge, linear = fitted(0)
    more = {"explore": 0.06, "seed": 0, "z": 0.5, **options}
    referee = Referee(
        rows, outputs, cascade.cumulative, ridge, transitive=True, linear=linear, **more
    )
    chance, stops, asked, fixed = exploring(policy.options.seed, n), [], 0, 0
    for t in range(n):
        rule_stop = referee.decide(t)
        stops.append(referee.last if chance[t] < referee.explore_rate() else rule_stop)
        decision = policy.decide(x[t])
        assert (decision.stop, decision.rule_stop) == (stops[t], rule_stop)
        assert decision.fixed_by_labels == (referee.fixed is not None)
        fixed += decision.fixed_by_labels
        expected = referee.learn(t, stops[t], rule_stop)
        request = policy.observe(x[t], outputs[t, : stops[t] + 1].tolist(), rule_stop=rule_stop)
        assert (request is None) == (expected is None), t
        if scales and t + 1 >= 8 and t & (t + 1) == 0:
            referee.relearn(*fitted(t + 1))
        if request is not None and expected is not None:
            assert request == pytest.approx(expected, rel=1e-12)
            asked += 1
            ran = tuple(outputs[t, : stops[t] + 1].tolist())
            answer = int(labels[t])
            policy.learn_label(label_of(x[t], ran, answer, rule_stop=rule_stop, request=request))
            referee.label(t, stops[t], rule_stop, int(labels[t]), expected)
    assert referee.closest > TIE
    assert (asked, policy.labels.requested, policy.labels.received) == (referee.requested,) * 3
    assert asked > 15
    assert fixed > 50 or "z" not in options
    assert len(set(stops)) > 1
