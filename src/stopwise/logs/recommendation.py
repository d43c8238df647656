"""Rules that recommend a policy or a fixed depth, shared by `replay` and `diagnose`.

1. Budget: only options that cost at most the budget; if there are none, the cheapest.
2. Target: of these, only options whose error rate is at most the target; if there are none, the
   one with the lowest error rate.
3. Loss: of these, compare the fixed depth that has the lowest loss with the policy that has the
   lowest loss. The policy is recommended only if its loss is lower than that of the fixed depth by
   more than the uncertainty: the paired interval of the difference excludes 0, at 95 % for all
   policies together. These include the policies that rules 1 and 2 exclude, because the same rows
   decide which policies are excluded.

If a policy and a fixed depth tie, the depth is recommended. Among tied depths the cheaper one wins,
then the shallower; among tied policies the cheaper one, then the weight nearest to 1. Without
labels, the loss is cost + disagreement, and `uss-anchor`, which is safe whichever arms are right,
is the policy of rule 3 unless another policy, or always the deepest arm, is clearly better than
`uss-anchor`.
"""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec

from stopwise.intervals import NORMAL, Z95, Interval
from stopwise.reporting.wording import number, percent, plural

Kind = Literal["fixed depth", "policy"]
Cause = Literal["better", "not better", "only fixed depths", "only policies"]

ROUNDING = 1e-9  # relative rounding error by which a mean may exceed an equal budget
SAFE_POLICY = "uss-anchor"
NEGLIGIBLE = 0.02  # differences below this share of the loss are ignored (heuristic)


class Option(msgspec.Struct, frozen=True):
    """A fixed depth, or a policy created with its costs multiplied by ``weight``.

    Options are compared by ``loss``; ``over_fixed`` is the paired difference between the loss of a
    policy and that of each fixed depth. ``error`` is None if there are no labels.
    """

    kind: Kind
    name: str
    cost: float
    error: Interval | None
    loss: Interval
    over_fixed: tuple[Interval, ...] = ()
    weight: float = 1.0

    @property
    def label(self) -> str:
        """Return the name used in sentences."""
        if self.kind == "fixed depth":
            return f"always {self.name}"
        return self.name if self.weight == 1 else f"{self.name} with weight {self.weight:g}"


class Recommendation(msgspec.Struct, frozen=True):
    """The recommended option, and the reason.

    Attributes
    ----------
    kind : {"fixed depth", "policy"}
    name : str
        Name of the arm or the policy.
    weight : float
        Factor by which to multiply the costs when creating the policy.
    cost, error, loss
        Mean cost, error rate and loss of the option. Options were compared by ``loss``.
    cause : {"better", "not better", "only fixed depths", "only policies"}
        Why the option was chosen: the policy is better than the best fixed depth; no policy is; or
        the limits leave only fixed depths, or only policies.
    within_budget, reaches_target : bool or None
        Whether the option is within the budget; whether it reaches the target. None if that limit
        is not set.
    instead_of : str or None
        The best option of the other kind, as named in sentences.
    advantage : Interval or None
        The loss of the fixed depth minus that of the policy; the interval is at 95 % for all
        policies together.
    sentence : str
        The recommendation as a sentence.
    """

    kind: Kind
    name: str
    weight: float
    cost: float
    error: Interval | None
    loss: Interval
    cause: Cause
    within_budget: bool | None
    reaches_target: bool | None
    instead_of: str | None
    advantage: Interval | None
    sentence: str


def recommend(
    fixed: Sequence[Option],
    policies: Sequence[Option],
    *,
    loss: str,
    budget: float | None = None,
    target_error: float | None = None,
    labelled: int = 0,
    first: str = "",
) -> Recommendation:
    """Recommend one of the fixed depths and policies.

    ``loss`` names the criterion; ``labelled`` is the number of labelled rounds, 0 if the criterion
    is cost + disagreement. ``first`` is an action to take before deciding, as text.
    """
    depths, rules = list(fixed), list(policies)
    within = reaches = None
    if budget is not None:
        affordable = budget * (1 + ROUNDING)
        within = any(option.cost <= affordable for option in (*depths, *rules))
        if not within:
            affordable = min(option.cost for option in (*depths, *rules))
        depths = [option for option in depths if option.cost <= affordable]
        rules = [option for option in rules if option.cost <= affordable]
    if target_error is not None:
        target = target_error
        reaches = any(_error(option) <= target for option in (*depths, *rules))
        if not reaches:
            target = min(_error(option) for option in (*depths, *rules))
        depths = [option for option in depths if _error(option) <= target]
        rules = [option for option in rules if _error(option) <= target]

    depth = min(depths, key=lambda option: (option.loss.value, option.cost), default=None)
    rule = _best_policy(rules, labelled > 0)
    advantage = None
    cause: Cause = "only fixed depths" if rule is None else "only policies"
    if depth is not None and rule is not None:
        advantage = _joint(rule.over_fixed[list(fixed).index(depth)], len(policies))
        cause = "better" if advantage.low > 0 else "not better"
    chosen, other = (rule, depth) if cause in ("better", "only policies") else (depth, rule)
    assert chosen is not None  # each filter keeps at least its minimum
    kept = Limits(budget if within else None, target_error if reaches else None)
    if within is False:
        reason = f"no option {Limits(budget, None).singular}, and this one is the cheapest, at "
        reason += number(chosen.cost)
    elif reaches is False:
        affordable_only = "" if budget is None else f" that {kept.singular}"
        reason = f"no option{affordable_only} {Limits(None, target_error).singular}, and this one "
        reason += f"has the lowest error rate, {percent(_error(chosen))}"
    else:
        reason = _reason(cause, chosen, other, advantage, loss, labelled, kept)
        if cause == "not better" and (more := _more_labels(advantage, chosen, labelled)):
            reason += f"; about {more:,} more labelled rounds would settle it"
    sentence = f"Recommended: {chosen.label}; {reason}."
    if first:
        sentence = f"Recommended: {first}; until then {chosen.label} ({reason})."
    return Recommendation(
        kind=chosen.kind,
        name=chosen.name,
        weight=chosen.weight,
        cost=chosen.cost,
        error=chosen.error,
        loss=chosen.loss,
        cause=cause,
        within_budget=within,
        reaches_target=reaches,
        instead_of=None if other is None else other.label,
        advantage=advantage,
        sentence=sentence,
    )


def _error(option: Option) -> float:
    return math.inf if option.error is None else option.error.value


def _best_policy(rules: Sequence[Option], labelled: bool) -> Option | None:
    def order(option: Option) -> tuple[float, float, float]:
        return option.loss.value, option.cost, abs(math.log(option.weight))

    best = min(rules, key=order, default=None)
    if best is None or labelled:
        return best
    safe = [
        option
        for option in rules
        if option.name.partition(":")[0] == SAFE_POLICY
        and option.loss.low <= best.loss.high
        and option.over_fixed[-1].low <= 0  # otherwise it has not learned enough to be safe
    ]
    return min(safe, key=order, default=best)


def _joint(extra_loss: Interval, policies: int) -> Interval:
    """Return minus the extra loss, with an interval valid for all policies (Bonferroni)."""
    wider = NORMAL.inv_cdf(1 - 0.025 / policies) / Z95
    return (-extra_loss).stretched(wider)


def _more_labels(advantage: Interval | None, depth: Option, labelled: int) -> int:
    """Return how many more labelled rounds would make the interval of an advantage exclude 0.

    The width of the interval falls as 1/√n. The result is 0 if the advantage is negligible or None.
    """
    if advantage is None or advantage.value <= NEGLIGIBLE * depth.loss.value:
        return 0
    reach = (advantage.value - advantage.low) / advantage.value
    more = labelled * (reach**2 - 1)
    return math.ceil(float(f"{more:.2g}"))  # two digits: it is an estimate


class Limits(NamedTuple):
    """The budget and the target, as text."""

    budget: float | None
    target_error: float | None

    @property
    def singular(self) -> str:
        """Return the limits as the predicate of a singular subject."""
        return self._text("costs", "is wrong")

    @property
    def plural(self) -> str:
        """Return the limits as the predicate of a plural subject."""
        return self._text("cost", "are wrong")

    def _text(self, costs: str, errs: str) -> str:
        limits: list[str] = []
        if self.budget is not None:
            limits.append(f"{costs} at most {number(self.budget)} per round")
        if self.target_error is not None:
            limits.append(f"{errs} in at most {percent(self.target_error)}")
        return " and ".join(limits)


def _reason(
    cause: Cause,
    chosen: Option,
    other: Option | None,
    advantage: Interval | None,
    loss: str,
    labelled: int,
    limits: Limits,
) -> str:
    amount = f"is {number(chosen.loss.value)} per round"
    amount += f" in {plural(labelled, 'labelled round')}" if labelled else ""
    own = f"its {loss} {amount}"
    if other is None or advantage is None:
        others = "policy" if cause == "only fixed depths" else "fixed depth"
        return f"no {others} {limits.singular}" if limits.singular else own
    among = f" of those that {limits.plural}" if limits.plural else ""
    value, low, high = advantage.value, advantage.low, advantage.high
    if cause == "better":
        by = f"{number(value)} ({number(low)} to {number(high)})"
        return f"{own}, {by} lower than that of {other.label}, the best fixed depth{among}"
    interval = f"{_signed(low)} to {_signed(high)}"
    if high <= 0:  # clearly worse
        interval = f"{number(-high)} to {number(-low)}"
    difference = f"{_signed(value)} ({interval})" if low < high else _signed(value)
    best = f"that of {other.label}, the best policy{among}, is {difference}"
    by = " by more than the uncertainty" if high > 0 else ""
    return f"no policy here is better{by}: the {loss} of {chosen.label} {amount}, and {best}"


def _signed(advantage: float) -> str:
    if advantage == 0:
        return "the same"
    return f"{number(abs(advantage))} {'lower' if advantage > 0 else 'higher'}"
