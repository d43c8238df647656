"""The service's example: it runs, and what it prints is what happened."""

import pytest

from examples import service_client


def test_it_saves_and_tells_the_truth_about_it(capsys: pytest.CaptureFixture[str]) -> None:
    told = service_client.main(patients=200, seed=1)
    printed = capsys.readouterr().out
    assert told["patients"] == told["learned"] == 200
    assert sum(told["stops"].values()) == 200
    # arms were run as deep as was decided, and no deeper
    history, glucose, insulin = (told["calls"][name] for name in service_client.TESTS)
    assert history == 200
    assert glucose == 200 - told["stops"]["history"]
    assert insulin == told["stops"]["insulin"]
    costs = service_client.CASCADE.costs @ [history, glucose, insulin]
    assert told["cost"] == pytest.approx(costs / 200)
    assert told["saved"] == pytest.approx(1 - costs / 200 / 0.32)
    assert told["saved"] > 0.05  # 50 of the 200 explore at full cost
    assert f"{told['saved']:.0%}, exploration included" in printed
    assert told["plain"].reason in printed
