"""Duplicate fields of large bodies."""

import msgspec
import pytest

from stopwise.service.domain.errors import RequestError
from stopwise.service.http.request import read_json

DECODER = msgspec.json.Decoder()
FIELDS = 400_000


@pytest.mark.parametrize("first", ["field", "\\u0066ield"], ids=["plain", "escaped"])
def test_duplicate_field_is_detected_among_many(first: str) -> None:
    """The last field is the duplicate; a quadratic search would take hours."""
    names = [first, *(f"f{k}" for k in range(FIELDS)), f"f{FIELDS - 1}"]
    body = "{" + ",".join(f'"{name}":0' for name in names) + "}"
    with pytest.raises(RequestError, match=f"f{FIELDS - 1}") as refused:
        read_json(DECODER, body.encode())
    assert refused.value.field == f"f{FIELDS - 1}"
