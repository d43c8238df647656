"""Learning from audit labels: the right answers to a few rounds chosen at random."""

from collections.abc import Hashable

import numpy as np

from stopwise.errors import InvalidOutputsError
from stopwise.policies.checking import coded
from stopwise.policies.confidence import ConfidencePolicy
from stopwise.policies.round_in_progress import comparable
from stopwise.policies.staged import known_row
from stopwise.records import Round


class AuditedPolicy(ConfidencePolicy):
    """A contextual policy that also learns from audit labels."""

    def audit(self, done: Round, label: Hashable) -> None:
        """Learn from the right answer to a round that has ended (see `Policy.audit`).

        Where arm i was right and a deeper arm j wrong, going on did harm. The probability that i is
        right where the two disagree, q_ij(x), is modelled as p_ij(x) is; with W_ij = p_ij·q_ij the
        rule becomes C_j − C_i > UCB(p_ij − 2·W_ij).
        """
        outputs = list(done.outputs)
        if label is None or not comparable(label):
            raise InvalidOutputsError(
                f"the label of an audited round is a value like its outputs, not {label!r}"
            )
        if not outputs:
            return
        n, _ = coded(outputs, self._n_arms)
        right = np.array([output == label for output in outputs], dtype=np.uint8)
        differ = np.zeros(self._n_pairs, dtype=np.uint8)
        for k, (i, j) in enumerate(self.cascade.pairs()):
            differ[k] = j < n and outputs[i] != outputs[j]
        row = known_row(self.features, done.context, n)
        self._learner.label(row, done.rule_stop, right, differ)
