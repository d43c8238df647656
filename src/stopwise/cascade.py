"""The cascade: an ordered sequence of arms with costs."""

import math
import operator
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, SupportsIndex, cast

import numpy as np
from numpy.typing import ArrayLike

from stopwise.arrays import Floats
from stopwise.checks import real, vector
from stopwise.errors import CostUnitWarning, InvalidCascadeError, InvalidStopError
from stopwise.records import Decision
from stopwise.text import suggestion

# Relative tolerance of `differences`, because costs computed from cumulative costs have rounding
# errors.
SAME_COST = 1e-12


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Cascade:
    """Arms 0 … K−1 in order; running arm i requires running and paying for all arms before it.

        Cᵢ = c₀ + … + cᵢ,   cumulative[i] = λᵢ·Cᵢ,   gaps[i, j] = cumulative[j] − cumulative[i]

    The loss of stopping at arm i is γᵢ(x) + λᵢ·Cᵢ, where γᵢ(x) is the probability that arm i is
    wrong in context x (the paper, Problem setting). The trade-off weights λᵢ convert money to
    error probability; only ``cumulative`` and ``gaps`` include them. Every argument is also an
    attribute, with one value for each of the ``n_arms`` arms.

    A cascade is immutable, hashable and compared by value.

    Parameters
    ----------
    costs : array_like of shape (K,)
        The cost cᵢ ≥ 0 of running arm i alone. At least two arms are required.
    names : sequence of str, optional
        Unique names; "arm 0", "arm 1", … by default.
    tradeoff : float or array_like of shape (K,), optional
        The weights λᵢ > 0, either one for all arms or one per arm; 1 by default.

    Examples
    --------
    >>> cascade = Cascade([0.01, 0.24, 0.25], names=["history", "glucose", "insulin"])
    >>> cascade
    Cascade(history 0.01 → glucose 0.25 → insulin 0.50)
    >>> cascade.cost("glucose"), float(cascade.gaps[1, 2])
    (0.25, 0.25)
    """

    n_arms: int
    costs: Floats
    names: tuple[str, ...]
    tradeoff: Floats
    cumulative: Floats
    gaps: Floats
    _totals: Floats  # Cᵢ, without trade-off weights

    def __init__(
        self,
        costs: ArrayLike,
        names: Sequence[str] | None = None,
        tradeoff: ArrayLike | None = None,
    ) -> None:
        checked = vector("costs", costs, least=0, error=InvalidCascadeError)
        with np.errstate(over="ignore"):  # _fill raises an error instead
            totals = np.cumsum(checked)
        self._fill(checked, totals, names, tradeoff)

    @classmethod
    def from_cumulative(
        cls,
        cumulative: ArrayLike,
        names: Sequence[str] | None = None,
        tradeoff: ArrayLike | None = None,
    ) -> "Cascade":
        """Create a cascade from the total cost of stopping at each arm, before any trade-off.

        ``cumulative`` contains the Cᵢ, which must be non-negative and non-decreasing. They are
        stored exactly; ``costs`` are computed as their differences.

        Examples
        --------
        >>> Cascade.from_cumulative([0.01, 0.25, 0.50])
        Cascade(arm 0 0.01 → arm 1 0.25 → arm 2 0.50)
        """
        totals = vector("cumulative", cumulative, least=0, error=InvalidCascadeError)
        decreases = np.flatnonzero(np.diff(totals) < 0)
        if decreases.size:
            i = int(decreases[0])
            raise InvalidCascadeError(
                f"cumulative must not decrease, got {totals[i]:g} for arm {i} and "
                f"{totals[i + 1]:g} for arm {i + 1}; if these are the costs of individual arms, "
                "use Cascade(costs)"
            )
        cascade = object.__new__(cls)
        cascade._fill(np.diff(totals, prepend=0.0), totals, names, tradeoff)
        return cascade

    @classmethod
    def from_prices(
        cls, prices: ArrayLike, error_cost: float, names: Sequence[str] | None = None
    ) -> "Cascade":
        """Create a cascade from prices and the cost of one wrong answer, in the same currency.

        ``prices`` contains the price of running each arm alone. ``error_cost`` is the cost of one
        wrong answer, or the amount that you would pay to prevent one.

        Examples
        --------
        >>> Cascade.from_prices([10, 200, 300], error_cost=1000)
        Cascade(arm 0 0.01 → arm 1 0.21 → arm 2 0.51; trade-off 0.001, 0.001, 0.001)
        """
        cost = real("error_cost", error_cost, above=0, error=InvalidCascadeError)
        return cls(prices, names, tradeoff=1 / cost)

    def decision(self, stop: int, rule_stop: int | None = None) -> Decision:
        """Return the decision to stop at an arm.

        ``rule_stop`` is the stop that the rule chose, if the round continues beyond it at random.

        Examples
        --------
        >>> Cascade([0.1, 0.2], names=["rule", "model"]).decision(1, rule_stop=0).rule_stop
        0
        """
        explored_from = None if rule_stop is None or rule_stop >= stop else rule_stop
        return Decision(stop, self.names[stop], self.cost(stop), explored_from=explored_from)

    def _fill(
        self,
        costs: Floats,
        totals: Floats,
        names: Sequence[str] | None,
        tradeoff: ArrayLike | None,
    ) -> None:
        """Set the frozen fields from costs that have been checked."""
        k = len(costs)
        if k < 2:
            raise InvalidCascadeError(f"a cascade needs at least two arms, got {k}")
        weights = 1.0 if tradeoff is None else tradeoff
        weights = vector("tradeoff", weights, size=k, above=0, error=InvalidCascadeError)
        with np.errstate(over="ignore"):
            cumulative = weights * totals
        if not np.isfinite(cumulative).all():
            raise InvalidCascadeError(
                "the sum of the costs exceeds the range of a float; use a larger unit of cost"
            )
        fields: dict[str, object] = {
            "n_arms": k,
            "costs": costs,
            "names": _checked_names([f"arm {i}" for i in range(k)] if names is None else names, k),
            "tradeoff": weights,
            "cumulative": cumulative,
            "gaps": cumulative[None, :] - cumulative[:, None],
            "_totals": totals,
        }
        for name, value in fields.items():
            if isinstance(value, np.ndarray):
                value.flags.writeable = False
            object.__setattr__(self, name, value)
        if warning := cost_unit_warning(self.names, cumulative):
            advice = "for amounts of money, use Cascade.from_prices(prices, error_cost=...)"
            warnings.warn(f"{warning}; {advice}", CostUnitWarning, stacklevel=3)

    def index(self, arm: str | SupportsIndex) -> int:
        """Return the 0-based position of an arm, which is passed by name or position."""
        if isinstance(arm, str):
            if arm not in self.names:
                raise InvalidStopError(f"unknown arm {arm!r}; {suggestion(arm, self.names)}")
            return self.names.index(arm)
        try:
            # bool is a subclass of int, but True as an arm is a mistake.
            position = operator.index(cast(Any, None if isinstance(arm, bool | np.bool_) else arm))
        except TypeError:
            raise InvalidStopError(f"an arm must be a name or an integer, got {arm!r}") from None
        if not 0 <= position < self.n_arms:
            raise InvalidStopError(
                f"an arm must be an integer from 0 to {self.n_arms - 1}, got {position}"
            )
        return position

    def cost(self, stop: str | SupportsIndex) -> float:
        """Return the total cost of stopping at an arm, λᵢ·Cᵢ."""
        return float(self.cumulative[self.index(stop)])

    def pairs(self) -> list[tuple[int, int]]:
        """Return every pair (i, j) with i < j, row by row: (0, 1), (0, 2), …, (1, 2), …."""
        return list(combinations(range(self.n_arms), 2))

    def differences(self, other: "Cascade") -> list[str]:
        """Describe each difference between this cascade and another one, with this one first.

        Rounding errors are ignored. The list can therefore be empty for unequal cascades, such as
        one created from costs and one created from cumulative costs.

        Examples
        --------
        >>> Cascade([0.1, 0.24]).differences(Cascade([0.1, 0.3]))
        ["cost of 'arm 1': 0.24 vs 0.3"]
        """
        differences: list[str] = []
        if self.n_arms != other.n_arms:
            differences.append(f"number of arms: {self.n_arms} vs {other.n_arms}")
        for i in range(min(self.n_arms, other.n_arms)):
            if self.names[i] != other.names[i]:
                differences.append(f"name of arm {i}: {self.names[i]!r} vs {other.names[i]!r}")
            # The tolerance is relative to the total cost, so tiny costs need not match exactly.
            cost_tolerance = SAME_COST * max(self._totals[-1], other._totals[-1])
            for quantity, mine, its, tolerance in (
                ("cost", self.costs[i], other.costs[i], cost_tolerance),
                ("trade-off", self.tradeoff[i], other.tradeoff[i], 0.0),
            ):
                if not math.isclose(mine, its, rel_tol=SAME_COST, abs_tol=tolerance):
                    numbers = f"{mine:.12g} vs {its:.12g}"
                    differences.append(f"{quantity} of {self.names[i]!r}: {numbers}")
        return differences

    def to_dict(self) -> dict[str, Any]:
        """Return the cascade as plain JSON values, from which `from_dict` restores it."""
        return {
            "names": list(self.names),
            "costs": self.costs.tolist(),
            "totals": self._totals.tolist(),
            "tradeoff": self.tradeoff.tolist(),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Cascade":
        """Restore a cascade exactly from the values of `to_dict`."""
        expected = {"names", "costs", "totals", "tradeoff"}
        if set(values) != expected:
            raise InvalidCascadeError(
                f"a saved cascade must have the keys {sorted(expected)}, got {sorted(values)}"
            )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CostUnitWarning)  # issued when it was created
            # Both are stored because neither determines the other exactly in floating point.
            by_costs = cls(values["costs"], values["names"], values["tradeoff"])
            by_totals = cls.from_cumulative(values["totals"], values["names"], values["tradeoff"])
            if by_costs.differences(by_totals):
                raise InvalidCascadeError("the saved costs do not add up to the saved totals")
            cascade = object.__new__(cls)
            cascade._fill(by_costs.costs, by_totals._totals, by_costs.names, by_costs.tradeoff)
            return cascade

    def _content(self) -> tuple[object, ...]:
        return tuple(map(tuple, self.to_dict().values()))

    def __eq__(self, other: object) -> bool:
        return self._content() == other._content() if isinstance(other, Cascade) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._content())

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle plain values, because unpickled arrays would be writable."""
        return Cascade.from_dict, (self.to_dict(),)

    def __repr__(self) -> str:
        steps = zip(self.names, _aligned(self.cumulative), strict=True)
        text = " → ".join(f"{name} {cost}" for name, cost in steps)
        if (self.tradeoff != 1.0).any():
            text += f"; trade-off {', '.join(f'{weight:g}' for weight in self.tradeoff)}"
        return f"Cascade({text})"


def cost_unit_warning(names: Sequence[str], cumulative: ArrayLike) -> str:
    """Return a warning if an arm costs more than one wrong answer, otherwise an empty string."""
    steps = np.diff(cumulative, prepend=0.0)
    i = int(np.argmax(steps > 1))
    costs = f"running arm {names[i]!r} costs as much as {steps[i]:g} wrong answers"
    reason = "more than it can correct. Costs are in units of one wrong answer"
    return f"{costs}, {reason}" if steps[i] > 1 else ""


def _checked_names(names: Sequence[str], n_arms: int) -> tuple[str, ...]:
    if isinstance(names, str):  # a string is a sequence of characters
        raise InvalidCascadeError(f"names must be a list of strings, got the string {names!r}")
    values = cast("tuple[object, ...]", tuple(names))
    if len(values) != n_arms:
        raise InvalidCascadeError(
            f"names must contain one name per arm ({n_arms}), got {len(values)} names"
        )
    for i, name in enumerate(values):
        if not isinstance(name, str) or not name.strip():
            raise InvalidCascadeError(f"names[{i}] must be a non-empty string, got {name!r}")
        if name in values[:i]:
            raise InvalidCascadeError(f"names must be unique, got {name!r} twice")
    return tuple(map(str, values))


def _aligned(values: Floats) -> list[str]:
    """Format numbers with the same number of decimals."""
    texts = [f"{value:.6g}" for value in values.tolist()]
    if any("e" in text for text in texts):
        return texts
    decimals = max(len(text.partition(".")[2]) for text in texts)
    return [f"{value:.{decimals}f}" for value in values.tolist()]
