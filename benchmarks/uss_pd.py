"""Stopwise's USS-PD in the speed comparisons: Python API round by round, and compiled loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.base import Peer
from benchmarks.timing import cpu_seconds
from benchmarks.workload import Workload, make

SETTINGS: dict[str, Any] = {"delta": 0.05, "sigma": 0.1, "kappa": 0.25, "ridge": 1e-3}
"""Parameters of both Stopwise and the reference."""

FORCED_ROUNDS = 50


def installed() -> bool:
    """Return whether Stopwise is installed."""
    try:
        from stopwise import USSPD  # noqa: F401
    except ImportError:
        return False
    return True


def policy(costs: NDArray[np.float64], n_features: int, forced_rounds: int = FORCED_ROUNDS) -> Any:
    """Return a new USS-PD for the cascade with the features Φ(x) = x/√d."""
    import stopwise as sw

    return sw.USSPD(
        sw.Cascade(costs=costs.tolist()),
        features=sw.Identity(),
        context_dim=n_features,
        forced_rounds=forced_rounds,
        **SETTINGS,
    )


def check_features(n_arms: int, n_features: int) -> None:
    """Check that Stopwise and the reference use the same features."""
    workload = make(300, n_arms, n_features)
    used = policy(workload.costs, n_features).features.transform(workload.contexts)
    if not np.allclose(used, workload.features, rtol=0.0, atol=1e-14):
        raise RuntimeError("Stopwise's features are not x/√d: the reference solves another problem")


def run_compiled(
    workload: Workload, forced_rounds: int = FORCED_ROUNDS
) -> tuple[float, NDArray[np.int64]]:
    """Run a workload in the compiled loop; return CPU seconds per round and the stops."""
    fresh = policy(workload.costs, workload.n_features, forced_rounds)
    stops: list[NDArray[np.int64]] = []
    spent = cpu_seconds(lambda: stops.append(fresh.run(workload.contexts, workload.outputs)))
    return spent / workload.n_rounds, np.asarray(stops[0])


def stops_by_python(workload: Workload) -> NDArray[np.int64]:
    """Return the stops of the Python API, to compare them with those of the compiled loop."""
    learner = StopwisePython(workload.costs, workload.n_features)
    rounds = zip(workload.contexts, workload.outputs.tolist(), strict=True)
    return np.array([learner.round(x, answers) for x, answers in rounds])


class StopwisePython(Peer):
    """``decide`` and ``observe``, called from Python once per round."""

    name = "Stopwise, Python API"

    def __init__(
        self,
        costs: NDArray[np.float64],
        n_features: int,
        forced_rounds: int = FORCED_ROUNDS,
    ) -> None:
        super().__init__(costs, n_features)
        self.policy = policy(costs, n_features, forced_rounds)

    def round(self, x: NDArray[np.float64], outputs: Sequence[int]) -> int:
        stop: int = self.policy.decide(x).stop
        self.policy.observe(x, outputs[: stop + 1])
        return stop
