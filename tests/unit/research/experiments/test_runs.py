"""Execution of runs: traces determined by spec and seed."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from msgspec.structs import asdict, replace

import stopwise as sw
from stopwise.research.experiments import runs
from stopwise.research.experiments.runs import build_environment, draw_batch, execute
from stopwise.research.experiments.spec import EnvironmentSpec, ExperimentSpec, PolicySpec
from tests.research.campaigns import PAIR, WHERE


def spec(policy: str = "uss-pd", environment: EnvironmentSpec = WHERE) -> ExperimentSpec:
    return ExperimentSpec(environment, PolicySpec(policy), rounds=300, checkpoints=7)


@pytest.mark.parametrize("policy", sorted(sw.POLICIES))
def test_trace_matches_a_simulation(policy: str) -> None:
    environment = WHERE.build()
    played = spec(policy).policy.build(environment.cascade, environment.context_dim, seed=5)
    # SeedSequence pads with zeros, so the stream of [5, 0] is that of 5
    run = sw.simulate(played, environment, rounds=300, seed=5)
    trace = execute(spec(policy), seed=5)
    at = trace.rounds - 1
    assert (trace.key, trace.seed) == (spec(policy).key, 5)
    assert trace.rounds.tolist() == [42, 85, 128, 171, 214, 257, 300]
    assert np.array_equal(trace.regret, run.regret[at])
    assert run.total_cost is not None
    assert trace.total_cost is not None
    assert np.array_equal(trace.total_cost, run.total_cost[at])
    assert np.array_equal(trace.undominated, run.undominated[at])
    assert trace.depths.tolist() == [int((run.stops == i).sum()) for i in range(3)]


def test_environment_without_error_rates_has_no_total_cost() -> None:
    trace = execute(spec(environment=PAIR), seed=0)
    assert trace.total_cost is None
    assert trace.depths.sum() == 300


@pytest.mark.parametrize("policy", ["uss-pd", "thompson", "uss-ts", "random-depth"])
def test_runs_are_reproducible_in_any_order(policy: str) -> None:
    first = {seed: execute(spec(policy), seed) for seed in (0, 1, 2)}
    build_environment.cache_clear()
    again = {seed: execute(spec(policy), seed) for seed in (2, 0, 1)}
    assert all(first[seed].agrees(again[seed]) for seed in first)
    assert not np.array_equal(first[0].regret, first[1].regret)
    assert build_environment.cache_info().misses == 1


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("seed", lambda _: 1),
        ("key", lambda _: "0" * 16),
        ("regret", lambda regret: np.nextafter(regret, np.inf)),
        ("total_cost", lambda _: None),
        ("total_cost", lambda cost: -cost),
        ("undominated", lambda undominated: undominated + 1.0),
        ("depths", lambda depths: depths[::-1]),
        ("rounds", lambda rounds: rounds[:-1]),
        ("regret", lambda regret: regret.astype(np.float32)),
    ],
)
def test_traces_that_differ_in_a_field_do_not_agree(
    field: str, change: Callable[[Any], Any]
) -> None:
    trace = execute(spec(), seed=0)
    assert trace.total_cost is not None
    changed: dict[str, Any] = {field: change(getattr(trace, field))}
    assert not trace.agrees(replace(trace, **changed))


def test_traces_agree_only_if_bits_are_equal() -> None:
    trace = execute(spec(), seed=0)
    assert trace.agrees(replace(trace, regret=trace.regret.copy()))
    zero = replace(trace, regret=np.zeros(7))
    assert not zero.agrees(replace(zero, regret=-np.zeros(7)))
    nan = replace(trace, regret=np.full(7, np.nan))
    assert nan.agrees(replace(nan, regret=nan.regret.copy()))


@pytest.mark.parametrize("rounds", [100, runs.CACHED_ROUNDS + 1])
def test_batches_of_short_runs_are_cached_and_all_are_read_only(rounds: int) -> None:
    batch, again = (draw_batch(WHERE, rounds, 3) for _ in range(2))
    assert (batch is again) == (rounds <= runs.CACHED_ROUNDS)
    np.testing.assert_array_equal(batch.contexts, again.contexts)
    arrays = [value for value in asdict(batch).values() if value is not None]
    assert len(arrays) == 7
    for array in arrays:  # policies share them
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
