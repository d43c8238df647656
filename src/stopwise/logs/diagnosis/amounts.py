"""Conversion of the amounts of a diagnosis to the unit of the user's costs."""

from typing import TypeVar

import msgspec

from stopwise.intervals import Interval
from stopwise.logs.diagnosis.findings import (
    ArmSummary,
    Audit,
    FrontierPoint,
    LabelPlan,
    PairSummary,
    Saving,
)

Finding = TypeVar("Finding", ArmSummary, Audit, FrontierPoint, LabelPlan, PairSummary, Saving)

AMOUNTS: dict[type[msgspec.Struct], tuple[str, ...]] = {
    ArmSummary: ("cost", "total", "loss"),
    PairSummary: ("gap",),
    Saving: ("per_round",),
    FrontierPoint: ("cost",),
    Audit: ("rule_loss", "best_fixed_loss", "lost", "over_fixed"),
    LabelPlan: ("gap",),
}


def in_unit(finding: Finding, one_error: float) -> Finding:
    """Return a finding with its amounts in a unit in which one wrong answer costs ``one_error``."""
    if one_error == 1.0:
        return finding
    names = AMOUNTS[type(finding)]
    scaled = {name: _scaled(getattr(finding, name), one_error) for name in names}
    return msgspec.structs.replace(finding, **scaled)


def _scaled(
    amount: float | Interval | tuple[Interval, ...] | None, factor: float
) -> float | Interval | tuple[Interval, ...] | None:
    if amount is None:
        return None
    if isinstance(amount, tuple):
        return tuple(factor * interval for interval in amount)
    return factor * amount
