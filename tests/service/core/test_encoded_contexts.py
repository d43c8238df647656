"""Contexts of raw column values, for cascades with an encoding."""

import msgspec
import pytest

from stopwise.logs.encoding import Column, Encoding
from stopwise.service.domain import spec as specs
from stopwise.service.domain.contexts import ContextParser
from stopwise.service.domain.errors import RequestError
from stopwise.service.domain.messages import Arm, CascadeSpec, RoundRequest

ARMS = [Arm("quick", 0.1), Arm("slow", 0.2)]
ENCODING = Encoding((Column("age", fill=40.0), Column("city", "category", None, ("Rome",), "Oslo")))


def rows(context: object, body: str) -> list[list[float]]:
    spec = msgspec.convert({"name": "t", "arms": ARMS, "context": context}, CascadeSpec)
    request = msgspec.json.decode(body, type=RoundRequest)
    return ContextParser(spec, specs.build(spec)).rows([request.context]).tolist()


def test_raw_values_are_encoded_and_the_policy_has_the_encoding() -> None:
    spec = ENCODING.to_spec()
    assert rows(spec, '{"context": {"age": null, "city": "Rome"}}') == [[40, 1, 1, 0]]
    assert rows(spec, '{"context": {"city": "Lima", "age": 7}}') == [[7, 0, 0, 1]]
    assert specs.build(CascadeSpec("t", ARMS, spec)).encoding == spec
    assert specs.build(CascadeSpec("t", ARMS, ["age"])).encoding is None


@pytest.mark.parametrize(
    ("context", "values", "message"),
    [
        (ENCODING.to_spec(), '{"age": "old", "city": "Rome"}', "'age' is the text 'old'"),
        (ENCODING.to_spec(), '{"age": 1}', "missing context values: city"),
        (["age"], '{"age": "7"}', "only numbers, got"),
        (["age"], '{"age": true}', "only numbers, got"),
        ({"columns": 3}, "{}", "invalid encoding"),
    ],
)
def test_invalid_values_are_rejected(context: object, values: str, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        rows(context, f'{{"context": {values}}}')
