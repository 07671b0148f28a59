"""The decoders that read numbers by `float` accept, refuse and return what msgspec's own decoders do."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from threadcast_protocol.wire.decoders import decode_any

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)

NUMBERS = st.from_regex(r"-?[0-9]{0,25}(\.[0-9]{0,25})?([eE][+-]?[0-9]{0,4})?", fullmatch=True)


def verdict(decode: object, text: str) -> object:
    try:
        value = decode(text)  # type: ignore[operator] # one of the two functions below
    except msgspec.DecodeError as wrong:
        return type(wrong), str(wrong)
    return type(value), repr(value)


@given(JSON)
def test_what_was_encoded_comes_back(value: object) -> None:
    assert decode_any(msgspec.json.encode(value)) == value


@given(NUMBERS)
def test_every_number_has_the_verdict_and_the_value_of_msgspec(text: str) -> None:
    assert verdict(decode_any, f"[{text}]") == verdict(msgspec.json.decode, f"[{text}]")


@pytest.mark.parametrize("text", ["1e308", "1.7976931348623157e308", "5e-324", "1e-400", "1e309", "-1e999", "9" * 400])
def test_the_largest_and_the_least_have_too(text: str) -> None:
    assert verdict(decode_any, text) == verdict(msgspec.json.decode, text)
