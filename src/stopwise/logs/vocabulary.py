"""Counts of distinct answers by arm, and warnings about inconsistent spelling."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, starmap
from typing import Any, TypeAlias

import msgspec
import numpy as np

from stopwise.arrays import Ints
from stopwise.cascade import Cascade
from stopwise.checks import ENOUGH, unlike_labels
from stopwise.logs.chunk import Chunk, normalise
from stopwise.reporting.wording import join_list, percent, plural, short
from stopwise.text import closest

MAX_COUNTED = 1000  # distinct answers of an arm
MAX_LISTED = 50  # distinct answers in the results
MAX_SHOWN = 8  # distinct answers in a message
MAX_LENGTH = 80  # characters of an answer in the results
MATERIAL_SHARE = 0.02  # of the cost of running every arm, from which answers are reported

Arm: TypeAlias = tuple[str, dict[Any, int]]  # name, and count of each answer


class AnswerCount(msgspec.Struct, frozen=True):
    """How often each arm gives an answer, and how many labels equal the answer.

    ``only`` is the arm that gives this answer if no other arm does, else None.
    """

    answer: str | int | float
    arms: tuple[int, ...]
    labels: int
    only: str | None


class AnswerTable(msgspec.Struct, frozen=True):
    """The most frequent answers, with their counts.

    For each arm, ``distinct`` is the number of its distinct answers, and ``unlisted`` the number of
    rows whose answer is not in ``listed``. If an arm has 1,000 or more distinct answers, ``listed``
    is empty.
    """

    listed: tuple[AnswerCount, ...]
    distinct: tuple[int, ...]
    unlisted: tuple[int, ...]

    def summary(self, arm: int) -> str:
        """Return the most frequent answers of an arm with their counts, as text."""
        if not self.listed:
            return f"{self.distinct[arm]:,} or more distinct answers"
        counts = [count for count in self.listed if count.arms[arm]]
        shown = [f"{_quoted(count.answer)} {count.arms[arm]:,}" for count in counts[:MAX_SHOWN]]
        n_more = self.distinct[arm] - len(shown)
        return ", ".join(shown) + (f" and {n_more:,} more" if n_more else "")


class Vocabulary:
    """Counts of the distinct answers of each arm and of the labels."""

    def __init__(self, arms: Sequence[str]) -> None:
        self._answers: dict[str, dict[Any, int]] = {arm: {} for arm in arms}
        self._labels: dict[Any, int] = {}
        self._outputs = [0] * len(arms)  # rows with an output of each arm
        self._rows = 0
        self.labelled = 0  # rows in which the correctness of the arms is known
        self._compared = 0  # rows with a right answer and an output
        self._equal = False  # whether any label equals an output
        self._first = ("", "")  # label and output in the first of these rows

    def watch(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        """Yield chunks and count their answers."""
        for chunk in chunks:
            self.add(chunk)
            yield chunk

    def add(self, chunk: Chunk) -> None:
        """Count the answers in a chunk."""
        self._rows += chunk.n
        for arm, counts in enumerate(self._answers.values()):
            codes = chunk.codes[:, arm]
            self._outputs[arm] += int((codes >= 0).sum())
            _count(chunk, codes, counts)
        _count(chunk, chunk.labels, self._labels)
        self.labelled += int(chunk.labelled.sum())
        compared = (chunk.labels >= 0) & (chunk.codes[:, 0] >= 0)
        if not self._compared and compared.any():
            label, output = int(chunk.labels[compared][0]), int(chunk.codes[compared][0, 0])
            self._first = repr(chunk.answer(label)), repr(chunk.answer(output))
        self._compared += int(compared.sum())
        self._equal |= bool((chunk.codes == chunk.labels[:, None])[compared].any())

    def merge(self, other: "Vocabulary") -> None:
        """Add the counts of later rows."""
        self._rows += other._rows
        self._first = self._first if self._compared else other._first
        self.labelled += other.labelled
        self._compared += other._compared
        self._equal |= other._equal
        self._outputs = [a + b for a, b in zip(self._outputs, other._outputs, strict=True)]
        for arm, counts in other._answers.items():
            _add(self._answers[arm], counts)
        _add(self._labels, other._labels)

    def table(self) -> AnswerTable:
        """Return the most frequent answers, with their counts."""
        arms = list(self._answers.values())
        total: dict[Any, int] = {}
        for counts in (*arms, self._labels):
            for answer, n in counts.items():
                total[answer] = total.get(answer, 0) + n
        frequent = sorted(total, key=lambda answer: (-total[answer], str(answer)))[:MAX_LISTED]
        if self._truncated():
            frequent = []
        by_arm = [tuple(counts.get(answer, 0) for counts in arms) for answer in frequent]
        rows = tuple(
            AnswerCount(
                short(answer, MAX_LENGTH) if isinstance(answer, str) else answer,
                arm_counts,
                self._labels.get(answer, 0),
                self._only(answer),
            )
            for answer, arm_counts in zip(frequent, by_arm, strict=True)
        )
        listed = [sum(arm_counts[arm] for arm_counts in by_arm) for arm in range(len(arms))]
        return AnswerTable(
            listed=rows,
            distinct=tuple(map(len, arms)),
            unlisted=tuple(n - k for n, k in zip(self._outputs, listed, strict=True)),
        )

    def warnings(self, cascade: Cascade) -> tuple[str, ...]:
        """Return warnings about arms that spell answers differently, and about rare spellings.

        An answer that only one arm gives, and that equals no label, counts as disagreement with
        every other arm. If such answers make up a share s of the rows of an arm, they can cost up
        to s per round, in units of one error; they are reported if s exceeds `MATERIAL_SHARE` of
        the cost of running every arm. If s is at least one half, nothing is reported: the arm
        writes free text or uses another vocabulary.
        """
        spelling = starmap(self._spelling_warning, combinations(self._answers.items(), 2))
        least = MATERIAL_SHARE * float(cascade.cumulative[-1])
        unique = (self._unique_warning(arm, least) for arm in range(len(self._answers)))
        return tuple(filter(None, (*spelling, *unique)))

    def label_mismatch(self) -> str | None:
        """Return a warning if there are many labels but none equals any output."""
        return unlike_labels(self._equal, self._compared, *self._first)

    def _truncated(self) -> bool:
        """Return whether any arm, or the labels, reached the maximum of distinct answers."""
        return any(len(counts) >= MAX_COUNTED for counts in (*self._answers.values(), self._labels))

    def _only(self, answer: Any) -> str | None:
        """Return the arm that gives an answer, if exactly one does."""
        arms = [arm for arm, counts in self._answers.items() if answer in counts]
        return arms[0] if len(arms) == 1 else None

    def _unique_warning(self, arm: int, least: float) -> str | None:
        if self._truncated():
            return None
        name, counts = list(self._answers.items())[arm]
        unique = [a for a in counts if self._only(a) == name and a not in self._labels]
        share = sum(counts[answer] for answer in unique) / max(self._outputs[arm], 1)
        if not least < share < 0.5 or self._rows < ENOUGH:
            return None
        unique.sort(key=lambda answer: -counts[answer])
        shown = [self._describe(answer, counts[answer]) for answer in unique[:MAX_SHOWN]]
        more = f", and {len(unique) - MAX_SHOWN:,} others" if len(unique) > MAX_SHOWN else ""
        subject = "this answer" if len(unique) == 1 else "these answers"
        return (
            f"only {name!r} gives {subject}, in {percent(share)} of its rows: "
            f"{join_list(shown)}{more}; these rows count as disagreement with every other arm, so "
            "correct misspelled answers"
        )

    def _describe(self, answer: Any, n: int) -> str:
        """Return an answer with its count and the most similar answer or label, if there is one."""
        text = f"{_quoted(answer)} ({plural(n, 'row')}"
        if isinstance(answer, str):
            shared = {a for counts in self._answers.values() for a in counts if not self._only(a)}
            candidates = sorted(str(a) for a in shared | self._labels.keys())
            if (near := closest(answer, candidates)) is not None:
                text += f"; did you mean {_quoted(near)}?"
        return f"{text})"

    def _spelling_warning(self, first_arm: Arm, second_arm: Arm) -> str | None:
        first_name, first = first_arm
        second_name, second = second_arm
        spellings: dict[str, list[Any]] = {}
        for answer in {**first, **second}:
            spellings.setdefault(normalise(answer), []).append(answer)
        variants = [_listed(answers) for answers in spellings.values() if len(answers) > 1]
        sizes = len(first), len(second)
        disjoint = not first.keys() & second.keys() and (min(sizes) > 1 or self._rows >= ENOUGH)
        if max(sizes) == MAX_COUNTED or not min(sizes) or not (variants or disjoint):
            return None
        problem = f"spell answers differently: {'; '.join(variants[:MAX_SHOWN])}"
        if disjoint:
            problem = f"have no answer in common: {_listed(first)} and {_listed(second)}"
        advice = "use the same answers for all arms"
        if variants:
            advice = "--normalise-answers or Log(normalise_answers=True) treats them as equal"
        return f"{first_name!r} and {second_name!r} {problem}; {advice}"


def _count(chunk: Chunk, codes: Ints, counts: dict[Any, int]) -> None:
    """Count answers, up to `MAX_COUNTED` distinct ones."""
    if len(counts) < MAX_COUNTED:
        distinct, n_rows = np.unique(codes[codes >= 0], return_counts=True)
        pairs = zip(distinct[:MAX_COUNTED].tolist(), n_rows.tolist(), strict=False)
        _add(counts, {chunk.answer(code): n for code, n in pairs})


def _add(counts: dict[Any, int], more: dict[Any, int]) -> None:
    for answer, n in more.items():
        if answer in counts or len(counts) < MAX_COUNTED:
            counts[answer] = counts.get(answer, 0) + n


def _quoted(answer: Any) -> str:
    return repr(short(answer, MAX_LENGTH) if isinstance(answer, str) else answer)


def _listed(answers: Iterable[Any]) -> str:
    ordered = sorted(answers, key=lambda answer: (isinstance(answer, str), answer))
    more = f", … ({len(ordered):,} in total)" if len(ordered) > MAX_SHOWN else ""
    return ", ".join(map(repr, ordered[:MAX_SHOWN])) + more or "none"
