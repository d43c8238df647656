"""`CascadeClassifier`: an estimator as scikit-learn expects one, and a cascade that pays."""
# pyright: reportAttributeAccessIssue=false, reportCallIssue=false

import copy
import pickle
import subprocess
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits, make_classification
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression
from sklearn.metrics import recall_score
from sklearn.model_selection import (
    FixedThresholdClassifier,
    GridSearchCV,
    ShuffleSplit,
    TunedThresholdClassifierCV,
    train_test_split,
)
from sklearn.naive_bayes import GaussianNB, MultinomialNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import check_estimator

import stopwise as sw
from stopwise.sklearn import CascadeClassifier, negative_loss

COSTS = [0.002, 0.04]


class Counting(ClassifierMixin, BaseEstimator):
    """Delegates to another classifier, and records the number of rows of each call."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def fit(self, X: Any, y: Any) -> "Counting":
        self.inner_ = clone(self.inner).fit(X, y)
        self.classes_, self.calls_ = self.inner_.classes_, []
        return self

    def predict_proba(self, X: Any) -> Any:
        self.calls_.append(("predict_proba", len(X)))
        return self.inner_.predict_proba(X)

    def predict(self, X: Any) -> Any:
        self.calls_.append(("predict", len(X)))
        return self.inner_.predict(X)


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


def test_classifier_passes_check_estimator() -> None:
    cheap = DecisionTreeClassifier(max_depth=1, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of skipped checks and small classes
        checks = check_estimator(
            CascadeClassifier([cheap, GaussianNB()], [0.01, 0.05], cv=2), on_fail=None
        )
    failed = [(c["check_name"], c["exception"]) for c in checks if c["status"] == "failed"]
    assert not failed
    assert sum(check["status"] == "passed" for check in checks) > 50


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


def test_answers_and_probabilities_are_those_of_the_last_stage_run() -> None:
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


def test_stages_are_called_only_as_often_as_needed() -> None:
    X, X_new, y, _ = digits()
    counted = [Counting(estimator) for _, estimator in stages()]
    cascade = CascadeClassifier(counted, COSTS, cv=2).fit(X, y)
    n = len(X_new)
    for method, last_stage_runs in (
        (cascade.predict, "predict"),
        (cascade.predict_proba, "predict_proba"),
        (cascade.learn, "predict"),
    ):
        for stage in cascade.estimators_:
            stage.calls_.clear()
        method(X_new)
        first, second = (stage.calls_ for stage in cascade.estimators_)
        # Whether a row stops at the first stage depends on its answer and its probabilities.
        assert first == [("predict", n), ("predict_proba", n)]
        assert second == [(last_stage_runs, (cascade.depths_ == 1).sum())]
        assert 0 < second[0][1] < n / 2


@cache
def rare_class() -> tuple[Any, Any, Any, Any]:
    X, y = make_classification(
        3000, n_informative=6, weights=[0.9], class_sep=0.7, flip_y=0.02, random_state=1
    )
    return tuple(train_test_split(X, y, test_size=0.5, stratify=y, random_state=0))  # pyright: ignore[reportReturnType]


def test_stages_keep_their_decision_thresholds() -> None:
    X, X_new, y, y_new = rare_class()
    tuned = [
        TunedThresholdClassifierCV(model, scoring="balanced_accuracy", cv=3)
        for model in (GaussianNB(), KNeighborsClassifier(25))
    ]
    cascade = CascadeClassifier(tuned, [0.001, 0.01], cv=3).fit(X, y)
    answers = cascade.predict(X_new)
    recalls = []
    for arm, stage in enumerate(cascade.estimators_):
        rows = cascade.depths_ == arm
        assert rows.any()
        np.testing.assert_array_equal(answers[rows], stage.predict(X_new[rows]))
        recalls.append(recall_score(y_new, stage.predict(X_new)))
    assert recall_score(y_new, answers) > 0.85 * min(recalls)
    np.testing.assert_array_equal(copy_of(cascade).learn(X_new[:50]), answers[:50])
    # Probabilities come from the same stages, and do not depend on the threshold.
    probabilities = cascade.predict_proba(X_new)
    for arm, stage in enumerate(cascade.estimators_):
        rows = cascade.depths_ == arm
        np.testing.assert_allclose(probabilities[rows], stage.predict_proba(X_new[rows]))


@pytest.mark.parametrize("prefit", [False, True])
def test_policy_learns_from_answers_not_from_the_most_probable_class(prefit: bool) -> None:
    """The stages differ only in their thresholds: the most probable classes never disagree."""
    X, X_new, y, y_new = rare_class()
    thresholds: list[Any] = [0.999, 0.5]
    stages = [FixedThresholdClassifier(GaussianNB(), threshold=value) for value in thresholds]
    if prefit:
        stages = [stage.fit(X, y) for stage in stages]
        X, y = X_new, y_new
    cascade = CascadeClassifier(stages, [0.0, 0.001], prefit=prefit).fit(X, y)
    first, second = (stage.predict(X) for stage in cascade.estimators_)
    disagreements = np.count_nonzero(first != second)
    assert disagreements > 20
    # A label is used wherever answers disagree; those of held-out rows differ slightly.
    labelled = cascade.policy_.labels.received
    assert labelled == (disagreements if prefit else pytest.approx(disagreements, rel=0.3))


def test_batch_stops_equal_rounds_step_by_step() -> None:
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


def test_grid_search_in_a_pipeline_and_pickling() -> None:
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


def test_prefit_estimators_work_with_all_some_or_no_labels() -> None:
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


def test_labels_that_no_estimator_can_give_cause_a_warning() -> None:
    X, _, y, _ = digits()
    ready = [estimator.fit(X, y) for _, estimator in stages()]
    with pytest.warns(sw.errors.LabelWarning):
        CascadeClassifier(ready, COSTS, prefit=True).fit(X, [f"digit {label}" for label in y])


def test_learn_needs_no_labels_and_predict_does_not_learn() -> None:
    X, X_new, y, _ = digits()
    noise = np.random.default_rng(0).normal(0, 6, X_new.shape)  # a degraded scanner
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


def test_data_frames_sparse_matrices_and_texts_are_passed_through() -> None:
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


def test_estimators_without_probabilities_are_supported() -> None:
    X, X_new, y, y_new = digits()
    cascade = CascadeClassifier([LinearSVC(max_iter=200, C=1e-4), KNeighborsClassifier()], COSTS)
    assert cascade.fit(X, y).score(X_new, y_new) > 0.9
    assert not hasattr(cascade, "predict_proba")


def test_context_is_available_before_the_first_stage() -> None:
    X, X_new, y, y_new = digits()
    ink = CascadeClassifier(stages(), COSTS, cv=2, context=lambda X: X.mean(axis=1))
    assert ink.fit(X, y).score(X_new, y_new) > 0.9
    features = ink.policy_.features
    assert features is not None
    assert features.initial_dim == 1


@pytest.mark.parametrize("wrong", [lambda X: X[:2], lambda X: X[:, :, None], lambda X: 1.0])
def test_context_must_have_one_row_per_row_of_X(wrong: Any) -> None:
    X, _, y, _ = digits()
    with pytest.raises(sw.errors.InvalidContextError, match=f"must return {len(X)} rows"):
        CascadeClassifier(stages(), COSTS, cv=2, context=wrong).fit(X, y)


def test_labels_for_prefit_estimators_match_the_rows_and_may_be_missing() -> None:
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
def test_answers_outside_the_classes_are_rejected(answer: Any) -> None:
    X, _, y, _ = digits()
    with pytest.raises(sw.errors.InvalidInputError, match=f"'Fixed-0' answered {answer!r}"):
        CascadeClassifier([Fixed(answer), GaussianNB()], COSTS, cv=2).fit(X, y)


def test_prefit_estimators_may_lack_classes_but_not_mix_types() -> None:
    X, X_new, y, y_new = digits()
    small, odd = y < 5, KNeighborsClassifier().fit(X, y)
    half = GaussianNB(var_smoothing=0.01).fit(X[small], y[small])
    cascade = CascadeClassifier([half, odd], [0.001, 0.002], prefit=True).fit(X, y)
    assert cascade.score(X_new, y_new) > 0.9
    np.testing.assert_allclose(cascade.predict_proba(X_new).sum(axis=1), 1)
    texts = GaussianNB().fit(X, y.astype(str))
    with pytest.raises(
        sw.errors.InvalidInputError, match="all have text classes or all have numeric"
    ):
        CascadeClassifier([texts, odd], COSTS, prefit=True).fit(X, y)


@pytest.mark.parametrize(
    ("estimators", "costs", "message"),
    [
        (stages(), [0.1], "one cost for each of the 2 estimators, got 1"),
        (stages(), [0.1] * 3, "one cost for each of the 2 estimators, got 3"),
        ([], [], "two or more"),
        ([stages()[0], GaussianNB()], COSTS, "all named or all unnamed"),
    ],
)
def test_invalid_estimators_are_rejected(estimators: Any, costs: Any, message: str) -> None:
    X, _, y, _ = digits()
    with pytest.raises(sw.errors.InvalidInputError, match=message):
        CascadeClassifier(estimators, costs).fit(X, y)


BY_PRICES = sw.Cascade.from_prices([2, 40], error_cost=1000)
NAMED = sw.Cascade.from_prices([2, 40], error_cost=1000, names=["bayes", "near"])


@pytest.mark.parametrize(
    ("named_stages", "costs", "error_cost"),
    [
        (True, BY_PRICES, None),
        (True, NAMED, None),
        (False, NAMED, None),
        (True, [2, 40], 1000),
        (True, {"near": 40, "bayes": 2}, 1000),
        (True, {"near": 0.04, "bayes": 0.002}, None),
        (False, {"GaussianNB-0": 2, "KNeighborsClassifier-1": 40}, 1000),
    ],
)
def test_costs_can_be_a_cascade_or_prices_or_a_dict_by_name(
    named_stages: bool, costs: Any, error_cost: float | None
) -> None:
    X, _, y, _ = digits()
    estimators = stages() if named_stages else [estimator for _, estimator in stages()]
    cascade = CascadeClassifier(estimators, costs, error_cost=error_cost, cv=2)
    fitted_cascade = clone(cascade).fit(X[:200], y[:200]).policy_.cascade
    np.testing.assert_allclose(fitted_cascade.cumulative, [0.002, 0.042])
    assert fitted_cascade.names[0] in ("bayes", "GaussianNB-0")


@pytest.mark.parametrize(
    ("costs", "error_cost", "message"),
    [
        ({"bayes": 0.1}, None, "must have a cost for 'near'"),
        ({"bayes": 0.1, "near": 0.2, "far": 0.3}, None, "unknown estimator 'far'"),
        (sw.Cascade([0.1] * 3), None, "a cascade of 2 arms .one per estimator., got 3 arms"),
        (sw.Cascade(COSTS, names=["near", "bayes"]), None, "must have the estimators' names"),
        (sw.Cascade(COSTS), 1000, "error_cost"),
        (COSTS, 0, "error_cost"),
        (0.1, None, "one cost for each"),
        ("0.1", None, "one cost for each"),
    ],
)
def test_invalid_costs_are_rejected(costs: Any, error_cost: Any, message: str) -> None:
    X, _, y, _ = digits()
    with pytest.raises(sw.errors.InvalidInputError, match=message):
        CascadeClassifier(stages(), costs, error_cost=error_cost).fit(X, y)


def test_warning_about_large_costs_names_the_parameter_to_set() -> None:
    X, _, y, _ = digits()
    prices = [2, 40]
    with pytest.warns(sw.errors.CostUnitWarning, match="pass error_cost=") as caught:
        CascadeClassifier(stages(), prices, cv=2).fit(X[:200], y[:200])
    assert [Path(warning.filename).name for warning in caught] == [Path(__file__).name]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        CascadeClassifier(stages(), prices, error_cost=1000, cv=2).fit(X[:200], y[:200])
        CascadeClassifier(stages(), sw.Cascade.from_prices(prices, 1000), cv=2).fit(X, y)
    with pytest.warns(sw.errors.CostUnitWarning, match="check error_cost"):
        CascadeClassifier(stages(), prices, error_cost=10, cv=2).fit(X[:200], y[:200])


def test_negative_loss_finds_the_cascade_in_pipelines_and_searches() -> None:
    X, X_new, y, y_new = digits()
    X, y = X[:400], y[:400]
    pipeline = make_pipeline(StandardScaler(), CascadeClassifier(stages(), COSTS, cv=2))
    search = GridSearchCV(
        pipeline,
        {"cascadeclassifier__policy": ["uss-laplace", "fixed-depth"]},
        scoring=negative_loss,
        cv=2,
        error_score=cast(Any, "raise"),
    )
    search.fit(X, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.best_params_["cascadeclassifier__policy"] == "uss-laplace"
    best = search.best_estimator_
    loss = np.mean(best.predict(X_new) != y_new) + best[-1].cost_
    for model in (search, best, FrozenEstimator(best), make_pipeline("passthrough", search)):
        assert negative_loss(model, X_new, y_new) == pytest.approx(-loss)
    alone = CascadeClassifier(stages(), COSTS, cv=2).fit(X, y)
    answers = alone.predict(X_new)
    assert negative_loss(alone, X_new, y_new) == -np.mean(answers != y_new) - alone.cost_


def test_negative_loss_rejects_models_without_a_cascade() -> None:
    X, _, y, _ = digits()
    with pytest.raises(
        sw.errors.InvalidInputError, match=r"requires a CascadeClassifier.*GaussianNB"
    ):
        negative_loss(make_pipeline(StandardScaler(), GaussianNB()).fit(X, y), X, y)


def test_frozen_stages_require_prefit() -> None:
    X, _, y, _ = digits()
    ready = [(name, FrozenEstimator(estimator.fit(X, y))) for name, estimator in stages()]
    for estimators in (ready, [stages()[0], ready[1]]):
        with pytest.raises(
            sw.errors.InvalidInputError, match=r"'(bayes|near)' is frozen.*prefit=True"
        ):
            CascadeClassifier(estimators, COSTS).fit(X, y)
    CascadeClassifier(ready, COSTS, prefit=True).fit(X, y)


def test_frozen_classifier_inside_a_stage_causes_a_warning() -> None:
    X, _, y, _ = digits()
    bayes = FrozenEstimator(GaussianNB().fit(X[:500], y[:500]))
    inside = [("calibrated", CalibratedClassifierCV(bayes, cv=2)), stages()[1]]
    cascade = CascadeClassifier(inside, COSTS, cv=2)
    with pytest.warns(UserWarning, match="'calibrated' contains a frozen classifier") as caught:
        cascade.fit(X[500:], y[500:])
    assert [Path(warning.filename).name for warning in caught] == [Path(__file__).name]
    scaler = FrozenEstimator(StandardScaler().fit(X))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # frozen transformers give no answers
        CascadeClassifier([make_pipeline(scaler, GaussianNB()), GaussianNB()], COSTS).fit(X, y)


@pytest.mark.parametrize("prefit", [False, True])
def test_stages_that_are_not_classifiers_are_rejected(prefit: bool) -> None:
    X, _, y, _ = digits()
    wrong = [stages()[0], ("line", make_pipeline(StandardScaler(), LinearRegression()))]
    if prefit:
        wrong = [(name, estimator.fit(X, y)) for name, estimator in wrong]
    with pytest.raises(
        sw.errors.InvalidInputError, match=r"must be classifiers, got 'line'"
    ) as error:
        CascadeClassifier(wrong, COSTS, prefit=prefit).fit(X, y)
    assert len(str(error.value)) < 200


def test_long_lists_of_classes_are_shortened_in_messages() -> None:
    X = np.arange(1200.0)[:, None]
    y = np.repeat(np.arange(300), 4)
    estimators = [("fixed", Fixed(999)), ("tree", DecisionTreeClassifier())]
    with pytest.raises(sw.errors.InvalidInputError, match="'fixed' answered 999") as error:
        CascadeClassifier(estimators, COSTS, cv=2).fit(X, y)
    assert len(str(error.value)) < 200


def test_cv_must_hold_out_every_row_once() -> None:
    X, _, y, _ = digits()
    with pytest.raises(
        sw.errors.InvalidInputError, match="cv must hold out every row exactly once"
    ):
        CascadeClassifier(stages(), COSTS, cv=ShuffleSplit(2, random_state=0)).fit(X, y)


def test_pickles_and_copies_do_not_contain_the_last_batch() -> None:
    X, X_new, _, _ = digits()
    cascade = copy_of(fitted())
    before = pickle.dumps(cascade)
    cascade.predict(np.tile(X_new, (20, 1)))
    after = pickle.dumps(cascade)
    # The policy may keep a few numbers that it has computed; the depths are 115 kB.
    assert len(after) < len(before) + 10_000
    assert len(cascade.depths_) == 20 * len(X_new)
    for fresh in (pickle.loads(after), copy.deepcopy(cascade), copy.copy(cascade)):
        with pytest.raises(AttributeError, match="call predict or learn first"):
            _ = fresh.depths_
        np.testing.assert_array_equal(fresh.predict(X), cascade.predict(X))


def test_depths_are_those_of_the_current_thread() -> None:
    _, X, _, _ = digits()
    cascade = copy_of(fitted())
    other_thread_done = threading.Barrier(2, timeout=30)

    def depths_of(rows: Any) -> Any:
        cascade.predict(rows)
        other_thread_done.wait()
        return cascade.depths_

    with ThreadPoolExecutor(2) as pool:
        depths = list(pool.map(depths_of, [X[:100], X[100:]]))
    assert list(map(len, depths)) == [100, len(X) - 100]
    cascade.predict(X)
    np.testing.assert_array_equal(np.concatenate(depths), cascade.depths_)


def test_missing_fit_labels_or_predictions_are_reported() -> None:
    X, _, y, _ = digits()
    cascade = CascadeClassifier(stages(), COSTS)
    for name in ("depths_", "cost_"):
        with pytest.raises(NotFittedError, match="not fitted"):
            getattr(cascade, name)
    with pytest.raises(sw.errors.InvalidInputError, match="only prefit=True needs no labels"):
        cascade.fit(X)
    with pytest.raises(
        sw.errors.InvalidInputError, match=r"cv=5 is too large.* n_samples=1; lower cv"
    ):
        cascade.fit(X[:2], [0, 1])
    cascade.fit(X, y)
    for name in ("depths_", "cost_"):
        with pytest.raises(AttributeError, match="call predict or learn first"):
            getattr(cascade, name)


def test_error_without_scikit_learn_names_the_extra() -> None:
    code = "import sys; sys.modules['sklearn'] = None; import stopwise.sklearn"
    done = subprocess.run([sys.executable, "-c", code], check=False, stderr=-1, text=True)
    assert "MissingPackageError" in done.stderr
    assert "[sklearn]" in done.stderr
