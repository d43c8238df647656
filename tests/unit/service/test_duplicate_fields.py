"""Duplicate fields of large bodies are found in linear time."""

from time import process_time

import msgspec
import pytest

from stopwise.service.http.request import read_json
from stopwise.service.refusals import Refusal

DECODER = msgspec.json.Decoder()
ESCAPED = b'"\\u0061":0'  # an escape, so that both bodies are read name by name


def _body(size: int) -> bytes:
    fields = b",".join(b'"f%07d":0' % k for k in range(size // 13))
    return b"{" + ESCAPED + b"," + fields


@pytest.mark.parametrize("size", [1_000_000, 20_000_000])
def test_a_duplicate_field_costs_no_more_than_reading_the_body(size: int) -> None:
    """The duplicated field is the last one, where a quadratic search takes longest."""
    fields = _body(size)
    began = process_time()
    read_json(DECODER, fields + b"}")
    distinct = process_time() - began
    last = size // 13 - 1
    began = process_time()
    with pytest.raises(Refusal, match=f"f{last:07d}"):
        read_json(DECODER, fields + b',"f%07d":0}' % last)
    duplicate = process_time() - began
    assert duplicate < 10.0 * distinct
