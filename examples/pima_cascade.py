"""Who has diabetes? A history, then a glucose test, then insulin: results come stage by stage.

    history   a logistic model of pregnancies, body mass, pedigree and age
    glucose   the same and plasma glucose, which is known once the test was made
    insulin   the same and serum insulin

A round starts with the four numbers of the history, by which it is decided whether to stop there or
to make the glucose test. Then glucose is known too, and whether the test agrees with the history:
six numbers decide whether to continue to insulin. `reveals=` says what is known when; nothing has
to be scaled. One policy never learns who was ill. The other asks who was, about a hundred times.

The models are trained on one half of the Pima table. The other half are the patients, ten times
over and each time in a new order. They stand in for ten times as many patients, so differences of a
percent or two mean nothing. Half of the records lack insulin; they get the median instead.

The example shows a hard case. Insulin is hardly better than glucose, and the rule finds out, since
the two rarely disagree. But where glucose overturns the history, it is wrong three times in ten.
Disagreement bounds what a test can correct. Here the bound is far off, and with expensive tests the
rule makes more tests than pay off. Labels show by how much: docs/examples.md has more numbers.
"""

import argparse
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import stopwise as sw
from stopwise.research import fit_logistic, load_table

ARMS = ["history", "glucose", "insulin"]
HISTORY = ["pregnancies", "bmi", "pedigree", "age"]
COSTS = {
    "cheap tests": (0.005, 0.04, 0.08),
    "expensive tests": (0.01, 0.1, 0.2),
}  # in units of an error
ASKS = {"Stopwise": 0, "with 100 labels": 100}  # how many labels each policy may ask for

Patient = dict[str, float]


class Finding(NamedTuple):
    """What a stage says, and the lab value that became known by it."""

    ill: bool
    value: float


# -- the patients and the stages -------------------------------------------------------------------


def patients(random: np.random.Generator) -> tuple[list[Patient], list[Patient]]:
    """Return the two halves of the table: to train on, and the arriving patients."""
    columns, X, y = load_table("pima")
    table = np.column_stack([X, y]).tolist()
    rows = [dict(zip((*columns, "ill"), values, strict=True)) for values in table]
    rows = [row for row in rows if row["bmi"] > 0 and row["glucose"] > 0]  # 0 means: not known
    rows = [rows[i] for i in random.permutation(len(rows))]
    training, arriving = rows[: len(rows) // 2], rows[len(rows) // 2 :]
    usual = float(np.median([row["insulin"] for row in training if row["insulin"] > 0]))
    for row in rows:
        row["insulin"] = row["insulin"] or usual
    return training, arriving


def numbers(patient: Patient, columns: Sequence[str]) -> list[float]:
    return [patient[column] for column in columns]


def train(training: Sequence[Patient], columns: Sequence[str]) -> Callable[[Patient], bool]:
    """Return a logistic classifier of these columns."""
    X = np.array([numbers(patient, columns) for patient in training])
    center, spread = X.mean(axis=0), X.std(axis=0)
    weights = fit_logistic((X - center) / spread, [patient["ill"] for patient in training])

    def is_ill(patient: Patient) -> bool:
        x = (np.array(numbers(patient, columns)) - center) / spread
        return bool(x @ weights[:-1] + weights[-1] > 0)

    return is_ill


def new_stages(training: Sequence[Patient]) -> list[sw.Stage]:
    """Return the three arms; glucose is revealed when the second has run, and not before."""
    with_glucose = train(training, [*HISTORY, "glucose"])

    def glucose_test(patient: Patient) -> Finding:
        return Finding(with_glucose(patient), patient["glucose"])

    return [
        sw.Stage(train(training, HISTORY)),
        sw.Stage(
            glucose_test,
            canonical=lambda finding: finding.ill,  # what is compared
            reveals=lambda finding: [finding.value],  # what is known from here on
        ),
        sw.Stage(train(training, [*HISTORY, "glucose", "insulin"])),
    ]


def new_policy(cascade: sw.Cascade, labels: int, seed: int) -> sw.USSLaplace:
    reveals = [0, 1]  # the glucose test reveals its value
    return sw.USSLaplace(
        cascade, context_dim=len(HISTORY), reveals=reveals, labels=labels, seed=seed
    )


def play(
    policy: sw.Policy, stages: Sequence[sw.Stage], cases: Sequence[Patient]
) -> NDArray[np.int64]:
    """Run patients one by one; whoever the policy asks about is examined. Return the stops."""
    runner = sw.Runner(policy, stages, context=lambda patient: numbers(patient, HISTORY))
    stops: list[int | None] = []
    for patient in cases:
        done = runner.run(patient)
        stops.append(done.stop)
        if done.wants_label:
            policy.label(done, patient["ill"] > 0)
    return np.array(stops)


# -- the comparison --------------------------------------------------------------------------------


def main(passes: int = 10, seed: int = 0) -> dict[str, dict[str, dict[str, float]]]:
    """Play both cost vectors; return error, cost, total loss and depth, by costs and policy."""
    random = np.random.default_rng(seed)
    training, arriving = patients(random)
    stages = new_stages(training)
    order = np.concatenate([random.permutation(len(arriving)) for _ in range(passes)])

    # the answers of every arm for every patient, to compare with; a clinic never sees this
    answers = np.array(
        [[stage.interpret(stage.call(p), last=True)[0] for stage in stages] for p in arriving]
    )
    wrong = answers != np.array([[patient["ill"]] for patient in arriving])

    results: dict[str, dict[str, dict[str, float]]] = {}
    for name, costs in COSTS.items():
        cascade = sw.Cascade(costs, names=ARMS)
        cases = [arriving[i] for i in order]
        stops = {who: play(new_policy(cascade, n, seed), stages, cases) for who, n in ASKS.items()}
        stops |= {f"always {arm}": np.full(len(order), i) for i, arm in enumerate(ARMS)}
        results[name] = {
            who: summary(stop, wrong[order, stop], cascade) for who, stop in stops.items()
        }
        print(f"{name}: {cascade}, {len(order):,} patients")
        print_table(results[name])
    overturned = (answers[:, :-1] != answers[:, 1:]).mean(axis=0)
    repaired = (wrong[:, 0] & ~wrong[:, 1]).mean()
    print(f"Glucose overturns the history in {overturned[0]:.1%} of cases; it is right in", end=" ")
    print(f"{repaired:.1%} of all. Insulin overturns glucose in {overturned[1]:.1%}.")
    return results


def summary(stops: NDArray[Any], wrong: NDArray[Any], cascade: sw.Cascade) -> dict[str, float]:
    error, cost = float(wrong.mean()), float(cascade.cumulative[stops].mean())
    shares = {arm: float((stops == i).mean()) for i, arm in enumerate(ARMS)}
    return {"error": error, "cost": cost, "total": error + cost, **shares}


def print_table(rows: dict[str, dict[str, float]]) -> None:
    print(f"  {'':<16}{'error':>8}{'cost':>8}{'total':>8}   stopped at {'/'.join(ARMS)}")
    for who, row in rows.items():
        shares = "  ".join(f"{row[arm]:4.0%}" for arm in ARMS)
        print(f"  {who:<16}{row['error']:>8.3f}{row['cost']:>8.3f}{row['total']:>8.3f}   {shares}")
    own, labelled, *fixed = (row["total"] for row in rows.values())
    print(f"  Stopwise against the best fixed depth: {own / min(fixed) - 1:+.1%}", end=", ")
    print(f"with labels {labelled / min(fixed) - 1:+.1%}\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--passes", type=int, default=10, help="times each patient comes (10)")
    parser.add_argument(
        "--seed", type=int, default=0, help="of the split, the order, the random choices (0)"
    )
    options = parser.parse_args()
    main(options.passes, options.seed)
