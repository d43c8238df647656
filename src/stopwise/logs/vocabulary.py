"""What arms answer, and labels: those that write it differently disagree always, for no reason."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, starmap
from typing import Any, TypeAlias

import numpy as np

from stopwise.checks import ENOUGH, unlike_labels
from stopwise.logs.answers import normal
from stopwise.logs.chunk import Chunk

MOST = 1000  # distinct answers of an arm that are looked at
SHOWN = 8

Arm: TypeAlias = tuple[str, dict[Any, None]]  # its name and answers


class Vocabulary:
    """The distinct answers of each arm, and whether any label ever equals one."""

    def __init__(self, arms: Sequence[str]) -> None:
        self._answers: dict[str, dict[Any, None]] = {arm: {} for arm in arms}
        self._rows = 0
        self.labelled = 0  # rounds that have a label and an output
        self._equal = False
        self._first = ("", "")  # label and output of the first of them

    def watch(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        """Yield chunks, and note the answers in them."""
        for chunk in chunks:
            self._rows += chunk.n
            for codes, found in zip(chunk.codes.T, self._answers.values(), strict=True):
                if len(found) < MOST:
                    known = np.unique(codes[codes >= 0])[:MOST].tolist()
                    found.update(dict.fromkeys(map(chunk.meaning, known)))
            both = chunk.labelled
            if not self.labelled and both.any():
                pair = chunk.labels[both][0], chunk.codes[both][0, 0]
                self._first = repr(chunk.meaning(int(pair[0]))), repr(chunk.meaning(int(pair[1])))
            self.labelled += int(both.sum())
            self._equal |= bool((chunk.codes == chunk.labels[:, None])[both].any())
            yield chunk

    def add(self, other: "Vocabulary") -> None:
        """Add the answers of other rows, which come later."""
        self._rows += other._rows
        self._first = self._first if self.labelled else other._first
        self.labelled += other.labelled
        self._equal |= other._equal
        for arm, found in other._answers.items():
            self._answers[arm] |= dict.fromkeys([*found][: MOST - len(self._answers[arm])])

    def doubts(self) -> tuple[str, ...]:
        """Say which arms seem to mean the same by different words."""
        return tuple(filter(None, starmap(self._doubt, combinations(self._answers.items(), 2))))

    def unlike(self) -> str | None:
        """Return how labels differ from outputs, if none of many is the output of any arm."""
        return unlike_labels(self._equal, self.labelled, *self._first)

    def _doubt(self, one: Arm, other: Arm) -> str | None:
        (name, first), (second_name, second) = one, other
        forms: dict[str, list[Any]] = {}
        for answer in {**first, **second}:
            forms.setdefault(normal(answer), []).append(answer)
        alike = [_listed(words) for words in forms.values() if len(words) > 1]
        sizes = len(first), len(second)
        apart = not first.keys() & second.keys() and (min(sizes) > 1 or self._rows >= ENOUGH)
        if max(sizes) == MOST or not min(sizes) or not (alike or apart):
            return None
        words = f"write answers differently: {'; '.join(alike[:SHOWN])}"
        if apart:
            words = f"have no answer in common: {_listed(first)} against {_listed(second)}"
        advice = "write the answers of all arms alike"
        if alike:
            advice = "--normalise-answers, Log(normalise_answers=True) reads them alike"
        return f"{name!r} and {second_name!r} {words}; {advice}"


def _listed(found: Iterable[Any]) -> str:
    ordered = sorted(found, key=lambda answer: (isinstance(answer, str), answer))
    more = f", … ({len(ordered):,} in all)" if len(ordered) > SHOWN else ""
    return ", ".join(map(repr, ordered[:SHOWN])) + more or "none"
