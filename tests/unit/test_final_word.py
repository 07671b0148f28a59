"""Tests the final form of an answer, the payloads and events of tools, and titles (EVT-11, EVT-18, EVT-19, TREE-5)."""

import json

import pytest

from tests.unit.fake_tools import FakeTool
from tests.unit.pure_chat import PureChat, call, say, table
from threadcast.agent_loop.answer.suggestions import suggested_actions, suggested_values
from threadcast.agent_loop.calls.client_events import EVENT_MAX_BYTES, as_event
from threadcast.agent_loop.history.request import build_request
from threadcast.agent_loop.titles import wants_title
from threadcast.profiles.payload_types import Action, PayloadType
from threadcast.tools.base import Payload
from threadcast.tools.context import ClientEvent
from threadcast_protocol.fold.snapshot import snapshot_of
from threadcast_protocol.framing.codec import decode_event, encode
from threadcast_protocol.wire.commands import Abort, SetParams, ToolDecision
from threadcast_protocol.wire.deltas import AppendContent
from threadcast_protocol.wire.events import BrowserFrame, MessageUpdated, PayloadAdded, ProcessCompleted


def answered(text: str) -> PureChat:
    chat = PureChat(table(actions={"go": Action(action="go")}), say("q", "what now\nand then"))
    chat.says(text)
    return chat


@pytest.mark.row("EVT-18", "PAY-5", "PAY-6")
def test_suggestions_leave_the_text_and_stand_on_the_message() -> None:
    values = 'SUGGESTED_VALUES: ["yes", {"label": "No }", "value": 0}]'
    text = f'Choose.\n{values}\nSUGGESTED_ACTIONS: [{{"label": "Go", "action": "go"}}]'
    chat = answered(text)
    updated = [event for event in chat.events if isinstance(event, MessageUpdated)]
    assert len(updated) == 1
    message = chat.state.nodes[chat.state.path[-1]]
    assert message.content == "Choose."
    assert message.suggested_values == [{"label": "yes", "value": "yes"}, {"label": "No }", "value": 0}]
    assert message.suggested_actions == [{"label": "Go", "action": "go", "handler": "client"}]
    assert chat.types()[-3:] == ["message_updated", "thread_updated", "runtime_updated"]


@pytest.mark.parametrize(
    "text", ["plain", "SUGGESTED_VALUES: [broken", "`SUGGESTED_VALUES: [1]`", "SUGGESTED_VALUES: 1"]
)
def test_an_answer_that_stays_as_it_is_gets_no_last_word(text: str) -> None:
    chat = answered(text)
    assert not any(isinstance(event, MessageUpdated) for event in chat.events)
    assert chat.state.nodes[chat.state.path[-1]].content == text


def test_suggestions_of_a_wrong_shape_are_dropped() -> None:
    assert suggested_values([[1, {"label": 3, "value": 1}, {"label": "x"}], "ok"]) == [{"label": "ok", "value": "ok"}]
    declared = {"go": Action(action="go", label="Go on", handler="server")}
    found: list[object] = [[{"label": "x", "action": "y"}, {"label": "x"}, 3, {"action": "go", "handler": "moon"}]]
    assert suggested_actions(found, declared) == ([{"label": "Go on", "action": "go", "handler": "server"}], 3)
    assert len(suggested_values([["v"] * 50])) == 20


@pytest.mark.row("EVT-11", "PAY-2", "PAY-8")
def test_a_tools_payload_stands_on_its_message_in_the_snapshot_and_no_model_sees_it() -> None:
    chat = PureChat(table({"chart": FakeTool(name="chart")}), say("q"))
    chat.asks(call("c0", "chart"))
    payload = Payload(type="chart", data={"secret points": [1, 2]}, summary="two points")
    events = chat.tool_answers("a chart was drawn", payloads=[payload])
    added = next(event for event in events if isinstance(event, PayloadAdded))
    tool_message = chat.state.nodes[added.message_id]
    assert (tool_message.role, tool_message.payloads) == ("tool", [added.payload_id])
    assert (added.source, added.tool_call_id, added.payload_type, added.summary) == (
        "tool",
        "c0",
        "chart",
        "two points",
    )
    assert snapshot_of(chat.state).payloads[0].data == {"secret points": [1, 2]}
    assert b"secret points" not in encode(build_request(chat.state, chat.tools, "demo", "m", with_tools=True))
    chat.says("Look.")
    last = chat.state.nodes[chat.state.path[-1]]
    assert (last.payloads, last.active_payload_id) == ([added.payload_id], added.payload_id)


@pytest.mark.row("EVT-19")
def test_events_of_tools_are_passed_on_with_all_their_fields() -> None:
    frame = as_event(ClientEvent("browser_frame", {"png": "…", "tab": 3, "type": "forged"}))
    raw = encode([frame])
    assert json.loads(raw) == [{"type": "browser_frame", "png": "…", "tab": 3}]
    assert isinstance(decode_event(encode(frame)), BrowserFrame)
    done = {"process_id": "p", "status": "done", "exit_code": 0, "short_description": "x", "mode": "bg"}
    assert isinstance(as_event(ClientEvent("process_completed", done)), ProcessCompleted)


@pytest.mark.parametrize(
    "bad",
    [
        ClientEvent("message_removed", {"message_id": "m"}),
        ClientEvent("process_completed", {"process_id": 3}),
        ClientEvent("browser_frame", {"png": "x" * EVENT_MAX_BYTES}),
        ClientEvent("browser_frame", {"png": object()}),
    ],
)
def test_what_is_no_event_of_a_tool_is_left_out(bad: ClientEvent) -> None:
    assert as_event(bad) is None


@pytest.mark.row("TREE-5")
def test_the_title_is_the_first_line_until_somebody_or_a_model_says_better() -> None:
    chat = answered("hm")
    assert chat.state.thread.title == "what now"
    assert wants_title(chat.state)
    chat.command(SetParams(client_request_id="p", patch={"title": "Mine"}))
    assert chat.state.thread.title == "Mine"
    assert not wants_title(chat.state)


def test_a_title_that_was_set_before_the_first_message_stays() -> None:
    chat = PureChat(table(), SetParams(client_request_id="p", patch={"title": "Mine"}), say("q", "hello"))
    assert chat.state.thread.title == "Mine"


def test_a_long_first_line_is_cut_for_the_title() -> None:
    chat = PureChat(table(), say("q", "\n  " + "word " * 40))
    assert len(chat.state.thread.title) <= 60
    assert chat.state.thread.title.endswith("…")


@pytest.mark.row("PAY-3")
@pytest.mark.parametrize("how", ["abort", "limit refused", "error", "stop"])
def test_whatever_ends_a_run_has_the_last_word_on_its_answers(how: str) -> None:
    chart = PayloadType(name="chart", marker="CHART", summary="{title}")
    chat = PureChat(
        table({"clock": FakeTool(name="clock")}, max_rounds=1, payload_types=[chart]),
        SetParams(client_request_id="set", patch={"on_limit": "ask", "on_owner_loss": "stop"}),
        say("q"),
    )
    chat.stream(AppendContent('Look.\nCHART: {"title": "Sales"}\n'))
    if how == "limit refused":
        chat.asks(call("c1", "clock"))
        chat.tool_answers("noon")
        (reason,) = chat.state.runtime.pause_reasons
        chat.command(ToolDecision(client_request_id="no", tool_call_id=reason.tool_call_id, accepted=False))
    elif how == "abort":
        chat.command(Abort(client_request_id="stop"))
    elif how == "error":
        chat.break_off()
    else:
        chat.crash()
    assert chat.state.is_at_rest
    assert [payload.summary for payload in chat.state.payloads] == ["Sales"]
    answer = chat.state.nodes[chat.state.path[1]]
    assert answer.content == "Look." and answer.payloads == [chat.state.payloads[0].payload_id]
