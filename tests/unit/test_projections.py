"""The projections over recorded runs show the whole text, exactly one last frame, and no other run."""

import json
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.fake_tools import FakeTool
from tests.unit.pure_chat import PureChat, call, say, table
from threadcast.agent_loop.outcomes import say_fallback
from threadcast.agent_loop.steps import CallModel, RunTool
from threadcast.chat.internal_commands import CancelQueued
from threadcast.compat.agent_chat import AgentChat
from threadcast.compat.base import OutFrame, Projection, RunSlice
from threadcast.compat.openai.chunks import ROUND_SEPARATOR, OpenAIChunks
from threadcast.compat.page_chat import PageChat, tool_marker
from threadcast.compat.text_chat import TextChat
from threadcast.profiles.profile import ChatTools, Profile
from threadcast.profiles.reply_guard import RETRY_STATUS, ReplyGuard
from threadcast_protocol.framing.sse import EventFrame, FrameParser, encode_event
from threadcast_protocol.wire.commands import Abort
from threadcast_protocol.wire.deltas import AppendContent, AppendReasoning, SetToolCalls
from threadcast_protocol.wire.events import (
    Event,
    MessageAdded,
    MessageUpdated,
    PayloadAdded,
    RuntimeUpdated,
    StreamStarted,
)
from threadcast_protocol.wire.messages import JsonObject

TOOLS = {"clock": FakeTool(name="clock"), "mail": FakeTool(name="mail", policy="ask")}
MINE = "mine"


def openai_chunks(chat_id: str) -> OpenAIChunks:
    return OpenAIChunks(chat_id, "cmpl-1", model="demo/echo", created_seconds=7, with_usage=True, link="https://h/c/c1")


WIRES: list[Callable[[str], Projection]] = [TextChat, AgentChat, PageChat, openai_chunks]


def shown(projection: Projection, events: list[Event], request_id: str = MINE) -> list[OutFrame]:
    """Return the frames that the endpoint would send for these events."""
    own = RunSlice(request_id)
    frames = projection.begin()
    for event in events:
        if own.take(event):
            frames += projection.feed(event)
        if own.refusal is not None:
            frames += projection.fail(*own.refusal)
    return frames


def is_terminal(frame: OutFrame) -> bool:
    if frame.event is None:
        return frame.data == "[DONE]" or json.loads(frame.data).get("type") in (
            "complete",
            "cancelled",
            "error",
        )
    return frame.event in ("done", "message_complete")


def text_in(frames: list[OutFrame]) -> str:
    """Return the answer as a client puts it together from the frames, in any of the formats."""
    pieces: list[str] = []
    for frame in frames:
        if frame.event == "text":
            pieces.append(frame.data)
        elif frame.event == "content_chunk":
            pieces.append(json.loads(frame.data)["chunk"])
        elif frame.event is None and frame.data != "[DONE]":
            body = json.loads(frame.data)
            if body.get("type") == "text_delta":
                pieces.append(body["text"])
            pieces += [choice["delta"].get("content", "") for choice in body.get("choices", [])]
    return "".join(pieces)


def answers(chat: PureChat, marked: bool = False, separator: str = "") -> str:
    """Return the text of the answers in the log; with `marked`, also the places of the tool calls. `separator`
    separates the texts of two rounds."""
    pieces: list[str] = []
    for key in chat.state.path:
        message = chat.state.nodes[key]
        if message.role == "assistant":
            pieces += [separator] if separator and pieces and message.content else []
            pieces += [str(message.content)] if message.content else []
            pieces += [tool_marker(c.id) for c in message.tool_calls if marked]
    return "".join(pieces)


def play(chat: PureChat, steps: list[str]) -> None:
    """Drive the open run by the steps, and then to its end."""
    for number, step in enumerate(steps):
        match chat.step, step:
            case CallModel(), "say" | "say more":
                chat.stream(AppendContent(f"wörd\n{number}\r\n "), AppendReasoning("hm"))
            case CallModel(), "call":
                first = call(f"c{number}", "clock", "")
                whole = call(f"c{number}", "clock", '{"zone":"UTC"}')
                chat.stream(AppendContent("I look. "))
                chat.stream(SetToolCalls([first]))
                chat.asks(whole)
            case CallModel(), "finish":
                chat.says("so.")
            case CallModel(), "break":
                chat.break_off()
            case RunTool(), "fail":
                chat.tool_answers("no", failed=True)
            case RunTool(), _:
                chat.tool_answers()
            case _, "abort":
                chat.command(Abort(client_request_id=f"stop{number}"))
            case _:
                pass
    while chat.state.private.run is not None:
        if isinstance(chat.step, RunTool):
            chat.tool_answers()
        else:
            chat.says("end")


STEPS = st.lists(st.sampled_from(["say", "say more", "call", "finish", "break", "fail", "abort", "go"]), max_size=12)


@pytest.mark.parametrize("wire", WIRES)
@given(steps=STEPS)
def test_of_any_run_the_text_is_whole_and_one_frame_is_the_last(
    wire: Callable[[str], Projection], steps: list[str]
) -> None:
    chat = PureChat(table(TOOLS, max_rounds=3), say(MINE))
    play(chat, steps)
    projection = wire("c1")
    frames = shown(projection, chat.events)
    assert projection.is_done
    said = text_in(frames)
    if isinstance(projection, PageChat):
        ran = set(projection.body()["message"].split("[[tool:")[1:])
        assert said == projection.body()["message"]
        assert {piece.partition("]]")[0] for piece in ran} >= {
            event.message.tool_call_id
            for event in chat.events
            if isinstance(event, MessageAdded) and event.message.role == "tool"
        }
    else:
        separator = ROUND_SEPARATOR if isinstance(projection, OpenAIChunks) else ""
        assert said == answers(chat, separator=separator)
    terminal = [frame for frame in frames if is_terminal(frame)]
    if isinstance(projection, AgentChat) and projection.failure is not None:
        assert not terminal and [frame.event for frame in frames].count("error") == 1
        assert frames[-1].event == "error"
    else:
        assert terminal == [frames[-1]]
    assert [frame for event in chat.events for frame in projection.feed(event)] == []
    assert projection.fail("internal", "late") == []


@pytest.mark.row("EVT-1")
@given(steps=STEPS)
def test_raw_text_survives_the_framing_with_its_line_ends_as_one(steps: list[str]) -> None:
    chat = PureChat(table(TOOLS, max_rounds=3), say(MINE))
    play(chat, steps)
    parser = FrameParser()
    blocks = b"".join(encode_event(frame.event, frame.data) for frame in shown(TextChat("c1"), chat.events))
    texts = [f.data for f in parser.feed(blocks) if isinstance(f, EventFrame) and f.event == "text"]
    assert "".join(texts) == answers(chat).replace("\r\n", "\n")


@pytest.mark.parametrize("wire", WIRES)
def test_only_the_callers_own_run_is_shown(wire: Callable[[str], Projection]) -> None:
    chat = PureChat(
        table(TOOLS),
        say("theirs"),
        say(MINE, params={"merge_queued": False}),
        say("after", params={"merge_queued": False}),
    )
    for text in ("first", "second", "third"):
        chat.says(text)
    projection = wire("c1")
    assert text_in(shown(projection, chat.events)) == "second"
    assert projection.failure is None


@pytest.mark.parametrize("wire", WIRES)
def test_a_message_taken_back_ends_with_its_refusal(wire: Callable[[str], Projection]) -> None:
    chat = PureChat(
        table(TOOLS),
        say("theirs"),
        say(MINE, params={"merge_queued": False}),
        CancelQueued(client_request_id="x", target=MINE),
    )
    projection = wire("c1")
    frames = shown(projection, chat.events)
    assert projection.is_done and projection.failure is not None and projection.failure.code == "cancelled"
    assert text_in(frames) == ""


@pytest.mark.parametrize("wire", WIRES)
def test_a_pause_is_a_conflict_and_the_last_word(wire: Callable[[str], Projection]) -> None:
    chat = PureChat(table(TOOLS), say(MINE))
    chat.stream(AppendContent("may I?"), SetToolCalls([call("c1", "mail")]))
    chat.finish()
    projection = wire("c1")
    frames = shown(projection, chat.events)
    if isinstance(projection, OpenAIChunks):
        assert projection.failure is None and projection.is_waiting
        assert "Waiting for approval: https://h/c/c1]" in text_in(frames)
        return
    assert projection.failure is not None and projection.failure.code == "conflict"
    assert any("waiting for approval" in frame.data for frame in frames)
    chat.command(Abort(client_request_id="stop"))
    assert [frame for event in chat.events for frame in projection.feed(event)] == []


def test_a_run_behind_a_pause_is_known_to_be() -> None:
    chat = PureChat(table(TOOLS), say("theirs"), say(MINE, params={"merge_queued": False}))
    chat.asks(call("c1", "mail"))
    own = RunSlice(MINE)
    assert not any(own.take(event) for event in chat.events)
    assert own.is_behind_pause and own.run_id is None


def test_openai_does_not_show_calls_that_the_server_runs() -> None:
    chat = PureChat(table(TOOLS), say(MINE))
    for arguments in ("", '{"zo', '{"zone":"UTC"}'):
        chat.stream(SetToolCalls([call("c1", "clock", arguments)]))
    chat.finish()
    chat.tool_answers()
    chat.says("It is noon.")
    frames = shown(openai_chunks("c1"), chat.events)
    assert text_in(frames) == "It is noon." and not any("tool_calls" in frame.data for frame in frames)


def test_previews_and_payloads_go_where_each_wire_has_room_for_them() -> None:
    def payload(source: str, kind: str) -> Event:
        return PayloadAdded(
            payload_id=f"p-{kind}",
            payload_type=kind,
            data={"n": 1},
            summary=f"A {kind}.",
            source=source,
            message_id="m",
        )

    events = [payload("preview", "mail"), payload("tool", "chart"), payload("preview", "x\nevent: forged")]
    agent, text, page = AgentChat("c1"), TextChat("c1"), PageChat("c1")
    kinds = [frame.event for event in events for frame in agent.feed(event)]
    assert kinds == ["mail_preview", "payload_preview"]
    data = [json.loads(frame.data)["type"] for event in events for frame in text.feed(event)]
    assert data == ["mail", "chart", "x\nevent: forged"]
    for event in events:
        page.feed(event)
    assert page.body()["custom_payload"] == {
        "payload_id": "p-chart",
        "type": "chart",
        "summary": "A chart.",
        "data": {"n": 1},
    }


@pytest.mark.row("OLD-2")
@pytest.mark.parametrize("object_id", [None, "w-1"])
def test_a_preview_of_the_agent_wire_has_its_object_under_the_name_of_its_type(object_id: str | None) -> None:
    data: JsonObject = {"description": "New", "object": {"name": "mail"}, "is_update": object_id is not None}
    data |= {} if object_id is None else {"object_id": object_id}
    event = PayloadAdded(
        payload_id="pl_1", payload_type="workflow", data=data, summary="mail", source="preview", message_id="m"
    )
    agent = AgentChat("c1")
    (frame,) = agent.feed(event)
    assert frame.event == "workflow_preview"
    assert json.loads(frame.data) == {
        "workflow": {"name": "mail"},
        "workflow_id": object_id,
        "payload_id": "pl_1",
        **data,
    }
    assert agent.body()["previews"] == [{"type": "workflow", "data": data}]


@pytest.mark.row("OLD-2")
def test_turns_of_the_agent_wire_count_from_0_and_a_guards_retry_stands_between_the_answers() -> None:
    guard = ReplyGuard(forbid_scripts=["Han"])
    chat = PureChat(ChatTools(Profile(name="agent", reply_guard=guard), {}, frozenset(), "demo/echo"), say(MINE))
    chat.says("这个问题很有意思")
    chat.write(lambda builder: say_fallback(builder, "demo/other", None))
    chat.crash()  # so the round of the second answer is announced again
    assert [e.status_text for e in chat.events if isinstance(e, RuntimeUpdated)].count(RETRY_STATUS) == 2
    chat.says("A good question.")
    agent, quiet = AgentChat("c1"), AgentChat("c1")
    agent.retry_text = guard.retry_text
    frames = [(frame.event, json.loads(frame.data)) for frame in shown(agent, chat.events)]
    assert [data["chunk"] for event, data in frames if event == "content_chunk"] == [
        "这个问题很有意思",
        "[Retrying in English...]",
        "A good question.",
    ]
    turns = [data["turn"] for event, data in frames if event == "message_start"]
    assert turns == [*range(len(turns))] and len(turns) >= 2
    assert agent.body()["message"] == "这个问题很有意思A good question."
    assert "Retrying" not in str(shown(quiet, chat.events))


@pytest.mark.row("OLD-5")
def test_the_page_wire_names_the_running_tool_and_ends_at_the_round_limit_with_complete_alone() -> None:
    chat = PureChat(table(TOOLS, max_rounds=1), say(MINE))
    chat.stream(AppendContent("I look."), SetToolCalls([call("c1", "clock")]))
    chat.finish()
    chat.tool_answers("noon")
    page = PageChat("c1")
    frames = [json.loads(frame.data) for frame in shown(page, chat.events)]
    assert [frame["type"] for frame in frames] == [
        "status",
        "status",
        "text_delta",
        "status",
        "text_delta",
        "tool_start",
        "tool_complete",
        "complete",
    ]
    assert [frame["message"] for frame in frames if frame["type"] == "status"] == [
        "queued",
        "generating",
        "Running clock…",
    ]
    payload = frames[-1]["payload"]
    assert payload["failure"]["outcome"] == "limit" and payload["failure"]["code"] == "max_tool_rounds"
    assert payload["message"] == "I look.[[tool:c1]]"
    assert page.failure is None


@pytest.mark.row("OLD-5")
def test_a_failed_run_ends_the_page_wire_with_its_error_alone() -> None:
    chat = PureChat(table(TOOLS), say(MINE))
    chat.stream(AppendContent("half"))
    chat.break_off()
    page = PageChat("c1")
    frames = [json.loads(frame.data) for frame in shown(page, chat.events)]
    assert frames[-1] == {
        "type": "error",
        "code": "stream_error",
        "message": "The model failed.",
        "conversation_id": "c1",
    }
    assert [frame["type"] for frame in frames] == ["status", "status", "text_delta", "error"]
    assert page.body()["failure"]["outcome"] == "error" and page.body()["message"] == "half"


@pytest.mark.row("FE-8")
def test_the_page_wire_takes_the_cleaned_answer_and_its_suggestions() -> None:
    chat = PureChat(table(TOOLS), say(MINE))
    chat.stream(AppendContent("look: "), SetToolCalls([call("c1", "clock")]))
    chat.finish()
    chat.tool_answers("noon")
    chat.says("noon ```json raw```")
    final = next(e.message for e in reversed(chat.events) if isinstance(e, MessageAdded))
    suggestions: list[JsonObject] = [{"label": "one"}]
    cleaned = msgspec.structs.replace(final, content="noon", suggested_values=suggestions)
    edited = msgspec.structs.replace(final, message_id="old", content="somebody's edit")
    ended = chat.events.pop()
    page = PageChat("c1")
    updates = [MessageUpdated("old", edited), MessageUpdated(final.message_id, cleaned)]
    frames = shown(page, [*chat.events, *updates, ended])
    payload = json.loads(frames[-1].data)["payload"]
    assert payload["message"] == "look: [[tool:c1]]noon"
    assert payload["suggested_values"] == suggestions
    assert payload["tool_history"] == [
        {"tool_name": "clock", "tool_use_id": "c1", "input": {}, "output": "noon", "status": "done"}
    ]


def test_an_answer_begun_again_after_a_crash_is_whole_in_the_last_payload() -> None:
    chat = PureChat(table(TOOLS), say(MINE))
    chat.stream(AppendContent("half of"))
    chat.crash()
    chat.says("the whole")
    page = PageChat("c1")
    shown(page, chat.events)
    assert sum(isinstance(event, StreamStarted) for event in chat.events) == 2
    assert page.body()["message"] == "the whole"
