"""The example of the support tickets makes its point."""

import contextlib
import io

import pytest

from examples import text_cascade

Results = dict[str, dict[str, float]]


@pytest.fixture(scope="module")
def told() -> tuple[Results, str]:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        results = text_cascade.main(rounds=2500)
    return results, printed.getvalue()


@pytest.fixture(scope="module")
def results(told: tuple[Results, str]) -> Results:
    return told[0]


def test_it_beats_every_fixed_depth(results: Results) -> None:
    fixed = {name: numbers for name, numbers in results.items() if name != "Stopwise"}
    assert len(fixed) == 3
    assert results["Stopwise"]["total"] < 0.75 * min(f["total"] for f in fixed.values())


def test_it_errs_as_the_deepest_arm_at_less_than_half_the_cost(results: Results) -> None:
    ours, deepest = results["Stopwise"], results["always phrases"]
    assert ours["error"] < deepest["error"] + 0.01
    assert ours["cost"] < deepest["cost"] / 2
    assert 0.1 < ours["deepest"] < 0.4


def test_the_larger_models_are_needed(results: Results) -> None:
    errors = [results[f"always {name}"]["error"] for name in text_cascade.CASCADE.names]
    assert errors[0] > 0.15 > errors[1] > 0.05 > errors[2]


def test_it_prints_a_table(told: tuple[Results, str]) -> None:
    results, printed = told
    for name, numbers in results.items():
        assert f"{name:<17}{numbers['error']:>8.3f}{numbers['cost']:>8.3f}" in printed
    assert set(results) == {"Stopwise", "always keywords", "always words", "always phrases"}
