"""The digits example: the claims of the documentation, on a shorter stream.

Results vary slightly with the version of scikit-learn; the margins are several times larger.
"""

from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from examples import digits_cascade as example


def test_results_match_the_documentation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    played = example.main(rounds=8000, live=300, out=tmp_path / "digits.png")
    results = {result.name: result for result in played}
    printed = capsys.readouterr().out
    assert len(results) == len(example.COSTS) == 10
    for name, result in results.items():
        assert list(result.fixed_costs) == sorted(result.fixed_costs)
        assert list(result.fixed_errors) == sorted(result.fixed_errors, reverse=True)
        assert all(result.loss <= 1.02 * fixed for fixed in result.fixed_losses), name
        (line,) = [row for row in printed.splitlines() if row.startswith(f"{name} ")]
        assert f"{result.loss:.4f}" in line
    for name in ("as arithmetic", "low", "middling", "steep"):
        assert results[name].error - results[name].fixed_errors[-1] < 0.005
        assert results[name].cost < 0.5 * results[name].fixed_costs[-1]
    for name in list(results)[:8]:
        assert all(results[name].loss < 0.8 * fixed for fixed in results[name].fixed_losses), name
    assert (tmp_path / "digits.png").read_bytes().startswith(b"\x89PNG")


def test_precomputed_play_equals_the_runner() -> None:
    random = np.random.default_rng(5)
    pixels, digits = map(np.asarray, load_digits(return_X_y=True))
    models = example.train(pixels[:900] / 16, digits[:900], random)
    chosen = random.integers(900, len(pixels), 500)
    images, labels = example.noisy(pixels[chosen] / 16, random), digits[chosen]

    costs = example.COSTS["middling"]
    rounds = list(example.new_runner(models, costs).run_many(images))
    live = np.array([done.stop for done in rounds])
    assert set(live.tolist()) == {0, 1, 2}
    by_name = {r.name: r for r in example.play(models, images, labels)}
    wrong = [done.outputs[-1] != label for done, label in zip(rounds, labels, strict=True)]
    assert by_name["middling"].error == pytest.approx(np.mean(wrong))
    assert by_name["middling"].cost == pytest.approx(np.mean(np.cumsum(costs)[live]))

    contexts, outputs = example.contexts_of(models, images)
    assert (example.new_policy(costs).run(contexts, outputs) == live).all()
    for t, done in enumerate(rounds):  # the context has the values revealed by the stages that ran
        ran = len(done.outputs)
        assert done.context == pytest.approx(contexts[t, : min(ran + 1, 3)])
        assert done.outputs == tuple(outputs[t, :ran])
