"""Stages: what can be one, what an answer of theirs means, what is refused."""

import functools
from typing import Any

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.multioutput import MultiOutputClassifier
from sklearn.pipeline import make_pipeline

from stopwise.errors import InvalidOutputsError, InvalidParameterError
from stopwise.running.stage import Stage

X = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]] * 5)


# ------------------------------------------------------------------------------- what can be one


def test_a_function_is_called_with_the_case() -> None:
    assert Stage(str.upper).call("yes") == "YES"


@pytest.mark.parametrize(
    ("classes", "kind"), [([0, 1], int), (["no", "yes"], str), ([False, True], bool)]
)
def test_a_classifier_gives_its_prediction_as_a_plain_value(classes: list[Any], kind: type) -> None:
    model = LogisticRegression(C=100).fit(X, np.array(classes)[X[:, 0].astype(int)])
    answer = Stage(model).call([1.0, 0.5])
    assert answer == classes[1]
    assert type(answer) is kind


@pytest.mark.parametrize("shape", [(-1,), (-1, 1)])
def test_a_regressor_gives_a_float_whatever_shape_it_was_fitted_with(
    shape: tuple[int, ...],
) -> None:
    model = LinearRegression().fit(X, (2 * X[:, 0]).reshape(shape))
    answer = Stage(model).call(np.array([1.0, 0.0]))
    assert type(answer) is float
    assert answer == pytest.approx(2.0)


def test_several_predictions_for_a_case_become_a_tuple() -> None:
    model = MultiOutputClassifier(LogisticRegression(C=100)).fit(X, X.astype(int))
    answer = Stage(model).call([1.0, 0.0])
    assert answer == (1, 0)
    assert Stage(model).judge(answer, last=True)[0] == (1, 0)


def test_a_pipeline_is_given_the_text_itself() -> None:
    model = make_pipeline(CountVectorizer(), LogisticRegression())
    model.fit(["buy now", "buy pills", "see you", "dinner at ten"], ["spam", "spam", "ham", "ham"])
    assert Stage(model).call("buy buy buy") == "spam"


def test_async_stages_are_recognised_in_every_dress() -> None:
    async def stage(case: int, more: int = 0) -> int:
        return case + more

    class Client:
        async def __call__(self, case: int) -> int:
            return case

        async def ask(self, case: int) -> int:
            return case

        def plain(self, case: int) -> int:
            return case

    for run in (stage, functools.partial(stage, more=1), Client(), Client().ask):
        assert Stage(run).is_async
    for plain in (Client().plain, lambda case: case, LogisticRegression()):
        assert not Stage(plain).is_async


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (42, "a int is neither"),
        ("model", "a str is neither"),
        (None, "a NoneType is neither"),
        (LogisticRegression, "not the class LogisticRegression"),
    ],
)
def test_what_cannot_answer_is_refused(given: Any, says: str) -> None:
    with pytest.raises(InvalidParameterError, match=says):
        Stage(given)


@pytest.mark.parametrize(
    "settings",
    [
        {"timeout": 0},
        {"timeout": -1},
        {"timeout": float("nan")},
        {"timeout": "long"},
        {"timeout": "5"},
        {"timeout": True},
        {"timeout": 1e7},
        {"cost": -0.1},
        {"cost": float("inf")},
        {"reveals": 3},
        {"canonical": "lower"},
    ],
)
def test_a_setting_that_cannot_be_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameterError, match=next(iter(settings))):
        Stage(repr, **settings)


# ----------------------------------------------------------------------- what an answer means


def test_a_structured_answer_is_taken_apart() -> None:
    stage = Stage(
        lambda case: case,
        canonical=lambda answer: answer["label"],
        reveals=lambda answer: [answer["sure"], answer["mmol"]],
        cost=lambda answer: answer["tokens"] * 0.5,
    )
    answer = {"label": "ill", "sure": np.float32(0.5), "mmol": 7, "tokens": 4}
    assert stage.judge(answer, last=False) == ("ill", (0.5, 7.0), 2.0)


def test_the_last_stage_has_nobody_to_reveal_to() -> None:
    stage = Stage(repr, reveals=lambda _: pytest.fail("must not be called"), cost=3)
    assert stage.judge("a", last=True) == ("a", (), 3.0)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({}, "cannot be compared .unhashable type: 'list'.; give the stage a `canonical`"),
        ({"canonical": lambda a: a["x"]}, "canonical: TypeError"),
        ({"canonical": lambda a: {}["x"]}, "canonical: KeyError: 'x'"),
        ({"canonical": tuple, "reveals": lambda a: [1.0, float("nan")]}, "nan at place 1"),
        ({"canonical": tuple, "reveals": lambda a: [float("inf")]}, "inf at place 0"),
        ({"canonical": tuple, "reveals": lambda a: 0.5}, "a list of numbers, not 0.5"),
        ({"canonical": tuple, "reveals": lambda a: ["x"]}, "a list of numbers, not ."),
        ({"canonical": tuple, "reveals": lambda a: 1 / 0}, "reveals: ZeroDivisionError"),
        ({"canonical": tuple, "cost": lambda a: None}, "cost must give a number"),
        ({"canonical": tuple, "cost": lambda a: -1}, "cost must give a number"),
        ({"canonical": tuple, "cost": lambda a: a["usage"]}, "cost: TypeError"),
    ],
)
def test_an_answer_that_cannot_be_used_says_why(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidOutputsError, match=says):
        Stage(lambda case: case, **settings).judge([1, 2], last=False)


# ------------------------------------------------------------------------- generators and worse


def yielding(case: Any) -> Any:
    yield case


async def yielding_async(case: Any) -> Any:
    yield case


class Yielding:
    def __call__(self, case: Any) -> Any:
        yield case


class YieldingPredict:
    def predict(self, table: Any) -> Any:
        yield from table


@pytest.mark.parametrize(
    "given",
    [yielding, yielding_async, Yielding(), YieldingPredict(), functools.partial(yielding)],
)
def test_what_yields_is_refused(given: Any) -> None:
    with pytest.raises(InvalidParameterError, match=r"yields.*return that"):
        Stage(given)


def test_a_generator_is_no_answer() -> None:
    for answer in (yielding(1), yielding_async(1)):
        with pytest.raises(InvalidOutputsError, match="gave a generator"):
            Stage(lambda case: case, canonical=tuple).judge(answer, last=True)


@pytest.mark.parametrize("method", ["__hash__", "__eq__", "__ne__"])
def test_an_answer_that_cannot_be_compared_is_refused(method: str) -> None:
    def broken(*_: object) -> bool:
        raise RuntimeError("out of order")

    answer = type("Odd", (), {"__hash__": object.__hash__, "__repr__": broken, method: broken})()
    with pytest.raises(InvalidOutputsError, match=r"a Odd cannot be compared \(out of order\)"):
        Stage(repr).judge(answer, last=True)


def test_numbers_that_are_none_are_refused_whatever_they_raise() -> None:
    for name, stage in (
        ("reveals", Stage(repr, reveals=lambda a: [a])),
        ("cost", Stage(repr, cost=lambda a: a)),
    ):
        with pytest.raises(InvalidOutputsError, match=name):
            stage.judge(10**400, last=False)
