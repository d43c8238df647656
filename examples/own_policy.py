"""Your own policy: ε-greedy in 30 lines, compared with USS-PD in an experiment.

ε-greedy uses the paper's test with estimates of p_ij(x) instead of upper confidence bounds. Without
exploration it could stop too early permanently: it would never run the deeper arms again, and its
estimates would stay wrong. So with probability ε a round goes to the last arm.

All policies play the same rounds, in several runs. The picture shows the mean regret of each policy
with a 95 % confidence interval at every round.
"""

import argparse
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

import stopwise as sw
from stopwise.executors import make_executor
from stopwise.research import (
    EnvironmentSpec,
    ExperimentSpec,
    PolicySpec,
    RunStore,
    Trace,
    curves,
    finals,
    mean_interval,
    paired_difference,
    run_campaign,
)


class EpsilonGreedy(sw.Policy):
    """The test of USS-PD with estimates of p; with probability ε, the last arm."""

    name = "epsilon-greedy"
    features: Any  # returned by `sw.bind`

    def __init__(
        self, cascade: sw.Cascade, features: Any = None, context_dim: Any = None,
        *, epsilon: float = 0.05, rate: float = 10.0, seed: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(cascade)
        self.features = sw.bind(features or sw.Identity(), context_dim, cascade.n_arms)
        self.epsilon, self.rate, self.seed = epsilon, rate, seed
        self._theta = np.zeros((cascade.n_arms, cascade.n_arms, self.features.n_features))
        self._rounds = 0

    def decide(self, x: ArrayLike | None) -> sw.Decision:
        p = 1 / (1 + np.exp(-self._theta @ self.features.row(x)))
        worth_it = np.triu(p >= self.cascade.gaps, 1).any(axis=1)  # to continue from arm i
        rule_stop = int(np.argmin(worth_it))  # the first arm where it is not
        explores = np.random.default_rng([self.seed, self._rounds]).random() < self.epsilon
        return self.cascade.decision(self.cascade.n_arms - 1 if explores else rule_stop, rule_stop)

    def learn(self, observation: sw.Observation) -> None:
        phi, n = self.features.row(observation.context), observation.stop + 1
        theta = self._theta[:n, :n]  # of the pairs of arms that ran
        error = np.triu(observation.differ - 1 / (1 + np.exp(-theta @ phi)), 1)
        self._rounds += 1
        theta += self.rate / np.sqrt(self._rounds) * error[:, :, None] * phi

    def state(self) -> dict[str, NDArray[Any]]:
        return {"theta": self._theta.copy(), "rounds": np.array([self._rounds])}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        self._theta, self._rounds = state["theta"].copy(), int(state["rounds"][0])


sw.POLICIES[EpsilonGreedy.name] = EpsilonGreedy  # at the top level, for worker processes

# Three arms, contexts of two numbers: θ_ij of the pairs (0, 1), (0, 2), (1, 2), intercept first.
WORLD = EnvironmentSpec(
    "realizable",
    (0.05, 0.15, 0.2),
    {"theta": [[-3, 3, 0], [-2.6, 3, 1], [-3, 2, 1]], "degree": 1},
)
FEATURES = sw.Polynomial(degree=1).to_spec()
POLICIES = {
    "USS-PD": PolicySpec("uss-pd", features=FEATURES),
    "ε-greedy, ε = 0.05": PolicySpec("epsilon-greedy", {"epsilon": 0.05}, FEATURES),
    "ε-greedy, ε = 0.2": PolicySpec("epsilon-greedy", {"epsilon": 0.2}, FEATURES),
}
COLOURS = ("#0072B2", "#D55E00", "#009E73")  # distinguishable with colour blindness

Results = dict[str, dict[int, Trace]]


def play(rounds: int, runs: int, jobs: int) -> Results:
    """Return the runs of every policy by seed."""
    specs = {label: ExperimentSpec(WORLD, policy, rounds) for label, policy in POLICIES.items()}
    with (
        tempfile.TemporaryDirectory() as folder,
        RunStore(Path(folder, "runs.db")) as store,
        make_executor(jobs=jobs) as executor,
    ):
        run_campaign([(spec, range(runs)) for spec in specs.values()], store, executor)
        return {label: store.get(spec) for label, spec in specs.items()}


def print_table(results: Results) -> None:
    best = finals(results["USS-PD"])
    print(f"{'final regret':<22}{'mean':>8}{'95 % interval':>20}{'more than USS-PD':>26}")
    for label, traces in results.items():
        regrets = finals(traces)
        mean = mean_interval(list(regrets.values()))
        excess = paired_difference(regrets, best)
        interval = f"{mean.low:.1f} to {mean.high:.1f}"
        comparison = ""
        if regrets != best:
            comparison = f"{excess.value:.1f} ({excess.low:.1f} to {excess.high:.1f})"
        print(f"{label:<22}{mean.value:>8.1f}{interval:>20}{comparison:>26}")


def draw(results: Results, path: Path) -> None:
    """Draw the mean regret of every policy with its confidence band."""
    import matplotlib as mpl

    mpl.use("agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7.6, 4.2), layout="constrained")
    for colour, (label, traces) in zip(COLOURS, results.items(), strict=True):
        rounds, mean, low, high = curves(traces, "regret")
        axes.fill_between(rounds, low.clip(min=0), high, color=colour, alpha=0.18, linewidth=0)
        axes.plot(rounds, mean, color=colour, linewidth=2)
        axes.annotate(
            label, (rounds[-1], mean[-1]), (6, 0), textcoords="offset points",
            va="center", color=colour, annotation_clip=False,
        )  # fmt: skip
    axes.set_xlim(0, rounds[-1])
    axes.set_ylim(0, None)
    axes.set_xlabel("rounds")
    axes.set_ylabel("cumulative regret")
    axes.set_title(
        f"Mean regret of {len(traces)} runs, with 95 % confidence bands", loc="left", fontsize=11
    )
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=1500, help="rounds per run (default: 1500)")
    parser.add_argument("--runs", type=int, default=10, help="runs per policy (default: 10)")
    parser.add_argument("--jobs", type=int, default=1, help="number of threads (default: 1)")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("own_policy.png"),
        help="file for the picture; must not exist (default: own_policy.png)",
    )
    options = parser.parse_args()
    if options.out.exists():
        parser.error(f"--out: {options.out} exists; delete it or choose another file")
    results = play(options.rounds, options.runs, options.jobs)
    print_table(results)
    draw(results, options.out)
    print(f"The regret curves are in {options.out}")


if __name__ == "__main__":
    main()
