"""Amounts of a diagnosis in the unit of the costs that the user gave."""

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

Found = TypeVar("Found", ArmSummary, Audit, FrontierPoint, LabelPlan, PairSummary, Saving)

AMOUNTS: dict[type[msgspec.Struct], tuple[str, ...]] = {
    ArmSummary: ("cost", "total", "loss"),
    PairSummary: ("gap",),
    Saving: ("per_round",),
    FrontierPoint: ("cost",),
    Audit: ("rule_loss", "best_fixed_loss", "lost", "over_fixed"),
    LabelPlan: ("gap",),
}


def in_unit(found: Found, one_error: float) -> Found:
    """Return a finding with its amounts in a unit in which one wrong answer costs ``one_error``."""
    if one_error == 1.0:
        return found
    names = AMOUNTS[type(found)]
    scaled = {name: _scaled(getattr(found, name), one_error) for name in names}
    return msgspec.structs.replace(found, **scaled)


def _scaled(
    amount: float | Interval | tuple[Interval, ...] | None, factor: float
) -> float | Interval | tuple[Interval, ...] | None:
    if amount is None:
        return None
    if isinstance(amount, tuple):
        return tuple(factor * one for one in amount)
    return factor * amount
