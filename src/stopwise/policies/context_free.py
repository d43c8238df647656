"""What the policies share that look at no context: they play many rounds at once."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stopwise.cascade import Cascade
from stopwise.checks import as_table, rounds_in
from stopwise.policies.base import CHUNK, Policy
from stopwise.policies.checking import (
    Bools,
    Differ,
    GivenTruth,
    Ints,
    KnownTruth,
    LazyDiffer,
    compared,
    decoded,
    differ_table,
    output_table,
)
from stopwise.policies.overrides import at_once
from stopwise.policies.randomness import restored, stored
from stopwise.policies.recorded import Rounds
from stopwise.records import Progress, no_progress


class ContextFreePolicy(Policy):
    """A policy that looks at no context; it only counts rounds, unless a subclass does more.

    Subclasses write a series of rounds (`_play`) beside the single `decide`.
    """

    uses_context: ClassVar[bool] = False

    def __init__(self, cascade: Cascade) -> None:
        super().__init__(cascade)
        self._rounds: int = 0
        self._random: np.random.Generator | None = None  # of a subclass that draws

    @property
    def rounds(self) -> int:
        """Rounds observed so far."""
        return self._rounds

    @at_once(Policy.run)
    def run(
        self,
        contexts: ArrayLike,
        outputs: ArrayLike | None = None,
        *,
        progress: Progress = no_progress,
        **truth: ArrayLike | None,
    ) -> Ints:
        """Play rounds in order, all at once (see `Policy.run`)."""
        n = rounds_in(as_table(contexts))
        if outputs is None and self.needs_truth:  # which learns nothing from them
            outputs = np.zeros((n, self._n_arms), dtype=np.uint8)
        table = output_table(cast(ArrayLike, outputs), n, self._n_arms)
        return self._run(n, lambda part: compared(table[part], self.cascade), progress, truth)

    @at_once(Policy.run_disagreements)
    def run_disagreements(
        self,
        contexts: ArrayLike,
        differ: ArrayLike | None = None,
        *,
        progress: Progress = no_progress,
        **truth: ArrayLike | None,
    ) -> Ints:
        """Play rounds in order, all at once (see `Policy.run_disagreements`)."""
        n = rounds_in(as_table(contexts))
        if differ is None and self.needs_truth:
            differ = np.zeros((n, len(self.cascade.pairs())), dtype=np.uint8)
        table = differ_table(cast(ArrayLike, differ), n, self.cascade)
        return self._run(n, lambda part: table[part], progress, truth)

    @at_once(Policy.run_recorded)
    def run_recorded(self, rounds: Rounds, *, progress: Progress = no_progress) -> Ints:
        """Play recorded rounds, all at once if every output is known."""
        if (rounds.reach == self._n_arms - 1).all() and not rounds.failed.any():
            return self.run_disagreements(rounds.contexts, rounds.differ, progress=progress)
        return super().run_recorded(rounds, progress=progress)

    def _run(
        self,
        n: int,
        differ: Callable[[slice], Differ],
        progress: Progress,
        truth: GivenTruth,
    ) -> Ints:
        known = self._checked_truth(n, truth)  # everything is checked before the first round
        stops = np.empty(n, dtype=np.int64)
        for start in range(0, n, CHUNK):
            part = slice(start, min(start + CHUNK, n))
            here = {name: table[part] for name, table in known.items()}
            self._play(stops[part], partial(differ, part), here)
            self._rounds += part.stop - start
            progress("rounds", part.stop, n)
        return stops

    @abstractmethod
    def _play(self, stops: Ints, differ: LazyDiffer, truth: KnownTruth) -> None:
        """Play rounds in order: fill in the stops and learn all but the number of rounds."""

    def _learn(self, x: ArrayLike, n: int, codes: int, rule_stop: int) -> None:
        del rule_stop
        self._learn_pairs(x, n - 1, decoded(codes, n))

    def _learn_pairs(self, x: ArrayLike, stop: int, differ: Bools) -> None:
        del x, stop, differ
        self._rounds += 1

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the number of rounds, and the random state if there is one."""
        arrays: dict[str, NDArray[Any]] = {"rounds": np.array([self._rounds], dtype=np.int64)}
        return arrays if self._random is None else {**arrays, "random": stored(self._random)}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from what `state` returned; if it does not fit, ValueError and no change."""
        random = None if self._random is None else restored(state["random"])
        rounds = state["rounds"]
        if rounds.dtype != np.int64 or rounds.shape != (1,) or rounds[0] < 0:
            raise ValueError("its number of rounds is impossible")
        self._rounds, self._random = int(rounds[0]), random
