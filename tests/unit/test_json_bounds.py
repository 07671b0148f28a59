"""The values of a JSON body are counted while the body arrives, wherever it is cut."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from threadcast.base import json_bounds
from threadcast.base.json_bounds import JsonBounds
from threadcast_protocol.wire.errors import TooLarge

TEXTS = st.text(alphabet='a,[{"\\é\n')
JSON = st.recursive(
    st.none() | st.integers() | TEXTS, lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner), max_leaves=30
)


def separators(value: object) -> int:
    """Return the commas and opening brackets that JSON needs for `value`."""
    if isinstance(value, dict):
        return 1 + max(0, len(value) - 1) + sum(separators(each) for each in value.values())
    if isinstance(value, list):
        return 1 + max(0, len(value) - 1) + sum(separators(each) for each in value)
    return 0


@given(value=JSON, is_ascii=st.booleans(), slice_bytes=st.integers(1, 9), chunk_bytes=st.integers(1, 40))
def test_a_body_is_within_its_bound_iff_it_has_no_more_values(
    value: object, is_ascii: bool, slice_bytes: int, chunk_bytes: int
) -> None:
    data = json.dumps(value, ensure_ascii=is_ascii).encode()
    count = separators(value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_bounds, "SLICE_BYTES", slice_bytes)
        for bound, is_allowed in ((count, True), (count - 1, False)):
            bounds, body = JsonBounds(bound), bytearray()
            was_refused = False
            with suppress(TooLarge):
                was_refused = True
                for begin in range(0, len(data), chunk_bytes):
                    chunk = data[begin : begin + chunk_bytes]
                    body += chunk
                    if not bounds.is_within(chunk):
                        for _ in bounds.check(body):
                            pass
                was_refused = False
            assert was_refused is not is_allowed


@given(data=st.binary(), slice_bytes=st.integers(1, 5))
def test_bytes_that_are_not_json_are_counted_without_an_error(data: bytes, slice_bytes: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_bounds, "SLICE_BYTES", slice_bytes)
        for _ in JsonBounds(1_000_000).check(bytearray(data)):
            pass
