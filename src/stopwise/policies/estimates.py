"""Looking inside a policy: what it has estimated of each pair of arms, and how much it has seen."""

from collections.abc import Callable
from typing import TypeVar

from stopwise.engine.native import Learner
from stopwise.errors import StopwiseError
from stopwise.features import BoundFeatures
from stopwise.policies.change import ChangeAlarm
from stopwise.policies.protocol import Policy
from stopwise.records import Change, Decision, Floats, PairEvidence

Found = TypeVar("Found")


class Estimates(Policy):
    """A policy whose estimates are those of an engine's learner."""

    learner: Learner
    ridge: float | None
    features: BoundFeatures  # pyright: ignore[reportIncompatibleVariableOverride] (never None)
    alarm: ChangeAlarm | None = None

    def watch(self, on_change: Callable[[Change], object]) -> None:
        """Call a function when two arms begin to disagree more, or less (docs/change.md).

        It is called in the thread that lets the policy learn. A saved policy goes on watching once
        it is loaded; but for whom must be said again.

        Examples
        --------
        >>> import stopwise as sw
        >>> cascade = sw.Cascade(costs=[0.01, 0.3])
        >>> policy = sw.USSPD(cascade, sw.Polynomial(1), context_dim=1, forced_rounds=1000)
        >>> policy.watch(lambda change: print(f"arms {change.pair} at about {change.round}"))
        >>> _ = policy.run([[0.5]] * 1000, [[1, 1]] * 640 + [[1, 2]] * 360)
        arms (0, 1) at about 640
        """
        self.alarm = self.alarm or ChangeAlarm(self)
        self.alarm.on_change = on_change

    @property
    def rounds(self) -> int:
        """Rounds observed so far."""
        return self.learner.rounds

    @property
    def labelled(self) -> int:
        """Rounds whose label was given to `label`."""
        return self.learner.labels

    @property
    def asked(self) -> int:
        """Labels asked for so far."""
        return self.learner.asked

    @property
    def missing(self) -> int:
        """Labels asked for that count as missing: as the worst that they could say."""
        return self.learner.missing

    def theta(self, i: int, j: int) -> Floats:
        """Return θ̂_ij, the exact estimate of a pair over everything observed so far."""
        return self.converged(self.learner.theta(self._model(i, j)))

    def converged(self, found: Found | None) -> Found:
        """Return what was found, or raise: the estimate does not converge."""
        if found is None:
            raise StopwiseError(
                "this estimate has not converged: the data are so nearly separable that the ridge "
                "is too small. Use a larger ridge"
            )
        return found

    def gram(self, i: int, j: int) -> tuple[Floats, Floats]:
        """Return V_ij and its inverse, which is huge in directions never seen."""
        return self.learner.gram(self._model(i, j))

    def observations(self, i: int, j: int) -> int:
        """Return n_ij, how many rounds revealed both arms of a pair."""
        return int(self.learner.observations(self._model(i, j)))

    def explain(self, decision: Decision) -> tuple[PairEvidence, ...]:
        """Return the comparisons that a decision of this policy rested on."""
        if decision.trace is None:
            return ()
        learner = self.learner
        unchanged = decision.trace.revision == learner.rounds + learner.labels
        exact = unchanged and decision.exact_evidence
        compared = self.converged(learner.evidence(decision.trace, decision.rule_stop, exact))
        return tuple(PairEvidence(*comparison) for comparison in compared)

    def _model(self, i: int, j: int) -> int:
        self.features.slot_of(i, j)  # refuses what is no pair
        return self.cascade.pairs().index((i, j))

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the learned state occupies."""
        return self.learner.nbytes

    @property
    def effort(self) -> dict[str, int]:
        """The work done for exact decisions so far (docs/certificate.md).

        ``passes`` over history, ``hessians`` computed and ``rows_visited`` in them, ``rows_stored``
        now, and decisions ``settled`` without a certificate, normally none.
        """
        return self.learner.effort
