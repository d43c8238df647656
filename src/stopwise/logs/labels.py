"""Whether labels are written as outputs are: "Yes" is not "yes", and no arm would be right."""

import numpy as np

from stopwise.checks import unlike_labels
from stopwise.logs.chunk import Bools, Chunk


class LabelCheck:
    """Counts the rounds that have a label and an output, and compares the two."""

    def __init__(self) -> None:
        self.rows = 0
        self._equal = False
        self._first = ("", "")  # label and output of the first of them

    def add(self, chunk: Chunk) -> Bools:
        """Count more rounds; return which of them have both."""
        both = (chunk.labels >= 0) & (chunk.rounds.reach >= 0)
        if not self.rows and both.any():
            row = int(np.argmax(both))
            label, output = int(chunk.labels[row]), int(chunk.codes[row, 0])
            self._first = repr(chunk.meaning(label)), repr(chunk.meaning(output))
        self.rows += int(both.sum())
        self._equal |= bool((chunk.codes == chunk.labels[:, None])[both].any())
        return both

    def add_counts(self, other: "LabelCheck") -> None:
        """Add the counts of other rounds, which come later."""
        self._first = self._first if self.rows else other._first
        self.rows += other.rows
        self._equal |= other._equal

    def unlike(self) -> str | None:
        """Return how labels differ from outputs, if none of many is the output of any arm."""
        return unlike_labels(self._equal, self.rows, *self._first)
