"""What a diagnosis recommends: the label-free rule, or a fixed depth."""

from collections.abc import Sequence

import msgspec
import numpy as np

from stopwise.arrays import Bytes, Floats, Ints
from stopwise.cascade import Cascade
from stopwise.logs.diagnosis.findings import ArmSummary, Audit, LabelPlan
from stopwise.logs.recommendation import Option, Recommendation, recommend
from stopwise.logs.units import error_cost
from stopwise.reporting.intervals import Estimate, mean
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
            Option("fixed depth", arm.name, one * arm.total, arm.error, _times(one, arm.loss))
            for arm in arms
        ]
        spent = one * (audit.rule_loss.value - audit.rule_error.value)
        rule = Option(
            "policy",
            RULE,
            spent,
            audit.rule_error,
            _times(one, audit.rule_loss),
            tuple(_times(one, more) for more in audit.over_fixed),
        )
        return recommend(fixed, [rule], loss="total loss", labelled=audit.rows)
    losses = _cost_and_disagreement(cascade, differ)
    mine = losses[np.arange(len(stops)), stops]
    fixed = [
        Option("fixed depth", arm.name, one * arm.total, None, _times(one, mean(losses[:, i])))
        for i, arm in enumerate(arms)
    ]
    rule = Option(
        "policy",
        RULE,
        one * float(cascade.cumulative[stops].mean()),
        None,
        _times(one, mean(mine)),
        tuple(_times(one, mean(mine - losses[:, i])) for i in range(cascade.n_arms)),
    )
    found = recommend(fixed, [rule], loss="cost + disagreement")
    if not plan.labels:
        return found
    todo = f"label {plural(plan.labels, 'row')} in which arms disagree"
    if plan.rows:
        todo += " (--label-rows FILE.csv writes which)"
    until, _, reason = found.sentence.removeprefix("Recommended: ").partition("; ")
    sentence = f"Recommended: {todo}; until then {until} ({reason.removesuffix('.')})."
    return msgspec.structs.replace(found, sentence=sentence)


def _cost_and_disagreement(cascade: Cascade, differ: Bytes) -> Floats:
    """Return C_i + 1{the answer of arm i is not that of the last} of each row and arm."""
    last = cascade.n_arms - 1
    columns = [cascade.pairs().index((i, last)) for i in range(last)]
    differs = np.column_stack([differ[:, columns], np.zeros(len(differ), dtype=np.uint8)])
    return cascade.cumulative + differs


def _times(factor: float, amount: Estimate | None) -> Estimate:
    assert amount is not None  # where there are labels, arms have losses
    return Estimate(*(factor * end for end in amount))
