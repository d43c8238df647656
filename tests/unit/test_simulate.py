"""One run: the policy plays, the environment knows what it lost."""

from typing import Any

import numpy as np
import pytest

import stopwise as sw
from stopwise.experiments.simulate import Run, measure

CASCADE = sw.Cascade([0.05, 0.15, 0.2])
ARMS = sw.LogisticArms(CASCADE, [[1, 0, -1], [3, 2, 0], [6, 6, 0]], [9, 9, 0])
PAIRS = sw.Realizable(CASCADE, {(0, 1): [-2.0, 2.0], (0, 2): [-1.0, 3.0], (1, 2): [-4.0, 1.0]})
WORLDS = {"outputs": ARMS, "disagreements": PAIRS}


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("name", sw.POLICIES)
def test_every_policy_plays_every_world_it_can(name: str, world: str) -> None:
    policy = sw.make(name, CASCADE, context_dim=2)
    if (name, world) == ("supervised", "disagreements"):
        with pytest.raises(sw.StopwiseError, match="labels"):
            sw.simulate(policy, WORLDS[world], rounds=100)
        return
    run = sw.simulate(policy, WORLDS[world], rounds=100, seed=5)
    again = sw.simulate(sw.make(name, CASCADE, context_dim=2), WORLDS[world], rounds=100, seed=5)
    np.testing.assert_array_equal(run.stops, again.stops)
    np.testing.assert_array_equal(run.regret, again.regret)
    assert run.stops.shape == run.cost.shape == run.regret.shape == (100,)
    np.testing.assert_array_equal(run.cost, CASCADE.cumulative[run.stops])
    assert (np.diff(run.regret, prepend=0.0) >= 0).all()
    assert (run.total_cost is None) == (world == "disagreements")
    assert (np.diff(run.undominated, prepend=0.0) >= 0).all()
    assert (run.undominated <= run.regret).all()
    assert policy.rounds == 100


@pytest.mark.parametrize("world", WORLDS)
def test_the_oracle_has_no_regret(world: str) -> None:
    run = sw.simulate(sw.Oracle(CASCADE), WORLDS[world], rounds=300)
    assert (run.regret == 0).all()
    assert len(set(run.stops.tolist())) > 1


def test_the_clairvoyant_only_ever_goes_deeper_than_the_optimum() -> None:
    told = sw.simulate(sw.Clairvoyant(CASCADE), ARMS, rounds=500, seed=3)
    best = sw.simulate(sw.Oracle(CASCADE), ARMS, rounds=500, seed=3)
    # p_ij bounds γ_i − γ_j: an arm it stops at beats every deeper one
    assert (told.stops >= best.stops).all()


def test_regret_and_cost_are_those_of_the_truth() -> None:
    batch = ARMS.sample(200, np.random.default_rng(9))
    assert batch.error_rates is not None
    run = sw.simulate(sw.FixedDepth(CASCADE, depth=1), ARMS, rounds=200, seed=9)
    losses = batch.error_rates + CASCADE.cumulative
    assert run.total_cost is not None
    np.testing.assert_allclose(run.total_cost, np.cumsum(losses[:, 1]))
    np.testing.assert_allclose(run.regret, np.cumsum(losses[:, 1] - losses.min(axis=1)))


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("name", ["uss-pd", "uss-ts", "oracle"])
def test_simulating_is_drawing_and_measuring(name: str, world: str) -> None:
    batch = WORLDS[world].sample(150, np.random.default_rng(6))
    one, other = (sw.make(name, CASCADE, context_dim=2) for _ in range(2))
    drawn, given = sw.simulate(one, WORLDS[world], 150, seed=6), measure(other, batch)
    for part in Run.__struct_fields__:
        np.testing.assert_array_equal(getattr(drawn, part), getattr(given, part), err_msg=part)
    for part, array in one.state().items():
        np.testing.assert_array_equal(array, other.state()[part], err_msg=part)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("name", ["uss-ucb", "random-depth"])
def test_undominated_regret_is_that_of_rounds_without_weak_dominance(name: str, world: str) -> None:
    cascade = sw.Cascade([0.05, 0.1, 0.1])
    theta = {(0, 1): [-3.0, 4.0], (0, 2): [-1.0, 3.0], (1, 2): [-4.0, 1.0]}
    environment = {
        "outputs": sw.LogisticArms(cascade, [[1, 0, -1], [3, 2, 0], [6, 6, 0]], [9, 9, 0]),
        "disagreements": sw.Realizable(cascade, theta),
    }[world]
    batch = environment.sample(400, np.random.default_rng(8))
    run = measure(sw.make(name, cascade), batch)
    lost = np.diff(run.regret, prepend=0.0)
    total = 0.0
    for t, best in enumerate(batch.optimal.tolist()):
        tempting = [
            cascade.cumulative[j] - cascade.cumulative[best] <= batch.disagreement[t, best, j]
            for j in range(best + 1, 3)
        ]
        total += float(lost[t]) if any(tempting) else 0.0
        assert run.undominated[t] == pytest.approx(total, abs=1e-9)
    if world == "outputs":
        assert 0.0 < total < run.regret[-1]
    else:  # Lemma 2 chose the optimum: weak dominance holds by definition
        assert total == 0.0 < run.regret[-1]


def test_rounds_of_another_number_of_arms_are_refused() -> None:
    batch = ARMS.sample(10, np.random.default_rng(0))
    policy = sw.FixedDepth(sw.Cascade([0.1, 0.2]))
    with pytest.raises(sw.CascadeMismatchError, match=r"of 3 arms, the policy's cascade has 2"):
        measure(policy, batch)
    assert policy.rounds == 0


def test_another_cascade_is_refused_and_the_difference_named() -> None:
    policy = sw.FixedDepth(sw.Cascade([0.05, 0.15, 0.25]))
    with pytest.raises(sw.CascadeMismatchError, match=r"arm 'arm 2' cost 0\.25, now 0\.2"):
        sw.simulate(policy, ARMS, rounds=10)


@pytest.mark.parametrize("rounds", [0, -1, 2.5, "10"])
def test_a_run_has_a_whole_number_of_rounds(rounds: Any) -> None:
    with pytest.raises(sw.InvalidParameterError, match="rounds must be a whole number, 1 or more"):
        sw.simulate(sw.FixedDepth(CASCADE), ARMS, rounds=rounds)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("name", ["uss-pd", "uss-ucb", "oracle"])
def test_progress_is_told_up_to_the_end(name: str, world: str) -> None:
    told: list[tuple[int, int]] = []
    policy = sw.make(name, CASCADE, context_dim=2)
    sw.simulate(policy, WORLDS[world], 1500, progress=lambda _, *done: told.append(done))
    assert told[-1] == (1500, 1500)
    assert [done for done, _ in told] == sorted({done for done, _ in told})
