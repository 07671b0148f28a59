"""The size of decoded JSON is judged like the size of its encoding, and large JSON is refused without encoding it."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from threadcast_protocol.wire.thread import is_too_large

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(_JSON, st.integers(0, 60))
def test_the_judgement_is_that_of_the_encoding(value: object, max_bytes: int) -> None:
    assert is_too_large(value, max_bytes) == (len(msgspec.json.encode(value)) > max_bytes)


def test_a_long_text_is_not_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(msgspec.json, "encode", None)
    assert is_too_large({"a": ["b" * 70_000]})
    assert is_too_large({"b" * 70_000: 1})
