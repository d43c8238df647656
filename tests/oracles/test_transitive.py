"""Transitive decisions equal the closure of exact solves, and take few passes over the history.

The oracle (`benchmarks.transitive`) solves the regressions of all pairs in every round in plain
numpy and closes the wins by Warshall's algorithm. Seeds are fixed.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stopwise as sw
from benchmarks.transitive import ARMS, Tally, draw_outputs, play, play_defaults, random_settings
from tests.helpers.labels import label_of
from tests.oracles.solve_every_round import Referee

# Seeds of runs of 150 rounds with nested chains, in which inner pairs are won through chains, too.
# An engine that refines such pairs takes 3,000 to 10,500 passes in one decision of each, and stops
# wrongly in laplace 4 to 7 and pd 6 and 7.
SEEDS = {
    ("laplace", 4): {None: [28, 97], 60.0: [28, 51]},
    ("laplace", 5): {None: [14, 19], 60.0: [13, 72]},
    ("laplace", 6): {None: [21, 29], 60.0: [26, 28, 41]},
    ("laplace", 7): {None: [7, 19], 60.0: [4, 34, 38]},
    ("pd", 4): {None: [34, 87], 60.0: [11, 87]},
    ("pd", 5): {None: [10, 19], 60.0: [5, 19]},
    ("pd", 6): {None: [4, 7], 60.0: [1, 4]},
    ("pd", 7): {None: [13, 51], 60.0: [24, 51]},
}
MAX_PASSES_PER_PAIR = 50


def assert_exact(tally: Tally) -> None:
    assert tally.wrong == 0
    assert tally.ties == 0
    assert tally.settled == 0
    assert tally.most_per_pair <= MAX_PASSES_PER_PAIR
    assert tally.chains > 0  # otherwise the closure was not tested


@pytest.mark.parametrize("half_life", [None, 60.0], ids=["all rounds count", "forgetting"])
@pytest.mark.parametrize(("kind", "n_arms"), SEEDS)
def test_stops_equal_the_closure_of_exact_solves(
    kind: str, n_arms: int, half_life: float | None
) -> None:
    tally = Tally()
    for seed in [*range(5), *SEEDS[kind, n_arms][half_life]]:
        tally.add(play(kind, n_arms, seed, half_life=half_life))
    assert_exact(tally)


@pytest.mark.parametrize("n_arms", ARMS)
def test_stops_equal_the_closure_of_exact_solves_with_labels(n_arms: int) -> None:
    """With labels, the test of a pair is gap > p̃·g̃; the referee also computes the gains."""
    rng = np.random.default_rng(n_arms)
    n, cascade = 80, sw.Cascade(rng.uniform(0.01, 0.2, n_arms))
    contexts = rng.uniform(-1, 1, (n, 2))
    outputs = draw_outputs(rng, contexts, np.linspace(0.4, 0.05, n_arms))
    settings: dict[str, Any] = {"ridge": 0.05, "labels": 0.5, "explore": 0.0}
    policy = sw.USSLaplace(cascade, sw.Polynomial(1), 2, **settings)
    phi = np.column_stack([np.ones(n), contexts]) / np.sqrt(3)
    referee = Referee(
        [phi] * (n_arms - 1), outputs, cascade.cumulative, 0.05, z=0.5, transitive=True,
        labels=0.5, linear=3,
    )  # fmt: skip
    labels = stops = 0
    for t, (x, y) in enumerate(zip(contexts, outputs, strict=True)):
        stop = referee.decide(t)
        assert policy.decide(x).stop == stop, t
        request = policy.observe(x, y[: stop + 1].tolist())
        expected = referee.learn(t, stop, stop)
        assert (request is None) == (expected is None)
        stops += stop < n_arms - 1
        if request is not None and expected is not None:
            ran = tuple(y[: stop + 1].tolist())
            policy.learn_label(label_of(x, ran, 0, request=request))
            referee.label(t, stop, stop, 0, expected)
            labels += 1
    assert referee.closest > 1e-9
    assert policy.effort["settled"] == 0
    assert labels > 5
    assert stops > 5


def test_stops_of_default_policies_equal_the_closure_of_exact_solves() -> None:
    """An engine that refines settled pairs takes 3,000 passes in one decision of each run."""
    tally = Tally()
    for seed in (10, 18, 26, 30, 74):
        tally.add(play_defaults(seed))
    assert_exact(tally)


def trained_on_separable_data(gap: float) -> sw.USSLaplace:
    rng = np.random.default_rng(0)
    contexts = rng.uniform(-1, 1, (300, 3))
    contexts[:, 2] = contexts[:, 0] + 1e-5 * contexts[:, 2]
    settings: dict[str, Any] = {"ridge": 1e-6, "forced_rounds": 0}
    policy = sw.USSLaplace(sw.Cascade([0.0, gap]), sw.Polynomial(2), 3, **settings)
    for x in contexts:
        policy.observe(x, [0, int(x[0] + x[1] > 0.3)])
    return policy


@pytest.mark.parametrize(
    ("excess", "settled", "stop"),
    [(-1e-4, 0, 1), (0.0, 1, None), (1e-4, 0, 0)],
    ids=["smaller gap", "tie", "larger gap"],
)
def test_only_a_tie_within_rounding_is_settled_without_a_certificate(
    excess: float, settled: int, stop: int | None, tmp_path: Path
) -> None:
    """On separable data, a tiny ridge leaves 1e-8 in the logit that no certificate covers."""
    x = [0.1, 0.2, 0.1]
    tie = trained_on_separable_data(0.3).decide(x).evidence[0].disagreement_ucb
    policy = trained_on_separable_data(tie + excess)
    decision = policy.decide(x)
    assert policy.effort["settled"] == settled
    assert stop is None or decision.stop == stop
    policy.save(tmp_path / "policy")
    loaded: Any = sw.load(tmp_path / "policy")
    assert loaded.effort == policy.effort


@pytest.mark.slow
def test_random_transitive_rounds_are_exact() -> None:
    """48,000 rounds; ``python -m benchmarks --only transitive`` compares 500,000."""
    tally = Tally()
    for kind in ("laplace", "pd"):
        for n_arms in ARMS:
            for seed in range(1000, 1040):
                tally.add(play(kind, n_arms, seed, **random_settings(seed)))
    assert tally.rounds == 48_000
    assert_exact(tally)
