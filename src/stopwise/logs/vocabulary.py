"""Counts of distinct answers by arm, and warnings about answers that look misspelled."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, starmap
from typing import Any, TypeAlias

import msgspec
import numpy as np

from stopwise.arrays import Ints
from stopwise.cascade import Cascade
from stopwise.checks import ENOUGH, unlike_labels
from stopwise.logs.chunk import Chunk, normal
from stopwise.reporting.wording import join_list, percent, plural, short
from stopwise.text import closest

MOST = 1000  # distinct answers of an arm that are counted
LISTED = 50  # in the results
SHOWN = 8
LONGEST = 80  # letters of an answer in the results
MATTERS = 0.02  # the share of the cost of running every arm that decides whether answers matter

Arm: TypeAlias = tuple[str, dict[Any, int]]  # its name, and how often it gave each answer


class AnswerCount(msgspec.Struct, frozen=True):
    """A distinct answer: how many rows of each arm have it, and how many labels.

    ``only`` is the arm that alone uses it; None if several do, or none.
    """

    answer: str | int | float
    arms: tuple[int, ...]
    labels: int
    only: str | None


class AnswerTable(msgspec.Struct, frozen=True):
    """The most frequent answers, with their counts.

    ``distinct`` says how many different answers each arm has, ``unlisted`` how many rows of each
    have an answer that is not ``listed``. If an arm has 1,000 or more, none are listed.
    """

    listed: tuple[AnswerCount, ...]
    distinct: tuple[int, ...]
    unlisted: tuple[int, ...]

    def summary(self, arm: int) -> str:
        """Return the answers of an arm in words, the most frequent first."""
        if not self.listed:
            return f"{self.distinct[arm]:,} different ones or more"
        mine = [one for one in self.listed if one.arms[arm]]
        words = [f"{_word(one.answer)} {one.arms[arm]:,}" for one in mine[:SHOWN]]
        rest = self.distinct[arm] - len(words)
        return ", ".join(words) + (f" and {rest:,} more" if rest else "")


class Vocabulary:
    """The distinct answers of each arm, and whether any label ever equals one."""

    def __init__(self, arms: Sequence[str]) -> None:
        self._answers: dict[str, dict[Any, int]] = {arm: {} for arm in arms}
        self._labels: dict[Any, int] = {}
        self._outputs = [0] * len(arms)  # rows that each arm answered
        self._rows = 0
        self.labelled = 0  # rounds of which it is known which arms were right
        self._compared = 0  # rounds that have a right answer and an output
        self._equal = False
        self._first = ("", "")  # label and output of the first of them

    def watch(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        """Yield chunks, and count the answers in them."""
        for chunk in chunks:
            self.add(chunk)
            yield chunk

    def add(self, chunk: Chunk) -> None:
        """Count the answers in some rows."""
        self._rows += chunk.n
        for arm, found in enumerate(self._answers.values()):
            codes = chunk.codes[:, arm]
            self._outputs[arm] += int((codes >= 0).sum())
            _count(chunk, codes, found)
        _count(chunk, chunk.labels, self._labels)
        self.labelled += int(chunk.labelled.sum())
        both = (chunk.labels >= 0) & (chunk.codes[:, 0] >= 0)
        if not self._compared and both.any():
            label, output = int(chunk.labels[both][0]), int(chunk.codes[both][0, 0])
            self._first = repr(chunk.answer(label)), repr(chunk.answer(output))
        self._compared += int(both.sum())
        self._equal |= bool((chunk.codes == chunk.labels[:, None])[both].any())

    def merge(self, other: "Vocabulary") -> None:
        """Add the answers of other rows, which come later."""
        self._rows += other._rows
        self._first = self._first if self._compared else other._first
        self.labelled += other.labelled
        self._compared += other._compared
        self._equal |= other._equal
        self._outputs = [a + b for a, b in zip(self._outputs, other._outputs, strict=True)]
        for arm, found in other._answers.items():
            _add(self._answers[arm], found)
        _add(self._labels, other._labels)

    def table(self) -> AnswerTable:
        """Return the most frequent answers, with their counts."""
        arms = list(self._answers.values())
        total: dict[Any, int] = {}
        for found in (*arms, self._labels):
            for answer, n in found.items():
                total[answer] = total.get(answer, 0) + n
        ordered = sorted(total, key=lambda answer: (-total[answer], str(answer)))[:LISTED]
        if self._uncounted():
            ordered = []
        counts = [tuple(found.get(answer, 0) for found in arms) for answer in ordered]
        rows = tuple(
            AnswerCount(
                short(answer, LONGEST) if isinstance(answer, str) else answer,
                of,
                self._labels.get(answer, 0),
                self._only(answer),
            )
            for answer, of in zip(ordered, counts, strict=True)
        )
        kept = [sum(of[arm] for of in counts) for arm in range(len(arms))]
        return AnswerTable(
            listed=rows,
            distinct=tuple(map(len, arms)),
            unlisted=tuple(n - k for n, k in zip(self._outputs, kept, strict=True)),
        )

    def warnings(self, cascade: Cascade) -> tuple[str, ...]:
        """Say which arms seem to mean the same by different words, and which words to check.

        Answers that one arm alone gives, and no label, count as disagreement with every other arm.
        In a share s of the rows they can cost up to s a round, in units of one error: they are
        named if that is more than `MATTERS` of what running every arm costs. Arms of which most
        answers are like that give free text, or have another vocabulary.
        """
        alike = starmap(self._doubt, combinations(self._answers.items(), 2))
        least = MATTERS * float(cascade.cumulative[-1])
        alone = (self._alone(arm, least) for arm in range(len(self._answers)))
        return tuple(filter(None, (*alike, *alone)))

    def label_mismatch(self) -> str | None:
        """Return how labels differ from outputs, if none of many is the output of any arm."""
        return unlike_labels(self._equal, self._compared, *self._first)

    def _uncounted(self) -> bool:
        """Return whether an arm, or the labels, have too many different answers to count."""
        return any(len(found) >= MOST for found in (*self._answers.values(), self._labels))

    def _only(self, answer: Any) -> str | None:
        """Return the arm that alone gives an answer."""
        using = [arm for arm, found in self._answers.items() if answer in found]
        return using[0] if len(using) == 1 else None

    def _alone(self, arm: int, least: float) -> str | None:
        if self._uncounted():
            return None
        name, found = list(self._answers.items())[arm]
        mine = [a for a in found if self._only(a) == name and a not in self._labels]
        share = sum(found[answer] for answer in mine) / max(self._outputs[arm], 1)
        if not least < share < 0.5 or self._rows < ENOUGH:
            return None
        mine.sort(key=lambda answer: -found[answer])
        words = [self._suspect(answer, found[answer]) for answer in mine[:SHOWN]]
        more = f", and {len(mine) - SHOWN:,} others" if len(mine) > SHOWN else ""
        what = "an answer" if len(mine) == 1 else "answers"
        return (
            f"{what} of {name!r} alone in {percent(share)} of its rows: {join_list(words)}{more}; "
            "this counts as disagreement with every other arm: correct the misspelled ones"
        )

    def _suspect(self, answer: Any, n: int) -> str:
        """Return an answer in words, with the similar one that other arms give, if there is one."""
        words = f"{_word(answer)} ({plural(n, 'row')}"
        if isinstance(answer, str):
            others = {a for found in self._answers.values() for a in found if not self._only(a)}
            texts = sorted(str(a) for a in others | self._labels.keys())
            if (near := closest(answer, texts)) is not None:
                words += f"; did you mean {_word(near)}?"
        return f"{words})"

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


def _count(chunk: Chunk, codes: Ints, found: dict[Any, int]) -> None:
    """Count answers, until there are too many different ones."""
    if len(found) < MOST:
        known, counts = np.unique(codes[codes >= 0], return_counts=True)
        pairs = zip(known[:MOST].tolist(), counts.tolist(), strict=False)
        _add(found, {chunk.answer(code): n for code, n in pairs})


def _add(found: dict[Any, int], more: dict[Any, int]) -> None:
    for answer, n in more.items():
        if answer in found or len(found) < MOST:
            found[answer] = found.get(answer, 0) + n


def _word(answer: Any) -> str:
    return repr(short(answer, LONGEST) if isinstance(answer, str) else answer)


def _listed(found: Iterable[Any]) -> str:
    ordered = sorted(found, key=lambda answer: (isinstance(answer, str), answer))
    more = f", … ({len(ordered):,} in all)" if len(ordered) > SHOWN else ""
    return ", ".join(map(repr, ordered[:SHOWN])) + more or "none"
