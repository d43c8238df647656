"""`Policy`, the base class of all policies."""

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

    Subclasses must implement `decide` and `learn`, which is enough for `Runner`, replay, `simulate`
    and the batch methods. Also implement `learn_label` to accept labels, and `state` and `restore`
    to support saving. Test a subclass with ``sw.check_policy(policy)`` (docs/own_policy.md).
    """

    name: ClassVar[str] = ""  # key in `sw.POLICIES`; required for saving
    uses_context: ClassVar[bool] = True
    features: BoundFeatures | None = None
    encoding: dict[str, Any] | None = None  # how raw columns become contexts: `Encoding.to_spec`

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for base in cls.__mro__[1:]:
            builtin = issubclass(base, Policy) and base is not Policy and _in_package(base)
            if builtin and not _in_package(cls):
                raise FinalPolicyError(
                    f"{cls.__name__} cannot subclass {base.__name__}, which is final; subclass "
                    f"Policy and delegate to a {base.__name__} (docs/change_policy.md)"
                )

    def __init__(self, cascade: Cascade) -> None:
        self.cascade = validation.checked_cascade(cascade)

    # -- to implement -------------------------------------------------------------------------

    @abstractmethod
    def decide(self, x: ArrayLike | None) -> Decision:
        """Return how deep to go for ``x``, as a result of `Cascade.decision`; learn nothing."""

    @abstractmethod
    def learn(self, observation: Observation) -> LabelRequest | None:
        """Learn from one round; return a `LabelRequest` if the policy requests its label.

        ``observation`` contains the context and the stop; ``observation.differ[i, j]`` is whether
        arms i < j ≤ stop disagreed.
        """

    def learn_label(self, label: Label) -> None:
        """Learn which arms of a finished round were right: ``label.right[i]`` for arm i."""
        raise LabelsNotSupportedError(
            f"{type(self).__name__} does not learn from labels; use USSLaplace or USSPD"
        )

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the learned state as arrays by name."""
        raise PersistenceError(_NOT_SAVED.format(type(self).__name__))

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restore `state`; raise ValueError and change nothing if it is invalid."""
        raise PersistenceError(_NOT_SAVED.format(type(self).__name__))

    def parameters(self) -> dict[str, Any]:
        """Return the keyword arguments for an untrained copy of the policy, as plain values.

        By default, these are the attributes with the same names as the constructor's arguments,
        except ``cascade``, ``features`` and ``context_dim``, which are saved separately.
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
        """How many values each arm but the last adds to the context; None without ``reveals``."""
        return None

    @property
    def learns_from_labels(self) -> bool:
        """Whether the policy supports `label`."""
        return type(self).learn_label is not Policy.learn_label

    @property
    def asks_for_labels(self) -> bool:
        """Whether `learn` may return a `LabelRequest`."""
        return False

    @property
    def engine(self) -> batch.BatchEngine:
        """The batch engine; the default calls `decide` and `learn` for each round."""
        return batch.BatchEngine(self)

    # -- one round ----------------------------------------------------------------------------

    def observe(
        self,
        x: ArrayLike | None,
        outputs: Sequence[Hashable],
        *,
        rule_stop: int | None = None,
    ) -> LabelRequest | None:
        """Learn from the outputs of arms 0 … stop; return a `LabelRequest` or None.

        Outputs are hashable values that are compared by equality; the last output is that of the
        arm where the round stopped. If the policy continues some rounds at random, pass
        ``decision.rule_stop`` as ``rule_stop``.
        """
        n_arms = self.cascade.n_arms
        if rule_stop is not None:
            rule_stop = validation.checked_stop(rule_stop, n_arms, "rule_stop")
        return self.learn(labels.observation_of(x, outputs, n_arms, rule_stop))

    def observe_disagreements(
        self, x: ArrayLike | None, stop: int, pairs: validation.Pairs
    ) -> LabelRequest | None:
        """Learn from a round for which only the pairwise disagreements are known.

        ``stop`` is the 0-based index of the last arm that ran. ``pairs`` states whether arms i and
        j disagreed for every i < j ≤ stop, either as ``{(i, j): bool}`` or as a square table, of
        which only the upper triangle is used.
        """
        stop = validation.checked_stop(stop, self.cascade.n_arms)
        differ = validation.checked_pairs(pairs, stop, self.cascade.n_arms)
        return self.learn(Observation(x, stop, stop, differ[: stop + 1, : stop + 1]))

    def start(self, x: ArrayLike | None = None) -> RoundInProgress:
        """Start a round that is decided step by step.

        ``x`` is the context before the first arm, or None for a policy without contexts. With
        ``reveals``, arms add values to the context as they run.
        """
        return RoundInProgress(DecidedSteps(self, x, self.decide(x)))

    def resume(self, state: Mapping[str, Any]) -> RoundInProgress:
        """Resume a round from `RoundInProgress.state`; nothing is decided or drawn again."""
        steps = state["steps"]
        decision = self.cascade.decision(int(steps["stop"]), int(steps["rule_stop"]))
        return RoundInProgress.resumed(DecidedSteps.resumed(self, decision, steps), state)

    def label(
        self,
        round: Round | RoundInProgress | Observation,  # noqa: A002 (public name)
        answer: Hashable = None,
        *,
        right: labels.Right | None = None,
    ) -> None:
        """Learn from the label of a finished round: the right answer, or which arms were right.

        Pass labels for rounds that request one (``wants_label``); labels may arrive late. Label
        other rounds only if you choose them at random.

        Parameters
        ----------
        round : Round, RoundInProgress or Observation
            The labelled round.
        answer : hashable, optional
            The right answer, in the form in which outputs are compared. An arm was right if
            its output equals this answer.
        right : sequence of bool, optional
            Whether each arm that answered was right; an alternative to ``answer`` for tasks in
            which several different outputs can be right, such as free text.

        Examples
        --------
        >>> import stopwise as sw
        >>> policy = sw.USSLaplace(sw.Cascade([0.01, 0.3]), context_dim=1, labels=100)
        >>> current = policy.start([0.5])
        >>> while (arm := current.next()) is not None:
        ...     current.give(["in Rome", "in Italy"][arm])
        >>> current.learn()
        >>> policy.label(current, right=[True, True])
        >>> policy.labels.received
        1
        """
        label = labels.label_of(round, answer, right, self.cascade.n_arms)
        if label is not None:
            self.learn_label(label)

    # -- many rounds --------------------------------------------------------------------------

    def decide_many(self, X: ArrayLike | RecordedRounds) -> Ints:
        """Return where the rule alone stops in every row of ``X``; learn nothing.

        If stages reveal context (``reveals``), pass recorded rounds instead of contexts.
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
        """Play rounds in order (decide, reveal outputs up to the stop, learn); return the stops.

        Parameters
        ----------
        contexts : array_like of shape (n, context_dim)
        outputs : array_like of shape (n, K)
            The outputs of all arms; only those up to each stop are used.
        differ : array_like of shape (n, K(K−1)/2)
            Whether each pair disagrees, in the order of ``cascade.pairs()``; an alternative to
            outputs.
        labels : array_like of shape (n,), optional
            The right answers, with None where unknown. The policy uses only those that it requests.
            A `LabelWarning` is issued if the policy requests labels but ``labels`` is not passed,
            or if there are at least 30 labels and none of them equals any output.
        progress : callable, optional
            Called repeatedly as ``progress("rounds", done, of)``.
        """
        if differ is not None:
            return batch.run_disagreements(self, contexts, outputs, differ, labels, progress)
        return batch.run(self, contexts, outputs, labels, progress)

    def run_recorded(self, rounds: RecordedRounds, *, progress: Progress = no_progress) -> Ints:
        """Play recorded rounds in order (decide, reveal recorded outputs, learn).

        If the policy goes deeper than the arms that ``answered``, it skips the round, unless the
        next arm ``failed``; then it learns from the arms that answered. Returns all decided stops,
        including those of skipped rounds.
        """
        return batch.run_recorded(self, rounds, progress)

    def observe_many(
        self, rounds: RecordedRounds, stops: ArrayLike, *, rule_stop: ArrayLike | None = None
    ) -> None:
        """Learn from recorded rounds without deciding, for example to warm-start from a log.

        ``stops`` contains the arm at which each round ended. Rounds in which that arm did not
        answer are skipped, unless the arm after those that answered ``failed``; then the policy
        learns from the arms that answered. ``rule_stop`` contains the arm at which the rule alone
        would have stopped each round (see `observe`).
        """
        batch.observe_many(self, rounds, stops, rule_stop)

    # -- files and copies ---------------------------------------------------------------------

    def save(self, path: "str | PathLike[str]") -> None:
        """Save the policy to a file; `stopwise.load` restores it exactly."""
        from stopwise.policies import persistence  # imported late, because it takes 3 MB

        persistence.save(self, path)

    def __copy__(self) -> Self:
        return copy.deepcopy(self)  # two policies must not share state

    def __repr__(self) -> str:
        text = "".join(f", {name}={value!r}" for name, value in self.parameters().items())
        return f"{type(self).__name__}({self.cascade!r}{text})"


_NOT_SAVED = "{} cannot be saved; implement state and restore"
NOT_PARAMETERS = ("cascade", "features", "context_dim")  # saved separately


def _in_package(kind: type[Any]) -> bool:
    return kind.__module__.startswith("stopwise.")
