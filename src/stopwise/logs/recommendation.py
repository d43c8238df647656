"""Which policy or fixed depth to recommend: the rules, for `replay` and `diagnose` alike.

1. Budget: only options that cost at most the budget; if there are none, the cheapest.
2. Target: of these, only options that are wrong at most so often; if there are none, the least
   wrong.
3. Loss: of these, the fixed depth and the policy with the least loss. The policy is recommended
   only if its loss is lower than that of the fixed depth by more than the uncertainty: the paired
   interval of the difference excludes 0, at 95 % for all policies together, also those that the
   limits exclude: which are left depends on the same rows.

If a policy and a fixed depth tie, the depth is recommended. Of tied depths it is the cheaper one,
then the shallower; of tied policies the cheaper one, then the weight nearest to 1. Without labels,
the loss is cost + disagreement, and `uss-anchor`, which is safe whichever arms are right, is the
policy of rule 3 unless another has clearly less.
"""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec

from stopwise.intervals import NORMAL, Z95, Interval
from stopwise.reporting.wording import number, percent, plural

Kind = Literal["fixed depth", "policy"]
Cause = Literal["better", "not better", "only fixed depths", "only policies"]

ROUNDING = 1e-9  # a mean may exceed a budget that equals it by this, relative, by rounding
SAFE = "uss-anchor"
MATTERS = 0.02  # the share of a loss below which a difference does not matter (heuristic)


class Option(msgspec.Struct, frozen=True):
    """What can be recommended: a fixed depth, or a policy with a weight of the costs.

    ``loss`` is what options are compared by; ``over_fixed`` is by how much that of a policy exceeds
    that of each fixed depth, case by case. ``error`` is None where it is not known.
    """

    kind: Kind
    name: str
    cost: float
    error: Interval | None
    loss: Interval
    over_fixed: tuple[Interval, ...] = ()
    weight: float = 1.0

    @property
    def words(self) -> str:
        """Return how it is called in a sentence."""
        if self.kind == "fixed depth":
            return f"always {self.name}"
        return self.name if self.weight == 1 else f"{self.name} with weight {self.weight:g}"


class Recommendation(msgspec.Struct, frozen=True):
    """The one option to take, and why.

    Attributes
    ----------
    kind : {"fixed depth", "policy"}
    name : str
        Of the arm, or of the policy.
    weight : float
        By which to multiply the costs when the policy is created.
    cost, error, loss
        Of the option; ``loss`` is that by which options were compared.
    cause : {"better", "not better", "only fixed depths", "only policies"}
        The policy is better than the best fixed depth; no policy is; or the limits leave only one
        kind.
    within_budget, reaches_target : bool or None
        Whether the limits are kept; None where none was given.
    instead_of : str or None
        The best option of the other kind, in words.
    advantage : Interval or None
        By how much the loss of the policy is below that of the fixed depth; the interval is at 95 %
        for all policies together.
    sentence : str
        The recommendation in words.
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
    """Return what to take of every fixed depth and some policies.

    ``loss`` names what they are compared by; ``labelled`` counts the cases by which it is known,
    0 if it is cost + disagreement. ``first`` is what to do before deciding, in words.
    """
    depths, rules = list(fixed), list(policies)
    within = reaches = None
    if budget is not None:
        affordable = budget * (1 + ROUNDING)
        within = any(one.cost <= affordable for one in (*depths, *rules))
        if not within:
            affordable = min(one.cost for one in (*depths, *rules))
        depths = [one for one in depths if one.cost <= affordable]
        rules = [one for one in rules if one.cost <= affordable]
    if target_error is not None:
        most = target_error
        reaches = any(_error(one) <= most for one in (*depths, *rules))
        if not reaches:
            most = min(_error(one) for one in (*depths, *rules))
        depths = [one for one in depths if _error(one) <= most]
        rules = [one for one in rules if _error(one) <= most]

    depth = min(depths, key=lambda one: (one.loss.value, one.cost), default=None)
    rule = _best_policy(rules, labelled > 0)
    advantage = None
    cause: Cause = "only fixed depths" if rule is None else "only policies"
    if depth is not None and rule is not None:
        advantage = _joint(rule.over_fixed[list(fixed).index(depth)], len(policies))
        cause = "better" if advantage.low > 0 else "not better"
    chosen, other = (rule, depth) if cause in ("better", "only policies") else (depth, rule)
    assert chosen is not None  # some option costs least, and one of those is wrong least
    kept = Limits(budget if within else None, target_error if reaches else None)
    if within is False:
        nothing = f"nothing here {Limits(budget, None).singular}"
        reason = f"{nothing}, and it costs least, {number(chosen.cost)}"
    elif reaches is False:
        among = "" if budget is None else f" that {kept.singular}"
        nothing = f"nothing here{among} {Limits(None, target_error).singular}"
        reason = f"{nothing}, and it is wrong least, in {percent(_error(chosen))}"
    else:
        reason = _reason(cause, chosen, other, advantage, loss, labelled, kept)
        if cause == "not better" and (more := _more_labels(advantage, chosen, labelled)):
            reason += f"; about {more:,} more labelled rounds would settle it"
    sentence = f"Recommended: {chosen.words}; {reason}."
    if first:
        sentence = f"Recommended: {first}; until then {chosen.words} ({reason})."
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
        instead_of=None if other is None else other.words,
        advantage=advantage,
        sentence=sentence,
    )


def _error(one: Option) -> float:
    return math.inf if one.error is None else one.error.value


def _best_policy(rules: Sequence[Option], labelled: bool) -> Option | None:
    def order(one: Option) -> tuple[float, float, float]:
        return one.loss.value, one.cost, abs(math.log(one.weight))

    best = min(rules, key=order, default=None)
    if best is None or labelled:
        return best
    safe = [
        one
        for one in rules
        if one.name.partition(":")[0] == SAFE
        and one.loss.low <= best.loss.high
        and one.over_fixed[-1].low <= 0  # else it has learned too little to be safe yet
    ]
    return min(safe, key=order, default=best)


def _joint(more: Interval, policies: int) -> Interval:
    """Return an advantage, with an interval that holds for all policies together (Bonferroni)."""
    wider = NORMAL.inv_cdf(1 - 0.025 / policies) / Z95
    return (-more).stretched(wider)


def _more_labels(advantage: Interval | None, depth: Option, labelled: int) -> int:
    """Return how many more cases would make the interval of an advantage exclude 0.

    Its width falls as 1/√n. Zero for an advantage that does not matter, and for none.
    """
    if advantage is None or advantage.value <= MATTERS * depth.loss.value:
        return 0
    reach = (advantage.value - advantage.low) / advantage.value
    more = labelled * (reach**2 - 1)
    return math.ceil(float(f"{more:.2g}"))  # about


class Limits(NamedTuple):
    """The limits that were given, in words."""

    budget: float | None
    target_error: float | None

    @property
    def singular(self) -> str:
        """Return what one option does."""
        return self._words("costs", "is wrong")

    @property
    def plural(self) -> str:
        """Return what several options do."""
        return self._words("cost", "are wrong")

    def _words(self, costs: str, errs: str) -> str:
        words = (
            [f"{costs} at most {number(self.budget)} a round"] if self.budget is not None else []
        )
        if self.target_error is not None:
            words.append(f"{errs} in at most {percent(self.target_error)}")
        return " and ".join(words)


def _reason(
    cause: Cause,
    chosen: Option,
    other: Option | None,
    advantage: Interval | None,
    loss: str,
    labelled: int,
    limits: Limits,
) -> str:
    mine = f"its {loss} is {number(chosen.loss.value)} a round"
    mine += f" in {plural(labelled, 'labelled round')}" if labelled else ""
    if other is None or advantage is None:
        others = "policy here" if cause == "only fixed depths" else "fixed depth"
        return f"no {others} {limits.singular}" if limits.singular else mine
    among = f" of those that {limits.plural}" if limits.plural else ""
    value, low, high = advantage.value, advantage.low, advantage.high
    if cause == "better":
        by = f"{number(value)} ({number(low)} to {number(high)})"
        return f"{mine}, {by} lower than that of {other.words}, the best fixed depth{among}"
    far = f"{_signed(low)} to {_signed(high)}"
    if high <= 0:  # clearly worse
        far = f"{number(-high)} to {number(-low)}"
    difference = f"{_signed(value)} ({far})" if low < high else _signed(value)
    theirs = f"that of {other.words}, the best policy{among}, is {difference}"
    by = " by more than the uncertainty" if high > 0 else ""
    return f"no policy here is better{by}: {mine}, and {theirs}"


def _signed(advantage: float) -> str:
    if advantage == 0:
        return "the same"
    return f"{number(abs(advantage))} {'lower' if advantage > 0 else 'higher'}"
