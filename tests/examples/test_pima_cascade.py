"""The diabetes example: revealed context, and results at the documented seed."""

import runpy
import sys
from types import ModuleType

import numpy as np
import pytest

import stopwise as sw
from examples import digits_cascade
from examples import pima_cascade as example


def test_glucose_joins_the_context_when_its_stage_has_run() -> None:
    training, patients = example.patients(np.random.default_rng(3))
    rows = [tuple(patient.values()) for patient in (*training, *patients)]
    assert len(set(rows)) == len(rows) == 752  # of 768, 16 lack bmi or glucose

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
        columns = history if done.stop == 0 else [*history, "glucose"]
        assert done.context == tuple(example.numbers(patient, columns))


def test_results_match_the_documentation(capsys: pytest.CaptureFixture[str]) -> None:
    results = example.main()
    printed = capsys.readouterr().out
    for name, costs in example.COSTS.items():
        for policy, row in results[name].items():
            shares = [row[arm] for arm in example.ARMS]
            assert sum(shares) == pytest.approx(1), policy
            assert row["cost"] == pytest.approx(np.dot(shares, np.cumsum(costs)))
            assert row["total"] == pytest.approx(row["cost"] + row["error"])
            assert f"{policy:<16}{row['error']:>8.3f}{row['cost']:>8.3f}" in printed
    for rows in results.values():  # nearly as good as the deeper arms, and cheaper
        for policy in example.LABELS:
            assert rows[policy]["error"] < rows["always glucose"]["error"] + 0.03
            assert rows[policy]["cost"] < rows["always glucose"]["cost"]
        ours, labelled, *fixed = (row["total"] for row in rows.values())
        assert 0.9 < ours / min(fixed) < 1.1
        assert 0.9 < labelled / min(fixed) < 1.0
    assert results["cheap tests"]["Stopwise"]["insulin"] < 0.15


@pytest.mark.parametrize(
    ("module", "arguments", "printed"),
    [
        (digits_cascade, ["--rounds", "400", "--seed", "3"], "400 images, the same for every cost"),
        (example, ["--passes", "1"], "376 patients"),
    ],
)
def test_examples_run_as_scripts(
    module: ModuleType,
    arguments: list[str],
    printed: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["any.py", *arguments])
    runpy.run_path(str(module.__file__), run_name="__main__")
    assert printed in capsys.readouterr().out
