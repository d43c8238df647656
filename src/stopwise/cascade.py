"""The cascade: arms in order, what each costs, and what going deeper costs."""

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, SupportsIndex, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stopwise.checks import numbers
from stopwise.errors import InvalidCascadeError, InvalidStopError

# Costs nearer than this (relative) count as the same in `differences`: cᵢ taken from cumulative
# costs may differ from the cᵢ a person wrote by a rounding error, which is no other cascade.
SAME_COST = 1e-12


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Cascade:
    """Arms 0..K−1 in order; running arm i means having run, and paid for, all before it.

        Cᵢ = c₀ + … + cᵢ,   cumulative[i] = λᵢ·Cᵢ,   gaps[i, j] = cumulative[j] − cumulative[i]

    The loss of stopping at arm i is γᵢ(x) + λᵢ·Cᵢ (the paper, Problem setting). The trade-off
    weights λᵢ turn money into error probability and are folded into ``cumulative`` here, once, so
    that nothing further down knows of them.

    A cascade is a value: it cannot be changed, compares by content and may be a dictionary key.

    Parameters
    ----------
    costs : array_like of shape (K,)
        The cost cᵢ ≥ 0 of running arm i itself. At least two arms.
    names : sequence of str, optional
        Distinct names, for people to read; "arm 0", "arm 1", … by default.
    tradeoff : float or array_like of shape (K,), optional
        The weights λᵢ > 0, one for all arms or one for each; 1 by default.

    Attributes
    ----------
    n_arms : int
        K.
    costs : ndarray of shape (K,)
        cᵢ as given, read-only like every array here.
    names : tuple of str
        One name for each arm.
    tradeoff : ndarray of shape (K,)
        λᵢ.
    cumulative : ndarray of shape (K,)
        λᵢ·Cᵢ, what stopping at arm i costs.
    gaps : ndarray of shape (K, K)
        What going from arm i on to arm j adds to the cost.

    Examples
    --------
    >>> cascade = Cascade([0.01, 0.24, 0.25], names=["history", "glucose", "insulin"])
    >>> cascade
    Cascade(history 0.01 → glucose 0.25 → insulin 0.50)
    >>> cascade.cost("glucose"), float(cascade.gaps[1, 2])
    (0.25, 0.25)
    """

    n_arms: int
    costs: NDArray[np.float64]
    names: tuple[str, ...]
    tradeoff: NDArray[np.float64]
    cumulative: NDArray[np.float64]
    gaps: NDArray[np.float64]
    _totals: NDArray[np.float64]  # Cᵢ before the trade-off

    def __init__(
        self,
        costs: ArrayLike,
        names: Sequence[str] | None = None,
        tradeoff: ArrayLike | None = None,
    ) -> None:
        own = _numbers(costs, "costs")
        _check_costs(own, "cost")
        with np.errstate(over="ignore"):  # reported by _settle, in words
            totals = np.cumsum(own)
        self._settle(own, totals, names, tradeoff)

    @classmethod
    def from_cumulative(
        cls,
        cumulative: ArrayLike,
        names: Sequence[str] | None = None,
        tradeoff: ArrayLike | None = None,
    ) -> "Cascade":
        """Build a cascade from what stopping at each arm costs in all, before any trade-off.

        The cumulative costs are stored to the last bit; ``costs`` are their differences.

        Parameters
        ----------
        cumulative : array_like of shape (K,)
            Cᵢ, non-negative and never decreasing.
        names, tradeoff
            As in `Cascade`.

        Returns
        -------
        Cascade
            The cascade whose Cᵢ are those given.

        Examples
        --------
        >>> Cascade.from_cumulative([0.01, 0.25, 0.50])
        Cascade(arm 0 0.01 → arm 1 0.25 → arm 2 0.50)
        """
        totals = _numbers(cumulative, "cumulative costs")
        _check_costs(totals, "cumulative cost")
        falls = np.flatnonzero(np.diff(totals) < 0)
        if falls.size:
            i = int(falls[0])
            raise InvalidCascadeError(
                f"cumulative costs may not decrease, but arm {i} costs {totals[i]:g} and arm "
                f"{i + 1} only {totals[i + 1]:g}; if these are the costs of single arms, use "
                "Cascade(costs)"
            )
        cascade = object.__new__(cls)
        cascade._settle(np.diff(totals, prepend=0.0), totals, names, tradeoff)
        return cascade

    def _settle(
        self,
        costs: NDArray[np.float64],
        totals: NDArray[np.float64],
        names: Sequence[str] | None,
        tradeoff: ArrayLike | None,
    ) -> None:
        """Fill the frozen fields from checked costs; the only place that writes them."""
        weights = _check_tradeoff(1.0 if tradeoff is None else tradeoff, len(costs))
        with np.errstate(over="ignore"):
            cumulative = weights * totals
        if not np.isfinite(cumulative).all():
            raise InvalidCascadeError(
                "the costs add up to more than a float can hold; use a larger unit of cost"
            )
        fields: dict[str, object] = {
            "n_arms": len(costs),
            "costs": costs,
            "names": _check_names(names, len(costs)),
            "tradeoff": weights,
            "cumulative": cumulative,
            "gaps": cumulative[None, :] - cumulative[:, None],
            "_totals": totals,
        }
        for name, value in fields.items():
            if isinstance(value, np.ndarray):
                value.flags.writeable = False
            object.__setattr__(self, name, value)

    def index(self, arm: str | SupportsIndex) -> int:
        """Return the position of an arm given by name or by 0-based position.

        Examples
        --------
        >>> Cascade([1, 2], names=["cheap", "expensive"]).index("expensive")
        1
        """
        if isinstance(arm, str):
            if arm not in self.names:
                raise InvalidStopError(
                    f"no arm is named {arm!r}; the arms are {', '.join(map(repr, self.names))}"
                )
            return self.names.index(arm)
        try:
            # bool is an int to Python, but True as an arm is surely a mistake.
            position = None if isinstance(arm, bool | np.bool_) else operator.index(arm)
        except TypeError:
            position = None
        if position is None:
            raise InvalidStopError(f"an arm is a name or a whole number, not {arm!r}")
        if not 0 <= position < self.n_arms:
            raise InvalidStopError(
                f"no arm {position}: the {self.n_arms} arms count from 0 to {self.n_arms - 1}"
            )
        return position

    def cost(self, stop: str | SupportsIndex) -> float:
        """Return what stopping at this arm costs in all, λᵢ·Cᵢ.

        Examples
        --------
        >>> Cascade([1, 2]).cost(1)
        3.0
        """
        return float(self.cumulative[self.index(stop)])

    def pairs(self) -> list[tuple[int, int]]:
        """Return every pair (i, j) with i < j, in the order used throughout: row by row.

        Examples
        --------
        >>> Cascade([1, 1, 1]).pairs()
        [(0, 1), (0, 2), (1, 2)]
        """
        return [(i, j) for i in range(self.n_arms) for j in range(i + 1, self.n_arms)]

    def differences(self, other: "Cascade") -> list[str]:
        """Say in words how another, present cascade differs from this, earlier one.

        Rounding errors do not count, so this can be empty for cascades that are not equal: one
        created from costs and one from cumulative costs, for example.

        Parameters
        ----------
        other : Cascade
            The cascade of now.

        Returns
        -------
        list of str
            One sentence for each difference; empty when there is none.

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
        """Return plain JSON values from which `from_dict` rebuilds this very cascade.

        Examples
        --------
        >>> Cascade([1, 2]).to_dict()["totals"]
        [1.0, 3.0]
        """
        return {
            "names": list(self.names),
            "costs": self.costs.tolist(),
            "totals": self._totals.tolist(),
            "tradeoff": self.tradeoff.tolist(),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Cascade":
        """Rebuild a cascade from `to_dict`, equal to the last bit.

        Examples
        --------
        >>> cascade = Cascade([0.1, 0.2, 0.3], tradeoff=0.5)
        >>> Cascade.from_dict(cascade.to_dict()) == cascade
        True
        """
        expected = {"names", "costs", "totals", "tradeoff"}
        if set(values) != expected:
            raise InvalidCascadeError(
                f"a stored cascade has the keys {sorted(expected)}, not {sorted(values)}"
            )
        # Both are stored because neither gives the other back exactly in floating point.
        given = cls(values["costs"], values["names"], values["tradeoff"])
        stored = cls.from_cumulative(values["totals"], values["names"], values["tradeoff"])
        if given.differences(stored):
            raise InvalidCascadeError("the stored costs do not add up to the stored totals")
        cascade = object.__new__(cls)
        cascade._settle(given.costs, stored._totals, given.names, given.tradeoff)
        return cascade

    def _content(self) -> tuple[object, ...]:
        return (
            self.names,
            tuple(self.costs.tolist()),
            tuple(self._totals.tolist()),
            tuple(self.tradeoff.tolist()),
        )

    def __eq__(self, other: object) -> bool:
        """Compare by content, exactly."""
        return self._content() == other._content() if isinstance(other, Cascade) else NotImplemented

    def __hash__(self) -> int:
        """Hash by content."""
        return hash(self._content())

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as plain values: arrays restored from a pickle would be writable."""
        return Cascade.from_dict, (self.to_dict(),)

    def __repr__(self) -> str:
        """Show the arms in order, each with what stopping there costs."""
        steps = zip(self.names, _aligned(self.cumulative), strict=True)
        text = " → ".join(f"{name} {cost}" for name, cost in steps)
        if (self.tradeoff != 1.0).any():
            text += f"; trade-off {', '.join(f'{weight:g}' for weight in self.tradeoff)}"
        return f"Cascade({text})"


def _numbers(values: ArrayLike, what: str) -> NDArray[np.float64]:
    """Return a fresh float64 vector, or say what is wrong with ``values``."""
    array = numbers(what, values, InvalidCascadeError).copy()
    if array.ndim != 1:
        raise InvalidCascadeError(
            f"{what} must be a flat list, one number for each arm, not of shape {array.shape}"
        )
    return array


def _check_costs(costs: NDArray[np.float64], what: str) -> None:
    if costs.size == 1:
        raise InvalidCascadeError("a cascade of one arm leaves nothing to decide; give two or more")
    if costs.size == 0:
        raise InvalidCascadeError("a cascade needs at least two arms, and there are none")
    for i, cost in enumerate(costs.tolist()):
        if not (math.isfinite(cost) and cost >= 0):
            raise InvalidCascadeError(
                f"the {what} of arm {i} is {cost}; it must be a finite number, zero or more"
            )


def _check_names(names: Sequence[str] | None, n_arms: int) -> tuple[str, ...]:
    if names is None:
        return tuple(f"arm {i}" for i in range(n_arms))
    if isinstance(names, str):  # a string is a sequence of its letters
        raise InvalidCascadeError(f"names must be a list of strings, not the string {names!r}")
    given = tuple(names)
    if len(given) != n_arms:
        raise InvalidCascadeError(f"there are {n_arms} costs but {len(given)} names")
    for i, name in enumerate(cast("tuple[object, ...]", given)):
        if not isinstance(name, str) or not name.strip():
            raise InvalidCascadeError(
                f"the name of arm {i} must be a string that is not empty, not {name!r}"
            )
        if name in given[:i]:
            raise InvalidCascadeError(
                f"arms {given.index(name)} and {i} are both named {name!r}; names must differ"
            )
    return tuple(str(name) for name in given)


def _check_tradeoff(tradeoff: ArrayLike, n_arms: int) -> NDArray[np.float64]:
    if np.ndim(cast(Any, tradeoff)) == 0:
        tradeoff = [cast(Any, tradeoff)] * n_arms
    weights = _numbers(tradeoff, "trade-off weights")
    if weights.size != n_arms:
        raise InvalidCascadeError(
            f"there are {n_arms} arms but {weights.size} trade-off weights; give one, or one each"
        )
    for i, weight in enumerate(weights.tolist()):
        if not (math.isfinite(weight) and weight > 0):
            raise InvalidCascadeError(
                f"the trade-off weight of arm {i} is {weight}; it must be finite and above zero"
            )
    return weights


def _aligned(values: NDArray[np.float64]) -> list[str]:
    """Write numbers with the same count of decimals: 0.25 and 0.50 read better than 0.5."""
    texts = [f"{value:.6g}" for value in values.tolist()]
    if any("e" in text for text in texts):
        return texts
    decimals = max(len(text.partition(".")[2]) for text in texts)
    return [f"{value:.{decimals}f}" for value in values.tolist()]
