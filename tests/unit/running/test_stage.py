"""Stages: valid and invalid functions, and the interpretation of answers."""

import functools
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.multioutput import MultiOutputClassifier

from stopwise.errors import InvalidOutputsError, InvalidParameterError
from stopwise.running.stage import Stage

X = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]] * 5)


@pytest.mark.parametrize(
    ("classes", "kind"), [([0, 1], int), (["no", "yes"], str), ([False, True], bool)]
)
def test_a_classifier_gives_its_prediction_as_a_plain_value(classes: list[Any], kind: type) -> None:
    model = LogisticRegression(C=100).fit(X, np.array(classes)[X[:, 0].astype(int)])
    answer = Stage(model).call([1.0, 0.5])
    assert answer == classes[1]
    assert type(answer) is kind


@pytest.mark.parametrize("shape", [(-1,), (-1, 1)])
def test_predictions_of_any_shape_become_plain_values(shape: tuple[int, ...]) -> None:
    model = LinearRegression().fit(X, (2 * X[:, 0]).reshape(shape))
    answer = Stage(model).call(np.array([1.0, 0.0]))
    assert type(answer) is float
    assert answer == pytest.approx(2.0)


def test_several_predictions_become_a_tuple() -> None:
    several = MultiOutputClassifier(LogisticRegression(C=100)).fit(X, X.astype(int))
    assert Stage(several).call([1.0, 0.0]) == (1, 0)


@pytest.mark.parametrize(
    ("run", "options", "message"),
    [
        (42, {}, "must be a function of a case or an object with `predict`, got int"),
        (LogisticRegression, {}, "got the class LogisticRegression"),
        *((repr, {"timeout": t}, "timeout") for t in (0, -1, float("nan"), "5", True, 1e7)),
        (repr, {"cost": -0.1}, "cost"),
        (repr, {"reveals": 3}, "reveals"),
        (repr, {"canonical": "lower"}, "canonical"),
    ],
)
def test_invalid_stages_are_rejected(run: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        Stage(run, **options)


async def add(case: int, offset: int = 0) -> int:
    return case + offset


class Client:
    async def __call__(self, case: int) -> int:
        return case

    async def ask(self, case: int) -> int:
        return case

    def plain(self, case: int) -> int:
        return case


@pytest.mark.parametrize(
    ("run", "is_async"),
    [
        (add, True),
        (functools.partial(add, offset=1), True),
        (Client(), True),
        (Client().ask, True),
        (Client().plain, False),
        (lambda case: case, False),
        (LogisticRegression(), False),
    ],
)
def test_async_callables_are_detected(run: Any, is_async: bool) -> None:
    assert Stage(run).is_async == is_async


def test_a_structured_answer_gives_output_revealed_numbers_and_cost() -> None:
    stage = Stage(
        lambda case: case,
        canonical=lambda answer: answer["label"],
        reveals=lambda answer: [answer["sure"], answer["mmol"]],
        cost=lambda answer: answer["tokens"] * 0.5,
    )
    answer = {"label": "ill", "sure": np.float32(0.5), "mmol": 7, "tokens": 4}
    assert stage.interpret(answer, last=False) == ("ill", (0.5, 7.0), 2.0)
    assert stage.interpret(answer, last=True) == ("ill", (), 2.0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "cannot be compared .unhashable type: 'list'.; give the stage a `canonical`"),
        ({"canonical": lambda a: a["x"]}, "canonical: TypeError"),
        (
            {"canonical": tuple, "reveals": lambda a: [1.0, float("nan")]},
            r"reveals\[1\] must be a finite number, got nan",
        ),
        ({"canonical": tuple, "reveals": lambda a: 0.5}, "reveals: TypeError"),
        ({"canonical": tuple, "cost": lambda a: -1}, "cost must be a number >= 0"),
        ({"canonical": tuple, "cost": lambda a: a["usage"]}, "cost: TypeError"),
    ],
)
def test_unusable_answers_are_rejected(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidOutputsError, match=message):
        Stage(lambda case: case, **options).interpret([1, 2], last=False)


def yielding(case: Any) -> Any:
    yield case


async def yielding_async(case: Any) -> Any:
    yield case


@pytest.mark.parametrize("run", [yielding, yielding_async])
def test_generators_are_rejected(run: Any) -> None:
    with pytest.raises(InvalidOutputsError, match="returned a generator"):
        Stage(lambda case: case, canonical=tuple).interpret(run(1), last=True)
