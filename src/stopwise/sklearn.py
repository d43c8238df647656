"""A cascade of scikit-learn classifiers that is itself a scikit-learn classifier."""
# scikit-learn has no type annotations, so strict type checking would only report their absence.
# pyright: basic

import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stopwise.arrays import Floats, Ints
from stopwise.cascade import Cascade, cost_unit_warning
from stopwise.checks import short_repr
from stopwise.errors import (
    CostUnitWarning,
    InvalidContextError,
    InvalidInputError,
    MissingPackageError,
)
from stopwise.policies import batch
from stopwise.policies.creation import make
from stopwise.policies.labels import recorded_label
from stopwise.policies.protocol import Policy
from stopwise.policies.validation import disagreements, right_arms
from stopwise.records import RecordedRounds
from stopwise.text import suggestion

try:
    from sklearn.base import ClassifierMixin, clone, is_classifier
    from sklearn.frozen import FrozenEstimator
    from sklearn.model_selection import check_cv
    from sklearn.pipeline import Pipeline
    from sklearn.utils import Tags, _safe_indexing, column_or_1d, get_tags, indexable
    from sklearn.utils.metaestimators import _BaseComposition, _safe_split, available_if
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import _num_samples, check_is_fitted, validate_data
except ImportError as error:
    raise MissingPackageError.of("stopwise.sklearn", "scikit-learn 1.6", "sklearn") from error


NOT_FITTED = (
    "prefit=True requires fitted estimators; under clone or a grid search, pass "
    "FrozenEstimator(%(name)s)"
)
NO_Y = "fit requires y to be passed, but the target y is None; only prefit=True needs no labels"


class CascadeClassifier(ClassifierMixin, _BaseComposition):
    """Runs classifiers in order of cost, each only on the rows for which it is worth its cost.

    Parameters
    ----------
    estimators : list of classifiers, or of (name, classifier)
        Classifiers in order of cost, the cheapest first. Parameters of named estimators can be set
        as in ``set_params(small__C=10)``.
    costs : list of float, dict of float by name, or Cascade
        The cost of running each estimator, excluding the estimators before it. One wrong answer
        costs 1 or, if specified, ``error_cost``. A `Cascade` already contains costs and units.
    error_cost : float, optional
        The cost of one wrong answer, if ``costs`` are prices.
    policy : str or callable, optional
        The policy that decides where to stop: a name in ``stopwise.POLICIES``, or a callable that
        is called as ``policy(cascade, reveals=…, context_dim=…)``. By default, `USSLaplace`, which
        learns from y, or `USSAnchor` if y is None.
    context : callable, optional
        Function of X that returns the context before the first estimator: a few numbers per row.
    prefit : bool
        Whether the estimators are already fitted. If they are, call `fit` with rows that they have
        not seen. In this case, y may be None or contain None.
    cv : int or splitter
        Cross-validation that produces the held-out answers from which the policy learns; unused
        with ``prefit``.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> stages = [DecisionTreeClassifier(max_depth=1), KNeighborsClassifier()]
    >>> cascade = CascadeClassifier(stages, costs=[0.01, 0.05]).fit(X, y)
    >>> cascade.predict(X[[0, 100]]).tolist(), cascade.depths_.tolist()
    ([0, 2], [0, 1])
    """

    def __init__(
        self,
        estimators: Sequence[Any],
        costs: Sequence[float] | Mapping[str, float] | Cascade,
        *,
        error_cost: float | None = None,
        policy: str | Callable[..., Policy] | None = None,
        context: Callable[[Any], ArrayLike] | None = None,
        prefit: bool = False,
        cv: Any = 5,
    ) -> None:
        self.estimators = estimators
        self.costs = costs
        self.error_cost = error_cost
        self.policy = policy
        self.context = context
        self.prefit = prefit
        self.cv = cv

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the estimators unless ``prefit``, then train the policy on held-out answers."""
        if len(self.estimators) < 2 or len({isinstance(e, tuple) for e in self.estimators}) > 1:
            raise InvalidInputError(
                "estimators must be two or more classifiers, all named or all unnamed, got "
                f"{short_repr(self.estimators)}"
            )
        names, estimators = zip(*self._named(), strict=True)
        self._validate_names(names)
        self._check_stages()
        cascade = self._cascade(names)
        validate_data(self, X, skip_check_array=True)
        X, y = indexable(X, y)
        if self.prefit:
            for estimator in estimators:
                check_is_fitted(estimator, msg=NOT_FITTED)
            if len({isinstance(c, str) for e in estimators for c in e.classes_}) > 1:
                raise InvalidInputError(
                    "the estimators must all have text classes or all have numeric classes, got "
                    "both; fit them on the same labels"
                )
            self.estimators_ = list(estimators)
            self.classes_ = np.unique(np.concatenate([e.classes_ for e in estimators]))
            codes, tables = self._ask_all(estimators, X)
        else:
            if y is None:
                raise InvalidInputError(NO_Y)
            y = column_or_1d(y, warn=True)
            check_classification_targets(y)
            self.classes_, rows = np.unique(y, return_counts=True)
            if isinstance(self.cv, int) and (most := rows.max(initial=0)) < self.cv:
                raise InvalidInputError(
                    f"cv={self.cv} is too large: the largest class has n_samples={most}; lower cv"
                )
            self.estimators_ = [cast(Any, clone(e)).fit(X, y) for e in estimators]
            codes, tables = self._ask_held_out(estimators, X, y)
        context = self._context(X)
        kind = self.policy or ("uss-anchor" if y is None else "uss-laplace")
        create = partial(make, kind) if isinstance(kind, str) else kind
        self.policy_ = create(cascade, reveals=2, context_dim=context.shape[1])
        self._learn_all(context, codes, tables, y)
        # Holds the last depths, because predict must not set attributes of an estimator.
        self._last_batch = threading.local()
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the answer of the estimator at which each row stops, without learning."""
        answers, _ = self._play(X)
        return self.classes_[answers]

    @available_if(lambda self: all(hasattr(e, "predict_proba") for _, e in self._named()))
    def predict_proba(self, X: Any) -> Floats:
        """Return the class probabilities from the estimator at which each row stops.

        If an estimator has its own decision threshold, its answer may not be the most probable
        class.
        """
        _, probabilities = self._play(X, probabilities=True)
        return probabilities

    def learn(self, X: Any) -> NDArray[Any]:
        """Predict, and learn from the disagreement between the estimators that ran.

        No labels are needed. A few random rows go to the last estimator, to measure the
        disagreement that early stops hide.
        """
        answers, _ = self._play(X, learn=True)
        return self.classes_[answers]

    @property
    def depths_(self) -> Ints:
        """Index of the estimator at which each row stopped, in this thread's last prediction."""
        check_is_fitted(self)
        if not hasattr(self._last_batch, "depths"):
            raise AttributeError(
                "depths_ and cost_ describe this thread's last prediction, and there is none yet; "
                "call predict or learn first"
            )
        return self._last_batch.depths

    @property
    def cost_(self) -> float:
        """Mean cost per row, in this thread's last prediction."""
        depths = self.depths_  # raises if there is no prediction
        return float(self.policy_.cascade.cumulative[depths].mean())

    def _check_stages(self) -> None:
        """Raise if an estimator is not a classifier or, without ``prefit``, if it is frozen."""
        for name, estimator in self._named():
            if not is_classifier(estimator):
                raise InvalidInputError(
                    f"estimators must be classifiers, got {name!r}: {short_repr(estimator)}"
                )
            if self.prefit:
                continue
            if isinstance(estimator, FrozenEstimator):
                raise InvalidInputError(
                    f"estimator {name!r} is frozen, so it cannot be refitted to get held-out "
                    "answers; fit all estimators, then pass prefit=True and rows that they have "
                    "not seen"
                )
            values = estimator.get_params(deep=True).values()
            if any(isinstance(value, FrozenEstimator) and is_classifier(value) for value in values):
                warnings.warn(
                    f"estimator {name!r} contains a frozen classifier, which cannot be refitted to "
                    "get held-out answers; pass an X that the classifier has not seen",
                    stacklevel=3,
                )

    def _cascade(self, names: tuple[str, ...]) -> Cascade:
        """Return the cascade of the estimators, for any type of ``costs``."""
        costs: Any = self.costs
        n = len(names)
        if isinstance(costs, Cascade):
            return self._named_cascade(costs, names)
        if isinstance(costs, Mapping):
            for name in costs:
                if name not in names:
                    raise InvalidInputError(
                        f"unknown estimator {name!r} in costs; {suggestion(name, names)}"
                    )
            for name in names:
                if name not in costs:
                    raise InvalidInputError(
                        f"costs must have a cost for {name!r}, got costs only for {list(costs)}"
                    )
            costs = [costs[name] for name in names]
        n_costs = np.size(costs)
        if n_costs != n:
            raise InvalidInputError(
                f"costs must have one cost for each of the {n} estimators, got {n_costs}"
            )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CostUnitWarning)  # reported below for this class
            if self.error_cost is None:
                advice = "if they are prices, pass error_cost=, the cost of one wrong answer"
                cascade = Cascade(costs, names)
            else:
                advice = f"check error_cost, which is {self.error_cost!r}"
                cascade = Cascade.from_prices(costs, self.error_cost, names)
        if doubt := cost_unit_warning(names, cascade.cumulative):
            warnings.warn(f"{doubt}; {advice}", CostUnitWarning, stacklevel=3)
        return cascade

    def _named_cascade(self, cascade: Cascade, names: tuple[str, ...]) -> Cascade:
        """Return the cascade passed as ``costs``, with its arms named after the estimators."""
        if self.error_cost is not None:
            raise InvalidInputError(
                "error_cost must be omitted if costs is a Cascade, which has its own units"
            )
        if cascade.n_arms != len(names):
            raise InvalidInputError(
                f"costs must be a cascade of {len(names)} arms (one per estimator), got "
                f"{cascade.n_arms} arms"
            )
        default_names = tuple(f"arm {i}" for i in range(cascade.n_arms))
        if cascade.names == default_names:
            return Cascade.from_dict(cascade.to_dict() | {"names": names})
        has_names = isinstance(self.estimators[0], tuple)
        if has_names and cascade.names != names:
            raise InvalidInputError(
                f"the cascade's arms must have the estimators' names {names}, got {cascade.names}"
            )
        return cascade

    def _learn_all(self, context: Floats, codes: Ints, tables: list[Floats], y: Any) -> None:
        """Train the policy on rows for which all estimators have answered."""
        policy, last = self.policy_, codes.shape[1] - 1
        order = np.random.default_rng(0).permutation(len(context))  # X may be sorted by class
        revealed = [_revealed(codes[:, arm], table) for arm, table in enumerate(tables)]
        contexts = np.hstack([context, *revealed])[order]
        codes = codes[order]
        differ, n = disagreements(codes, policy.cascade), len(order)
        failed = np.zeros(n, dtype=np.bool_)
        record = RecordedRounds(contexts, differ, np.full(n, last + 1), failed)
        policy.observe_many(record, np.full(n, last))
        if y is None or not policy.learns_from_labels:
            return
        labels, answers = np.asarray(y, dtype=object)[order], self.classes_[codes]
        labels[[str(v != v) != "False" for v in labels]] = None  # NaN or pandas.NA
        right, labelled = right_arms(answers, labels)
        record = RecordedRounds(contexts, differ, record.answered, failed, right, labelled)
        for t in np.flatnonzero(labelled & differ.any(axis=1)).tolist():
            label = recorded_label(record, t, last, last, None, last + 1)
            if label is not None:
                policy.learn_label(label)

    def _play(
        self, X: Any, learn: bool = False, probabilities: bool = False
    ) -> tuple[Ints, Floats]:
        """Run each estimator on the rows that reach it; return answers and probabilities.

        The last estimator computes only probabilities if ``probabilities`` is true, and only
        answers otherwise, so the other result is incomplete.
        """
        check_is_fitted(self)
        if getattr(X, "ndim", 2) > 1:  # otherwise, the estimators validate X
            validate_data(self, X, reset=False, skip_check_array=True)
        (X,) = indexable(X)
        policy, n, last = self.policy_, _num_samples(X), len(self.estimators_) - 1
        pairs, context = policy.cascade.pairs(), self._context(X)
        contexts = np.hstack([context, np.zeros((n, 2 * last))])
        codes, differ = np.zeros((n, last + 1), np.int64), np.zeros((n, len(pairs)), np.uint8)
        rule_stops, table = np.full(n, last), np.zeros((n, len(self.classes_)))
        explored = batch.explore_many(policy, n) if learn else np.zeros(n, np.bool_)
        rows, failed = np.arange(n), np.zeros(n, dtype=np.bool_)
        for arm, estimator in enumerate(self.estimators_):
            reached = X if len(rows) == n else _safe_indexing(X, rows)
            if arm == last and probabilities:
                table[rows] = self._probabilities(estimator, reached)
                break
            codes[rows, arm] = self._codes(arm, estimator, reached)
            for k in (k for k, (_, j) in enumerate(pairs) if j == arm):
                differ[rows, k] = codes[rows, pairs[k][0]] != codes[rows, arm]
            if arm == last:
                break
            stage_table = self._probabilities(estimator, reached, codes[rows, arm])
            table[rows] = stage_table
            start, answered = context.shape[1] + 2 * arm, np.full(len(rows), arm + 1)
            contexts[rows, start : start + 2] = _revealed(codes[rows, arm], stage_table)
            reached = RecordedRounds(contexts[rows], differ[rows], answered, failed[rows])
            stops = batch.should_stop_many(policy, reached)
            rule_stops[rows[stops]] = np.minimum(rule_stops[rows[stops]], arm)
            rows = rows[~stops | explored[rows]]
            if not len(rows):
                break
        depths = np.where(explored, last, rule_stops)
        self._last_batch.depths = depths
        if learn:
            record = RecordedRounds(contexts, differ, depths + 1, failed)
            policy.observe_many(record, depths, rule_stop=rule_stops)
        return codes[np.arange(n), depths], table

    def _ask_all(self, estimators: Sequence[Any], X: Any) -> tuple[Ints, list[Floats]]:
        """Return the answers of all estimators, and the probabilities of all but the last."""
        columns: list[Ints] = []
        tables: list[Floats] = []
        for arm, estimator in enumerate(estimators):
            columns.append(self._codes(arm, estimator, X))
            if arm < len(estimators) - 1:
                tables.append(self._probabilities(estimator, X, columns[arm]))
        return np.column_stack(columns), tables

    def _ask_held_out(self, estimators: Sequence[Any], X: Any, y: Any) -> tuple[Ints, list[Floats]]:
        """Return the same as `_ask_all`, from clones fitted without the rows that they answer.

        `cross_val_predict` would fit the clones twice, once for answers and once for probabilities.
        """
        n, last = _num_samples(X), len(estimators) - 1
        codes = np.zeros((n, last + 1), np.int64)
        tables = [np.zeros((n, len(self.classes_))) for _ in range(last)]
        times_held_out = np.zeros(n, np.int64)
        splitter = cast(Any, check_cv(self.cv, y, classifier=True))
        for train, test in splitter.split(X, y):
            # All estimators get the same X, so either all or none of them take a kernel matrix.
            train_X, train_y = _safe_split(estimators[0], X, y, train)
            test_X, _ = _safe_split(estimators[0], X, y, test, train)
            clones = [cast(Any, clone(e)).fit(train_X, train_y) for e in estimators]
            fold_codes, fold_tables = self._ask_all(clones, test_X)
            codes[test] = fold_codes
            for table, fold_table in zip(tables, fold_tables, strict=True):
                table[test] = fold_table
            times_held_out[test] += 1
        if (times_held_out != 1).any():
            raise InvalidInputError(f"cv must hold out every row exactly once, got {self.cv!r}")
        return codes, tables

    def _codes(self, arm: int, estimator: Any, X: Any) -> Ints:
        """Return an estimator's answers as indices into ``classes_``."""
        answers = np.asarray(estimator.predict(X))
        same = answers[:, None] == self.classes_
        for answer in answers[~same.any(axis=1)].tolist():
            name, _ = self._named()[arm]
            raise InvalidInputError(
                f"estimator {name!r} answered {answer!r}, which is not one of the classes "
                f"{short_repr(self.classes_.tolist())}"
            )
        return same.argmax(axis=1)

    def _probabilities(self, estimator: Any, X: Any, codes: Ints | None = None) -> Floats:
        """Return the class probabilities; without predict_proba, the answer has probability 1."""
        if not hasattr(estimator, "predict_proba"):
            return np.eye(len(self.classes_))[codes]
        table = np.asarray(estimator.predict_proba(X))
        if np.array_equal(estimator.classes_, self.classes_):
            return table
        same = np.asarray(estimator.classes_)[:, None] == self.classes_
        return table[:, same.argmax(axis=0)] * same.any(axis=0)

    def _context(self, X: Any) -> Floats:
        n = _num_samples(X)
        context = np.asarray(self.context(X) if self.context else np.zeros((n, 0)), np.float64)
        if context.ndim not in (1, 2) or len(context) != n:
            raise InvalidContextError(
                f"context must return {n} rows, one per row of X, got shape {context.shape}"
            )
        return context if context.ndim == 2 else context[:, None]

    def _named(self) -> list[tuple[str, Any]]:
        if all(isinstance(e, tuple) for e in self.estimators):
            return list(self.estimators)
        return [(f"{type(e).__name__}-{k}", e) for k, e in enumerate(self.estimators)]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters; with ``deep``, including those of named estimators."""
        return self._get_params("estimators", deep=deep)

    def set_params(self, **params: Any) -> Self:
        """Set parameters, including those of named estimators."""
        return self._set_params("estimators", **params)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the last prediction, which can be large."""
        state = dict(cast(Any, super().__getstate__()))
        state.pop("_last_batch", None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a fitted or unfitted cascade, without a last prediction."""
        super().__setstate__(state)
        if "policy_" in state:
            self._last_batch = threading.local()

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        each = [get_tags(estimator).input_tags for _, estimator in self._named()]
        tags.input_tags.sparse = all(tag.sparse for tag in each)
        tags.input_tags.allow_nan = all(tag.allow_nan for tag in each)
        return tags


def negative_loss(estimator: Any, X: Any, y: Any) -> float:
    """Return the negative loss of a `CascadeClassifier`, for ``scoring=negative_loss``.

    The loss is the error rate plus the mean cost per row. The cascade may also be the last step of
    a `Pipeline` or the best estimator of a search.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.model_selection import cross_val_score
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> stages = [DecisionTreeClassifier(max_depth=1), GaussianNB()]
    >>> model = make_pipeline(StandardScaler(), CascadeClassifier(stages, costs=[0.01, 0.05]))
    >>> X, y = load_iris(return_X_y=True)
    >>> scores = cross_val_score(model, X, y, scoring=negative_loss)
    >>> bool(-0.2 < scores.mean() < -0.01)
    True
    """
    cascade = _find_cascade(estimator)
    errors = float(np.mean(np.asarray(estimator.predict(X)) != np.asarray(y)))
    return -errors - cascade.cost_


def _find_cascade(estimator: Any) -> CascadeClassifier:
    """Return the cascade in a pipeline, a search or a frozen estimator."""
    inner = estimator
    while not isinstance(inner, CascadeClassifier):
        if isinstance(inner, FrozenEstimator):
            inner = inner.estimator
        elif isinstance(inner, Pipeline):
            inner = inner[-1]
        elif hasattr(inner, "best_estimator_"):
            inner = inner.best_estimator_
        else:
            raise InvalidInputError(
                "negative_loss requires a CascadeClassifier, alone, as the last step of a pipeline "
                f"or as the best estimator of a search, got {type(inner).__name__}"
            )
    return inner


def _revealed(codes: Ints, table: Floats) -> Floats:
    """Return the values that an arm reveals: the margin and the log-odds of its answer.

    The margin is the probability of the answer minus the highest probability of another class. It
    is negative if the answer is not the most probable class.
    """
    rows = np.arange(len(table))
    answer = table[rows, codes]
    others = table.copy()
    others[rows, codes] = 0.0
    odds = np.clip(answer, 1e-9, 1 - 1e-9)  # avoid infinite log-odds
    return np.column_stack([answer - others.max(axis=1), np.log(odds / (1 - odds))])
