"""The digits: what is claimed of the cascade, at the seed of the documentation.

One setting for all ten cost vectors; 20,000 images, exploration counted. The models are
scikit-learn's, so figures move a little with its version; the margins here are several times that.
"""

import contextlib
import io
import runpy
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from examples import digits_cascade as example


class Played(NamedTuple):
    results: dict[str, example.Result]
    printed: str
    picture: Path


class Stream(NamedTuple):
    models: example.Models
    images: NDArray[np.float64]
    labels: NDArray[np.int64]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    picture = tmp_path_factory.mktemp("digits") / "digits.png"
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        results = example.main(out=picture)
    return Played({result.name: result for result in results}, printed.getvalue(), picture)


@pytest.fixture(scope="module")
def stream() -> Stream:
    random = np.random.default_rng(5)
    images, labels = load_digits(return_X_y=True)
    models = example.train(images[:900] / 16, labels[:900], random)
    shown = random.integers(900, len(images), 600)
    return Stream(models, example.noisy(images[shown] / 16, random), labels[shown])


def test_the_models_rise_in_cost_and_accuracy(played: Played) -> None:
    for result in played.results.values():
        assert list(result.fixed_costs) == sorted(result.fixed_costs)
        assert list(result.fixed_errors) == sorted(result.fixed_errors, reverse=True)


@pytest.mark.parametrize("name", ["as arithmetic", "low", "middling", "steep"])
def test_nearly_the_error_of_the_deepest_at_less_than_half_its_cost(
    played: Played, name: str
) -> None:
    result = played.results[name]
    assert result.error - result.fixed_errors[-1] < 0.005
    assert result.cost < 0.5 * result.fixed_costs[-1]


def test_beats_every_fixed_depth_where_costs_are_moderate(played: Played) -> None:
    for name in ("as arithmetic", "next to nothing", "low", "middling", "steep", "all alike"):
        assert all(played.results[name].loss < 0.95 * f for f in played.results[name].fixed_losses)


def test_loses_to_no_fixed_depth_by_more_than_two_percent(played: Played) -> None:
    assert len(played.results) == len(example.COSTS) == 10
    for result in played.results.values():
        assert all(result.loss <= 1.02 * fixed for fixed in result.fixed_losses), result.name


@pytest.mark.parametrize("every", [None, 20])
def test_the_table_is_what_running_one_by_one_comes_to(stream: Stream, every: int | None) -> None:
    costs = example.COSTS["middling"]
    rounds = example.new_runner(stream.models, costs, every).run_many(stream.images)
    assert all(done.failure is None for done in rounds)
    live = np.array([done.stop for done in rounds])
    assert len(set(live.tolist())) == 3

    by_name = {r.name: r for r in example.play(stream.models, stream.images, stream.labels, every)}
    result = by_name["middling"]
    wrong = [done.outputs[-1] != label for done, label in zip(rounds, stream.labels, strict=True)]
    assert result.error == pytest.approx(np.mean(wrong))
    assert result.cost == pytest.approx(np.mean([sum(costs[: stop + 1]) for stop in live]))
    assert result.shares == pytest.approx([np.mean(live == arm) for arm in range(3)])
    contexts, outputs = example.contexts_of(stream.models, stream.images)
    assert (example.new_policy(stream.models, costs, every).run(contexts, outputs) == live).all()


def test_a_round_knows_what_its_stages_revealed_and_no_more(stream: Stream) -> None:
    contexts, outputs = example.contexts_of(stream.models, stream.images)
    runner = example.new_runner(stream.models, example.COSTS["middling"])
    for t, done in enumerate(runner.run_many(stream.images[:200])):
        assert done.context == pytest.approx(contexts[t, : min(done.stop + 2, 3)])
        assert done.outputs == tuple(outputs[t, : done.stop + 1])


def test_prints_every_cost_vector_and_draws_them(played: Played) -> None:
    for name, result in played.results.items():
        (line,) = [row for row in played.printed.splitlines() if row.startswith(f"{name} ")]
        assert f"{result.loss:.4f}" in line
    assert played.picture.read_bytes().startswith(b"\x89PNG")


def test_runs_as_a_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["digits_cascade.py", "--rounds", "400", "--seed", "3"])
    runpy.run_path(example.__file__, run_name="__main__")
    assert "400 images, the same for every cost vector" in capsys.readouterr().out
