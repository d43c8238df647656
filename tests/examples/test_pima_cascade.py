"""The medical cascade: what is revealed when, and its results at the documented seed."""

import runpy
import sys

import numpy as np
import pytest

import stopwise as sw
from examples import digits_cascade
from examples import pima_cascade as example


def test_glucose_is_known_once_its_stage_has_run() -> None:
    training, patients = example.patients(np.random.default_rng(3))
    everybody = [tuple(patient.values()) for patient in (*training, *patients)]
    assert len(set(everybody)) == len(everybody) == 752  # of 768, 16 lack bmi or glucose

    history = example.HISTORY
    runner = sw.Runner(
        example.new_policy(sw.Cascade((0.005, 0.04, 0.08), names=example.ARMS), 0, seed=0),
        example.new_stages(training),
        context=lambda patient: example.numbers(patient, history),
    )
    rounds = list(runner.run_many(patients))
    assert {done.stop for done in rounds} == {0, 1, 2}
    for patient, done in zip(patients, rounds, strict=True):
        assert done.failure is None
        known = history if done.stop == 0 else [*history, "glucose"]
        assert done.context == tuple(example.numbers(patient, known))


def test_the_results_are_those_of_the_documentation(capsys: pytest.CaptureFixture[str]) -> None:
    results = example.main()
    printed = capsys.readouterr().out
    for name, costs in example.COSTS.items():
        for who, row in results[name].items():
            shares = [row[arm] for arm in example.ARMS]
            assert sum(shares) == pytest.approx(1), who
            assert row["cost"] == pytest.approx(np.dot(shares, np.cumsum(costs)))
            assert row["total"] == pytest.approx(row["cost"] + row["error"])
            assert f"{who:<16}{row['error']:>8.3f}{row['cost']:>8.3f}" in printed
    for rows in results.values():  # nearly as good as the deeper arms, for less; no great gain
        for who in example.ASKS:
            assert rows[who]["error"] < rows["always glucose"]["error"] + 0.03
            assert rows[who]["cost"] < rows["always glucose"]["cost"]
        ours, labelled, *fixed = (row["total"] for row in rows.values())
        assert 0.9 < ours / min(fixed) < 1.1
        assert 0.9 < labelled / min(fixed) < 1.0
    assert results["cheap tests"]["Stopwise"]["insulin"] < 0.15


def test_examples_run_as_commands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module, words, printed in (
        (digits_cascade, ["--rounds", "400", "--seed", "3"], "400 images, the same for every cost"),
        (example, ["--passes", "1"], "376 patients"),
    ):
        monkeypatch.setattr(sys, "argv", ["any.py", *words])
        runpy.run_path(str(module.__file__), run_name="__main__")
        assert printed in capsys.readouterr().out
