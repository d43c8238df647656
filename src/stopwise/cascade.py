"""The cascade: arms in order, what each costs, and what going deeper costs."""

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

# Costs nearer than this (relative) count as the same in `differences`: cᵢ taken from cumulative
# costs may differ from the cᵢ a person wrote by a rounding error. The cascade is still the same.
SAME_COST = 1e-12


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Cascade:
    """Arms 0..K−1 in order; running arm i means having run, and paid for, all before it.

        Cᵢ = c₀ + … + cᵢ,   cumulative[i] = λᵢ·Cᵢ,   gaps[i, j] = cumulative[j] − cumulative[i]

    The loss of stopping at arm i is γᵢ(x) + λᵢ·Cᵢ (the paper, Problem setting). The trade-off
    weights λᵢ turn money into error probability; only ``cumulative`` and ``gaps`` contain them.
    The arguments are attributes too, with one value for each of the ``n_arms`` arms.

    A cascade is a value: it cannot be changed, compares by content and may be a dictionary key.

    Parameters
    ----------
    costs : array_like of shape (K,)
        The cost cᵢ ≥ 0 of running arm i itself. At least two arms.
    names : sequence of str, optional
        Distinct names, for people to read; "arm 0", "arm 1", … by default.
    tradeoff : float or array_like of shape (K,), optional
        The weights λᵢ > 0, one for all arms or one for each; 1 by default.

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
    _totals: Floats  # Cᵢ before the trade-off

    def __init__(
        self,
        costs: ArrayLike,
        names: Sequence[str] | None = None,
        tradeoff: ArrayLike | None = None,
    ) -> None:
        own = vector("costs", costs, least=0, error=InvalidCascadeError)
        with np.errstate(over="ignore"):  # reported by _fill, in words
            totals = np.cumsum(own)
        self._fill(own, totals, names, tradeoff)

    @classmethod
    def from_cumulative(
        cls,
        cumulative: ArrayLike,
        names: Sequence[str] | None = None,
        tradeoff: ArrayLike | None = None,
    ) -> "Cascade":
        """Build a cascade from what stopping at each arm costs in all, before any trade-off.

        ``cumulative`` are the Cᵢ, non-negative and never decreasing, stored to the last bit;
        ``costs`` are their differences.

        Examples
        --------
        >>> Cascade.from_cumulative([0.01, 0.25, 0.50])
        Cascade(arm 0 0.01 → arm 1 0.25 → arm 2 0.50)
        """
        totals = vector("cumulative", cumulative, least=0, error=InvalidCascadeError)
        falls = np.flatnonzero(np.diff(totals) < 0)
        if falls.size:
            i = int(falls[0])
            raise InvalidCascadeError(
                f"cumulative costs may not decrease, but arm {i} costs {totals[i]:g} and arm "
                f"{i + 1} only {totals[i + 1]:g}; if these are the costs of single arms, use "
                "Cascade(costs)"
            )
        cascade = object.__new__(cls)
        cascade._fill(np.diff(totals, prepend=0.0), totals, names, tradeoff)
        return cascade

    @classmethod
    def from_prices(
        cls, prices: ArrayLike, error_cost: float, names: Sequence[str] | None = None
    ) -> "Cascade":
        """Build a cascade from what arms charge and what one wrong answer costs, in one currency.

        ``prices`` are what running each arm itself charges; ``error_cost`` is what one wrong answer
        costs, or what you would pay to prevent it.

        Examples
        --------
        >>> Cascade.from_prices([10, 200, 300], error_cost=1000)
        Cascade(arm 0 0.01 → arm 1 0.21 → arm 2 0.51; trade-off 0.001, 0.001, 0.001)
        """
        cost = real("error_cost", error_cost, above=0, error=InvalidCascadeError)
        return cls(prices, names, tradeoff=1 / cost)

    def decision(self, stop: int, rule_stop: int | None = None) -> Decision:
        """Return the decision of a policy to stop at an arm.

        ``rule_stop`` is where the rule itself stops, if the round goes on from there at random.

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
        """Fill the frozen fields from checked costs; the only place that writes them."""
        k = len(costs)
        if k < 2:
            raise InvalidCascadeError(f"a cascade needs at least two arms; there are {k}")
        weights = 1.0 if tradeoff is None else tradeoff
        weights = vector("tradeoff", weights, size=k, above=0, error=InvalidCascadeError)
        with np.errstate(over="ignore"):
            cumulative = weights * totals
        if not np.isfinite(cumulative).all():
            raise InvalidCascadeError(
                "the costs add up to more than a float can hold; use a larger unit of cost"
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
        if doubt := costs_doubt(self.names, cumulative):
            how = "from amounts of money, use Cascade.from_prices(prices, error_cost=...)"
            warnings.warn(f"{doubt}; {how}", CostUnitWarning, stacklevel=3)

    def index(self, arm: str | SupportsIndex) -> int:
        """Return the position of an arm given by name or by 0-based position."""
        if isinstance(arm, str):
            if arm not in self.names:
                raise InvalidStopError(
                    f"no arm is named {arm!r}; the arms are {', '.join(map(repr, self.names))}"
                )
            return self.names.index(arm)
        try:
            # bool is an int to Python, but True as an arm is surely a mistake.
            position = operator.index(cast(Any, None if isinstance(arm, bool | np.bool_) else arm))
        except TypeError:
            raise InvalidStopError(f"an arm is a name or a whole number, not {arm!r}") from None
        if not 0 <= position < self.n_arms:
            raise InvalidStopError(
                f"no arm {position}: the {self.n_arms} arms count from 0 to {self.n_arms - 1}"
            )
        return position

    def cost(self, stop: str | SupportsIndex) -> float:
        """Return what stopping at this arm costs in all, λᵢ·Cᵢ."""
        return float(self.cumulative[self.index(stop)])

    def pairs(self) -> list[tuple[int, int]]:
        """Return every pair (i, j) with i < j, row by row: (0, 1), (0, 2), …, (1, 2), …."""
        return list(combinations(range(self.n_arms), 2))

    def differences(self, other: "Cascade") -> list[str]:
        """Return a sentence for each difference between this cascade and a later one.

        Rounding errors do not count, so this can be empty for cascades that are not equal: one
        created from costs and one from cumulative costs, for example.

        Examples
        --------
        >>> Cascade([0.1, 0.24]).differences(Cascade([0.1, 0.3]))
        ["arm 'arm 1' cost 0.24, now 0.3"]
        """
        found: list[str] = []
        if self.n_arms != other.n_arms:
            found.append(f"there were {self.n_arms} arms, now {other.n_arms}")
        for i in range(min(self.n_arms, other.n_arms)):
            if self.names[i] != other.names[i]:
                found.append(f"arm {i} was named {self.names[i]!r}, now {other.names[i]!r}")
            # A cost near nothing beside the rest is judged by the scale of the complete cascade.
            slack = SAME_COST * max(self._totals[-1], other._totals[-1])
            for verb, was, now, near in (
                ("cost", self.costs[i], other.costs[i], slack),
                ("had trade-off", self.tradeoff[i], other.tradeoff[i], 0.0),
            ):
                if not math.isclose(was, now, rel_tol=SAME_COST, abs_tol=near):
                    found.append(f"arm {self.names[i]!r} {verb} {was:.12g}, now {now:.12g}")
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values from which `from_dict` rebuilds this very cascade."""
        return {
            "names": list(self.names),
            "costs": self.costs.tolist(),
            "totals": self._totals.tolist(),
            "tradeoff": self.tradeoff.tolist(),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Cascade":
        """Rebuild a cascade from `to_dict`, equal to the last bit."""
        expected = {"names", "costs", "totals", "tradeoff"}
        if set(values) != expected:
            raise InvalidCascadeError(
                f"a stored cascade has the keys {sorted(expected)}, not {sorted(values)}"
            )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CostUnitWarning)  # said when it was created
            # Both are stored because neither gives the other back exactly in floating point.
            given = cls(values["costs"], values["names"], values["tradeoff"])
            stored = cls.from_cumulative(values["totals"], values["names"], values["tradeoff"])
            if given.differences(stored):
                raise InvalidCascadeError("the stored costs do not add up to the stored totals")
            cascade = object.__new__(cls)
            cascade._fill(given.costs, stored._totals, given.names, given.tradeoff)
            return cascade

    def _content(self) -> tuple[object, ...]:
        return tuple(map(tuple, self.to_dict().values()))

    def __eq__(self, other: object) -> bool:
        return self._content() == other._content() if isinstance(other, Cascade) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._content())

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as plain values: arrays restored from a pickle would be writable."""
        return Cascade.from_dict, (self.to_dict(),)

    def __repr__(self) -> str:
        steps = zip(self.names, _aligned(self.cumulative), strict=True)
        text = " → ".join(f"{name} {cost}" for name, cost in steps)
        if (self.tradeoff != 1.0).any():
            text += f"; trade-off {', '.join(f'{weight:g}' for weight in self.tradeoff)}"
        return f"Cascade({text})"


def costs_doubt(names: Sequence[str], cumulative: ArrayLike) -> str:
    """Return a warning if an arm costs more than one wrong answer; else an empty text."""
    steps = np.diff(cumulative, prepend=0.0)
    i = int(np.argmax(steps > 1))
    costs = f"running arm {names[i]!r} costs as much as {steps[i]:g} wrong answers"
    why = "more than it can correct. Costs are in units of one wrong answer"
    return f"{costs}, {why}" if steps[i] > 1 else ""


def _checked_names(names: Sequence[str], n_arms: int) -> tuple[str, ...]:
    if isinstance(names, str):  # a string is a sequence of its letters
        raise InvalidCascadeError(f"names must be a list of strings, not the string {names!r}")
    given = cast("tuple[object, ...]", tuple(names))
    if len(given) != n_arms:
        raise InvalidCascadeError(f"there are {n_arms} costs but {len(given)} names")
    for i, name in enumerate(given):
        if not isinstance(name, str) or not name.strip() or name in given[:i]:
            raise InvalidCascadeError(
                f"the name of arm {i} must be a string that is not empty and that no other arm "
                f"has, not {name!r}"
            )
    return tuple(map(str, given))


def _aligned(values: Floats) -> list[str]:
    """Write numbers with the same count of decimals: 0.25 and 0.50 read better than 0.5."""
    texts = [f"{value:.6g}" for value in values.tolist()]
    if any("e" in text for text in texts):
        return texts
    decimals = max(len(text.partition(".")[2]) for text in texts)
    return [f"{value:.{decimals}f}" for value in values.tolist()]
