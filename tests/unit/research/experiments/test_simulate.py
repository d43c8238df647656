"""Simulations: stops, costs and regret of policies in environments."""

from typing import Any

import msgspec
import numpy as np
import pytest

import stopwise as sw
from stopwise import research
from stopwise.research.experiments.simulate import Run, measure

CASCADE = sw.Cascade([0.05, 0.1, 0.1])
ARMS = research.LogisticArms(CASCADE, [[1, 0, -1], [3, 2, 0], [6, 6, 0]], [9, 9, 0])


class Pairs(research.Realizable):
    """Returns the disagreement of pairs instead of outputs."""

    def sample(self, rounds: int, random: np.random.Generator) -> research.Batch:
        batch = super().sample(rounds, random)
        y = batch.outputs
        assert y is not None
        differ = np.stack([y[:, i] != y[:, j] for i, j in self.cascade.pairs()], axis=1)
        return msgspec.structs.replace(batch, outputs=None, differ=differ.astype(np.uint8))


PAIRS = Pairs(CASCADE, {(0, 1): [-3.0, 2.0], (0, 2): [-2.5, 2.0], (1, 2): [-3.5, 1.5]})
N = 1500  # enough for several reports of progress
WORLDS = {"outputs": ARMS, "disagreements": PAIRS}

in_both = pytest.mark.parametrize("world", WORLDS)


@in_both
@pytest.mark.parametrize("name", [*sw.POLICIES, *research.COMPARATORS])
def test_every_policy_plays_every_world_with_the_required_truth(name: str, world: str) -> None:
    spec: Any = research.PolicySpec(name)
    policy, twin = (spec.build(CASCADE, context_dim=2, seed=0) for _ in range(2))
    if (name, world) == ("supervised", "disagreements"):
        with pytest.raises(sw.errors.StopwiseError, match="labels"):
            sw.simulate(policy, WORLDS[world], rounds=N)
        return
    progress: list[tuple[int, int]] = []
    run = sw.simulate(
        policy, WORLDS[world], N, seed=5, progress=lambda _, *done: progress.append(done)
    )
    measured = measure(twin, WORLDS[world].sample(N, np.random.default_rng(5)))
    for part in Run.__struct_fields__:
        np.testing.assert_array_equal(getattr(run, part), getattr(measured, part), err_msg=part)
    for part, array in getattr(policy, "state", dict)().items():
        np.testing.assert_array_equal(array, twin.state()[part], err_msg=part)
    assert run.stops.shape == run.regret.shape == (N,)
    np.testing.assert_array_equal(run.cost, CASCADE.cumulative[run.stops])
    assert (np.diff(run.regret, prepend=0.0) >= 0).all()
    assert (run.total_cost is None) == (world == "disagreements")
    assert getattr(policy, "rounds", N) == N  # the oracle and the clairvoyant learn nothing
    assert progress[-1] == (N, N)
    assert [done for done, _ in progress] == sorted({done for done, _ in progress})


@in_both
def test_oracle_has_no_regret(world: str) -> None:
    run = sw.simulate(research.Oracle(CASCADE), WORLDS[world], rounds=300)
    assert (run.regret == 0).all()
    assert len(set(run.stops.tolist())) > 1


def test_regret_and_cost_match_the_error_rates() -> None:
    batch = ARMS.sample(200, np.random.default_rng(9))
    assert batch.error_rates is not None
    run = sw.simulate(sw.FixedDepth(CASCADE, depth=1), ARMS, rounds=200, seed=9)
    losses = batch.error_rates + CASCADE.cumulative
    assert run.total_cost is not None
    np.testing.assert_allclose(run.total_cost, np.cumsum(losses[:, 1]))
    np.testing.assert_allclose(run.regret, np.cumsum(losses[:, 1] - losses.min(axis=1)))


@in_both
@pytest.mark.parametrize("name", ["uss-ucb", "random-depth"])
def test_undominated_regret_is_from_rounds_without_weak_dominance(name: str, world: str) -> None:
    batch = WORLDS[world].sample(400, np.random.default_rng(8))
    run = measure(sw.make(name, CASCADE), batch)
    lost = np.diff(run.regret, prepend=0.0)
    total = 0.0
    for t, best in enumerate(batch.optimal.tolist()):
        deeper = range(best + 1, 3)
        if any(CASCADE.gaps[best, j] <= batch.disagreement[t, best, j] for j in deeper):
            total += float(lost[t])
        assert run.undominated[t] == pytest.approx(total, abs=1e-9)
    if world == "outputs":
        assert 0.0 < total < run.regret[-1]
    else:  # the optimal arm is that of Lemma 2, so weak dominance holds by definition
        assert total == 0.0 < run.regret[-1]


def test_different_cascades_are_rejected_with_the_difference() -> None:
    policy = sw.FixedDepth(sw.Cascade([0.1, 0.2]))
    with pytest.raises(sw.errors.InvalidOutputsError, match="10 rounds by 2 arms"):
        measure(policy, ARMS.sample(10, np.random.default_rng(0)))
    assert policy.rounds == 0
    with pytest.raises(sw.errors.CascadeMismatchError, match=r"cost of 'arm 2': 0\.25 vs 0\.1"):
        sw.simulate(sw.FixedDepth(sw.Cascade([0.05, 0.1, 0.25])), ARMS, rounds=10)


@pytest.mark.parametrize("rounds", [0, 2.5, "10"])
def test_rounds_must_be_a_positive_integer(rounds: Any) -> None:
    with pytest.raises(sw.errors.InvalidParameterError, match="rounds must be an integer >= 1"):
        sw.simulate(sw.FixedDepth(CASCADE), ARMS, rounds=rounds)
