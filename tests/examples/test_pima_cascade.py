"""The medical cascade: what is revealed when, and what comes of it at the documented seed."""

import contextlib
import io
import runpy
import sys

import numpy as np
import pytest

import stopwise as sw
from examples import pima_cascade as example

Results = dict[str, dict[str, dict[str, float]]]


@pytest.fixture(scope="module")
def played() -> tuple[Results, str]:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        results = example.main()
    return results, printed.getvalue()


@pytest.fixture(scope="module")
def halves() -> tuple[list[example.Patient], list[example.Patient]]:
    return example.patients(np.random.default_rng(3))


def test_halves_share_nobody_and_lack_nothing(
    halves: tuple[list[example.Patient], list[example.Patient]],
) -> None:
    examples, comers = halves
    together = [tuple(patient.values()) for patient in (*examples, *comers)]
    assert len(set(together)) == len(together) == 752  # 768, less 11 without bmi, 5 without glucose
    assert all(patient["insulin"] > 0 for patient in (*examples, *comers))


def test_glucose_is_known_once_its_stage_has_run(
    halves: tuple[list[example.Patient], list[example.Patient]],
) -> None:
    examples, comers = halves
    policy = example.new_policy(examples, (0.005, 0.04, 0.08), seed=0)
    history = example.HISTORY
    runner = sw.Runner(
        policy,
        example.new_stages(examples),
        context=lambda patient: example.numbers(patient, history),
    )
    rounds = runner.run_many(comers)
    assert all(done.failure is None for done in rounds)
    assert {done.stop for done in rounds} == {0, 1, 2}
    for patient, done in zip(comers, rounds, strict=True):
        known = history if done.stop == 0 else [*history, "glucose"]
        assert done.context == tuple(example.numbers(patient, known))


def test_the_results_add_up(played: tuple[Results, str]) -> None:
    for name, costs in example.COSTS.items():
        for who, row in played[0][name].items():
            shares = [row[arm] for arm in example.ARMS]
            assert sum(shares) == pytest.approx(1), who
            assert row["cost"] == pytest.approx(np.dot(shares, np.cumsum(costs)))
            assert row["total"] == pytest.approx(row["cost"] + row["error"])


def test_what_comes_out_is_what_is_told(played: tuple[Results, str]) -> None:
    cheap, dear = played[0]["cheap tests"], played[0]["dear tests"]
    # it hardly pays for insulin, which is hardly better: some by lot, some while it learns
    assert abs(cheap["always insulin"]["error"] - cheap["always glucose"]["error"]) < 0.01
    assert cheap["Stopwise"]["insulin"] < 0.15
    # near the error of the deeper arms for less than they cost; in total neither won nor lost much
    for rows in (cheap, dear):
        assert rows["Stopwise"]["error"] < rows["always glucose"]["error"] + 0.03
        assert rows["Stopwise"]["cost"] < rows["always glucose"]["cost"]
        own, *fixed = (row["total"] for row in rows.values())
        assert 0.9 < own / min(fixed) < 1.1


def test_prints_both_tables(played: tuple[Results, str]) -> None:
    for name, rows in played[0].items():
        assert f"{name}: " in played[1]
        for who, row in rows.items():
            assert f"{who:<16}{row['error']:>8.3f}{row['cost']:>8.3f}" in played[1]


def test_runs_as_a_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["pima_cascade.py", "--passes", "1"])
    runpy.run_path(example.__file__, run_name="__main__")
    assert "376 patients" in capsys.readouterr().out
