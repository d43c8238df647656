"""Regret of policies relative to uss-pd, in 20 realizable worlds.

In each world arms answer 0 or 1, and every pair's disagreement is exactly logistic in the features
of all policies. An arm disagrees with all later ones about equally often, and later arms disagree
less, as if they erred less. Contexts in which an earlier arm is better than the "optimal" one under
all labels are drawn again (`stopwise.research.environments.realizable`). Worlds are drawn at
random, from fixed seeds, and drawn again until

- arms with this disagreement exist in all contexts tried,
- four fifths of the contexts remain, so that the worlds are not restricted too much, and
- at least three stops are each best in 10 % of those or more.

The cost of each arm is a quantile of its disagreement with the arm before, so many contexts are
nearly undecided; a second table leaves out those with a margin below 0.03. Regret is the paper's
pseudo-regret in both forms: that of its caption, Σ |C_I − C_i*| + p, and that of its text,
Σ [C_I − C_i* + p], which is the regret if the label is the answer of the optimal arm. In the last
row, uss-laplace observes the outputs of every arm at no cost and does not explore (z = 0), which
separates the cost of exploration from that of learning.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.lock_in import DEFINITION, locked_in
from benchmarks.report import table
from benchmarks.timing import progress
from stopwise import POLICIES, Cascade, Polynomial, make
from stopwise.features import bind
from stopwise.policies.registry import takes
from stopwise.research import Realizable
from stopwise.research.environments.base import Batch
from stopwise.research.environments.realizable import cut_weights
from stopwise.research.experiments.simulate import measure
from stopwise.research.theory.dominance import can_be_optimal, first_candidates
from stopwise.research.theory.regret import pseudo_regret, signed_pseudo_regret

ROUNDS, SEEDS, WORLDS, PROBE = 5000, 10, 20, 4000
KEPT, STOPS, OFTEN = 0.8, 3, 0.1  # share of contexts that remain; arms best in this share
MARGINS = (0.0, 0.03)
OBSERVES_ALL = "uss-laplace, observes every arm"
BASELINE = "uss-pd"
# Label, name in the registry and parameters; unregistered names are skipped.
COMPARED: tuple[tuple[str, str, dict[str, Any]], ...] = (
    (BASELINE, "uss-pd", {}),
    ("uss-pd, transitive", "uss-pd", {"transitive": True}),
    ("uss-pd, σ = 0.5", "uss-pd", {"sigma": 0.5}),
    ("uss-pd, σ = 0.0125", "uss-pd", {"sigma": 0.0125}),
    ("uss-laplace", "uss-laplace", {}),
    ("uss-laplace, z = 1", "uss-laplace", {"z": 1.0}),
    ("uss-laplace, explores", "uss-laplace", {"explore": 0.06}),
    ("uss-pd-ridge", "uss-pd-ridge", {}),
    ("thompson", "thompson", {}),
    ("uss-ucb", "uss-ucb", {}),
    ("uss-ts", "uss-ts", {}),
    (OBSERVES_ALL, "uss-laplace", {"z": 0.0}),
)


def world(seed: int) -> Realizable:
    """Return a world with three to five arms, two context columns and features of degree one."""
    random = np.random.default_rng(seed)
    n_arms = 3 + seed % 3
    pairs = Cascade([0.1] * n_arms).pairs()
    x = np.concatenate(
        [random.uniform(-1, 1, (PROBE, 2)), [[a, b] for a in (-1, 1) for b in (-1, 1)]]
    )
    phi = np.column_stack([np.ones(len(x)), x])
    while True:
        shared = [random.uniform(-1.6, -0.6), *random.uniform(-1.5, 1.5, 2)]
        own = random.uniform(-0.35, 0.35, (n_arms, 3))
        own[:, 0] = -np.cumsum(random.uniform(0.2, 0.8, n_arms))
        weights = np.array([shared + own[i] + random.uniform(-0.05, 0.05, 3) for i, _ in pairs])
        p = 1 / (1 + np.exp(-phi @ weights.T))
        if not cut_weights(p, n_arms)[1].all():
            continue
        steps = [p[:, pairs.index((i, i + 1))] for i in range(n_arms - 1)]
        costs = [0.05, *(float(np.quantile(step, random.uniform(0.3, 0.8))) for step in steps)]
        cascade = Cascade(costs)
        best, good = _best(cascade, p)
        shares = np.bincount(best[good], minlength=n_arms) / max(int(good.sum()), 1)
        if good.mean() >= KEPT and (shares >= OFTEN).sum() >= STOPS:
            # φ of `Polynomial(1)` is (1, x)/√3
            return Realizable(cascade, list(weights * np.sqrt(3)), degree=1)


def _best(cascade: Cascade, p: Any) -> tuple[Any, Any]:
    """Return the first candidate of each context, and whether it can be optimal."""
    tables = np.zeros((len(p), cascade.n_arms, cascade.n_arms))
    for k, (i, j) in enumerate(cascade.pairs()):
        tables[:, i, j] = p[:, k]
    best = first_candidates(cascade, tables)
    return best, can_be_optimal(cascade, tables, best)


def run(quick: bool = False) -> tuple[str, dict[str, Any]]:
    """Run every policy in every world on the same rounds."""
    text, numbers = "", {}
    for margin in MARGINS:
        part, results = _table(quick, margin)
        text += part
        numbers[f"margin {margin:g}"] = results
    return text, numbers


def _table(quick: bool, margin: float) -> tuple[str, dict[str, Any]]:
    compared = [entry for entry in COMPARED if entry[1] in POLICIES]
    seeds = range(2 if quick else SEEDS)
    worlds = [world(k) for k in range(4 if quick else WORLDS)]
    regret = np.zeros((len(worlds), len(compared), len(seeds)))
    signed = np.zeros_like(regret)
    stuck = np.zeros(regret.shape, dtype=np.bool_)
    rows: list[tuple[Any, ...]] = []
    for w, env in enumerate(worlds):
        env.margin = margin
        progress(f"world {w + 1}")
        for s in seeds:
            batch = env.sample(ROUNDS, np.random.default_rng(1000 + s))
            for c, (label, name, parameters) in enumerate(compared):
                policy = _policy(env, name, parameters)
                stops = (
                    _observe_all(policy, batch)
                    if label == OBSERVES_ALL
                    else measure(policy, batch).stops
                )
                truth = (env.cascade, batch.disagreement, batch.optimal, stops)
                regret[w, c, s] = pseudo_regret(*truth).sum()
                signed[w, c, s] = signed_pseudo_regret(*truth).sum()
                stuck[w, c, s] = locked_in(stops, batch.optimal)
        means = regret[w].mean(axis=1).round(1).tolist()
        kept = _possible(env)
        rows.append((f"{w + 1}, {env.cascade.n_arms} arms", f"{kept:.0%}", *means))
    progress("")
    labels = [label for label, _, _ in compared]
    relative = [_relative(values) for values in (regret, signed)]
    summary = [
        (
            label,
            *(column[c] for columns in relative for column in columns),
            f"{int(stuck[:, c].sum())} of {stuck[:, c].size}",
        )
        for c, label in enumerate(labels)
    ]
    which = f", margin {margin:g}" if margin else ""
    text = table(
        f"Mean pseudo-regret after {ROUNDS:,} rounds{which}",
        ["world", "contexts kept", *labels],
        rows,
        "Contexts kept: those in which an arm can be optimal, before any margin.",
    )
    columns = ["ratio", "worst", "worlds with less"]
    text += table(
        f"Relative to {BASELINE} with default parameters{which}",
        ["policy", *columns, *(f"signed: {column}" for column in columns), "runs locked in"],
        summary,
        f"Ratios of pseudo-regret; the first is a geometric mean over worlds. {DEFINITION}",
    )
    return text, {"worlds": rows, "summary": summary}


def _relative(regret: Any) -> tuple[list[float], list[float], list[str]]:
    """Return each policy's mean and worst ratio to the first, and the number of worlds below 1."""
    ratios = regret.mean(axis=2) / regret[:, :1].mean(axis=2)
    less = (ratios < 1).sum(axis=0)
    return (
        np.exp(np.log(ratios).mean(axis=0)).tolist(),
        ratios.max(axis=0).tolist(),
        [f"{int(n)} of {len(ratios)}" for n in less],
    )


def _possible(env: Realizable) -> float:
    """Return the share of all contexts in which an arm can be optimal."""
    x = np.random.default_rng(0).uniform(-1, 1, (PROBE, env.context_dim))
    phi = bind(Polynomial(1), env.context_dim, env.cascade.n_arms).transform(x)
    _, good = _best(env.cascade, 1 / (1 + np.exp(-phi @ env.theta.T)))
    return float(good.mean())


def _observe_all(policy: Any, batch: Batch) -> Any:
    """Return the stops of a policy that learns from all outputs of every round."""
    stops = np.empty(len(batch.contexts), dtype=np.int64)
    assert batch.outputs is not None
    for t, (x, outputs) in enumerate(zip(batch.contexts, batch.outputs, strict=True)):
        stops[t] = policy.decide(x).stop
        policy.observe(x, outputs.tolist())
    return stops


def _policy(env: Realizable, name: str, parameters: dict[str, Any]) -> Any:
    if takes(POLICIES[name], "features"):
        parameters = {"features": Polynomial(1), "context_dim": env.context_dim, **parameters}
    return make(name, env.cascade, **parameters)
