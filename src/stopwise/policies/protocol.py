"""The protocol that every policy follows: decide, learn, label, save."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from inspect import Parameter, signature
from os import PathLike
from typing import Any, ClassVar, Self

from numpy.typing import ArrayLike, NDArray

from stopwise.arrays import Ints
from stopwise.cascade import Cascade
from stopwise.errors import FinalPolicyError, LabelsNotSupportedError, PersistenceError
from stopwise.features import BoundFeatures
from stopwise.policies import batch, labels, validation
from stopwise.policies.round_in_progress import DecidedSteps, RoundInProgress
from stopwise.progress import Progress, no_progress
from stopwise.records import Decision, Label, LabelRequest, Observation, RecordedRounds, Round


class Policy(ABC):
    """Decides how deep to go in a cascade, and learns from the outputs of the arms that ran.

    A policy of your own implements `decide` and `learn`; `Runner`, replay, `simulate` and the
    methods for many rounds call nothing else. Implement `learn_label` to accept labels, and `state`
    and `restore` to be saved. Check it with ``sw.check_policy(policy)`` (docs/own_policy.md).
    """

    name: ClassVar[str] = ""  # its key in `sw.POLICIES`; needed to save it
    uses_context: ClassVar[bool] = True
    features: BoundFeatures | None = None
    encoding: dict[str, Any] | None = None  # how named values become a context: `Encoding.to_spec`

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for base in cls.__mro__[1:]:
            builtin = issubclass(base, Policy) and base is not Policy and _in_package(base)
            if builtin and not _in_package(cls):
                raise FinalPolicyError(
                    f"{cls.__name__} cannot subclass {base.__name__}, which is final: "
                    f"subclass Policy, and hold a {base.__name__} to call (docs/own_policy.md)"
                )

    def __init__(self, cascade: Cascade) -> None:
        self.cascade = validation.checked_cascade(cascade)

    # -- to implement -------------------------------------------------------------------------

    @abstractmethod
    def decide(self, x: ArrayLike | None) -> Decision:
        """Return how deep to go for context ``x``; learn nothing. `Cascade.decision` builds it."""

    @abstractmethod
    def learn(self, observation: Observation) -> LabelRequest | None:
        """Learn from one round; return a request if its label is wanted.

        ``observation`` has the context, the stop, and ``differ[i, j]``: whether arms i < j ≤ stop
        disagreed.
        """

    def learn_label(self, label: Label) -> None:
        """Learn which arms of a finished round were right: ``label.right[i]`` for arm i."""
        raise LabelsNotSupportedError(
            f"{type(self).__name__} does not learn from labels; USSLaplace and USSPD do"
        )

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the learned state as arrays by name."""
        raise PersistenceError(_NOT_SAVED.format(type(self).__name__))

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from `state`; raise ValueError and change nothing if it does not fit."""
        raise PersistenceError(_NOT_SAVED.format(type(self).__name__))

    def parameters(self) -> dict[str, Any]:
        """Return the keyword arguments that create an equal, untrained policy, as plain values.

        By default: the attributes that are named like arguments of the constructor.
        """
        variadic = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
        return {
            name: getattr(self, name)
            for name, parameter in signature(type(self)).parameters.items()
            if name not in NOT_PARAMETERS and parameter.kind not in variadic
        }

    # -- capabilities -------------------------------------------------------------------------

    @property
    def reveals(self) -> tuple[int, ...] | None:
        """How many numbers each arm but the last adds; None if the context is complete at once."""
        return None

    @property
    def learns_from_labels(self) -> bool:
        """Whether `label` is supported."""
        return type(self).learn_label is not Policy.learn_label

    @property
    def asks_for_labels(self) -> bool:
        """Whether `learn` may return a `LabelRequest`."""
        return False

    @property
    def engine(self) -> batch.BatchEngine:
        """What plays many rounds: here, calls of `decide` and `learn`."""
        return batch.BatchEngine(self)

    # -- one round ----------------------------------------------------------------------------

    def observe(
        self,
        x: ArrayLike | None,
        outputs: Sequence[Hashable],
        *,
        rule_stop: int | None = None,
    ) -> LabelRequest | None:
        """Learn from the outputs of arms 0 … stop; return a request if the label is wanted.

        Outputs are hashable values, compared by equality; the round stopped at the last of them.
        ``rule_stop`` is ``decision.rule_stop``, for a policy that continues some rounds at random.
        """
        n_arms = self.cascade.n_arms
        if rule_stop is not None:
            rule_stop = validation.checked_stop(rule_stop, n_arms, "rule_stop")
        return self.learn(labels.observation_of(x, outputs, n_arms, rule_stop))

    def observe_disagreements(
        self, x: ArrayLike | None, stop: int, pairs: validation.Pairs
    ) -> LabelRequest | None:
        """Learn from a round for which only the pairwise disagreements are known.

        ``stop`` is the 0-based index of the last arm that ran; ``pairs`` says for every
        i < j ≤ stop whether arms i and j disagreed: ``{(i, j): bool}``, or the upper triangle of a
        square table.
        """
        stop = validation.checked_stop(stop, self.cascade.n_arms)
        differ = validation.checked_pairs(pairs, stop, self.cascade.n_arms)
        return self.learn(Observation(x, stop, stop, differ[: stop + 1, : stop + 1]))

    def start(self, x: ArrayLike | None = None) -> RoundInProgress:
        """Start a round that is decided step by step, as stages answer.

        ``x`` is what is known before the first arm (None for a policy without contexts). Stages
        may add to it in a policy with ``reveals``.
        """
        return RoundInProgress(DecidedSteps(self, x, self.decide(x)))

    def resume(self, state: Mapping[str, Any]) -> RoundInProgress:
        """Resume a round from `RoundInProgress.state`; nothing is decided or drawn again."""
        steps = state["steps"]
        decision = self.cascade.decision(int(steps["stop"]), int(steps["rule_stop"]))
        return RoundInProgress.resumed(DecidedSteps.resumed(self, decision, steps), state)

    def label(
        self,
        round: Round | RoundInProgress | Observation,  # noqa: A002 (the word for it)
        answer: Hashable = None,
        *,
        right: labels.Right | None = None,
    ) -> None:
        """Learn from the label of a finished round: the right answer, or which arms were right.

        Best for rounds that want it (``wants_label``), early, late or never; of others only if
        they were chosen at random.

        Parameters
        ----------
        round : Round, RoundInProgress or Observation
            The round that the label belongs to.
        answer : hashable, optional
            The right answer, in the form in which outputs are compared. An arm was right if its
            output equals it.
        right : sequence of bool, optional
            Instead of ``answer``: whether each arm that answered was right. For outputs of which
            several can be right, such as free text.

        Examples
        --------
        >>> import stopwise as sw
        >>> policy = sw.USSLaplace(sw.Cascade([0.01, 0.3]), context_dim=1, labels=100)
        >>> current = policy.start([0.5])
        >>> while (arm := current.next()) is not None:
        ...     current.give(["in Rome", "in Italy"][arm])
        >>> current.learn()
        >>> policy.label(current, right=[True, True])
        >>> policy.labels.came
        1
        """
        label = labels.label_of(round, answer, right, self.cascade.n_arms)
        if label is not None:
            self.learn_label(label)

    # -- many rounds --------------------------------------------------------------------------

    def decide_many(self, X: ArrayLike | RecordedRounds) -> Ints:
        """Return the rule's own stop for every row of ``X``; learn nothing.

        Where stages reveal the context, ``X`` holds recorded rounds instead.
        """
        return batch.decide_many(self, X)

    def run(
        self,
        contexts: ArrayLike,
        outputs: ArrayLike | None = None,
        *,
        differ: ArrayLike | None = None,
        labels: ArrayLike | None = None,
        progress: Progress = no_progress,
    ) -> Ints:
        """Play rounds in order: decide, reveal outputs as deep as decided, learn; return the stops.

        Parameters
        ----------
        contexts : array_like of shape (n, context_dim)
        outputs : array_like of shape (n, K)
            What every arm would output; only what a stop reveals is looked at.
        differ : array_like of shape (n, K(K−1)/2)
            In place of outputs: whether each pair would disagree, in the order of
            ``cascade.pairs()``.
        labels : array_like of shape (n,), optional
            The right answers, for a policy that asks for labels, which sees those it asks for; None
            where unknown. `LabelWarning` if such a policy is given none, or if none of 30 or more
            is the output of any arm.
        progress : callable, optional
            Called as ``progress("rounds", done, of)`` now and then.
        """
        if differ is not None:
            return batch.run_disagreements(self, contexts, outputs, differ, labels, progress)
        return batch.run(self, contexts, outputs, labels, progress)

    def run_recorded(self, rounds: RecordedRounds, *, progress: Progress = no_progress) -> Ints:
        """Play recorded rounds in order: decide, reveal what the record knows, learn.

        The policy learns nothing from a round in which it goes deeper than arms ``answered``.
        Returns the stops decided, also where these arms did not answer.
        """
        return batch.run_recorded(self, rounds, progress)

    def observe_many(
        self, rounds: RecordedRounds, stops: ArrayLike, *, rule_stop: ArrayLike | None = None
    ) -> None:
        """Learn from recorded rounds without deciding: a warm start from a log.

        ``stops`` are where the rounds ended; nothing is learned where that arm did not answer.
        ``rule_stop`` is where the rule would have ended each (see `observe`).
        """
        batch.observe_many(self, rounds, stops, rule_stop)

    # -- files and copies ---------------------------------------------------------------------

    def save(self, path: "str | PathLike[str]") -> None:
        """Write the policy to one file; `stopwise.load` continues from it bit for bit."""
        from stopwise.policies import persistence  # its imports take 3 MB

        persistence.save(self, path)

    def __copy__(self) -> Self:
        return copy.deepcopy(self)  # a policy is its state: two must never share any

    def __repr__(self) -> str:
        text = "".join(f", {name}={value!r}" for name, value in self.parameters().items())
        return f"{type(self).__name__}({self.cascade!r}{text})"


_NOT_SAVED = "{} cannot be saved: implement state and restore"
NOT_PARAMETERS = ("cascade", "features", "context_dim")  # which `load` knows by other means


def _in_package(kind: type[Any]) -> bool:
    return kind.__module__.startswith("stopwise.")
