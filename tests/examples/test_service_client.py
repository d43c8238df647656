"""The service example: consistent results and output."""

import pytest

from examples import service_client


def test_example_saves_cost_and_reports_it(capsys: pytest.CaptureFixture[str]) -> None:
    figures = service_client.main(patients=200, seed=1)
    printed = capsys.readouterr().out
    assert figures["patients"] == figures["learned"] == 200
    assert sum(figures["stops"].values()) == 200
    # arms were run exactly as deep as decided
    history, glucose, insulin = (figures["calls"][name] for name in service_client.TESTS)
    assert history == 200
    assert glucose == 200 - figures["stops"]["history"]
    assert insulin == figures["stops"]["insulin"]
    costs = service_client.CASCADE.costs @ [history, glucose, insulin]
    assert figures["cost"] == pytest.approx(costs / 200)
    assert figures["saved"] == pytest.approx(1 - costs / 200 / 0.32)
    assert figures["saved"] > 0.05  # 50 of the 200 explore at full cost
    assert f"{figures['saved']:.0%}, including exploration" in printed
    assert figures["plain"].reason in printed
