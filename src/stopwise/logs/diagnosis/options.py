"""What a diagnosis recommends: the label-free rule, or a fixed depth."""

from collections.abc import Sequence

import numpy as np

from stopwise.arrays import Bytes, Floats, Ints
from stopwise.cascade import Cascade
from stopwise.intervals import Interval, normal_mean
from stopwise.logs.diagnosis.findings import ArmSummary, Audit, LabelPlan
from stopwise.logs.diagnosis.plug_in import differs_from_deepest
from stopwise.logs.recommendation import Option, Recommendation, recommend
from stopwise.logs.units import error_cost
from stopwise.reporting.wording import plural

RULE = "Stopwise"


def recommended(
    cascade: Cascade,
    stops: Ints,
    differ: Bytes,
    audit: Audit | None,
    plan: LabelPlan,
    arms: Sequence[ArmSummary],
) -> Recommendation:
    """Return the recommendation, by the labels if there are any, else by disagreement.

    ``stops`` (n,) and ``differ`` (n, pairs) are where the rule stops, and which pairs disagree.
    """
    one = error_cost(cascade)
    if audit is not None:
        fixed = [
            Option("fixed depth", arm.name, one * arm.total, arm.error, one * _loss(arm))
            for arm in arms
        ]
        spent = one * (audit.rule_loss.value - audit.rule_error.value)
        rule = Option(
            "policy",
            RULE,
            spent,
            audit.rule_error,
            one * audit.rule_loss,
            tuple(one * more for more in audit.over_fixed),
        )
        return recommend(fixed, [rule], loss="total loss", labelled=audit.rows)
    losses = _cost_and_disagreement(cascade, differ)
    mine = losses[np.arange(len(stops)), stops]
    fixed = [
        Option("fixed depth", arm.name, one * arm.total, None, one * normal_mean(losses[:, i]))
        for i, arm in enumerate(arms)
    ]
    rule = Option(
        "policy",
        RULE,
        one * float(cascade.cumulative[stops].mean()),
        None,
        one * normal_mean(mine),
        tuple(one * normal_mean(mine - losses[:, i]) for i in range(cascade.n_arms)),
    )
    first = ""
    if plan.labels:
        first = f"label {plural(plan.labels, 'row')} in which arms disagree"
        first += " (--label-rows FILE.csv writes which)" if plan.rows else ""
    return recommend(fixed, [rule], loss="cost + disagreement", first=first)


def _cost_and_disagreement(cascade: Cascade, differ: Bytes) -> Floats:
    """Return C_i + 1{the answer of arm i is not that of the last} of each row and arm."""
    return cascade.cumulative + differs_from_deepest(cascade, differ)


def _loss(arm: ArmSummary) -> Interval:
    assert arm.loss is not None  # where there are labels, arms have losses
    return arm.loss
