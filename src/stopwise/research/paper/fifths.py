"""Values at the end of a run and by fifths of it: how fast regret grows."""

from collections.abc import Callable

import numpy as np

from stopwise.intervals import Interval, mean_interval
from stopwise.reporting.elements import Table
from stopwise.reporting.wording import format_value as fmt
from stopwise.research.experiments.summary import What
from stopwise.research.paper.evidence import ClaimEvidence
from stopwise.research.paper.growth import LARGE, SMALL, Growth, fit_growth
from stopwise.research.paper.section import FAILED, HELD, UNDECIDED, Claim
from stopwise.research.paper.settings import NAMES

FIFTHS = tuple((k / 5, (k + 1) / 5) for k in range(5))
SECOND, LAST = FIFTHS[1], FIFTHS[4]
CRITERION = (
    "A·log t + c·t, A and c at least 0, is fitted to the last four fifths of the rounds; the "
    "linear part is c·t in what the fit adds in the last fifth, with its 95 % bootstrap interval "
    f"over runs. Logarithmic if the interval contains 0 and lies below {SMALL:.0%}, linear if it "
    f"contains 100 % and lies above {LARGE:.0%}; otherwise undecided at this horizon"
)


def final_table(
    evidence: ClaimEvidence,
    name: str,
    title: str,
    value: Callable[[str, str, str], Interval] | None = None,
    note: str = "",
) -> Table:
    """Return a value (by default, regret at the end) of every policy on every instance."""
    instances = evidence.instances()
    value = value or evidence.mean
    return Table(
        name,
        title,
        ("setting", "policy", *instances),
        tuple(
            (setting, policy, *(value(setting, k, policy) for k in instances))
            for setting in NAMES
            for policy in evidence.policies(setting, instances[0])
        ),
        note,
    )


def fifths_table(
    evidence: ClaimEvidence, name: str, what: What = "regret", title: str = "regret"
) -> Table:
    """Return what each fifth of the rounds added to the regret of USS-PD, and its linear part."""
    return Table(
        name,
        f"What each fifth of the rounds added to the {title} of USS-PD",
        ("setting", "instance", "first", "second", "third", "fourth", "last", "linear part"),
        tuple(
            (
                setting,
                instance,
                *(
                    mean_interval(evidence.added(setting, instance, "USS-PD", what, fifth))
                    for fifth in FIFTHS
                ),
                _linear_part(fit(evidence, setting, instance, what)),
            )
            for setting in NAMES
            for instance in evidence.instances()
        ),
        "The last column: which part of the last fifth is linear, by a fit of A·log t + c·t to the "
        "last four fifths, with its 95 % bootstrap interval over runs.",
    )


def fit(
    evidence: ClaimEvidence, setting: str, instance: str, what: What = "regret"
) -> Growth | None:
    """Fit the growth of the regret of USS-PD."""
    traces = evidence.traces(setting, instance, "USS-PD")
    curves = np.array([getattr(trace, what) for trace in traces], dtype=np.float64)
    return fit_growth(traces[0].rounds.astype(np.float64), curves)


def growth(
    evidence: ClaimEvidence,
    setting: str,
    instance: str,
    text: str,
    why: str = "",
    *,
    linear: bool = False,
    what: What = "regret",
) -> Claim:
    """Judge whether USS-PD's regret in a setting and instance is sub-linear, or is linear."""
    late = evidence.added(setting, instance, "USS-PD", what, LAST)
    found = fit(evidence, setting, instance, what)
    shape = "undecided" if found is None else found.shape
    held, failed = ("linear", "logarithmic") if linear else ("logarithmic", "linear")
    if found is None:
        numbers = f"{len(late)} runs are too few to fit its growth"
    else:
        at = " at this horizon" if shape == "undecided" else ""
        numbers = (
            f"{shape}{at}: linear part {_linear_part(found)} of the last fifth, which adds "
            f"{fmt(mean_interval(late))}"
        )
    return Claim(
        f"{instance.capitalize()}: {text}",
        HELD if shape == held else FAILED if shape == failed else UNDECIDED,
        numbers,
        CRITERION,
        why,
    )


def _linear_part(found: Growth | None) -> str:
    if found is None:
        return "too few runs"
    share = found.share
    return f"{share.value:.0%} ({share.low:.0%} to {share.high:.0%})"
