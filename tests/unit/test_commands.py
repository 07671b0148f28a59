"""Commands from bytes: every type can be decoded, other bodies are refused with Threadcast's error, and equal bodies
decode equally."""

import copy
from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.unit.samples import COMMANDS
from threadcast.chat.internal_commands import (
    CancelQueued,
    ForgetTool,
    InternalCommand,
    Refuse,
    decode_inbox_body,
)
from threadcast_protocol.wire.commands import (
    Abort,
    Decision,
    SetParams,
    ToolDecision,
    UserMessage,
    body_digest,
    decode_command,
    encode_command,
)
from threadcast_protocol.wire.errors import BadRequest
from threadcast_protocol.wire.messages import JsonObject


def decode(body: JsonObject) -> object:
    return decode_command(msgspec.json.encode(body))


def refused(body: bytes) -> BadRequest:
    with pytest.raises(BadRequest) as wrong:
        decode_command(body)
    return wrong.value


# --- what is read


@pytest.mark.parametrize("body", COMMANDS.values(), ids=COMMANDS)
def test_command_reads_every_field_and_survives_the_inbox(body: JsonObject) -> None:
    command = decode_command(msgspec.json.encode(body))
    for key, value in body.items():
        if key != "type":
            assert msgspec.to_builtins(getattr(command, key)) == _with_defaults(value)
    assert decode_inbox_body(encode_command(command)) == command


def _with_defaults(value: object) -> object:
    if isinstance(value, list) and value and isinstance(value[0], dict) and "accepted" in value[0]:
        return [msgspec.to_builtins(msgspec.convert(item, Decision)) for item in value]
    return value


def test_absent_fields_hold_their_defaults() -> None:
    assert decode({"type": "user_message", "client_request_id": "r1", "content": "hi"}) == UserMessage(
        client_request_id="r1",
        priority=False,
        content="hi",
        attachments=[],
        context_files=[],
        context={},
        interaction=None,
        params={},
    )


@pytest.mark.parametrize("body", COMMANDS.values(), ids=COMMANDS)
def test_unknown_keys_are_ignored(body: JsonObject) -> None:
    assert decode(body | {"from_elsewhere": [1]}) == decode(body)


def test_tool_decision_is_a_decision() -> None:
    command = decode(COMMANDS["tool_decision"])
    assert isinstance(command, ToolDecision)
    assert command.decision == msgspec.convert(COMMANDS["tool_decision"], Decision)


@pytest.mark.parametrize("content", [None, 7, {"a": 1}, [], "", [[{}]]])
def test_content_and_patch_are_taken_as_they_come(content: object) -> None:
    message = decode({"type": "user_message", "client_request_id": "r1", "content": content})
    patch = decode({"type": "set_params", "client_request_id": "r1", "patch": content})
    assert isinstance(message, UserMessage)
    assert isinstance(patch, SetParams)
    assert (message.content, patch.patch) == (content, content)


# --- what is refused


@pytest.mark.row("CMD-19")
@pytest.mark.parametrize(
    ("body", "path"),
    [
        (b"", None),
        (b"hello", None),
        (b'{"type":"abort","client_request_id":"r1"', None),
        (b'{"type":"abort","client_request_id":"r1"} x', None),
        (b'\xef\xbb\xbf{"type":"abort","client_request_id":"r1"}', None),
        (b'{"type":"abort","client_request_id":"\xff"}', None),
        (b'{"type":"set_params","client_request_id":"r1","patch":' + b"[" * 100_000, None),
        (b"null", ""),
        (b"[]", ""),
        (b"{}", ""),
        (b'{"client_request_id":"r1"}', ""),
        (b'{"type":7,"client_request_id":"r1"}', "/type"),
        (b'{"type":"dance","client_request_id":"r1"}', "/type"),
        (b'{"type":"refused","client_request_id":"r1","target":"t","code":"c","error":"e"}', "/type"),
        (b'{"type":"cancel","client_request_id":"r1","target":"t"}', "/type"),
        (b'{"type":"abort"}', ""),
        (b'{"type":"user_message","client_request_id":"r1"}', ""),
        (b'{"type":"abort","client_request_id":7}', "/client_request_id"),
        (b'{"type":"abort","client_request_id":""}', "/client_request_id"),
        (b'{"type":"abort","client_request_id":"../x"}', "/client_request_id"),
        (b'{"type":"abort","client_request_id":"r1\\n"}', "/client_request_id"),
        (b'{"type":"abort","client_request_id":"' + b"r" * 129 + b'"}', "/client_request_id"),
        (b'{"type":"abort","client_request_id":"r1","priority":"yes"}', "/priority"),
        (b'{"type":"abort","client_request_id":"r1","clear_queue":null}', "/clear_queue"),
        (b'{"type":"retry_from_index","client_request_id":"r1","index":-1,"content":"a"}', "/index"),
        (b'{"type":"retry_from_index","client_request_id":"r1","index":1.5,"content":"a"}', "/index"),
        (b'{"type":"update_message","client_request_id":"r1","message_id":"m","content":"a","mode":"x"}', "/mode"),
        (b'{"type":"user_message","client_request_id":"r1","content":"a","attachments":{}}', "/attachments"),
        (b'{"type":"user_message","client_request_id":"r1","content":"a","attachments":[1]}', "/attachments/0"),
        (b'{"type":"user_message","client_request_id":"r1","content":"a","context":[]}', "/context"),
        (b'{"type":"user_message","client_request_id":"r1","content":1e999}', "/content"),
        (b'{"type":"tool_decisions","client_request_id":"r1","decisions":[]}', "/decisions"),
        (b'{"type":"tool_decisions","client_request_id":"r1","decisions":[{"accepted":1}]}', "/decisions/0/accepted"),
        (b'{"type":"tool_decision","client_request_id":"r1","tool_call_id":"","accepted":true}', "/tool_call_id"),
        (b'{"type":"tool_decision","client_request_id":"r1","accepted":true,"remember":"ever"}', "/remember"),
    ],
)
def test_malformed_command_is_refused_with_its_place(body: bytes, path: str | None) -> None:
    wrong = refused(body)
    assert (wrong.code, wrong.path) == ("bad_request", path)
    assert wrong.message


@pytest.mark.row("CMD-18")
@pytest.mark.parametrize("kind", ["spoken", None, 7])
def test_unknown_interaction_type_is_refused(kind: object) -> None:
    body = COMMANDS["user_message"] | {"interaction": {"type": kind}}
    assert refused(msgspec.json.encode(body)).path == "/interaction/type"


def test_more_decisions_than_a_round_has_calls_are_refused() -> None:
    body = COMMANDS["tool_decisions"] | {"decisions": [{"accepted": True, "tool_call_id": "c"}] * 101}
    assert refused(msgspec.json.encode(body)).path == "/decisions"


@pytest.mark.parametrize(
    ("tag", "key", "longest"),
    [("regenerate", "model", 256), ("tool_decision", "note", 8192), ("tool_decision", "tool_call_id", 128)],
)
def test_texts_beside_the_content_are_bounded(tag: str, key: str, longest: int) -> None:
    assert decode(COMMANDS[tag] | {key: "x" * longest})
    assert refused(msgspec.json.encode(COMMANDS[tag] | {key: "x" * (longest + 1)})).path == f"/{key}"


@given(st.binary())
def test_arbitrary_bytes_raise_nothing_but_our_own_error(body: bytes) -> None:
    refused(body)
    with pytest.raises(BadRequest):
        decode_inbox_body(body)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@st.composite
def _nearly_commands(draw: st.DrawFn) -> JsonObject:
    """Return a valid command with some of its values, at any depth, replaced by any JSON."""
    body = copy.deepcopy(draw(st.sampled_from(list(COMMANDS.values()))))
    for place, key in draw(st.lists(st.sampled_from(list(_slots(body))), max_size=2)):
        place[key] = draw(_json)
    return body


def _slots(value: object) -> Iterator[tuple[JsonObject, str]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield value, key
            yield from _slots(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _slots(inner)


@given(_nearly_commands())
def test_command_with_any_json_in_it_is_read_or_refused(body: JsonObject) -> None:
    encoded = msgspec.json.encode(body)
    try:
        command = decode_command(encoded)
    except BadRequest:
        return
    assert decode_inbox_body(encode_command(command)) == command
    assert body_digest(encoded)


# --- our own fields


@pytest.mark.parametrize(
    "command",
    [
        Refuse(client_request_id="refused:r1", target="r1", code="invalid_content", error="no"),
        CancelQueued(client_request_id="cancel:r1", target="r1"),
        ForgetTool(client_request_id="forget:1", tool_name="mcp__files__*"),
    ],
)
def test_internal_commands_pass_the_inbox_and_never_the_edge(command: InternalCommand) -> None:
    assert decode_inbox_body(encode_command(command)) == command
    refused(encode_command(command))


def test_inbox_entry_of_a_newer_version_is_refused_not_misread() -> None:
    with pytest.raises(BadRequest):
        decode_inbox_body(b'{"type":"of_tomorrow","client_request_id":"r1"}')
    assert decode_inbox_body(b'{"type":"abort","client_request_id":"r1","of_tomorrow":1}') == Abort(
        client_request_id="r1"
    )


# --- equal bodies


def test_digest_ignores_the_order_of_keys_and_blanks_but_nothing_else() -> None:
    one = body_digest(b'{"type":"abort","client_request_id":"r1","x":{"a":1,"b":[1,2]}}')
    assert one == body_digest(b' {"x" : {"b":[1,2],"a":1}, "client_request_id":"r1",\n"type":"abort"}')
    assert one != body_digest(b'{"type":"abort","client_request_id":"r1","x":{"a":1,"b":[2,1]}}')
    assert one != body_digest(b'{"type":"abort","client_request_id":"r1"}')


@pytest.mark.parametrize("skipped", [b"1e999", b'"\xff"', b"[" * 100_000])
def test_digest_of_a_body_that_is_broken_where_decoding_does_not_look_is_refused(skipped: bytes) -> None:
    body = b'{"type":"abort","client_request_id":"r1","unknown":' + skipped + b"}"
    with pytest.raises(BadRequest):
        body_digest(body)


@given(st.dictionaries(st.text(), _json))
@example({"a": 1.0, "b": -0.0})
def test_digest_is_the_same_for_every_order_of_keys(body: JsonObject) -> None:
    turned = dict(reversed(body.items()))
    assert body_digest(msgspec.json.encode(body)) == body_digest(msgspec.json.encode(turned))
