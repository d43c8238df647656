"""Overhead and loss of `CascadeClassifier`: `python -m benchmarks.sklearn_predict`.

Prints the CPU time of `predict` relative to that of its stages on the rows that reach them, and the
total losses over ten splits of the digits.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import statistics
import time
from collections.abc import Callable

import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

from stopwise.sklearn import CascadeClassifier

COSTS = [0.005, 0.04]
ROWS, REPEATS, SPLITS = 10_000, 15, 10


def stages(trees: int = 100) -> list:
    return [LogisticRegression(max_iter=1000), ExtraTreesClassifier(trees, random_state=0)]


def cpu_seconds(call: Callable[[], object]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def ratios(trees: int) -> None:
    X, y = load_digits(return_X_y=True)
    X = X / 16
    cascade = CascadeClassifier(stages(trees), COSTS, cv=2).fit(X, y)
    random = np.random.default_rng(0)
    cases = X[random.integers(0, len(X), ROWS)] + random.normal(0, 0.1, (ROWS, X.shape[1]))
    cascade.predict(cases)
    reach = [cases[cascade.depths_ >= arm] for arm in range(len(COSTS))]
    print(f"{ROWS:,} rows, of which {len(reach[1]):,} reach the second stage, {trees} trees")

    def alone(method: str) -> None:
        for stage, rows in zip(cascade.estimators_, reach, strict=True):
            getattr(stage, method)(rows)

    calls = {
        "predict of the cascade": lambda: cascade.predict(cases),
        "predict of the stages": lambda: alone("predict"),
        "predict_proba of the stages": lambda: alone("predict_proba"),
    }
    times_of = {name: [] for name in calls}
    for _ in range(REPEATS):  # interleaved, so that noise affects all
        for name, call in calls.items():
            times_of[name].append(cpu_seconds(call))
    total = times_of.pop("predict of the cascade")
    print(f"predict of the cascade: median {1e3 * statistics.median(total):.1f} ms")
    for name, times in times_of.items():
        ratio = statistics.median(a / b for a, b in zip(total, times, strict=True))
        print(f"{name}: median {1e3 * statistics.median(times):.1f} ms, ratio {ratio:.2f}")


def losses() -> None:
    X, y = load_digits(return_X_y=True)
    results = []
    for seed in range(SPLITS):
        A, B, a, b = train_test_split(X / 16, y, test_size=0.4, random_state=seed, stratify=y)
        cascade = CascadeClassifier(stages(), COSTS).fit(A, a)
        loss = np.mean(cascade.predict(B) != b) + cascade.cost_
        each = zip(cascade.estimators_, COSTS, strict=True)
        results.append([loss, *(np.mean(stage.predict(B) != b) + cost for stage, cost in each)])
    mean = np.mean(results, axis=0)
    print(
        f"digits, {SPLITS} splits: total loss {mean[0]:.4f}; single estimators", mean[1:].round(4)
    )
    best = int((np.array(results).argmin(axis=1) == 0).sum())
    print(f"lower than every single estimator in {best} splits")


if __name__ == "__main__":
    ratios(100)
    ratios(500)
    losses()
