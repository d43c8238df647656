"""A cascade of scikit-learn classifiers that is itself a scikit-learn classifier."""
# scikit-learn has no types, so strict checking finds nothing but that.
# pyright: basic

from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stopwise.cascade import Cascade
from stopwise.errors import InvalidContextError, InvalidInputError, MissingPackageError
from stopwise.features import Answers
from stopwise.policies.base import Policy
from stopwise.policies.checking import disagreements, wrong_arms
from stopwise.policies.registry import make
from stopwise.records import Floats, Round, Rounds

try:
    from sklearn.base import ClassifierMixin, clone
    from sklearn.model_selection import cross_val_predict
    from sklearn.utils import Tags, _safe_indexing, column_or_1d, get_tags, indexable
    from sklearn.utils.metaestimators import _BaseComposition, available_if
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import _num_samples, check_is_fitted, validate_data
except ImportError as error:
    raise MissingPackageError.of("stopwise.sklearn", "scikit-learn 1.6", "sklearn") from error

NOT_FITTED = "prefit=True needs fitted estimators; if clones are made: FrozenEstimator(%(name)s)"
NO_Y = "fit requires y to be passed, but the target y is None; only prefit=True needs no labels"


class CascadeClassifier(ClassifierMixin, _BaseComposition):
    """Run classifiers in order of cost, each only on the rows for which it is worth its price.

    Parameters
    ----------
    estimators : list of classifiers, or of (name, classifier)
        The cheapest first. Parameters of those with names can be set: ``small__C=10``.
    costs : list of float
        What each costs, in units of one wrong answer.
    policy : str or callable, optional
        Decides where to stop: a name in ``stopwise.POLICIES``, or called as ``(cascade, features=…,
        context_dim=…)``. By default `USSLaplace`, which learns from y; `USSAnchor` without y.
    context : callable, optional
        Makes of X a table of a few numbers a row, known before the first estimator.
    prefit : bool
        The estimators are fitted. `fit` needs rows new to them; y may be None, or hold None.
    cv : int or splitter
        How held-out answers are made for the policy to learn from, unless ``prefit``.

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
        costs: Sequence[float],
        *,
        policy: str | Callable[..., Policy] | None = None,
        context: Callable[[Any], ArrayLike] | None = None,
        prefit: bool = False,
        cv: Any = 5,
    ) -> None:
        self.estimators = estimators
        self.costs = costs
        self.policy = policy
        self.context = context
        self.prefit = prefit
        self.cv = cv

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the estimators, then let the policy learn where they disagree, and who is right."""
        if len(self.estimators) < 2 or len({isinstance(e, tuple) for e in self.estimators}) > 1:
            raise InvalidInputError("give two or more estimators, with names for all or for none")
        names, estimators = zip(*self._named(), strict=True)
        if (k := np.size(self.costs)) != (n := len(names)):
            raise InvalidInputError(f"{k} cost{'s'[k < 2 :]} for {n} estimators: give one for each")
        self._validate_names(names)
        cascade = Cascade(costs=self.costs, names=names)
        validate_data(self, X, skip_check_array=True)
        X, y = indexable(X, y)
        if self.prefit:
            for estimator in estimators:
                check_is_fitted(estimator, msg=NOT_FITTED)
            if len({isinstance(c, str) for e in estimators for c in e.classes_}) > 1:
                raise InvalidInputError("classes are text and numbers: fit all on the same classes")
            self.estimators_ = list(estimators)
            self.classes_ = np.unique(np.concatenate([e.classes_ for e in estimators]))
            tables = [self._ask(e, X) for e in estimators]
        else:
            if y is None:
                raise InvalidInputError(NO_Y)
            y = column_or_1d(y, warn=True)
            check_classification_targets(y)
            self.classes_, rows = np.unique(y, return_counts=True)
            if isinstance(self.cv, int) and (most := rows.max(initial=0)) < self.cv:
                raise InvalidInputError(f"n_samples={most} a class is too few: lower cv={self.cv}")
            self.estimators_ = [cast(Any, clone(e)).fit(X, y) for e in estimators]
            tables = [self._ask(e, X, y) for e in estimators]
        context = self._context(X)
        kind = self.policy or ("uss-anchor" if y is None else "uss-laplace")
        create = partial(make, kind) if isinstance(kind, str) else kind
        self.policy_ = create(cascade, features=Answers(2), context_dim=context.shape[1])
        self._learn_all(context, tables, y)
        self._played = SimpleNamespace()  # `predict` notes depths there: it sets no attribute
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the answer of the estimator at which each row stops; learns nothing."""
        _, answers = self._play(X)
        return self.classes_[answers]

    @available_if(lambda self: all(hasattr(e, "predict_proba") for _, e in self._named()))
    def predict_proba(self, X: Any) -> Floats:
        """Return the probabilities given by the estimator at which each row stops."""
        return self._play(X)[0]

    def learn(self, X: Any) -> NDArray[Any]:
        """Predict, and learn from where the estimators that ran disagree; no labels are needed.

        A few rows go to the last estimator at random, to see what early stops hide.
        """
        _, answers = self._play(X, learn=True)
        return self.classes_[answers]

    @property
    def depths_(self) -> NDArray[np.int64]:
        """The estimator at which each row stopped, of the rows last predicted or learned."""
        check_is_fitted(self)
        if not hasattr(self._played, "depths"):
            raise AttributeError("no rows were predicted since fit: call predict or learn first")
        return self._played.depths

    @property
    def cost_(self) -> float:
        """The mean cost of these rows."""
        depths = self.depths_  # first: it says if there are none
        return float(self.policy_.cascade.cumulative[depths].mean())

    def _learn_all(self, context: Floats, tables: list[Floats], y: Any) -> None:
        """Learn from rows that all estimators have answered."""
        policy, last = self.policy_, len(tables) - 1
        order = np.random.default_rng(0).permutation(len(context))  # rows may be sorted by class
        contexts = np.hstack([context, *map(_revealed, tables[:-1])])[order]
        codes = np.column_stack([table.argmax(axis=1) for table in tables])[order]
        differ, ends = disagreements(codes, policy.cascade), np.full(len(order), last)
        policy.observe_many(Rounds(contexts, differ, ends, ends < 0), ends)
        if y is None or not policy.learns_from_labels:
            return
        labels, answers = np.asarray(y, dtype=object)[order], self.classes_[codes]
        labels[[str(v != v) != "False" for v in labels]] = None  # NaN, or the NA of pandas
        known = wrong_arms(answers, labels)[:, 0] < 2
        for t in np.flatnonzero(differ.any(axis=1) & known):
            said = tuple(answers[t].tolist())
            done = Round("", 0.0, tuple(contexts[t].tolist()), said, said, last, last)
            policy.label(done, labels[t])

    def _play(self, X: Any, learn: bool = False) -> tuple[Floats, NDArray[np.int64]]:
        """Run each estimator on the rows that reach it; return probabilities and answers."""
        check_is_fitted(self)
        if getattr(X, "ndim", 2) > 1:  # else the estimators say what is wrong, if anything is
            validate_data(self, X, reset=False, skip_check_array=True)
        (X,) = indexable(X)
        policy, n, last = self.policy_, _num_samples(X), len(self.estimators_) - 1
        pairs, context = policy.cascade.pairs(), self._context(X)
        contexts = np.hstack([context, np.zeros((n, 2 * last))])
        codes, differ = np.zeros((n, last + 1), np.int64), np.zeros((n, len(pairs)), np.uint8)
        rule_stops, table = np.full(n, last), np.zeros((n, len(self.classes_)))
        explored = policy.explore_many(n) if learn else np.zeros(n, np.bool_)
        rows = np.arange(n)
        for arm, estimator in enumerate(self.estimators_):
            found = self._ask(estimator, X if len(rows) == n else _safe_indexing(X, rows))
            table[rows], codes[rows, arm] = found, found.argmax(axis=1)
            for k in (k for k, (_, j) in enumerate(pairs) if j == arm):
                differ[rows, k] = codes[rows, pairs[k][0]] != codes[rows, arm]
            if arm < last:
                start, at = context.shape[1] + 2 * arm, np.full(len(rows), arm)
                contexts[rows, start : start + 2] = _revealed(found)
                stops = policy.should_stop_many(Rounds(contexts[rows], differ[rows], at, at < 0))
                rule_stops[rows[stops]] = np.minimum(rule_stops[rows[stops]], arm)
                rows = rows[~stops | explored[rows]]
            if not len(rows):
                break
        self._played.depths = depths = np.where(explored, last, rule_stops)
        if learn:
            record = Rounds(contexts, differ, depths, depths < 0)
            policy.observe_many(record, depths, rule_stop=rule_stops)
        return table, codes[np.arange(n), depths]

    def _ask(self, estimator: Any, X: Any, y: Any = None) -> Floats:
        """Return an estimator's probabilities of classes_; if y is given, held-out ones."""
        how = "predict_proba" if hasattr(estimator, "predict_proba") else "predict"
        held_out = partial(cross_val_predict, estimator, cv=self.cv, method=how)
        found: Any = getattr(estimator, how)(X) if y is None else held_out(X, y)
        if how == "predict_proba" and y is not None:
            return found
        answers = np.asarray(found if how == "predict" else estimator.classes_)
        if how == "predict_proba" and np.array_equal(answers, self.classes_):
            return found
        same = answers[:, None] == self.classes_
        for other in answers[~same.any(axis=1)].tolist():
            raise InvalidInputError(
                f"{estimator} answers {other!r}, not in classes {self.classes_}"
            )
        return same * 1.0 if how == "predict" else found[:, same.argmax(axis=0)] * same.any(axis=0)

    def _context(self, X: Any) -> Floats:
        n = _num_samples(X)
        given = np.asarray(self.context(X) if self.context else np.zeros((n, 0)), np.float64)
        if given.ndim not in (1, 2) or len(given) != n:
            raise InvalidContextError(f"context must give {n} rows, not the shape {given.shape}")
        return given if given.ndim == 2 else given[:, None]

    def _named(self) -> list[tuple[str, Any]]:
        if all(isinstance(e, tuple) for e in self.estimators):
            return list(self.estimators)
        return [(f"{type(e).__name__}-{k}", e) for k, e in enumerate(self.estimators)]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters, with ``deep`` also those of named estimators."""
        return self._get_params("estimators", deep=deep)

    def set_params(self, **params: Any) -> Self:
        """Set parameters, also those of named estimators."""
        return self._set_params("estimators", **params)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        each = [get_tags(estimator).input_tags for _, estimator in self._named()]
        tags.input_tags.sparse = all(tag.sparse for tag in each)
        tags.input_tags.allow_nan = all(tag.allow_nan for tag in each)
        return tags


def _revealed(table: Floats) -> Floats:
    """Return what an arm reveals: the lead of its answer over the next class, and its log-odds."""
    second, first = np.partition(table, -2 % table.shape[1], axis=1)[:, -2:].T[[0, -1]]
    odds = np.clip(first, 1e-9, 1 - 1e-9)  # surer tells nothing more
    return np.column_stack([first - second, np.log(odds / (1 - odds))])
