"""Diabetes: a history, then a glucose test, then insulin, with results revealed stage by stage.

    history   a logistic model of pregnancies, body mass, pedigree and age
    glucose   the same with plasma glucose, which is known after the test
    insulin   the same with serum insulin

A round starts with the four numbers of the history, which decide whether to stop there or to run
the glucose test. The test adds the glucose value and whether it agrees with the history. These six
numbers decide whether to continue to insulin. `reveals=` declares what each stage reveals; scaling
is not necessary. One policy learns without labels. The other requests about 100.

The models are trained on half of the Pima table. The other half are the patients, in ten passes,
each in a new order. Because patients repeat, differences of a percent or two are not meaningful.
Half of the records lack insulin and get the median instead.

This is a difficult problem. Insulin is hardly better than glucose, which the policy detects because
the two rarely disagree. But where glucose changes the answer, it is wrong three times in ten.
Disagreement is an upper bound on the gain from a test. Here the bound is loose, and with expensive
tests the policy runs more tests than pay off. Labels measure the gain; see docs/examples.md.
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
LABELS = {"Stopwise": 0, "with 100 labels": 100}  # labels that each policy may request

Patient = dict[str, float]


class Finding(NamedTuple):
    """The answer of a stage and the lab value that it reveals."""

    ill: bool
    value: float


# -- the patients and the stages -------------------------------------------------------------------


def patients(random: np.random.Generator) -> tuple[list[Patient], list[Patient]]:
    """Return the two halves of the table: for training, and the arriving patients."""
    columns, X, y = load_table("pima")
    table = np.column_stack([X, y]).tolist()
    rows = [dict(zip((*columns, "ill"), values, strict=True)) for values in table]
    rows = [row for row in rows if row["bmi"] > 0 and row["glucose"] > 0]  # 0 is a missing value
    rows = [rows[i] for i in random.permutation(len(rows))]
    training, arriving = rows[: len(rows) // 2], rows[len(rows) // 2 :]
    median = float(np.median([row["insulin"] for row in training if row["insulin"] > 0]))
    for row in rows:
        row["insulin"] = row["insulin"] or median
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
    """Return the three arms; the second reveals glucose."""
    with_glucose = train(training, [*HISTORY, "glucose"])

    def glucose_test(patient: Patient) -> Finding:
        return Finding(with_glucose(patient), patient["glucose"])

    return [
        sw.Stage(train(training, HISTORY)),
        sw.Stage(
            glucose_test,
            canonical=lambda finding: finding.ill,  # compared with other arms
            reveals=lambda finding: [finding.value],  # added to the context
        ),
        sw.Stage(train(training, [*HISTORY, "glucose", "insulin"])),
    ]


def new_policy(cascade: sw.Cascade, labels: int, seed: int) -> sw.USSLaplace:
    reveals = [0, 1]  # the glucose test reveals one number
    return sw.USSLaplace(
        cascade, context_dim=len(HISTORY), reveals=reveals, labels=labels, seed=seed
    )


def play(
    policy: sw.Policy, stages: Sequence[sw.Stage], cases: Sequence[Patient]
) -> NDArray[np.int64]:
    """Run patients one at a time, providing the requested labels; return the stops."""
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

    # the answers of every arm for every patient, for comparison; not available in production
    answers = np.array(
        [[stage.interpret(stage.call(p), last=True)[0] for stage in stages] for p in arriving]
    )
    wrong = answers != np.array([[patient["ill"]] for patient in arriving])

    results: dict[str, dict[str, dict[str, float]]] = {}
    for name, costs in COSTS.items():
        cascade = sw.Cascade(costs, names=ARMS)
        cases = [arriving[i] for i in order]
        stops = {
            policy: play(new_policy(cascade, n, seed), stages, cases)
            for policy, n in LABELS.items()
        }
        stops |= {f"always {arm}": np.full(len(order), i) for i, arm in enumerate(ARMS)}
        results[name] = {
            policy: summary(stop, wrong[order, stop], cascade) for policy, stop in stops.items()
        }
        print(f"{name}: {cascade}, {len(order):,} patients")
        print_table(results[name])
    changed = (answers[:, :-1] != answers[:, 1:]).mean(axis=0)
    corrected = (wrong[:, 0] & ~wrong[:, 1]).mean()
    print(
        f"Glucose changes the answer of the history in {changed[0]:.1%} of cases and corrects it "
        f"in {corrected:.1%}. Insulin changes that of glucose in {changed[1]:.1%}."
    )
    return results


def summary(stops: NDArray[Any], wrong: NDArray[Any], cascade: sw.Cascade) -> dict[str, float]:
    error, cost = float(wrong.mean()), float(cascade.cumulative[stops].mean())
    shares = {arm: float((stops == i).mean()) for i, arm in enumerate(ARMS)}
    return {"error": error, "cost": cost, "total": error + cost, **shares}


def print_table(rows: dict[str, dict[str, float]]) -> None:
    print(f"  {'':<16}{'error':>8}{'cost':>8}{'total':>8}   stopped at {'/'.join(ARMS)}")
    for policy, row in rows.items():
        shares = "  ".join(f"{row[arm]:4.0%}" for arm in ARMS)
        print(
            f"  {policy:<16}{row['error']:>8.3f}{row['cost']:>8.3f}{row['total']:>8.3f}   {shares}"
        )
    unlabelled, labelled, *fixed = (row["total"] for row in rows.values())
    print(
        f"  Stopwise compared with the best fixed depth: {unlabelled / min(fixed) - 1:+.1%}, "
        f"with labels {labelled / min(fixed) - 1:+.1%}\n"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--passes", type=int, default=10, help="passes over the patients (default: 10)"
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        help="seed of the split, the order and the policies (default: 0)",
    )
    options = parser.parse_args()
    main(options.passes, options.seed)
