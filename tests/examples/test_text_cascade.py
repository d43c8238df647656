"""The support ticket example: as accurate as the deepest arm, at half the cost."""

import pytest

from examples import text_cascade


def test_error_rate_of_the_deepest_arm_at_less_than_half_its_cost(
    capsys: pytest.CaptureFixture[str],
) -> None:
    results = text_cascade.main(rounds=1500)
    printed = capsys.readouterr().out
    ours, deepest = results.pop("Stopwise"), results["always phrases"]
    assert list(results) == [f"always {name}" for name in text_cascade.CASCADE.names]
    assert ours["total"] < 0.85 * min(fixed["total"] for fixed in results.values())
    assert ours["error"] < deepest["error"] + 0.01
    assert ours["cost"] < deepest["cost"] / 2
    errors = [fixed["error"] for fixed in results.values()]
    assert errors[0] > 0.15 > errors[1] > 0.05 > errors[2]  # the larger models are needed
    assert f"{'Stopwise':<17}{ours['error']:>8.3f}{ours['cost']:>8.3f}" in printed
