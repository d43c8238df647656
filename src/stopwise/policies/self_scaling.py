"""Features that scale themselves (`Standard`): fitted to a policy's first rounds, then left alone.

A policy holds its first rounds. When their number reaches 8, 16, … 1,024 it fits the features to
what it has seen and learns the rounds again; after the last it forgets them.
"""

from collections.abc import Mapping, Sequence
from math import comb
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stopwise.features import BoundFeatures
from stopwise.features.arrangements import pairs
from stopwise.policies.staged import known_at, recorded_rows
from stopwise.records import RecordedRounds

if TYPE_CHECKING:
    from stopwise.policies.contextual import Contextual

FIRST, LAST = 8, 1024  # rounds at which features are fitted: these and the powers of two between
MOST_FEATURES = 66  # of ten numbers; heuristic: more cost more rounds to learn than they tell


class HeldRounds:
    """The first rounds of a policy.

    ``rounds`` has a row for each: the context, the stop, the rule's own stop, whether its label
    could be asked for, which pairs differed. ``labels`` has the context, how many rounds came
    before the label, how many arms ran, the rule's own stop, the request, which arms were right,
    and which pairs differed.
    """

    def __init__(self, context_dim: int, n_arms: int) -> None:
        self._dim, self._n_arms = context_dim, n_arms
        self._pairs = n_arms * (n_arms - 1) // 2
        self._rounds: list[list[float]] = []
        self._labels: list[list[float]] = []

    @property
    def room(self) -> int:
        """How many rounds fit before the features are fitted again."""
        n = len(self._rounds)
        return max(FIRST, 1 << n.bit_length()) - n

    @property
    def full(self) -> bool:
        """Whether the features were fitted for the last time."""
        return len(self._rounds) >= LAST

    def hold(
        self,
        context: Sequence[float],
        stop: int,
        rule_stop: int,
        differ: Sequence[float],
        asks: bool,
    ) -> bool:
        """Hold a round; return whether it is time to fit."""
        known = self._known(differ, stop)
        numbers = [stop, min(rule_stop, stop), asks, *known]
        self._rounds.append([*self._padded(context), *numbers])
        n = len(self._rounds)
        return n >= FIRST and n & (n - 1) == 0

    def hold_label(
        self,
        context: Sequence[float],
        rule_stop: int,
        right: Sequence[float],
        differ: Sequence[float],
        request: tuple[float, float, float],
        of_next: bool = False,
    ) -> None:
        """Hold a label, perhaps of the round that is held next."""
        unknown = [0.0] * (self._n_arms - len(right))
        before = len(self._rounds) + of_next
        numbers = [before, len(right), rule_stop, *request, *right, *unknown]
        numbers += self._known(differ, len(right) - 1)
        self._labels.append([*self._padded(context), *numbers])

    def fit(self, policy: "Contextual") -> None:
        """Fit a policy's features to the rounds held, and let it learn them again.

        Rounds and labels come in the order in which they came, as the policy asks for labels, and
        judges its rule, by what it knew then.
        """
        table = np.array(self._rounds)
        contexts, differ = table[:, : self._dim].copy(), table[:, self._dim + 3 :]
        stops, rule_stops, asks = table[:, self._dim : self._dim + 3].T.astype(np.int64, order="C")
        failed = np.zeros(len(table), dtype=np.bool_)
        record = RecordedRounds(contexts, differ.astype(np.uint8), stops + 1, failed)
        learner = policy.use_features(_fitted(policy.features, record))
        rows = recorded_rows(policy.features, record)
        requests = np.where(asks[:, None] > 0, np.zeros(3), np.nan)
        done = 0

        def learn(here: slice) -> None:
            ends = stops[here], rule_stops[here]
            learner.learn(rows[here], record.differ[here], *ends, requests[here])

        for numbers in self._labels:
            context, rest = numbers[: self._dim], numbers[self._dim :]
            before, n, rule_stop, request = *map(int, rest[:3]), (rest[3], rest[4], rest[5])
            right = np.array(rest[6 : 6 + n], dtype=np.uint8)
            differ = np.array(rest[6 + self._n_arms :], dtype=np.uint8)
            learn(slice(done, before))
            done = before
            row = policy.row_of(context, n, differ)
            learner.label(row, rule_stop, right, differ, request)
        learn(slice(done, None))
        learner.continue_draws(policy.learner)
        policy.learner = learner  # complete: other threads may look at any time

    def state(self) -> dict[str, NDArray[Any]]:
        """Return what is held as arrays by name."""
        width = self._dim + 3 + self._pairs
        rounds = np.array(self._rounds, dtype=np.float64).reshape(-1, width)
        labels = np.array(self._labels, dtype=np.float64).reshape(-1, width + 3 + self._n_arms)
        return {"held": rounds, "held_labels": labels}

    def restore(self, state: Mapping[str, NDArray[Any]], rounds: int) -> None:
        """Continue from what `state` returned, of so many rounds; ValueError if it does not fit."""
        arms, pairs = self._n_arms - 1, [1] * self._pairs
        most = {
            "held": [arms, arms, 1, *pairs],
            "held_labels": [rounds, arms + 1, arms, 1, 1, np.inf, *[1] * self._n_arms, *pairs],
        }
        for name, empty in self.state().items():
            given = state[name]
            if given.ndim != 2 or given.shape[1] != empty.shape[1] or not np.isfinite(given).all():
                raise ValueError(f"{name} is of shape {given.shape}, or not finite")
            numbers = given[:, self._dim :]
            if (numbers < 0).any() or (numbers > most[name]).any():
                raise ValueError(f"{name} has an impossible number")
        before, ran = state["held_labels"][:, self._dim : self._dim + 2].T
        if len(state["held"]) != rounds or (np.diff(before) < 0).any() or (ran < 1).any():
            raise ValueError("held rounds and labels contradict what was learned")
        self._rounds = state["held"].tolist()
        self._labels = state["held_labels"].tolist()

    def _known(self, differ: Sequence[float], stop: int) -> list[float]:
        """Return which pairs differed, 0 for arms beyond the stop."""
        each = zip(differ, pairs(self._n_arms), strict=True)
        return [value if j <= stop else 0.0 for value, (_, j) in each]

    def _padded(self, context: Sequence[float]) -> list[float]:
        return [*context, *[0.0] * (self._dim - len(context))]


def _fitted(features: BoundFeatures, record: RecordedRounds) -> BoundFeatures:
    """Return features fitted to rounds: of degree 2 unless these are too many, else 1."""
    known = [record.contexts] * len(features.maps)
    if features.sees is not None:
        reached = [np.flatnonzero(record.answered > arm) for arm in range(len(features.stages))]
        known = [known_at(features, record, arm, ran) for arm, ran in enumerate(reached)]
    widest = max(x.shape[1] for x in known)
    return features.fitted(known, 2 if comb(widest + 2, 2) <= MOST_FEATURES else 1)
