"""The allowed depth of untrusted JSON: the edge refuses a body that is too deep, before other code decodes it."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.import_files import read_exports
from threadcast.chat.entry_codec import decode_state
from threadcast.chat.import_files import LINE_NESTING_MAX
from threadcast.chat.internal_commands import decode_inbox_body
from threadcast_protocol.framing.codec import decode_event, decode_events
from threadcast_protocol.wire import bodies
from threadcast_protocol.wire.bodies import NESTING_MAX, is_too_deep, read_json, read_object
from threadcast_protocol.wire.commands import decode_command
from threadcast_protocol.wire.errors import BadRequest

DEEP = b"[" * (NESTING_MAX + 1) + b"]" * (NESTING_MAX + 1)
DEEPEST = b"[" * NESTING_MAX + b"]" * NESTING_MAX
LIMIT = "nested too deep: at most 128"


def depth(value: object) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth, value.values()), default=0)
    return 1 + max(map(depth, value), default=0) if isinstance(value, list) else 0


@given(
    st.recursive(
        st.text(alphabet='[]{}"\\a\n', max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(alphabet='[]{}"\\', max_size=3), inner),
        max_leaves=30,
    ),
    st.integers(NESTING_MAX - 12, NESTING_MAX),
    st.sampled_from([1, 2, 7, 262_144]),
)
def test_depth_is_that_of_lists_and_objects_and_not_of_brackets_in_strings(
    value: object, around: int, slice_bytes: int
) -> None:
    deep = value
    for _ in range(around):
        deep = [deep, "[" * 200 if slice_bytes > 7 else "[]"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bodies, "SLICE_BYTES", slice_bytes)
        assert is_too_deep(json.dumps(deep).encode()) == (depth(value) + around > NESTING_MAX)


def test_a_command_at_the_limit_is_taken_and_one_beyond_it_is_refused() -> None:
    body = b'{"type":"user_message","client_request_id":"a","content":"x","context":{"deep":%s}}'
    inner = NESTING_MAX - 2  # as a context, in the command
    decode_command(body % (b"[" * inner + b"]" * inner))
    with pytest.raises(BadRequest, match=LIMIT):
        decode_command(body % DEEPEST)


def test_an_export_beyond_the_limit_is_refused_with_its_line() -> None:
    deeper = b"[" * LINE_NESTING_MAX + b"]" * LINE_NESTING_MAX
    with pytest.raises(BadRequest, match="nested too deep") as refused:
        read_exports(b'\n{"type":"background_agent","agent":{"x":%s}}' % deeper)
    assert refused.value.path == "/2"


def test_what_models_and_tools_write_may_be_as_deep() -> None:
    assert read_json(DEEPEST.decode()) is not None
    for text in (DEEP.decode(), "{", "\ud800", '"\\ud800"'):
        with pytest.raises(ValueError, match=r"."):
            read_json(text)
        assert read_object(text) is None
    assert read_object('{"a":"\\ud800","b":NaN,"c":"\n"}') == {"a": "\ufffd", "b": None, "c": "\n"}
    assert read_object(" ") == {}
    assert read_object("[]") is None
    assert read_object('{"a":1}') == {"a": 1}


@pytest.mark.parametrize(
    "data", [b'"\xff"', b'{"type":"\xff"}', b"[" * 100_000, b'[{"type":"ack","result":' + b"[" * 9_999]
)
def test_whatever_is_wrong_with_what_we_stored_is_one_kind_of_error(data: bytes) -> None:
    for decode in (decode_event, decode_events, decode_state):
        with pytest.raises(msgspec.DecodeError):
            decode(data)
    with pytest.raises(BadRequest):
        decode_inbox_body(data)


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b'{"type":"abort","client_request_id":"\xff"}', "the body is not UTF-8 (byte 37)"),
        (b'{"type":"abort","client_request_id":"\\ud83d\\ude00\\ud83d"}', "half of a surrogate pair (byte 49)"),
        (b'{"type":"abort","client_request_id":"\\ud83d\\ude00', "not JSON: Input data was truncated"),
    ],
)
def test_a_body_that_is_no_text_is_told_where(body: bytes, sentence: str) -> None:
    with pytest.raises(BadRequest) as wrong:
        decode_command(body)
    assert wrong.value.message.endswith(sentence)
