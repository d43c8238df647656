"""The triage log example: a valid log with the documented properties."""

from pathlib import Path

import stopwise as sw
from examples import triage_log


def test_log_is_valid_and_the_deepest_test_is_best(tmp_path: Path) -> None:
    path = triage_log.main(str(tmp_path / "triage.csv"))
    columns = sw.Columns(("age", "bmi"), ("history", "glucose", "insulin"), "truth")
    log = sw.Log(path, columns=columns)
    cascade = sw.Cascade([0.01, 0.06, 0.15], names=log.arms)
    diagnosis = sw.diagnose(log, cascade)
    assert diagnosis.rows == triage_log.PATIENTS
    errors = [arm.error.value for arm in diagnosis.arms if arm.error is not None]
    assert len(errors) == 3
    assert errors == sorted(errors, reverse=True)
    assert all(0 < arm.stops.value < 1 for arm in diagnosis.arms)
