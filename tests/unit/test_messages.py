"""Tests the form of messages, parts and usage on the wire, and sums of usage."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from threadcast_protocol.wire.messages import (
    AudioPart,
    FilePart,
    FunctionCall,
    ImagePart,
    ImageUrl,
    InputAudio,
    Message,
    Part,
    TextPart,
    ToolCall,
    Usage,
    add_usage,
    text_of,
)


def test_plain_message_holds_only_role_content_and_id() -> None:
    message = Message(role="user", content="hi", message_id="m1")
    assert msgspec.json.encode(message) == b'{"role":"user","content":"hi","message_id":"m1"}'


@pytest.mark.parametrize(
    ("part", "json"),
    [
        (TextPart("a"), b'{"type":"text","text":"a"}'),
        (ImagePart(ImageUrl("u")), b'{"type":"image_url","image_url":{"url":"u"}}'),
        (ImagePart(ImageUrl("u", "low")), b'{"type":"image_url","image_url":{"url":"u","detail":"low"}}'),
        (AudioPart(InputAudio("d", "wav")), b'{"type":"input_audio","input_audio":{"data":"d","format":"wav"}}'),
        (FilePart("n", "m", text="t"), b'{"type":"file","name":"n","mime":"m","text":"t"}'),
    ],
)
def test_part_is_tagged_and_reads_back(part: Part, json: bytes) -> None:
    assert msgspec.json.encode(part) == json
    message = Message(role="user", content=[part], message_id="m1")
    assert msgspec.json.decode(msgspec.json.encode(message), type=Message) == message


def test_tool_call_keeps_the_models_arguments_as_text() -> None:
    call = ToolCall("c1", 0, FunctionCall("clock", '{"a": }'))
    assert msgspec.to_builtins(call) == {
        "id": "c1",
        "index": 0,
        "function": {"name": "clock", "arguments": '{"a": }'},
        "type": "function",
    }


def test_message_of_a_newer_version_is_read_without_what_is_unknown() -> None:
    newer = b'{"role":"user","content":"hi","message_id":"m1","mood":"good"}'
    assert msgspec.json.decode(newer, type=Message) == Message(role="user", content="hi", message_id="m1")


def test_text_of_a_content_is_its_text_parts() -> None:
    assert text_of("a\nb") == "a\nb"
    assert text_of([TextPart("a"), ImagePart(ImageUrl("u")), TextPart("b")]) == "a\nb"
    assert text_of([]) == ""


_counts = st.integers(0, 10**9)
_usages = st.none() | st.builds(
    Usage, _counts, _counts, _counts, st.none() | _counts, cache_read_input_tokens=st.none() | _counts
)


def test_usage_adds_up_and_a_missing_side_counts_as_nothing() -> None:
    a, b = Usage(1, 2, 3, cache_read_input_tokens=4), Usage(10, 20, 30)
    assert add_usage(a, b) == Usage(11, 22, 33, cache_read_input_tokens=4)
    assert add_usage(None, Usage(0, 0, 0)) == Usage(0, 0, 0)
    assert add_usage(None, None) is None


@given(_usages, _usages, _usages)
def test_usage_adds_up_in_any_order(a: Usage | None, b: Usage | None, c: Usage | None) -> None:
    assert add_usage(a, b) == add_usage(b, a)
    assert add_usage(add_usage(a, b), c) == add_usage(a, add_usage(b, c))
