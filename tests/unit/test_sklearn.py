"""`CascadeClassifier`: an estimator as scikit-learn expects one, and a cascade that pays."""
# pyright: reportAttributeAccessIssue=false, reportCallIssue=false

import pickle
import subprocess
import sys
import warnings
from functools import cache, partial
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.naive_bayes import GaussianNB, MultinomialNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import check_estimator

import stopwise as sw
from stopwise.sklearn import CascadeClassifier

COSTS = [0.002, 0.04]


class Counting(ClassifierMixin, BaseEstimator):
    """Passes on what it is asked, and notes how many rows each call had."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def fit(self, X: Any, y: Any) -> "Counting":
        self.inner_ = clone(self.inner).fit(X, y)
        self.classes_, self.calls_ = self.inner_.classes_, []
        return self

    def predict_proba(self, X: Any) -> Any:
        self.calls_.append(len(X))
        return self.inner_.predict_proba(X)

    def predict(self, X: Any) -> Any:
        raise AssertionError("a second call for what the probabilities say already")


def stages() -> list[tuple[str, Any]]:
    return [("bayes", GaussianNB(var_smoothing=0.01)), ("near", KNeighborsClassifier())]


@cache
def digits() -> tuple[Any, Any, Any, Any]:
    X, y = load_digits(return_X_y=True)
    return tuple(train_test_split(X, y, test_size=0.4, random_state=0))  # pyright: ignore[reportReturnType]


@cache
def fitted() -> CascadeClassifier:
    X, _, y, _ = digits()
    return CascadeClassifier(stages(), COSTS).fit(X, y)


def copy_of(cascade: CascadeClassifier) -> CascadeClassifier:
    return pickle.loads(pickle.dumps(cascade))


def test_it_is_an_estimator_as_scikit_learn_checks_it() -> None:
    cheap = DecisionTreeClassifier(max_depth=1, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of checks that are skipped, and of tiny classes
        found = check_estimator(
            CascadeClassifier([cheap, GaussianNB()], [0.01, 0.05], cv=2), on_fail=None
        )
    failed = [(one["check_name"], one["exception"]) for one in found if one["status"] == "failed"]
    assert not failed
    assert sum(one["status"] == "passed" for one in found) > 50


def test_total_loss_is_below_that_of_the_best_single_estimator() -> None:
    _, X, _, y = digits()
    cascade = copy_of(fitted())
    loss = np.mean(cascade.predict(X) != y) + cascade.cost_
    single = [
        np.mean(stage.predict(X) != y) + cost
        for stage, cost in zip(cascade.estimators_, COSTS, strict=True)
    ]
    assert loss < 0.9 * min(single)
    assert set(cascade.depths_.tolist()) == {0, 1}


def test_answer_and_probabilities_are_those_of_the_stage_at_which_a_row_stops() -> None:
    _, X, _, _ = digits()
    cascade = copy_of(fitted())
    answers = cascade.predict(X)
    probabilities = cascade.predict_proba(X)
    for arm, stage in enumerate(cascade.estimators_):
        rows = cascade.depths_ == arm
        np.testing.assert_allclose(probabilities[rows], stage.predict_proba(X[rows]))
        np.testing.assert_array_equal(answers[rows], stage.predict(X[rows]))
    total = [COSTS[0], sum(COSTS)]
    assert cascade.cost_ == pytest.approx(np.take(total, cascade.depths_).mean())


def test_each_stage_is_called_once_with_the_rows_that_reach_it() -> None:
    X, X_new, y, _ = digits()
    counted = [Counting(estimator) for _, estimator in stages()]
    cascade = CascadeClassifier(counted, COSTS, cv=2).fit(X, y)
    cascade.predict(X_new)
    first, second = (stage.calls_ for stage in cascade.estimators_)
    assert first == [len(X_new)]
    assert second == [(cascade.depths_ == 1).sum()]
    assert 0 < second[0] < len(X_new) / 2


def test_whole_stages_stop_rows_as_rounds_step_by_step_do() -> None:
    _, X, _, _ = digits()
    X = X[:100]
    three = [("tree", DecisionTreeClassifier(max_depth=8, random_state=0)), *stages()]
    cascade = CascadeClassifier(three, [0.002, 0.01, 0.02], cv=2).fit(digits()[0], digits()[2])
    cascade.predict(X)
    tables = [stage.predict_proba(X) for stage in cascade.estimators_]
    for t, depth in enumerate(cascade.depths_):
        current = cascade.policy_.start([])
        while (arm := current.next()) is not None:
            second, first = np.sort(tables[arm][t])[-2:]
            sure = np.clip(first, 1e-9, 1 - 1e-9)
            current.give(int(tables[arm][t].argmax()), [first - second, np.log(sure / (1 - sure))])
        assert current.rule_stop == depth
    assert len(set(cascade.depths_.tolist())) > 1


def test_it_is_tuned_in_a_pipeline_and_survives_pickling() -> None:
    X, X_new, y, _ = digits()
    pipeline = make_pipeline(StandardScaler(), CascadeClassifier(stages(), COSTS, cv=2))
    grid = {
        "cascadeclassifier__near__n_neighbors": [1, 5],
        "cascadeclassifier__policy": ["uss-laplace", partial(sw.USSAnchor, z=1)],
    }
    search = GridSearchCV(pipeline, grid, cv=2, error_score=cast(Any, "raise"))
    search.fit(X[:400], y[:400])
    best = search.best_estimator_[-1]
    assert best.estimators_[1].n_neighbors == search.best_params_[next(iter(grid))]
    again = pickle.loads(pickle.dumps(search))
    np.testing.assert_array_equal(again.predict(X_new), search.predict(X_new))
    assert again.best_estimator_[-1].cost_ == best.cost_


def test_named_estimators_can_be_replaced_and_their_parameters_set() -> None:
    cascade = CascadeClassifier(stages(), COSTS)
    cascade.set_params(near__n_neighbors=3, bayes=DecisionTreeClassifier())
    assert cascade.get_params()["near__n_neighbors"] == 3
    assert isinstance(dict(cascade.estimators)["bayes"], DecisionTreeClassifier)


def test_fitted_estimators_are_used_as_they_are_with_labels_some_or_none() -> None:
    X, X_new, y, y_new = digits()
    ready = [estimator.fit(X[:500], y[:500]) for _, estimator in stages()]
    some = y[500:].astype(object)
    some[::2] = None
    losses = []
    for labels in (y[500:], some, None):
        cascade = CascadeClassifier(ready, COSTS, prefit=True).fit(X[500:], labels)
        assert cascade.estimators_ == ready
        assert cascade.policy_.name == ("uss-anchor" if labels is None else "uss-laplace")
        losses.append(np.mean(cascade.predict(X_new) != y_new) + cascade.cost_)
    always_last = np.mean(ready[1].predict(X_new) != y_new) + sum(COSTS)
    assert max(losses) < always_last
    unfitted = clone(CascadeClassifier(ready, COSTS, prefit=True))
    with pytest.raises(NotFittedError, match="FrozenEstimator"):
        unfitted.fit(X, y)
    frozen = [FrozenEstimator(estimator) for estimator in ready]
    kept = clone(CascadeClassifier(frozen, COSTS, prefit=True)).fit(X[500:], y[500:])
    assert kept.score(X_new, y_new) > 0.9


def test_labels_that_no_estimator_could_give_are_pointed_out() -> None:
    X, _, y, _ = digits()
    ready = [estimator.fit(X, y) for _, estimator in stages()]
    with pytest.warns(sw.LabelWarning):
        CascadeClassifier(ready, COSTS, prefit=True).fit(X, [f"digit {label}" for label in y])


def test_learning_while_predicting_needs_no_labels_and_predicting_learns_nothing() -> None:
    X, X_new, y, _ = digits()
    noise = np.random.default_rng(0).normal(0, 6, X_new.shape)  # a scanner that became worse
    cascade = copy_of(fitted())
    before = cascade.policy_.rounds
    cascade.predict(X_new + noise)
    cascade.predict_proba(X_new + noise)
    assert cascade.policy_.rounds == before == len(X)
    deep = (cascade.depths_ == 1).mean()
    answers = [cascade.learn(X_new + noise) for _ in range(3)]
    assert cascade.policy_.rounds == before + 3 * len(X_new)
    assert set(np.unique(answers)) <= set(y)
    cascade.predict(X_new + noise)
    assert (cascade.depths_ == 1).mean() != deep


def test_data_frames_sparse_matrices_and_text_are_passed_on_as_they_are() -> None:
    X, X_new, y, _ = digits()
    names = [f"pixel{k}" for k in range(64)]
    cascade = CascadeClassifier(stages(), COSTS, cv=2).fit(pd.DataFrame(X, columns=names), y)
    assert cascade.feature_names_in_.tolist() == names
    assert cascade.n_features_in_ == 64
    plain = CascadeClassifier(stages(), COSTS, cv=2).fit(X, y)
    framed = cascade.predict(pd.DataFrame(X_new, columns=names))
    np.testing.assert_array_equal(framed, plain.predict(X_new))
    sparse = CascadeClassifier([MultinomialNB(), KNeighborsClassifier()], COSTS, cv=2)
    assert sparse.fit(csr_array(X), y).score(csr_array(X_new), digits()[3]) > 0.9
    texts = ["cheap pills", "meet at noon", "pills for you", "lunch at noon"] * 10
    words = [make_pipeline(TfidfVectorizer(), MultinomialNB()) for _ in range(2)]
    spam = CascadeClassifier(words, COSTS).fit(texts, ["spam", "ham"] * 20)
    assert spam.predict(["pills", "noon"]).tolist() == ["spam", "ham"]


def test_an_estimator_without_probabilities_answers_and_reveals_nothing_more() -> None:
    X, X_new, y, y_new = digits()
    cascade = CascadeClassifier([LinearSVC(max_iter=200, C=1e-4), KNeighborsClassifier()], COSTS)
    assert cascade.fit(X, y).score(X_new, y_new) > 0.9
    assert not hasattr(cascade, "predict_proba")


def test_a_context_of_ones_own_is_known_before_the_first_stage() -> None:
    X, X_new, y, y_new = digits()
    ink = CascadeClassifier(stages(), COSTS, cv=2, context=lambda X: X.mean(axis=1))
    assert ink.fit(X, y).score(X_new, y_new) > 0.9
    features = ink.policy_.features
    assert features is not None
    assert features.starts_with == 1


@pytest.mark.parametrize("wrong", [lambda X: X[:2], lambda X: X[:, :, None], lambda X: 1.0])
def test_a_context_must_have_a_row_for_each_row(wrong: Any) -> None:
    X, _, y, _ = digits()
    with pytest.raises(sw.InvalidContextError, match=f"must give {len(X)} rows"):
        CascadeClassifier(stages(), COSTS, cv=2, context=wrong).fit(X, y)


def test_labels_of_prefit_estimators_fit_the_rows_and_may_be_missing() -> None:
    X, X_new, y, _ = digits()
    ready = [estimator.fit(X[:500], y[:500]) for _, estimator in stages()]
    X, y = X[500:], y[500:]
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        CascadeClassifier(ready, COSTS, prefit=True).fit(X, y[:-1])
    some: Any = y.astype(object)
    some[::2] = None
    depths = []
    nullable = pd.Series(some, dtype="Int64")
    for labels in (some, some.astype(float), nullable, nullable.astype(object).tolist()):
        cascade = CascadeClassifier(ready, COSTS, prefit=True).fit(X, labels)
        cascade.predict(X_new)
        depths.append(cascade.depths_.tolist())
    assert depths[1:] == depths[:1] * 3


class Fixed(ClassifierMixin, BaseEstimator):
    """Gives one answer, whatever it was fitted on."""

    def __init__(self, answer: Any = 99) -> None:
        self.answer = answer

    def fit(self, X: Any, y: Any) -> "Fixed":
        self.classes_ = np.unique(y)
        return self

    def predict(self, X: Any) -> Any:
        return np.full(len(X), self.answer)


@pytest.mark.parametrize("answer", [99, "7"])
def test_an_answer_that_is_no_class_is_refused(answer: Any) -> None:
    X, _, y, _ = digits()
    with pytest.raises(sw.InvalidInputError, match=rf"Fixed\(.*\) answers {answer!r}"):
        CascadeClassifier([Fixed(answer), GaussianNB()], COSTS, cv=2).fit(X, y)


def test_prefit_estimators_know_classes_of_one_kind_and_not_all_of_them() -> None:
    X, X_new, y, y_new = digits()
    small, odd = y < 5, KNeighborsClassifier().fit(X, y)
    half = GaussianNB(var_smoothing=0.01).fit(X[small], y[small])
    cascade = CascadeClassifier([half, odd], [0.001, 0.002], prefit=True).fit(X, y)
    assert cascade.score(X_new, y_new) > 0.9
    np.testing.assert_allclose(cascade.predict_proba(X_new).sum(axis=1), 1)
    texts = GaussianNB().fit(X, y.astype(str))
    with pytest.raises(sw.InvalidInputError, match="text and numbers"):
        CascadeClassifier([texts, odd], COSTS, prefit=True).fit(X, y)


@pytest.mark.parametrize(
    ("estimators", "costs", "message"),
    [
        (stages(), [0.1], "1 cost for 2 estimators: give one for each"),
        (stages(), [0.1] * 3, "3 costs for 2 estimators"),
        ([], [], "give two or more"),
        ([stages()[0], GaussianNB()], COSTS, "names for all or for none"),
    ],
)
def test_what_does_not_make_a_cascade_is_said(estimators: Any, costs: Any, message: str) -> None:
    X, _, y, _ = digits()
    with pytest.raises(sw.InvalidInputError, match=message):
        CascadeClassifier(estimators, costs).fit(X, y)


def test_what_is_missing_is_said() -> None:
    X, _, y, _ = digits()
    cascade = CascadeClassifier(stages(), COSTS)
    for name in ("depths_", "cost_"):
        with pytest.raises(NotFittedError, match="not fitted"):
            getattr(cascade, name)
    with pytest.raises(sw.InvalidInputError, match="only prefit=True needs no labels"):
        cascade.fit(X)
    with pytest.raises(sw.InvalidInputError, match="n_samples=1 a class is too few: lower cv=5"):
        cascade.fit(X[:2], [0, 1])
    cascade.fit(X, y)
    for name in ("depths_", "cost_"):
        with pytest.raises(AttributeError, match="call predict or learn first"):
            getattr(cascade, name)


def test_without_scikit_learn_the_message_names_the_extra() -> None:
    code = "import sys; sys.modules['sklearn'] = None; import stopwise.sklearn"
    done = subprocess.run([sys.executable, "-c", code], check=False, stderr=-1, text=True)
    assert "MissingPackageError" in done.stderr
    assert "[sklearn]" in done.stderr
