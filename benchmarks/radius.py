"""Which σ to recommend, found without a label: how the reproduction's practical setting was chosen.

For every instance of the paper: play the forced rounds, fit the pairs' disagreement, and take the
fitted models for the truth. In that made-up world, over the real contexts, the loss of any σ can be
simulated (it is the paper's pseudo-regret, which needs no labels). Recommended is the σ that loses
least to the best σ of each instance.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.report import table
from benchmarks.timing import progress
from stopwise import USSPD, Cascade
from stopwise.experiments.runs import built
from stopwise.experiments.spec import EnvironmentSpec
from stopwise.paper import choices, instances
from stopwise.paper.settings import PRACTICAL, forced_rounds
from stopwise.theory.dominance import first_candidates
from stopwise.theory.regret import pseudo_regret

SIGMAS = (0.2, 0.1, 0.05, 0.025, 0.0125, 0.00625)
FIRST_SEED = 10_000  # far from the reproduction's own
PILOTS = 8


def run(quick: bool = False) -> tuple[str, dict[str, Any]]:
    """Simulate every σ on every instance."""
    family = {
        **{f"synthetic, {k}": instances.synthetic(c) for k, c in choices.SYNTHETIC_COSTS.items()},
        **{f"PIMA, {k}": instances.pima(c) for k, c in choices.REAL_COSTS.items()},
        **{f"Heart, {k}": instances.heart(c) for k, c in choices.REAL_COSTS.items()},
    }
    relative: list[np.ndarray] = []
    rows: list[tuple[Any, ...]] = []
    for name, environment in family.items():
        progress(name)
        pilots = range(FIRST_SEED, FIRST_SEED + (2 if quick else PILOTS))
        lost = np.mean([_losses(environment, seed) for seed in pilots], axis=0)
        relative.append(lost / lost.min())
        rows.append((name, *relative[-1].round(2)))
    progress("")
    rows.append(("mean", *np.mean(relative, axis=0).round(3)))
    rows.append(("worst", *np.max(relative, axis=0).round(3)))
    text = table(
        "Loss of each σ beside the best for that instance, simulated without labels",
        ["instance", *(f"σ = {sigma:g}" for sigma in SIGMAS)],
        rows,
        "1 is the best σ of the row. The practical setting has the σ with the least mean.",
    )
    return text, {"sigmas": SIGMAS, "rows": rows}


def _losses(environment: EnvironmentSpec, seed: int) -> list[float]:
    """Return the simulated loss of every σ after one pilot."""
    random = np.random.default_rng(seed)
    cascade: Cascade = built(environment).cascade
    features = PRACTICAL.features(environment)
    forced = forced_rounds(features, environment)
    batch = built(environment).sample(choices.ROUNDS, random)
    assert batch.outputs is not None
    settings: dict[str, Any] = {"context_dim": batch.contexts.shape[1], "forced_rounds": forced}
    pilot = USSPD(cascade, features, **settings)
    seen = random.permutation(choices.ROUNDS)[:forced]
    pilot.run(batch.contexts[seen], batch.outputs[seen])
    phi = pilot.features.transform(batch.contexts)
    p = np.stack([1 / (1 + np.exp(-phi @ pilot.theta(i, j))) for i, j in cascade.pairs()], axis=1)
    truth = np.zeros((len(p), cascade.n_arms, cascade.n_arms))
    for k, (i, j) in enumerate(cascade.pairs()):
        truth[:, i, j] = p[:, k]
    best = first_candidates(cascade, truth)
    differ = (random.random(p.shape) < p).astype(np.uint8)
    losses: list[float] = []
    for sigma in SIGMAS:
        policy = USSPD(cascade, features, sigma=sigma, **settings)
        stops = policy.run_disagreements(batch.contexts, differ)
        losses.append(float(pseudo_regret(cascade, truth, best, stops).sum()))
    return losses
