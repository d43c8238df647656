"""The log to try the commands on: it is what its docstring says."""

from pathlib import Path

import stopwise as sw
from examples import triage_log


def test_the_log_reads_and_the_deepest_test_is_the_best(tmp_path: Path) -> None:
    path = triage_log.main(str(tmp_path / "triage.csv"))
    columns = sw.Columns(("age", "bmi"), ("history", "glucose", "insulin"), "truth")
    log = sw.Log(path, columns=columns)
    cascade = sw.Cascade([0.01, 0.06, 0.15], names=log.arms)
    found = sw.diagnose(log, cascade)
    assert found.rows == triage_log.PATIENTS
    errors = [arm.error.value for arm in found.arms if arm.error is not None]
    assert len(errors) == 3
    assert errors == sorted(errors, reverse=True)
    assert all(0 < arm.stops.value < 1 for arm in found.arms)
