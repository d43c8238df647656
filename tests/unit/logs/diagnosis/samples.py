"""Diagnoses of simulated logs: without labels, with labels, and with hostile names."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from stopwise.logs.diagnosis.diagnose import diagnose
from stopwise.logs.diagnosis.findings import Diagnosis
from stopwise.logs.log import Log
from tests.helpers.cascades import Simulated, bad_cascade, simulated, write_log

EVIL = '<script>alert("arms")</script> & `code` $x^$ *bold*\x00\u202e'
LONG = "a-model-with-a-name-that-is-far-too-long-for-any-table-or-page-" * 4


def _diagnosed(drawn: Simulated, labelled: float = 0.0) -> Diagnosis:
    with TemporaryDirectory() as folder:
        log = Log(write_log(drawn, Path(folder, "log.parquet"), labelled=labelled))
        return diagnose(log, drawn.cascade)


@cache
def unlabelled() -> Diagnosis:
    """Return the diagnosis of four arms; the last is worse than a cheaper one."""
    return _diagnosed(bad_cascade(4000, 0))


@cache
def labelled() -> Diagnosis:
    """Return the diagnosis of three arms, with labels on 30 % of the rows."""
    return _diagnosed(simulated(4000, 0, (0.01, 0.05, 0.1), (0.3, 0.2, 0.1)), labelled=0.3)


@cache
def hostile() -> Diagnosis:
    """Return the diagnosis of two arms with hostile names."""
    diagnosis = _diagnosed(simulated(500, 0, (0.1, 0.3), (0.2, 0.1)))
    names = (EVIL, LONG)
    return msgspec.structs.replace(
        diagnosis,
        log=EVIL + ".csv",
        context=names,
        arms=tuple(
            msgspec.structs.replace(a, name=n) for a, n in zip(diagnosis.arms, names, strict=True)
        ),
        verdict=msgspec.structs.replace(diagnosis.verdict, reason=f"About {EVIL} and {LONG}."),
        notes=names,
    )
