"""Loss and lock-in of each σ, simulated without labels.

For every instance of the paper, run the forced rounds, fit the disagreement of the pairs, and
simulate with the fitted models as the truth over the real contexts. The loss is the paper's
pseudo-regret, which needs no labels. Contexts in which the fitted models leave no arm that can be
optimal are left out, and the others repeated. One more world has two arms and one constant context,
with p = 0.35 and a gap of 0.30, so that arm 2 is slightly better.

The mean loss alone hides the risk of a σ: a locked-in run keeps losing after the 5,000 rounds.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.lock_in import DEFINITION, locked_in
from benchmarks.report import table
from benchmarks.timing import progress
from stopwise import USSPD, Cascade
from stopwise.research.experiments.runs import build_environment
from stopwise.research.experiments.spec import EnvironmentSpec
from stopwise.research.paper import choices, instances
from stopwise.research.paper.settings import NEAR_GREEDY, forced_rounds
from stopwise.research.theory.dominance import can_be_optimal, first_candidates
from stopwise.research.theory.regret import pseudo_regret, signed_pseudo_regret

NO_BONUS = 1e-9  # printed as 0; the policy requires σ > 0, and this bonus is negligible
SIGMAS = (0.5, 0.2, 0.1, 0.05, 0.025, 0.0125, 0.00625, NO_BONUS)
FIRST_SEED = 10_000  # distinct from the seeds of the reproduction
PILOTS, CONSTANT_RUNS = 8, 300
CONSTANT_P, CONSTANT_GAP, CONSTANT_FORCED = 0.35, 0.30, 10

# For each σ: loss, signed loss, and whether the run is locked in.
Runs = list[tuple[float, float, bool]]


def run(quick: bool = False) -> tuple[str, dict[str, Any]]:
    """Simulate every σ on every instance."""
    family = {
        **{f"synthetic, {k}": instances.synthetic(c) for k, c in choices.SYNTHETIC_COSTS.items()},
        **{f"PIMA, {k}": instances.pima(c) for k, c in choices.REAL_COSTS.items()},
        **{f"Heart, {k}": instances.heart(c) for k, c in choices.REAL_COSTS.items()},
    }
    pilots = range(FIRST_SEED, FIRST_SEED + (2 if quick else PILOTS))
    constant = range(20 if quick else CONSTANT_RUNS)
    relative: list[np.ndarray] = []
    losses: list[tuple[Any, ...]] = []
    signed_losses: list[tuple[Any, ...]] = []
    locked: list[tuple[Any, ...]] = []
    kept: dict[str, float] = {}
    for name in (*family, "constant context"):
        progress(name)
        if name in family:
            pilots_of = [_pilot(family[name], seed) for seed in pilots]
            runs = [runs for runs, _ in pilots_of]
            kept[name] = float(np.mean([share for _, share in pilots_of]))
        else:
            runs = [_constant(seed) for seed in constant]
        loss, signed, stuck = np.transpose(runs, (2, 0, 1))
        relative.append(loss.mean(axis=0) / loss.mean(axis=0).min())
        losses.append((name, *relative[-1].round(2)))
        signed_losses.append((name, *signed.mean(axis=0).round(1)))
        locked.append((name, *(f"{int(n)} of {len(stuck)}" for n in stuck.sum(axis=0))))
    progress("")
    losses.append(("mean of the paper's instances", *np.mean(relative[:-1], axis=0).round(3)))
    columns = ["instance", *(f"σ = {0 if s == NO_BONUS else s:g}" for s in SIGMAS)]
    shares = ", ".join(f"{name} {share:.0%}" for name, share in kept.items())
    text = table(
        f"Simulated loss of each σ in {choices.ROUNDS:,} rounds, relative to the instance's best",
        columns,
        losses,
        f"1 is the best σ of the row. Contexts in which an arm can be optimal: {shares}.",
    )
    text += table(
        "Signed pseudo-regret, net of the cost saved by early stops",
        columns,
        signed_losses,
    )
    text += table("Runs locked in at the end", columns, locked, DEFINITION)
    return text, {
        "sigmas": SIGMAS,
        "losses": losses,
        "signed": signed_losses,
        "locked_in": locked,
        "kept": kept,
    }


def _pilot(environment: EnvironmentSpec, seed: int) -> tuple[Runs, float]:
    """Run every σ with the models fitted to one pilot as the truth.

    Also return the share of contexts in which an arm can be optimal.
    """
    random = np.random.default_rng(seed)
    cascade: Cascade = build_environment(environment).cascade
    features = NEAR_GREEDY.features(environment)
    forced = forced_rounds(features, environment)
    batch = build_environment(environment).sample(choices.ROUNDS, random)
    assert batch.outputs is not None
    settings: dict[str, Any] = {
        "features": features,
        "context_dim": batch.contexts.shape[1],
        "forced_rounds": forced,
    }
    pilot = USSPD(cascade, **settings)
    forced_rows = random.permutation(choices.ROUNDS)[:forced]
    pilot.run(batch.contexts[forced_rows], batch.outputs[forced_rows])
    phi = pilot.features.transform(batch.contexts)
    p = np.stack([1 / (1 + np.exp(-phi @ pilot.theta(i, j))) for i, j in cascade.pairs()], axis=1)
    truth = _tables(cascade, p)
    possible = can_be_optimal(cascade, truth, first_candidates(cascade, truth))
    rows = np.resize(np.flatnonzero(possible), choices.ROUNDS)
    runs = _play(cascade, batch.contexts[rows], p[rows], settings, random)
    return runs, float(possible.mean())


def _constant(seed: int) -> Runs:
    """Run every σ on two arms that disagree with probability 0.35; the second costs 0.30 more."""
    p = np.full((choices.ROUNDS, 1), CONSTANT_P)
    settings: dict[str, Any] = {"context_dim": 1, "forced_rounds": CONSTANT_FORCED}
    cascade = Cascade([0.1, CONSTANT_GAP])
    return _play(cascade, np.ones_like(p), p, settings, np.random.default_rng(seed))


def _play(
    cascade: Cascade,
    contexts: np.ndarray,
    p: np.ndarray,
    settings: dict[str, Any],
    random: np.random.Generator,
) -> Runs:
    truth = _tables(cascade, p)
    best = first_candidates(cascade, truth)
    differ = (random.random(p.shape) < p).astype(np.uint8)
    runs: Runs = []
    for sigma in SIGMAS:
        stops = USSPD(cascade, sigma=sigma, **settings).run(contexts, differ=differ)
        loss = float(pseudo_regret(cascade, truth, best, stops).sum())
        signed = float(signed_pseudo_regret(cascade, truth, best, stops).sum())
        runs.append((loss, signed, locked_in(stops, best)))
    return runs


def _tables(cascade: Cascade, p: np.ndarray) -> np.ndarray:
    """Return p_ij of every context as a matrix."""
    tables = np.zeros((len(p), cascade.n_arms, cascade.n_arms))
    for k, (i, j) in enumerate(cascade.pairs()):
        tables[:, i, j] = p[:, k]
    return tables
