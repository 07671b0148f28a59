"""Checks which events of AG-UI are read and which are refused, with the protocol's own types and with nonsense."""

import copy
import json
from typing import Any

import msgspec
import pytest
from ag_ui.core import RunAgentInput
from hypothesis import given
from hypothesis import strategies as st

from threadcast.agents.ag_ui.events import Ended, Other, Status, Text, ToolResult, event_of
from threadcast.agents.ag_ui.history import Conversation, Kept, conversation_of, keep_of
from threadcast.agents.ag_ui.state import COPIES_MAX, OPERATIONS_MAX, STATE_MAX_BYTES, changed, checked
from threadcast.custom_agents.pieces import KEEP_MAX_BYTES, kept_in
from threadcast.custom_agents.rounds import RoundMessage
from threadcast_protocol.wire.messages import FunctionCall, ImagePart, ImageUrl, JsonObject, TextPart, ToolCall

pytestmark = pytest.mark.row("AGT-10")

JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner), max_leaves=5)


def read(**event: object) -> Any:  # Any: an event
    return event_of(json.dumps(event).encode())


@given(
    st.sampled_from(["TEXT_MESSAGE_CONTENT", "TOOL_CALL_RESULT", "STATE_DELTA", "RUN_FINISHED", "MESSAGES_SNAPSHOT"]),
    st.dictionaries(
        st.sampled_from(["delta", "messageId", "content", "outcome", "usage", "messages", "toolCallId"]), JSON
    ),
)
def test_wrong_fields_never_raise(kind: str, fields: dict[str, object]) -> None:
    read(type=kind, **fields)


@pytest.mark.parametrize("data", [b"[]", b"{}", b'{"type":1}', b"nonsense", b'"x"'])
def test_what_is_no_event_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        event_of(data)


def test_unknown_events_are_skipped_and_old_ones_read() -> None:
    assert read(type="TOMORROW", delta="x") is None
    assert read(type="THINKING_TEXT_MESSAGE_CONTENT", delta="hm").delta == "hm"
    assert read(type="TEXT_MESSAGE_CHUNK", delta="x", messageId="m") == Text("m", "x", "")
    assert read(type="STEP_FINISHED", stepName="a") == Status("")
    assert read(type="CUSTOM", name="a", value=None) == Other("custom", {"name": "a", "value": None})
    parts = [{"type": "text", "text": "a"}, {"type": "image", "source": {}}, 3]
    assert read(type="TOOL_CALL_RESULT", toolCallId="c", content=parts) == ToolResult("c", "a\n[image]")


def test_interrupts_that_do_not_fit_are_no_interrupts() -> None:
    assert read(type="RUN_FINISHED", outcome={"type": "interrupt", "interrupts": [{"reason": "x"}]}) == Ended()
    [found] = read(type="RUN_FINISHED", outcome={"type": "interrupt", "interrupts": [{"id": "i"}]}).interrupts
    assert found.id == "i"


def test_changes_of_the_state_are_bounded() -> None:
    assert changed({"a": [1]}, [{"op": "add", "path": "/a/-", "value": 2}]) == {"a": [1, 2]}
    wrong: list[JsonObject] = [
        {"op": "remove", "path": "/b"},
        {"op": "test", "path": "/a", "value": 2},
        {"op": "odd"},
        {},
    ]
    for operation in wrong:
        with pytest.raises(ValueError, match="does not fit"):
            changed({"a": 1}, [operation])
    copying: list[JsonObject] = [{"op": "copy", "from": "/a", "path": "/b"}] * (COPIES_MAX + 1)
    with pytest.raises(ValueError, match="copies more than"):
        changed({"a": 1}, copying)
    doubling = [{"op": "copy", "from": "", "path": f"/{number}"} for number in range(COPIES_MAX)]
    with pytest.raises(ValueError, match="are possible"):
        changed({"a": "x" * 1_000}, doubling)
    with pytest.raises(ValueError, match="are possible"):
        changed({}, [{"op": "test", "path": "/a", "value": "x" * STATE_MAX_BYTES}])
    with pytest.raises(ValueError, match="operations"):
        changed({}, [{"op": "add", "path": "/a", "value": 1}] * 1_001)
    with pytest.raises(ValueError, match="are possible"):
        checked("x" * STATE_MAX_BYTES)


def test_a_change_of_many_operations_copies_the_state_once(monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[object] = []

    def copies(value: object) -> object:
        copied.append(value)
        return value

    monkeypatch.setattr(copy, "deepcopy", copies)
    before = {"numbers": [0] * 60_000, "n": 0}
    many: list[JsonObject] = [{"op": "replace", "path": "/n", "value": n} for n in range(OPERATIONS_MAX)]
    assert changed(before, many)["n"] == OPERATIONS_MAX - 1
    assert before["n"] == 0
    assert not [value for value in copied if isinstance(value, dict | list)]


def test_the_conversation_fits_the_protocols_own_types() -> None:
    image = ImagePart(ImageUrl("data:image/png;base64,aGk="))
    look = {"id": "theirs", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    thought = {"id": "r", "role": "reasoning", "content": "hm", "encryptedValue": "x"}
    said = {"id": "m1", "role": "assistant", "content": "I look.", "toolCalls": [look]}
    [keep] = keep_of(Kept([thought, said], ["theirs"], {"n": 1}))
    messages = [
        RoundMessage(role="user", content=[TextPart("Look"), image], message_id="u1"),
        RoundMessage(
            role="assistant",
            content="I look.",
            message_id="a1",
            tool_calls=[ToolCall("ours", 0, FunctionCall("look", "{}"))],
            keep=keep.data,
        ),
        RoundMessage(role="tool", content="a cat", message_id="t1", tool_call_id="ours"),
        RoundMessage(role="assistant", content="Of another model.", message_id="a2", keep=b"not ours"),
    ]
    found = conversation_of(messages)
    body = {"threadId": "c", "runId": "r", "messages": found.messages, "state": found.state}
    read_back = RunAgentInput.model_validate(body).model_dump(by_alias=True, mode="json")["messages"]
    assert [message["role"] for message in read_back] == ["user", "reasoning", "assistant", "tool", "assistant"]
    assert read_back[3]["toolCallId"] == "theirs"
    assert read_back[0]["content"][1]["source"]["mimeType"] == "image/png"
    assert read_back[1]["encryptedValue"] == "x"


def test_parts_of_one_message_become_one_again_and_too_much_is_not_kept() -> None:
    found = Conversation()
    call = {"id": "c", "type": "function", "function": {"name": "a", "arguments": "{}"}}
    found.add([{"id": "m", "role": "assistant", "content": "a", "toolCalls": [call]}])
    found.add([{"id": "m", "role": "assistant", "content": "b", "toolCalls": [{**call, "id": "d"}]}])
    assert [(each["content"], len(each["toolCalls"])) for each in found.messages] == [("ab", 2)]
    assert keep_of(Kept([{"id": "m", "content": "x" * KEEP_MAX_BYTES}])) == []
    assert kept_in([], "weather") == b""
    assert msgspec.json.decode(keep_of(Kept([], [], 3))[0].data) == {"messages": [], "state": 3}
