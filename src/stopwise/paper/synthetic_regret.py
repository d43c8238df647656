"""Figure: regret of USS-PD on the four synthetic instances."""

from functools import partial
from itertools import pairwise

from stopwise.experiments.summary import What, mean_interval, paired_difference
from stopwise.paper import choices, instances
from stopwise.paper.drawing import curve_grid, instance_panels
from stopwise.paper.evidence import Cell, ClaimEvidence, cells_of
from stopwise.paper.exhibit import Exhibit
from stopwise.paper.fifths import LAST, SECOND, fifths_table, final_table, flattens
from stopwise.paper.section import Claim, Section, all_of, verdict
from stopwise.paper.settings import SETTINGS
from stopwise.reporting.parts import Picture
from stopwise.reporting.wording import format_value as fmt

WHERE = "Figure 1a"
NAMES = tuple(setting.name for setting in SETTINGS)
INSTANCES = tuple(choices.SYNTHETIC_COSTS)


def _cells() -> list[Cell]:
    return cells_of({k: instances.synthetic(c) for k, c in choices.SYNTHETIC_COSTS.items()})


def _build(evidence: ClaimEvidence) -> Section:
    return Section(
        EXHIBIT.name,
        EXHIBIT.title,
        WHERE,
        "The instances differ in the cost of the last arm, whose answers are close to coin flips. "
        "In instance 1 a few contexts are not weakly dominant: there the test goes to the last "
        "arm for ever, even with the true probabilities (*clairvoyant*), and pays for it in every "
        "round.",
        tables=(
            final_table(evidence, "synthetic-final"),
            fifths_table(evidence, "synthetic-fifths"),
        ),
        pictures=(
            Picture(
                "synthetic-regret",
                "Regret of USS-PD on the four instances; vertical lines are 95 % confidence "
                "intervals",
                "Cumulative regret over 5,000 rounds, one curve for each instance, a panel for "
                "each setting.",
                partial(instance_panels, evidence, NAMES, "regret", "regret"),
            ),
            Picture(
                "synthetic-everybody",
                "The same beside the other policies: what contexts buy",
                "Cumulative regret of all policies, a column for each instance and a row for each "
                "setting.",
                partial(curve_grid, evidence, NAMES, "regret", "regret"),
            ),
        ),
        claims=tuple(claim for setting in NAMES for claim in _claims(evidence, setting)),
    )


def _claims(evidence: ClaimEvidence, setting: str) -> list[Claim]:
    return [
        _linear(
            evidence,
            setting,
            "regret",
            "Instance 1: regret grows linearly",
            why="Its regret is mostly that of learning, which falls. Contexts without weak "
            "dominance are 16 of 5,000, and even the clairvoyant rule loses little on them.",
        ),
        _linear(
            evidence,
            setting,
            "undominated",
            "Instance 1: the part from contexts without weak dominance grows linearly",
            why="USS-PD pays less there than the clairvoyant rule: its logistic model of degree "
            "two does not see how often arms 4 and 5 disagree on those few contexts.",
        ),
        _falling(evidence, setting),
        *(
            flattens(
                evidence,
                setting,
                instance,
                f"{instance.capitalize()}: regret is sub-linear",
                "Theorem 2, on Figure 1a",
                why="Weak dominance holds here, but disagreement is not logistic in features of "
                "degree two: the model errs for good on some contexts. The supervised learner's "
                "regret goes on in the same way.",
            )
            for instance in INSTANCES[1:]
        ),
    ]


def _linear(evidence: ClaimEvidence, setting: str, what: What, text: str, why: str) -> Claim:
    first = INSTANCES[0]
    late = evidence.added(setting, first, "USS-PD", what, LAST)
    early = evidence.added(setting, first, "USS-PD", what, SECOND)
    goes_on = paired_difference(late, [0.5 * e for e in early])
    told = mean_interval(evidence.added(setting, first, "clairvoyant", what, LAST))
    return Claim(
        f"{text} (criterion: in the last fifth of the rounds it is above zero, and more than half "
        "of that in the second)",
        WHERE,
        setting,
        all_of([verdict(mean_interval(late)), verdict(goes_on)]),
        f"second fifth {fmt(mean_interval(early))}, last fifth {fmt(mean_interval(late))}; the "
        f"last less half the second {fmt(goes_on)}; clairvoyant, last fifth {fmt(told)}",
        why=why,
    )


def _falling(evidence: ClaimEvidence, setting: str) -> Claim:
    ends = {k: evidence.added(setting, k, "USS-PD") for k in INSTANCES[1:]}
    steps = [paired_difference(ends[a], ends[b]) for a, b in pairwise(INSTANCES[1:])]
    return Claim(
        "Regret falls from instance 2 to 3 and from 3 to 4 (criterion: each step is down, by a 95 "
        "% interval on differences paired by seed)",
        WHERE,
        setting,
        all_of([verdict(step) for step in steps]),
        "regret "
        + ", ".join(fmt(mean_interval(ends[k])) for k in INSTANCES[1:])
        + "; steps down "
        + ", ".join(fmt(step) for step in steps),
    )


EXHIBIT = Exhibit(
    "synthetic-regret", "Regret on the synthetic instances", WHERE, _build, cells=_cells
)
