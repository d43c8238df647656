"""Reference implementations in plain numpy that solve every regression in every round.

Estimates are solved to convergence and norms by a fresh linear solve, in every round that needs
them, with the functions of `stopwise.reference`, which shares no code with the engine.

Features are ``{(i, j): array of shape (n, d_ij)}`` (`tabulate` computes them by functions),
disagreements ``{(i, j): array of n bools}``, costs the cumulative C_i.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stopwise.engine import internals
from stopwise.reference import estimate, norm, radius, sigmoid

Array = NDArray[np.float64]
Pair = tuple[int, int]
Map = Callable[[Array], Array]
AUTO = "auto"


class Run(NamedTuple):
    """The stops of a run, and the smallest distance to a tie in each round."""

    stops: NDArray[np.int64]
    closest: Array


def pairs(n_arms: int) -> list[Pair]:
    return list(combinations(range(n_arms), 2))


def tabulate(contexts: Array, maps: Map | Mapping[Pair, Map], k: int) -> dict[Pair, Array]:
    """Apply one feature map, or one per pair, to every context."""
    if callable(maps):
        return dict.fromkeys(pairs(k), np.array([maps(x) for x in contexts]))
    return {p: np.array([maps[p](x) for x in contexts]) for p in pairs(k)}


def disagreements(outputs: NDArray[np.int64]) -> dict[Pair, NDArray[np.bool_]]:
    return {(i, j): outputs[:, i] != outputs[:, j] for i, j in pairs(outputs.shape[1])}


def mu(z: Array | float) -> Array:
    return sigmoid(np.asarray(z, dtype=np.float64))


def ridge_mle(x: Array, d: Array, ridge: float) -> Array:
    return estimate(x, d, ridge, np.zeros(x.shape[1]))


def weighted_mle(x: Array, d: Array, w: Array, ridge: float, start: Array) -> Array:
    """θ̂ of weighted rows by Newton's method with step halving, to rounding accuracy."""
    theta = start.copy()

    def loss(point: Array) -> float:
        z = x @ point
        return float(w @ (np.logaddexp(0, z) - d * z) + ridge / 2 * point @ point)

    for _ in range(200):
        z = x @ theta
        g = x.T @ (w * (mu(z) - d)) + ridge * theta
        h = (x.T * (w * mu(z) * mu(-z))) @ x + ridge * np.eye(len(theta))
        step = np.linalg.solve(h, g)
        if abs(g @ step) < 1e-26:
            break
        size, now = 1.0, loss(theta)
        while loss(theta - size * step) > now + 1e-13 * abs(now) and size > 1e-9:
            size /= 2
        theta = theta - size * step
    return theta


def hessian(x: Array, theta: Array, ridge: float) -> Array:
    """∇²L(θ); μ' as μ(z)·μ(−z) avoids the cancellation of 1 − μ(z)."""
    z = x @ theta
    return (x.T * (mu(z) * mu(-z))) @ x + ridge * np.eye(x.shape[1])


class Model:
    """A logistic regression and its Gram matrix over the rounds that observed the pair."""

    def __init__(
        self, phi: Array, answers: NDArray[np.bool_], ridge: float, lam: float = 0.0
    ) -> None:
        self.phi, self.answers, self.ridge = phi, answers, ridge
        self.root = math.sqrt(lam) * np.eye(phi.shape[1])  # RᵀR = V
        self.seen: list[int] = []
        self._theta, self._solved = np.zeros(phi.shape[1]), -1

    def observe(self, t: int) -> None:
        self.seen.append(t)
        stacked = np.vstack((self.root, self.phi[t]))
        self.root = np.asarray(np.linalg.qr(stacked, mode="r"))

    @property
    def theta(self) -> Array:
        if self._solved != len(self.seen):
            x, d = self.phi[self.seen], self.answers[self.seen].astype(float)
            self._theta = estimate(x, d, self.ridge, self._theta)
            self._solved = len(self.seen)
        return self._theta


def uss_pd(
    phi: Mapping[Pair, Array],
    differ: Mapping[Pair, NDArray[np.bool_]],
    cumulative: Array,
    *,
    forced_rounds: int | str,
    ridge: float,
    lam: float = 0.0,
    S: float = 0.0,
    **rule: Any,
) -> Run:
    """USS-PD, or USS-PD-λI if lam > 0."""
    k = len(cumulative)
    models = {p: Model(phi[p], differ[p], ridge, lam) for p in pairs(k)}
    d = max(f.shape[1] for f in phi.values())

    def upper(t: int, i: int, j: int) -> float:
        m = models[i, j]
        n = len(m.seen) if lam > 0 else t
        bonus = radius(n, d, k, **rule, lam=lam, S=S) * norm(m.phi[t], m.root)
        return float(mu(m.phi[t] @ m.theta + bonus))

    return _play(models, cumulative, forced_rounds, upper)


def thompson(
    phi: Mapping[Pair, Array],
    differ: Mapping[Pair, NDArray[np.bool_]],
    cumulative: Array,
    noise: Array,
    *,
    scale: float,
    forced_rounds: int | str,
    ridge: float,
) -> Run:
    """Thompson sampling, given its standard normals: (rounds, pairs)."""
    numbers = {p: k for k, p in enumerate(pairs(len(cumulative)))}
    models = {p: Model(phi[p], differ[p], ridge) for p in numbers}

    def upper(t: int, i: int, j: int) -> float:
        m = models[i, j]
        x = m.phi[t]
        spread = math.sqrt(x @ np.linalg.solve(hessian(m.phi[m.seen], m.theta, ridge), x))
        v = scale * (1 + 4 / (1 + t / 20))
        return float(mu(x @ m.theta + noise[t, numbers[i, j]] * v * spread))

    return _play(models, cumulative, forced_rounds, upper)


def supervised(
    phi: Array,
    wrong: NDArray[np.bool_],
    cumulative: Array,
    *,
    forced_rounds: int | str,
    ridge: float,
    **rule: Any,
) -> Run:
    """An error model per arm; compares UCB(γ_i) − LCB(γ_j)."""
    k = len(cumulative)
    arms = {(i, i): Model(phi, wrong[:, i], ridge) for i in range(k)}

    def bound(t: int, arm: int, sign: int) -> float:
        m = arms[arm, arm]
        bonus = radius(t, phi.shape[1], k, **rule, lam=0, S=0) * norm(m.phi[t], m.root)
        return float(mu(m.phi[t] @ m.theta + sign * bonus))

    def upper(t: int, i: int, j: int) -> float:
        return bound(t, i, +1) - bound(t, j, -1)

    return _play(arms, cumulative, forced_rounds, upper)


def _play(
    models: Mapping[Pair, Model],
    cumulative: Array,
    forced_rounds: int | str,
    upper: Callable[[int, int, int], float],
) -> Run:
    """Stop at the first arm whose gap to every deeper arm exceeds the upper value, else the last.

    A model keyed (i, j) is revealed by stops ≥ j.
    """
    k = len(cumulative)
    n = len(next(iter(models.values())).phi)
    stops = np.full(n, k - 1, dtype=np.int64)
    closest = np.full(n, math.inf)
    exploring = True
    for t in range(n):
        if forced_rounds == AUTO:
            least = min(np.linalg.svd(m.root, compute_uv=False)[-1] for m in models.values())
            exploring = exploring and least < 1
        else:
            exploring = t < int(forced_rounds)
        for i in [] if exploring else range(k - 1):
            margins = [cumulative[j] - cumulative[i] - upper(t, i, j) for j in range(i + 1, k)]
            closest[t] = min(closest[t], np.abs(margins).min())
            if min(margins) > 0:
                stops[t] = i
                break
        for (_, j), m in models.items():
            if j <= stops[t]:
                m.observe(t)
    return Run(stops, closest)


# ----------------------------- USS-Laplace and USS-Anchor, labels, revealed contexts


def stream(seed: int, t: int, index: int) -> internals.Random:
    """The random stream of a round with an index."""
    return internals.Random((seed * 0xD6E8FEB86659FD93 + 256 * t + index) % 2**64)


def draw(seed: int, t: int, index: int) -> float:
    """The first number of the stream, in [0, 1)."""
    return stream(seed, t, index).uniform()


def exploring(seed: int, n: int) -> Array:
    """The uniform number of each decision; the round explores if it is below `explore_rate`."""
    return np.array([draw(seed, t, 255) for t in range(n)])


def normals(seed: int, n: int, n_pairs: int) -> Array:
    """The standard normal draws of n Thompson decisions, one for each pair."""
    streams = [stream(seed, t, 254) for t in range(n)]
    return np.array([[random.normal() for _ in range(n_pairs)] for random in streams])


class Gain:
    """E[1{j right} − 1{i right}] where i and j disagree: two ridge regressions around ½."""

    def __init__(self, ridge: float, linear: int) -> None:
        self.scales, self.linear = (0.12 / math.sqrt(ridge), 2.0 / math.sqrt(ridge)), linear
        self.rows: list[Array] = []
        self.values: list[float] = []
        self.residuals = 0.0

    def psi(self, phi: Array) -> tuple[Array, Array]:
        pooled, local = self.scales
        return np.append(1.0, pooled * phi), np.append(1.0, local * phi[: self.linear])

    def fitted(self, phi: Array, missing: Sequence[Array] = ()) -> tuple[list[float], float]:
        """Both means at φ, and the local standard deviation; a missing label is a gain of 1."""
        noise = (10 + self.residuals) / (10 + len(self.values))
        psi, rows = self.psi(phi), [self.psi(row) for row in (*self.rows, *missing)]
        values = np.array([*self.values, *[0.5] * len(missing)])
        means, width = [0.0, 0.0], 0.0
        for k in range(2) if rows else ():
            table = np.array([row[k] for row in rows])
            a = table.T @ table + noise * np.eye(table.shape[1])
            means[k] = float(psi[k] @ np.linalg.solve(a, table.T @ values))
            width = math.sqrt(noise * psi[k] @ np.linalg.solve(a, psi[k]))
        return means, width

    def learn(self, phi: Array, gain: float) -> None:
        self.residuals += (gain - 0.5 - self.fitted(phi)[0][0]) ** 2
        self.rows.append(phi)
        self.values.append(gain - 0.5)

    def upper(self, phi: Array, missing: Sequence[Array] = ()) -> float:
        if not self.values:
            return 1.0
        uppers: list[float] = []
        for left_out in [(), missing] if missing else [()]:
            means, width = self.fitted(phi, left_out)
            uppers.append(min(max(0.5 + max(means) + 0.25 * width, -1.0), 1.0))
        return max(uppers)


@dataclass
class Waiting:
    """A pending label request."""

    t: int
    stop: int
    rule_stop: int
    request: tuple[float, float, float]
    missing: bool = False


@dataclass
class Correction:
    """The shift δ of the logit of drawn answers: prior N(0, 2²), one Newton step per round."""

    delta: float = 0.0
    precision: float = 0.25

    def learn(self, z: float, disagreed: bool) -> None:
        p = float(mu(z + self.delta))
        self.precision += p * (1 - p)
        self.delta += (disagreed - p) / self.precision

    @property
    def shift(self) -> float:
        """δ times the positive-part James–Stein factor."""
        if self.delta == 0:
            return 0.0
        return self.delta * max(0.0, 1 - 1 / (self.delta**2 * self.precision))


@dataclass
class Referee:
    """A learner as documented, which stores only the events and recomputes everything.

    ``features[i]`` has the features available at arm i, (n, d_i); the same array K − 1 times if the
    context is complete from the start. With ``revealed``, a round also counts for the arms before
    its stop, with drawn answers of later arms, and rounds that explored correct the draws.
    """

    features: Sequence[Array]
    outputs: NDArray[np.int64]
    cumulative: Array
    ridge: float
    z: float
    forced: int = 5
    transitive: bool = False
    anchor: bool = False
    revealed: bool = False
    labels: float = 0
    explore: float = 0.0
    seed: int = 0
    linear: int = 0
    half_life: float | None = None

    def __post_init__(self) -> None:
        self.last = len(self.cumulative) - 1
        self.events: list[tuple[Any, ...]] = []
        self.drawn = self.corrected = 0
        self.relearn(self.features, self.ridge, self.linear)

    def relearn(self, features: Sequence[Array], ridge: float, linear: int) -> None:
        """Learn all events again with other features."""
        self.features, self.ridge, self.linear = features, ridge, linear
        self.rows: dict[Pair, list[Array]] = {p: [] for p in pairs(self.last + 1)}
        self.answers: dict[Pair, list[bool]] = {p: [] for p in self.rows}
        self.thetas = {(i, j): np.zeros(features[i].shape[1]) for i, j in self.rows}
        self.solved = dict.fromkeys(self.rows, 0)
        self.times: dict[Pair, list[int]] = {p: [] for p in self.rows}
        self.gains = {p: Gain(ridge, linear) for p in self.rows}
        self.waiting: list[Waiting] = []
        self.answered = 0
        self.rounds = self.requested = self.disagreed = 0
        self.thirds: dict[tuple[int, int, int], list[Any]] = {}
        self.corrections = {p: Correction() for p in self.rows}
        self.fixed: int | None = None
        self.closest = math.inf
        self.new_trial()
        events, self.events = self.events, []
        for kind, *event in events:
            getattr(self, kind)(*event)

    def new_trial(self) -> None:
        self.cost, self.errors, self.variance = np.zeros((3, self.last + 1))
        self.trial_asked = self.trial_answered = 0
        self.heaviest, self.trial_since = 0.0, self.rounds

    def weights(self, pair: Pair) -> Array:
        """2^(−age/half-life) of every row."""
        if self.half_life is None:
            return np.ones(len(self.rows[pair]))
        return 2.0 ** (-(self.rounds - 1.0 - np.array(self.times[pair])) / self.half_life)

    def theta(self, pair: Pair) -> Array:
        if self.solved[pair] != len(self.rows[pair]) or self.half_life is not None:
            x, d = np.array(self.rows[pair]), np.array(self.answers[pair], dtype=float)
            if self.half_life is None:
                self.thetas[pair] = estimate(x, d, self.ridge, self.thetas[pair])
            elif len(x):
                w = self.weights(pair)
                self.thetas[pair] = weighted_mle(x, d, w, self.ridge, self.thetas[pair])
            self.solved[pair] = len(d)
        return self.thetas[pair]

    def upper(self, t: int, i: int, j: int) -> float:
        """p̃ at z standard deviations of the posterior; for `anchor`, p̃_iK − p̂_jK."""
        x = self.features[i][t]
        first = (i, self.last if self.anchor else j)
        rows = np.array(self.rows[first]).reshape(-1, len(x))
        logits = rows @ self.theta(first)
        weights = self.weights(first) * mu(logits) * mu(-logits)
        h = (rows.T * weights) @ rows + self.ridge * np.eye(len(x))
        counted = self.rounds * 1.0
        if self.half_life is not None:
            gamma = 2 ** (-1 / self.half_life)
            counted = (1 - gamma**self.rounds) / (1 - gamma)
        z = self.z * (1 if self.anchor else 1 + 4 / (1 + counted / 20))
        value = float(mu(x @ self.theta(first) + z * math.sqrt(x @ np.linalg.solve(h, x))))
        if self.anchor and j < self.last:
            value -= float(mu(x @ self.theta((i, j))))
        return value

    def gain(self, t: int, i: int, j: int) -> float:
        """g̃, the larger of the estimates without and with missing labels."""
        y = self.outputs
        rounds = [pending.t for pending in self.waiting if pending.missing and pending.stop >= j]
        missing = [self.features[i][s] for s in rounds if y[s, i] != y[s, j]]
        return self.gains[i, j].upper(self.features[i][t], missing)

    def passes(self, t: int, i: int, j: int) -> bool:
        gain = self.gain(t, i, j)
        gap = self.cumulative[j] - self.cumulative[i]
        if gain > 0:
            margin = gap / gain - self.upper(t, i, j)
            self.closest = min(self.closest, abs(margin))
            won = margin > 0
        else:
            won = gap > 0 or (gap == 0 and gain < 0)
        between = range(i + 1, j) if self.transitive and not won else ()
        return won or any(self.passes(t, i, k) and self.passes(t, k, j) for k in between)

    def decide(self, t: int) -> int:
        if self.rounds < self.forced:
            return self.last
        if self.fixed is not None:
            return self.fixed
        for i in range(self.last):
            if all(self.passes(t, i, j) for j in range(i + 1, self.last + 1)):
                return i
        return self.last

    def explore_rate(self) -> float:
        return self.explore * max(1 / (1 + self.rounds / 200), 1 / (10 if self.revealed else 30))

    def learn(self, t: int, stop: int, rule_stop: int) -> tuple[float, float, float] | None:
        """Learn a round; return the label request with its probabilities, or None."""
        self.events.append(("learn", t, stop, rule_stop))
        y, last = self.outputs[t], self.last
        differs = {(i, j): bool(y[i] != y[j]) for i, j in pairs(stop + 1)}
        if self.revealed and 0 < rule_stop < stop:
            x = self.features[rule_stop][t]
            for j in [last] if self.anchor else range(rule_stop + 1, last + 1):
                z = round(64 * float(x @ self.theta((rule_stop, j)))) / 64
                self.corrections[rule_stop, j].learn(z, differs[rule_stop, j])
        if self.revealed and 0 < stop < last:
            for j in [last] if self.anchor else range(stop + 1, last + 1):
                z = float(self.features[stop][t] @ self.theta((stop, j)))
                p = float(mu(z + self.corrections[stop, j].shift))
                u = draw(self.seed, self.rounds, j)
                differs[stop, j] = u < p
                self.corrected += (u < p) != (u < float(mu(z)))
                self.drawn += 1
                for i in range(stop):
                    differs[i, j] = differs[stop, j] != differs[i, stop]
                    if differs[stop, j] and differs[i, stop]:  # the answer of i, or a third one
                        before = self.thirds.get((i, stop, j), [])
                        u = draw(self.seed, self.rounds, 16 + 16 * i + j)
                        differs[i, j] = u * (len(before) + 1) < sum(before) + 1
        for i, s, j in combinations(range(stop + 1), 3):
            if y[i] != y[s] != y[j]:
                self.thirds.setdefault((i, s, j), []).append(y[i] != y[j])
        for i, j in self.rows:
            answered = (j, last) if self.anchor and j < last else (i, j)
            is_observed = (
                stop >= (j if self.anchor and j < last else i + 1)
                if self.revealed
                else (stop >= (last if self.anchor else j))
            )
            if is_observed:
                self.rows[i, j].append(self.features[i][t])
                self.answers[i, j].append(differs[answered])
                self.times[i, j].append(self.rounds)
        request = self.request_label(stop, rule_stop, len(set(y[: stop + 1].tolist())) > 1)
        self.rounds += 1
        if request is not None:
            self.waiting.append(Waiting(t, stop, rule_stop, request))
            uncounted = [pending for pending in self.waiting if not pending.missing]
            for pending in uncounted[: max(0, len(uncounted) - self.answered**2)]:
                pending.missing = True
        return request

    def request_label(
        self, stop: int, rule_stop: int, differ: bool
    ) -> tuple[float, float, float] | None:
        is_count = self.labels >= 1
        if not self.labels:
            return None
        if self.rounds >= 64 and self.rounds & (self.rounds - 1) == 0:
            self.fixed = None if self.fixed is not None else self.better_depth()
            self.new_trial()
        if is_count and self.requested >= self.labels:
            return None
        self.cost += self.cumulative - self.cumulative[rule_stop]
        if not differ:
            return None
        self.disagreed += 1
        chance = min(1.0, (self.labels / 3 if is_count else 30) / self.disagreed)
        chance = chance if is_count else max(chance, self.labels)
        if rule_stop == stop and draw(self.seed, self.rounds, 0) >= chance:
            return None
        self.requested += 1
        self.trial_asked += 1
        explored = self.explore_rate() if rule_stop < self.last else 0.0
        return explored + (1 - explored) * chance, explored, float(self.rounds)

    def better_depth(self) -> int | None:
        if not self.trial_answered:
            return None
        saved = self.errors.copy(), self.variance.copy(), self.heaviest
        for pending in self.waiting:
            if pending.request[2] >= self.trial_since:
                ran = self.outputs[pending.t, : pending.stop + 1]
                differ = ran != self.outputs[pending.t, pending.rule_stop]
                self.add_errors(pending.rule_stop, pending.request, differ.astype(int))
        deviation = np.sqrt(self.variance + self.heaviest**2)
        upper_bounds = self.cost + self.errors + 3 * deviation
        self.errors, self.variance, self.heaviest = saved
        return int(upper_bounds.argmin()) if upper_bounds.min() < 0 else None

    def add_errors(self, rule_stop: int, request: tuple[float, ...], losses: NDArray[Any]) -> None:
        """Add the errors of each depth relative to the rule, from a label or the worst case."""
        self.heaviest = max(self.heaviest, 1 / request[0])
        for k, loss in enumerate(losses.tolist()):
            weight = 1 / request[1 if k > rule_stop else 0] if loss else 0.0
            self.errors[k] += weight * loss
            self.variance[k] += weight**2

    def label(self, t: int, stop: int, rule_stop: int, answer: int, request: Any) -> None:
        """Learn which of the arms that ran were right; earlier requests become missing."""
        self.events.append(("label", t, stop, rule_stop, answer, request))
        for pending in self.waiting:
            pending.missing = pending.missing or pending.t < t
        self.waiting = [pending for pending in self.waiting if pending.t != t]
        self.answered += 1
        y = self.outputs[t]
        right = (y == answer).astype(int)
        for i, j in pairs(stop + 1):
            if y[i] != y[j]:
                self.gains[i, j].learn(self.features[i][t], float(right[j] - right[i]))
        if request[2] < self.trial_since:  # belongs to an earlier trial
            return
        self.trial_answered += 1
        self.add_errors(rule_stop, request, right[rule_stop] - right[: stop + 1])

    def play(self, t: int, answer: int | None = None, chance: float = 1.0) -> int:
        """Play a round; it explores if ``chance`` is below the exploration rate."""
        rule_stop = self.decide(t)
        stop = self.last if chance < self.explore_rate() else rule_stop
        request = self.learn(t, stop, rule_stop)
        if request is not None and answer is not None:
            self.label(t, stop, rule_stop, answer, request)
        return stop
