"""The rules of the recommendation."""

from typing import Any

import msgspec
import numpy as np
import pytest

from stopwise.intervals import NORMAL, Z95, Interval, normal_mean
from stopwise.logs.recommendation import Option, recommend


def exactly(value: float) -> Interval:
    return Interval(value, value, value)


def about(value: float, reach: float) -> Interval:
    return Interval(value, value - reach, value + reach)


def depth(name: str, cost: float, error: float) -> Option:
    return Option("fixed depth", name, cost, exactly(error), exactly(cost + error))


FIXED = [depth("history", 0.01, 0.20), depth("glucose", 0.07, 0.10), depth("insulin", 0.22, 0.02)]
# losses: 0.21, 0.17, 0.24


def policy(
    name: str, cost: float, error: float, reach: float = 0.01, weight: float = 1.0
) -> Option:
    """Return a policy whose advantage over each fixed depth has a margin of error ``reach``."""
    over = tuple(about(cost + error - option.loss.value, reach) for option in FIXED)
    return Option("policy", name, cost, exactly(error), about(cost + error, reach), over, weight)


GOOD, SAME, WORSE = policy("good", 0.08, 0.04), policy("same", 0.08, 0.085), policy("w", 0.2, 0.1)
DEEP = policy("deep", 0.14, 0.015)


@pytest.mark.parametrize(
    ("policies", "limits", "chosen", "cause", "kept"),
    [
        # loss: a policy only if its advantage exceeds the uncertainty
        ([GOOD], {}, "good", "better", (None, None)),
        ([SAME], {}, "always glucose", "not better", (None, None)),
        ([WORSE], {}, "always glucose", "not better", (None, None)),
        (
            [policy("unsure", 0.08, 0.04, reach=0.06)],
            {},
            "always glucose",
            "not better",
            (None, None),
        ),
        ([WORSE, GOOD, SAME], {}, "good", "better", (None, None)),
        ([], {}, "always glucose", "only fixed depths", (None, None)),
        # the budget takes precedence
        ([GOOD], {"budget": 0.1}, "good", "better", (True, None)),
        ([GOOD], {"budget": 0.08}, "good", "better", (True, None)),
        ([GOOD], {"budget": 0.07}, "always glucose", "only fixed depths", (True, None)),
        ([GOOD, DEEP], {"budget": 0.05}, "always history", "only fixed depths", (True, None)),
        ([GOOD], {"budget": 0.001}, "always history", "only fixed depths", (False, None)),
        # then a target for the error
        ([GOOD], {"target_error": 0.05}, "good", "better", (None, True)),
        ([GOOD], {"target_error": 0.03}, "always insulin", "only fixed depths", (None, True)),
        ([GOOD, DEEP], {"target_error": 0.03}, "deep", "better", (None, True)),
        ([GOOD, DEEP], {"target_error": 0.018}, "deep", "only policies", (None, True)),
        ([GOOD], {"target_error": 0.001}, "always insulin", "only fixed depths", (None, False)),
        # both: the budget is never exceeded to meet the target
        ([GOOD], {"budget": 0.1, "target_error": 0.05}, "good", "only policies", (True, True)),
        ([GOOD], {"budget": 0.1, "target_error": 0.01}, "good", "only policies", (True, False)),
        (
            [DEEP],
            {"budget": 0.1, "target_error": 0.01},
            "always glucose",
            "only fixed depths",
            (True, False),
        ),
        (
            [GOOD],
            {"budget": 0.0, "target_error": 0.01},
            "always history",
            "only fixed depths",
            (False, False),
        ),
        # ties: the weight nearest to 1
        (
            [policy("good", 0.08, 0.04, weight=2), GOOD, policy("good", 0.08, 0.04, weight=0.7)],
            {},
            "good",
            "better",
            (None, None),
        ),
        ([policy("good", 0.08, 0.04, weight=2)], {}, "good with weight 2", "better", (None, None)),
        # a policy that equals a fixed depth
        ([policy("same", 0.07, 0.1, reach=0)], {}, "always glucose", "not better", (None, None)),
    ],
)
def test_an_option_is_recommended_by_loss_budget_and_target(
    policies: list[Option],
    limits: dict[str, Any],
    chosen: str,
    cause: str,
    kept: tuple[bool | None, bool | None],
) -> None:
    result = recommend(FIXED, policies, loss="total loss", labelled=600, **limits)
    assert result.sentence.startswith(f"Recommended: {chosen}; ")
    assert (result.cause, result.within_budget, result.reaches_target) == (cause, *kept)
    assert ("no policy here is better" in result.sentence) == (cause == "not better")
    assert result.sentence.endswith(".")


def test_the_interval_holds_for_all_policies_together() -> None:
    """By Bonferroni, the luckiest of ten equal policies does not count as better."""
    best = policy("best", 0.08, 0.077)
    assert best.over_fixed[1].high < 0
    assert recommend(FIXED, [best], loss="total loss").kind == "policy"
    ten = recommend(FIXED, [best, *[WORSE] * 9], loss="total loss")
    assert ten.kind == "fixed depth"
    assert ten.advantage is not None
    wider = NORMAL.inv_cdf(1 - 0.025 / 10) / Z95
    assert ten.advantage.high - ten.advantage.value == pytest.approx(0.01 * wider)


@pytest.mark.parametrize("limit", [{"budget": 0.1}, {"target_error": 0.1}])
def test_policies_that_a_limit_excludes_count_for_the_interval(limit: dict[str, Any]) -> None:
    """A limit on observed results favours lucky policies."""
    lucky, unlucky = policy("lucky", 0.08, 0.077), policy("unlucky", 0.2, 0.2)
    assert recommend(FIXED, [lucky], loss="total loss", **limit).kind == "policy"
    ten = recommend(FIXED, [lucky, *[unlucky] * 9], loss="total loss", **limit)
    assert ten.kind == "fixed depth"
    assert ten.advantage is not None
    wider = NORMAL.inv_cdf(1 - 0.025 / 10) / Z95
    assert ten.advantage.high - ten.advantage.value == pytest.approx(0.01 * wider)


def test_the_luckiest_of_ten_equal_policies_is_rarely_called_better() -> None:
    """With equal losses and a target that few policies meet, at most 5 % are false "better".

    The rate is 3 % of 1,000 logs. If only the policies that meet the target counted, it would be
    10 %, which exceeds 18 of 300 with probability 99 %.
    """
    random, n, false = np.random.default_rng(0), 1000, 0
    for _ in range(300):
        fixed = (random.random(n) < 0.08).astype(np.float64)
        always = Option("fixed depth", "d", 0.02, normal_mean(fixed), normal_mean(fixed + 0.02))
        options: list[Option] = []
        for _ in range(10):
            wrong = (random.random(n) < 0.1).astype(np.float64)
            over = (normal_mean(wrong - fixed - 0.02),)
            options.append(Option("policy", "p", 0.0, normal_mean(wrong), normal_mean(wrong), over))
        target = max(float(fixed.mean()), 0.0855)
        result = recommend([always], options, loss="loss", target_error=target, labelled=n)
        false += result.cause == "better"
    assert false <= 18


def test_a_tie_goes_to_the_fixed_depth_even_if_the_policy_costs_less() -> None:
    tied = policy("cheap", 0.05, 0.12)
    assert tied.loss.value == pytest.approx(FIXED[1].loss.value)
    assert recommend(FIXED, [tied], loss="total loss").name == "glucose"


def test_the_number_of_labels_that_would_settle_it_is_stated() -> None:
    """Interval widths fall as 1/√n, so 0.02 ± 0.04 on 600 rows needs four times as many."""
    result = recommend(FIXED, [policy("p", 0.08, 0.07, 0.04)], loss="total loss", labelled=600)
    assert "about 1,800 more labelled rounds would settle it" in result.sentence
    assert "would settle" not in recommend(FIXED, [WORSE], loss="total loss", labelled=9).sentence


@pytest.mark.parametrize(
    ("safe", "chosen"),
    [
        (policy("uss-anchor:z=1", 0.08, 0.05), "uss-anchor:z=1"),
        (policy("uss-anchor", 0.08, 0.08), "good"),
        (policy("uss-anchor", 0.24, 0.01), "good"),  # it has not learned enough to be safe
    ],
)
def test_without_labels_the_safe_policy_wins_unless_another_is_clearly_better(
    safe: Option, chosen: str
) -> None:
    policies = [msgspec.structs.replace(option, error=None) for option in (safe, GOOD)]
    assert recommend(FIXED, policies, loss="cost + disagreement").name == chosen
