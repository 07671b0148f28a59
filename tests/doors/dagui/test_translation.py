"""The translation of AG-UI, without a server: ids, snapshots, state, and the events of an answer."""

import json
from typing import Any

import jsonpatch
import msgspec
import pytest
from ag_ui.core import Event, Interrupt
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from threadcast.compat.ag_ui.bodies import ResumeEntry, RunInput, SentMessage, content_of, read_run, result_of
from threadcast.compat.ag_ui.client_state import ClientState, changes
from threadcast.compat.ag_ui.history import History, snapshots
from threadcast.compat.ag_ui.interrupts import NOTE_MAX_CHARACTERS, decisions_in, interrupt_id, interrupt_of
from threadcast.compat.ag_ui.message_ids import SentIds, request_id_of, restored_id_of
from threadcast.compat.ag_ui.open_answer import OpenAnswer
from threadcast.compat.base import OutFrame
from threadcast_protocol.wire.deltas import AppendContent, AppendReasoning, DeltaOp, SetToolCalls
from threadcast_protocol.wire.errors import BadRequest
from threadcast_protocol.wire.events import PauseReason
from threadcast_protocol.wire.ids import is_id
from threadcast_protocol.wire.messages import FilePart, FunctionCall, Message, TextPart, ToolCall

EVENTS: TypeAdapter[Any] = TypeAdapter(Event)
IDS = st.text(min_size=1, max_size=200)
LEAVES = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5)
JSON = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner))


def bodies(frames: list[OutFrame]) -> list[Any]:
    """Return the events, each read by the protocol's own types."""
    found = [json.loads(frame.data) for frame in frames]
    for each in found:
        EVENTS.validate_python(each)
    return found


@given(IDS, IDS)
def test_an_id_of_a_client_becomes_a_request_id_and_comes_back(one: str, other: str) -> None:
    assert is_id(request_id_of(one)) and is_id(restored_id_of(one))
    assert (request_id_of(one) == request_id_of(other)) == (one == other)
    stored = Message(role="user", content="x", message_id="msg_1", client_request_id=request_id_of(one))
    assert SentIds([SentMessage(id=one, role="user")]).shown_id(stored) == one
    shown = SentIds().shown_id(stored)
    assert shown in (one, "msg_1"), "a client that does not know the id gets it, or ours"
    kept = Message(role="assistant", content="x", message_id=restored_id_of(one))
    assert SentIds([SentMessage(id=one, role="assistant")]).shown_id(kept) == one


@pytest.mark.parametrize("request_id", ["agux-!!", "agux-_w", "agui-", "ui-x", "agux-", ""])
def test_a_request_id_that_only_looks_like_ours_is_not_read(request_id: str) -> None:
    stored = Message(role="user", content="x", message_id="msg_1", client_request_id=request_id)
    assert SentIds().shown_id(stored) == "msg_1"


def after_snapshot(have: list[Any], snapshot: list[Any]) -> list[Any]:
    """Apply a snapshot as `@ag-ui/client` 1.0 does: known messages keep their places, others are appended."""
    told = {message["id"]: message for message in snapshot}
    keeps_reasoning = all(message["role"] != "reasoning" for message in snapshot)
    kept = [m for m in have if m["id"] in told or (m["role"] == "reasoning" and keeps_reasoning)]
    found = [told.get(message["id"], message) for message in kept]
    known = {message["id"] for message in found}
    return found + [message for message in snapshot if message["id"] not in known]


MESSAGES = st.lists(
    st.tuples(st.sampled_from("abcdef"), st.sampled_from(["user", "assistant", "reasoning"])), unique_by=lambda m: m[0]
).map(lambda made: [{"id": key, "role": role, "content": ""} for key, role in made])


@given(MESSAGES, MESSAGES)
def test_snapshots_give_a_client_the_messages_in_their_order(have: list[Any], shown: list[Any]) -> None:
    if all(message["role"] != "reasoning" for message in shown):
        have = [message for message in have if message["role"] != "reasoning"]  # a client keeps these messages
    found = have
    for snapshot in snapshots([message["id"] for message in have], shown):
        found = after_snapshot(found, snapshot)
    assert found == shown


@settings(max_examples=40)  # hypothesis generates JSON values slowly
@given(st.dictionaries(st.text(max_size=3), JSON), st.dictionaries(st.text(max_size=3), JSON))
def test_a_change_of_the_state_is_a_patch(before: dict[str, Any], after: dict[str, Any]) -> None:
    patch = changes(before, after)
    assert jsonpatch.apply_patch(before, patch) == after
    client = ClientState()
    first, second = bodies(client.show(before)), bodies(client.show(after))
    assert first == [{"type": "STATE_SNAPSHOT", "snapshot": before}]
    assert second == ([{"type": "STATE_DELTA", "delta": patch}] if patch else [])


@st.composite
def answers(draw: st.DrawFn) -> tuple[list[DeltaOp], Message]:
    """The operations of an answer, and its final form."""
    ops: list[DeltaOp] = []
    calls: dict[str, str] = {}
    text = reasoning = ""
    for kind in draw(st.lists(st.sampled_from(["text", "reasoning", "call"]), max_size=12)):
        piece = draw(st.text(min_size=1, max_size=4))
        if kind == "text":
            text += piece
            ops.append(AppendContent(piece))
        elif kind == "reasoning":
            reasoning += piece
            ops.append(AppendReasoning(piece))
        else:
            key = draw(st.sampled_from(["c1", "c2"]))
            calls[key] = calls.get(key, "") + piece
            ops.append(SetToolCalls(_calls(calls)))
    final = Message(
        role="assistant", content=text, message_id="m", reasoning_content=reasoning or None, tool_calls=_calls(calls)
    )
    return ops, final


def _calls(calls: dict[str, str]) -> list[ToolCall]:
    return [
        ToolCall(id=key, index=at, function=FunctionCall(f"tool-{key}", text))
        for at, (key, text) in enumerate(calls.items())
    ]


def folded(events: list[Any], text: str = "") -> tuple[str, str, dict[str, str]]:
    """Return the text, the reasoning and the arguments that a client has, and check that each part begins and ends."""
    reasoning, calls, is_open = "", {}, set()
    for each in events:
        key = (each["type"].rpartition("_")[0], each.get("toolCallId") or each.get("messageId"))
        match each["type"].rpartition("_")[2]:
            case "START":
                assert key not in is_open
                is_open.add(key)
                if "toolCallId" in each:
                    calls[each["toolCallId"]] = ""
            case "END":
                is_open.remove(key)
            case "ARGS":
                assert key in is_open
                calls[each["toolCallId"]] += each["delta"]
            case _:
                assert key in is_open and each["delta"]
                text += each["delta"] if each["type"].startswith("TEXT") else ""
                reasoning += each["delta"] if each["type"].startswith("REASONING") else ""
    assert not is_open
    return text, reasoning, calls


@given(answers())
def test_the_events_of_an_answer_fold_to_its_final_form(made: tuple[list[DeltaOp], Message]) -> None:
    ops, final = made
    answer = OpenAnswer("m")
    frames = [frame for op in ops for frame in answer.op(op)]
    more, is_exact = answer.finish(final)
    assert is_exact
    text, reasoning, calls = folded(bodies([*frames, *more]))
    assert (text, reasoning or None) == (final.content, final.reasoning_content)
    assert calls == {call.id: call.function.arguments for call in final.tool_calls}


@given(answers(), st.data())
def test_what_deltas_did_not_show_comes_with_the_final_form(made: tuple[list[DeltaOp], Message], data: Any) -> None:
    ops, final = made
    cut = data.draw(st.integers(0, len(ops)))
    answer = OpenAnswer("m")
    frames = [frame for op in ops[:cut] for frame in answer.op(op)]
    more, is_exact = answer.finish(final)
    text, _, calls = folded(bodies([*frames, *more]))
    assert is_exact and text == final.content
    assert calls == {call.id: call.function.arguments for call in final.tool_calls}


def test_a_final_form_that_takes_text_back_needs_a_snapshot() -> None:
    answer = OpenAnswer("m")
    answer.text("too much")
    _, is_exact = answer.finish(Message(role="assistant", content="too", message_id="m"))
    assert not is_exact


APPROVAL = PauseReason(type="confirmation", tool_name="t", tool_call_id="c", input={"a": 1}, input_hash="0" * 8)
LIMIT = PauseReason(type="round_limit", tool_name="", tool_call_id="limit-r")


def _decide(reason: PauseReason, payload: object, status: Any = "resolved") -> Any:
    entry = ResumeEntry(interrupt_id=interrupt_id(reason), status=status, payload=payload)
    (decision,) = decisions_in([entry], [reason])
    return decision


def test_an_approval_is_an_interrupt_and_its_answer_a_decision() -> None:
    for reason in (APPROVAL, LIMIT):
        Interrupt.model_validate(interrupt_of(reason))
    assert interrupt_of(APPROVAL)["toolCallId"] == "c" and "toolCallId" not in interrupt_of(LIMIT)
    told = _decide(APPROVAL, {"approved": True, "note": "n", "arguments": {"a": 2}})
    assert (told.accepted, told.note, told.edited_input, told.input_hash) == (True, "n", {"a": 2}, "0" * 8)
    denied = _decide(APPROVAL, {"approved": False, "arguments": {"a": 2}})
    assert (denied.accepted, denied.edited_input) == (False, None)
    assert not _decide(APPROVAL, None, "cancelled").accepted
    other = ResumeEntry(interrupt_id="c.older", status="resolved", payload={"approved": True})
    assert decisions_in([other], [APPROVAL]) == []


@pytest.mark.parametrize(
    "payload",
    [None, True, {}, {"approved": 1}, {"approved": True, "note": "x" * (NOTE_MAX_CHARACTERS + 1)}, {"approved": "yes"}],
)
def test_an_answer_of_another_form_is_refused_with_its_place(payload: object) -> None:
    with pytest.raises(BadRequest) as refused:
        _decide(APPROVAL, payload)
    assert refused.value.path == "/resume/0/payload"


def test_a_question_is_answered_by_the_payload_itself() -> None:
    question = {"text": "Which?", "options": ["a", "b"]}
    reason = msgspec.convert(
        {"type": "question", "tool_name": "", "tool_call_id": "q", "question": question}, PauseReason
    )
    shown = interrupt_of(reason)
    Interrupt.model_validate(shown)
    assert (shown["message"], shown["responseSchema"]) == ("Which?", {"type": "string", "enum": ["a", "b"]})
    assert _decide(reason, "a").edited_input == {"answer": "a"}
    assert not _decide(reason, None, "cancelled").accepted


def test_files_and_images_keep_their_data() -> None:
    source = {"type": "data", "value": "AAAA", "mimeType": "image/png"}
    parts = [
        {"type": "text", "text": "see"},
        {"type": "image", "source": source},
        {"type": "document", "source": {**source, "mimeType": "application/pdf"}, "metadata": {"filename": "a.pdf"}},
        {"type": "audio", "source": {**source, "mimeType": "audio/wav"}},
        {"type": "binary", "mimeType": "image/png", "data": "AAAA"},
    ]
    content = content_of(SentMessage(id="m", role="user", content=parts), "/messages/0")
    assert isinstance(content, list)
    assert [part["type"] for part in content] == ["text", "image_url", "file", "input_audio", "image_url"]
    assert (content[2]["name"], content[2]["data"]) == ("a.pdf", "AAAA")
    stored = Message(role="user", content=[TextPart("see"), FilePart("a.txt", "text/plain", text="ü")], message_id="m")
    ((shown),) = History("c", SentIds()).translated(stored)
    assert shown["content"][1]["source"] == {"type": "data", "value": "w7w=", "mimeType": "text/plain"}


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image", "source": {"type": "url", "value": "http://10.0.0.1/x"}},
        {"type": "document", "source": {"type": "file", "value": "file-1"}},
        {"type": "video"},
    ],
)
def test_no_address_is_fetched(part: object) -> None:
    with pytest.raises(BadRequest) as refused:
        content_of(SentMessage(id="m", role="user", content=[part]), "/messages/3")
    assert refused.value.path == "/messages/3/content/0"


def test_the_result_of_a_tool_is_its_text_and_its_images() -> None:
    def result(**fields: Any) -> tuple[str, bool]:
        return result_of(SentMessage(id="m", role="tool", tool_call_id="c", **fields), "/messages/0")

    assert result(content="done") == ("done", False)
    assert result(content="", error="broke") == ("broke", True)
    image = {"type": "image", "source": {"type": "data", "value": "AAAA", "mimeType": "image/png"}}
    assert result(content=[{"type": "text", "text": "see"}, image]) == ("see\ndata:image/png;base64,AAAA", False)


@given(JSON | st.dictionaries(st.sampled_from(["threadId", "runId", "messages", "resume", "tools", "state"]), JSON))
def test_a_body_of_another_form_is_refused(body: Any) -> None:
    try:
        assert isinstance(read_run(json.dumps(body).encode()), RunInput)
    except BadRequest as refused:
        assert refused.path is not None or refused.message
