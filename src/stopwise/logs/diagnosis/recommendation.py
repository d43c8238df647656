"""The recommendation of a diagnosis: the label-free rule or a fixed depth."""

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


def recommend_option(
    cascade: Cascade,
    stops: Ints,
    differ: Bytes,
    audit: Audit | None,
    plan: LabelPlan,
    arms: Sequence[ArmSummary],
) -> Recommendation:
    """Return the recommendation, based on labels if there are any, otherwise on disagreement.

    ``stops`` (n,) is where the rule stops in each row, ``differ`` (n, pairs) which pairs disagree.
    """
    one_error = error_cost(cascade)
    if audit is not None:
        fixed = [
            Option(
                "fixed depth",
                arm.name,
                one_error * arm.total,
                arm.error,
                one_error * _loss(arm),
            )
            for arm in arms
        ]
        spent = one_error * (audit.rule_loss.value - audit.rule_error.value)
        rule = Option(
            "policy",
            RULE,
            spent,
            audit.rule_error,
            one_error * audit.rule_loss,
            tuple(one_error * extra for extra in audit.over_fixed),
        )
        return recommend(fixed, [rule], loss="total loss", labelled=audit.rows)
    losses = _cost_and_disagreement(cascade, differ)
    rule_losses = losses[np.arange(len(stops)), stops]
    fixed = [
        Option(
            "fixed depth",
            arm.name,
            one_error * arm.total,
            None,
            one_error * normal_mean(losses[:, i]),
        )
        for i, arm in enumerate(arms)
    ]
    rule = Option(
        "policy",
        RULE,
        one_error * float(cascade.cumulative[stops].mean()),
        None,
        one_error * normal_mean(rule_losses),
        tuple(one_error * normal_mean(rule_losses - losses[:, i]) for i in range(cascade.n_arms)),
    )
    first = ""
    if plan.labels:
        first = f"label {plural(plan.labels, 'row')} in which arms disagree"
        first += " (--label-rows FILE.csv writes them)" if plan.rows else ""
    return recommend(fixed, [rule], loss="cost + disagreement", first=first)


def _cost_and_disagreement(cascade: Cascade, differ: Bytes) -> Floats:
    """Return C_i + 1{arm i disagrees with the last arm} for each row and arm i."""
    return cascade.cumulative + differs_from_deepest(cascade, differ)


def _loss(arm: ArmSummary) -> Interval:
    assert arm.loss is not None  # with labels, arms have losses
    return arm.loss
