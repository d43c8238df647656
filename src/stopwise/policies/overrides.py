"""Subclasses outside the package that override a step: all methods call the step, or refuse."""

from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any

from stopwise.errors import OverrideNotSupportedError
from stopwise.policies.checking import checked_rounds
from stopwise.records import RecordedRounds

if TYPE_CHECKING:
    from stopwise.policies.base import Policy

FROM_OUTPUTS = frozenset({"observe", "_learn"})
FROM_PAIRS = frozenset({"observe_disagreements", "_learn_pairs"})
STEPS = FROM_OUTPUTS | FROM_PAIRS | {"decide", "learn_label"}
ESTIMATES = ("radius", "theta", "gram", "disagreement")  # for callers; no decision reads them


def constructor_parameters(kind: type[Any]) -> dict[str, Parameter]:
    """Return the parameters that a class's constructor takes, or passes on to its base's."""
    found: dict[str, Parameter] = {}
    for base in kind.__mro__:
        if "__init__" in vars(base):
            own = signature(base.__init__).parameters
            found = {**own, **found}
            if all(p.kind is not Parameter.VAR_KEYWORD for p in own.values()):
                break
    return found


def find_overridden(kind: type[Any], builtin: type[Any]) -> frozenset[str]:
    """Return the steps that a class overrides; refuse an override that would have no effect."""

    def overrides(name: str) -> bool:
        return getattr(kind, name, None) is not getattr(builtin, name, None)

    if not overrides("decide") and (useless := next(filter(overrides, ESTIMATES), None)):
        raise OverrideNotSupportedError(
            f"{kind.__name__} overrides {useless}, which no decision of {builtin.__name__} reads. "
            "Override decide"
        )
    return frozenset(filter(overrides, STEPS))


def check_complete_contexts(policy: "Policy") -> None:
    """Refuse features that see more from stage to stage: `decide` takes a complete context."""
    if policy.sees_revealed:
        raise OverrideNotSupportedError(
            f"{type(policy).__name__} has its own {', '.join(sorted(policy.overridden_steps))}, "
            "which needs the complete context, but its features see more from stage to stage: "
            "give it other features than Answers"
        )


def check_learns_from_pairs(policy: "Policy") -> None:
    """Refuse rounds with only disagreements known where these are not enough."""
    steps = policy.overridden_steps
    if steps & FROM_OUTPUTS and not steps & FROM_PAIRS:
        raise OverrideNotSupportedError(
            f"{type(policy).__name__} overrides {max(steps & FROM_OUTPUTS)}, which takes outputs, "
            "but of these rounds only disagreements are known: override observe_disagreements too"
        )


def check_record(policy: "Policy", rounds: RecordedRounds) -> RecordedRounds:
    """Return recorded rounds, checked, that a policy can learn from."""
    check_learns_from_pairs(policy)
    return checked_rounds(rounds, policy.cascade, policy.uses_context)
