"""How many contexts of an instance are weakly dominant: the tables' last columns."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from stopwise.environments.base import Batch
from stopwise.experiments.runs import built
from stopwise.experiments.spec import EnvironmentSpec, environment_random
from stopwise.paper import choices
from stopwise.paper.section import FAILED, HELD, Claim
from stopwise.reporting.parts import Table


class Fraction(NamedTuple):
    """The fraction of an instance, the paper's, and what is known of the instance besides."""

    instance: str
    costs: tuple[float, ...]
    measured: float
    printed: float
    margin: float


def contexts_of(environment: EnvironmentSpec) -> Batch:
    """Return the 5,000 contexts of the paper's runs, with the truth about them."""
    return built(environment).sample(choices.ROUNDS, environment_random(0))


def fractions(
    instances: Mapping[str, EnvironmentSpec], printed: Sequence[float]
) -> tuple[Fraction, ...]:
    """Return the fraction of every instance beside the paper's.

    Examples
    --------
    >>> from stopwise.paper import instances
    >>> (found,) = fractions({"instance 3": instances.pima((0.01, 0.35, 0.5))}, [0.2204])
    >>> abs(found.measured - found.printed) < 0.005
    True
    """
    found: list[Fraction] = []
    for (name, environment), paper in zip(instances.items(), printed, strict=True):
        batch = contexts_of(environment)
        fraction = float(batch.dominant.mean())
        found.append(Fraction(name, environment.costs, fraction, paper, float(batch.margins.min())))
    return tuple(found)


def fraction_table(name: str, title: str, found: Sequence[Fraction]) -> Table:
    """Return the paper's table with the measured fractions beside the printed ones."""
    arms = tuple(f"Clf. {k}" for k in range(1, len(found[0].costs) + 1))
    return Table(
        name,
        title,
        ("instance", *arms, "WD fraction", "the paper's", "difference", "ξ"),
        tuple(
            (f.instance, *f.costs, f.measured, f.printed, f.measured - f.printed, f.margin)
            for f in found
        ),
        note="ξ is the least margin of weak dominance over the contexts; negative where it fails.",
    )


def fraction_claim(found: Sequence[Fraction], tolerance: float, what: str, where: str) -> Claim:
    """Return whether every fraction is within a tolerance of the printed one.

    The arms' regularisation was searched to come near them, so this says that it can be done.
    """
    worst = max(abs(f.measured - f.printed) for f in found)
    return Claim(
        f"Arms can be trained so that the weak dominance fractions of {what} are those printed, to "
        f"within {tolerance}",
        where,
        "",
        HELD if worst <= tolerance else FAILED,
        f"largest difference {worst:.4f}: "
        + ", ".join(f"{f.measured:.4f} ({f.printed:.4f})" for f in found),
    )
