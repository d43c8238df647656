"""Diagnoses made up by hand: a good cascade, one with a bad arm, and one out to break the page."""

import math

import msgspec

from stopwise.logs.diagnosis.findings import (
    AccuracyEstimate,
    Agreement,
    Arm,
    Audit,
    AuditPlan,
    Diagnosis,
    Estimate,
    FixedDepthPoint,
    FrontierPoint,
    GroupDisagreement,
    IndependenceCheck,
    Margins,
    PairAudit,
    PairDisagreement,
    Reliability,
    ReliabilityBin,
    Saving,
    StopShare,
    Verdict,
    WorseArm,
)

EVIL = '<script>alert("arms")</script> & `code` $x^$ *bold*\x00\u202e'
LONG = "a-model-with-a-name-that-nobody-would-give-but-somebody-will-" * 4


def about(value: float, reach: float = 0.01) -> Estimate:
    return Estimate(value, max(0.0, value - reach), value + reach)


def _around(value: float) -> Estimate:
    return Estimate(value, value - 0.02, value + 0.02)


def _pairs(n: int) -> list[tuple[int, int]]:
    return [(i, j) for i in range(n) for j in range(i + 1, n)]


def _diagnosis(
    names: tuple[str, ...],
    costs: tuple[float, ...],
    errors: tuple[float, ...],
    shares: tuple[float, ...],
    *,
    labelled: bool,
) -> Diagnosis:
    """Numbers that hang together: arms that err independently, half of it where x is high."""
    n = len(names)
    totals = [sum(costs[: k + 1]) for k in range(n)]
    rate = [[a * (1 - b) + b * (1 - a) for b in errors] for a in errors]
    cost = sum(s * c for s, c in zip(shares, totals, strict=True))
    drift = sum(s * rate[k][-1] for k, s in enumerate(shares[:-1])) * 0.6
    wrong = drift * 0.6 + errors[-1]
    frontier = tuple(
        FrontierPoint(
            weight=weight,
            cost=min(totals[-1], cost / weight**0.7),
            disagreement=about(min(drift * weight**0.6, rate[0][-1])),
            error=about(wrong * (0.8 + 0.2 * weight**0.5)) if labelled else None,
            shares=shares,
        )
        for weight in (0.1, 0.2, 0.35, 0.6, 1.0, 1.6, 2.5, 4.0)
    )
    fixed = tuple(
        FixedDepthPoint(
            arm=k,
            cost=totals[k],
            disagreement=about(rate[k][-1]) if k < n - 1 else Estimate(0.0, 0.0, 0.0),
            error=about(errors[k]) if labelled else None,
            loss=about(errors[k] + totals[k]) if labelled else None,
        )
        for k in range(n)
    )
    wd = 0.35 if errors[-1] > errors[-2] else 0.93
    best = min(range(n), key=lambda k: errors[k] + totals[k])
    audit = Audit(
        rows=1200,
        errors=tuple(map(about, errors)),
        pairs=tuple(
            PairAudit(
                i, j, 1200, about((1 - errors[i]) * errors[j]), about(errors[i] * (1 - errors[j]))
            )
            for i, j in _pairs(n)
        ),
        weakly_dominant=about(wd, 0.02),
        rule_loss=about(wrong + cost),
        best_fixed=best,
        best_fixed_loss=about(errors[best] + totals[best]),
        lost=_around(wrong + cost - errors[best] - totals[best]),
    )
    return Diagnosis(
        log="triage.parquet",
        rows=48_210,
        used=48_210,
        full_depth=48_210,
        labelled=1200 if labelled else 0,
        arms=tuple(
            Arm(name, own, total, 48_210)
            for name, own, total in zip(names, costs, totals, strict=True)
        ),
        context=("age", "bmi", "pregnancies"),
        pairs=tuple(
            PairDisagreement(i, j, totals[j] - totals[i], 48_210, about(rate[i][j], 0.004))
            for i, j in _pairs(n)
        ),
        groups=tuple(
            GroupDisagreement(
                coordinate,
                group,
                16_070,
                tuple(
                    about(min(1.0, rate[i][j] * (1 + spread * (level - 1)))) for i, j in _pairs(n)
                ),
            )
            for coordinate, spread in (("age", 0.7), ("bmi", 0.35), ("pregnancies", 0.1))
            for level, group in enumerate(
                ("low (below 29)", "middle (29 to 41)", "high (41 or more)")
            )
        ),
        reliability=tuple(
            Reliability(
                i,
                j,
                tuple(
                    ReliabilityBin(
                        4821, share, about(share + 0.02 * math.sin(7 * share + i), 0.015)
                    )
                    for share in (rate[i][j] * f for f in (0.2, 0.5, 0.8, 1.1, 1.4, 1.9))
                ),
                0.011 + 0.004 * j,
            )
            for i, j in _pairs(n)
        ),
        stops=tuple(StopShare(k, about(s, 0.006)) for k, s in enumerate(shares)),
        saving=Saving(
            about(totals[-1] - cost, 0.003),
            about(1 - cost / totals[-1], 0.006),
            about(drift, 0.003),
        ),
        margins=tuple(
            Margins(
                k,
                int(48_210 * shares[k]),
                tuple((totals[k + 1] - totals[k]) * f for f in (0.02, 0.2, 0.45, 0.65, 0.8)),
                0.08 + 0.02 * k,
            )
            for k in range(n - 1)
        ),
        frontier=frontier,
        fixed=fixed,
        agreement=Agreement(
            classes=2,
            accuracies=tuple(AccuracyEstimate(k, about(1 - e)) for k, e in enumerate(errors)),
            check=IndependenceCheck(
                checked=n > 3,
                passed=n > 3,
                statistic=1.3,
                p_value=0.52,
                words="The agreements look as they would if errors were independent."
                if n > 3
                else "Three arms fit any agreements: independence cannot be checked here.",
            ),
            worse=(),
        )
        if n > 2
        else None,
        audit=audit if labelled else None,
        plan=()
        if labelled
        else tuple(
            AuditPlan(
                rows,
                0.98 / math.sqrt(rows),
                f"Labels on {rows:,} random rows would place each error rate within "
                f"{98 / math.sqrt(rows):.1f} points.",
            )
            for rows in (100, 300, 1000, 3000)
        ),
        verdict=Verdict(
            answer="learnable",
            reason="The arms agree most of the time, deeper arms cost more than they could mend "
            "in two rounds of three, and the fitted disagreement means what it says.",
            points=("At 92 % of the stops the decision is more than 0.02 from the other one.",),
        ),
        notes=(
            "Fitted on five parts of the log in turn and judged on the part left out.",
            "Rows are taken to be alike and independent of one another.",
        ),
        seed=0,
    )


GOOD = _diagnosis(
    ("history", "glucose", "insulin"),
    (0.01, 0.24, 0.25),
    (0.19, 0.11, 0.07),
    (0.61, 0.27, 0.12),
    labelled=False,
)

_bad = _diagnosis(
    ("keyword rule", "linear model", "small LLM", "large LLM"),
    (0.005, 0.02, 0.08, 0.15),
    (0.24, 0.12, 0.07, 0.21),
    (0.18, 0.22, 0.2, 0.4),
    labelled=True,
)
assert _bad.agreement is not None
BAD = msgspec.structs.replace(
    _bad,
    log="tickets.csv",
    agreement=msgspec.structs.replace(
        _bad.agreement,
        worse=(
            WorseArm(
                worse=3,
                better=2,
                difference=about(0.14, 0.012),
                cost_now=0.147,
                cost_without=0.068,
                loss_now=0.302,
                loss_without=0.149,
                words="large LLM costs more than small LLM and looks 14 points less accurate "
                "(12.8 to 15.2). Without it a round would cost 0.068 instead of 0.147.",
            ),
        ),
    ),
    verdict=Verdict(
        answer="not from disagreement alone",
        reason="The dearest arm, large LLM, looks worse than small LLM: disagreement with it is "
        "no reason to go deeper, and the rule goes too deep.",
        points=("Drop large LLM, or audit a share of the rounds.",),
    ),
)

_hostile = _diagnosis((EVIL, LONG), (0.1, 0.3), (0.2, 0.1), (0.7, 0.3), labelled=False)
HOSTILE = msgspec.structs.replace(
    _hostile,
    log=EVIL + ".csv",
    context=(EVIL, LONG),
    groups=tuple(
        msgspec.structs.replace(
            g, coordinate=EVIL if k < 3 else LONG, group=EVIL if k < 3 else LONG
        )
        for k, g in enumerate(_hostile.groups)
    ),
    verdict=Verdict("probably", f"About {EVIL} and {LONG}.", (EVIL,)),
    notes=(EVIL, LONG),
)
