"""Payload types, and payloads from tools and from a model's text (PAY-1..6, DIAG-2)."""

import json

import msgspec
import pytest

from tests.unit.fake_tools import FakeTool
from tests.unit.pure_chat import PureChat, call, say, table
from threadcast.compat.text_chat import TextChat
from threadcast.profiles.payload_types import (
    Action,
    PayloadType,
    check_type,
    payload_type,
    problem_with,
    summary_of,
)
from threadcast.tools.base import Payload
from threadcast_protocol.fold.snapshot import snapshot_of
from threadcast_protocol.framing.codec import encode
from threadcast_protocol.wire.commands import ContinueMessage, UserMessage
from threadcast_protocol.wire.deltas import AppendContent
from threadcast_protocol.wire.events import Event, MessageAdded, MessageUpdated, PayloadAdded
from threadcast_protocol.wire.messages import JsonObject, Message

CHART = PayloadType(
    name="chart",
    schema={
        "type": "object",
        "properties": {"title": {"type": "string"}, "points": {"type": "array", "items": {"type": "number"}}},
        "required": ["points"],
    },
    marker="CHART",
    summary="{title}: {points}",
)
NOTE = PayloadType(name="note", marker="NOTE")


def chat_with(*texts: str, actions: dict[str, Action] | None = None) -> PureChat:
    """Return answers in turn; each answer except the last calls a tool."""
    chat = PureChat(table({"draw": FakeTool(name="draw")}, payload_types=[CHART, NOTE], actions=actions), say("q"))
    for at, text in enumerate(texts):
        chat.stream(AppendContent(text))
        if at < len(texts) - 1:
            chat.asks(call(f"c{at}", "draw"))
            chat.tool_answers("drawn")
        else:
            chat.finish()
    return chat


def added(events: list[Event]) -> list[PayloadAdded]:
    return [event for event in events if isinstance(event, PayloadAdded)]


@pytest.mark.row("OLD-8", "EVT-10", "EVT-11")
def test_data_of_a_call_is_told_before_it_is_done_on_every_wire() -> None:
    chat, payloads = drawn(Payload("chart", {"points": [1]}), Payload("weather", {"wind": 3}))
    kinds = [event.__struct_config__.tag for event in chat.events]
    at = kinds.index("payload_added")
    assert kinds[at - 1 : at + 3] == ["message_added", "payload_added", "payload_added", "tool_status"]
    result = chat.events[at - 1]
    assert isinstance(result, MessageAdded)
    assert [payload.message_id for payload in payloads] == [result.message.message_id] * 2
    assert result.message.payloads == [payload.payload_id for payload in payloads]
    wire = TextChat("c1")
    shown = [frame.event for event in chat.events for frame in wire.feed(event)]
    assert shown == ["tool_status", "data", "data", "tool_status"]


def answers(chat: PureChat) -> list[Message]:
    return [chat.state.nodes[key] for key in chat.state.path if chat.state.nodes[key].role == "assistant"]


def drawn(*payloads: Payload) -> tuple[PureChat, list[PayloadAdded]]:
    chat = PureChat(table({"draw": FakeTool(name="draw")}, payload_types=[CHART, NOTE]), say("q"))
    chat.asks(call("c0", "draw"))
    return chat, added(chat.tool_answers("drawn", payloads=list(payloads)))


@pytest.mark.row("PAY-1", "PAY-2")
def test_a_tools_payload_is_summed_up_by_its_type_and_an_undeclared_one_is_flagged() -> None:
    chat, (chart, other, own) = drawn(
        Payload("chart", {"title": "Tides", "points": [1, 2]}),
        Payload("weather", {"wind": 3}),
        Payload("chart", {"points": []}, "my own words"),
    )
    assert (chart.summary, chart.unregistered) == ("Tides: [1,2]", False)
    assert (other.summary, other.unregistered) == ("weather: wind", True)
    assert own.summary == "my own words"
    assert len({payload.payload_id for payload in chat.state.payloads}) == 3
    assert b"unregistered" not in encode(chart)
    assert json.loads(encode(other))["unregistered"] is True


@pytest.mark.row("PAY-1")
def test_data_that_breaks_its_types_schema_is_not_shown_and_the_model_reads_the_place() -> None:
    chat, shown = drawn(Payload("chart", {"points": [1, "two"]}), Payload("note", {}))
    assert [payload.payload_type for payload in shown] == ["note"]
    (answer,) = [message for message in chat.state.nodes.values() if message.role == "tool"]
    assert str(answer.content).startswith("drawn\n[") and "/points/1" in str(answer.content)
    assert answer.tool_failed is False, "the tool has done its work; calling it again would do it twice"


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (None, {}),
        (None, {"a": 1}),
        (PayloadType(name="t", summary="{a}{b}"), {}),
        (PayloadType(name="t", summarize=lambda data: str(data["gone"])), {}),
        (PayloadType(name="t", summarize=lambda _: "  "), {"a": 1}),
        (PayloadType(name="t", summary="{a}"), {"a": "x\n" * 999}),
    ],
)
@pytest.mark.row("PAY-2")
def test_a_summary_is_one_line_and_never_empty(kind: PayloadType | None, data: JsonObject) -> None:
    said = summary_of(kind, "t", data)
    assert 0 < len(said) <= 200 and "\n" not in said


@pytest.mark.row("PAY-3", "DIAG-2")
def test_every_answer_of_a_run_is_cleaned_of_its_markers_and_the_raw_one_is_kept_beside_it() -> None:
    first = 'I draw.\n\nCHART: {"title": "a } \\" b", "points": [1]}\n\nThere.'
    last = 'Done.\nNOTE:\n```json\n{"text": "x"}\n```\nBye.'
    chat = chat_with(first, last)
    assert [message.content for message in answers(chat)] == ["I draw.\n\nThere.", "Done.\nBye."]
    chart, note = added(chat.events)
    assert (chart.source, chart.data, note.data) == (
        *("llm", {"title": 'a } " b', "points": [1]}),
        {"text": "x"},
    )
    assert [chart.message_id, note.message_id] == [message.message_id for message in answers(chat)]
    updates = [event for event in chat.events if isinstance(event, MessageUpdated)]
    assert [update.message_id for update in updates] == [message.message_id for message in answers(chat)]
    assert [chat.state.private.raw_answers[m.message_id].text for m in answers(chat)] == [first, last]
    assert first.encode() not in encode(snapshot_of(chat.state))


@pytest.mark.row("PAY-4")
def test_all_payloads_stay_in_order_the_last_is_active_and_a_tools_own_word_beats_its_copy_in_the_text() -> None:
    chat, (chart,) = drawn(Payload("chart", {"points": [1]}))
    chat.says('Look.\nNOTE: {"n": 1}\nCHART: {"points": [2]}\nNOTE: {"n": 2}')
    assert [payload.data for payload in chat.state.payloads] == [{"points": [1]}, {"n": 1}, {"n": 2}]
    (*_, final) = answers(chat)
    assert final.content == "Look."
    assert final.payloads == [payload.payload_id for payload in chat.state.payloads]
    assert (final.payloads[0], final.active_payload_id) == (chart.payload_id, final.payloads[-1])


@pytest.mark.row("PAY-3")
@pytest.mark.parametrize(
    "text",
    [
        'CHART: {"points": [1',
        'CHART: {"points": ["one"]}',
        "CHART: [1, 2]",
        'CHART: {"points": [NaN]}',
        'CHART: {"points": [], "title": "\\ud800"}',
        '`CHART: {"points": []}`',
        'OTHER: {"points": []}',
    ],
)
def test_what_is_not_the_types_data_stays_in_the_text(text: str) -> None:
    chat = chat_with(text)
    assert answers(chat)[0].content == text
    assert not added(chat.events) and not chat.state.private.raw_answers


@pytest.mark.row("PAY-3")
def test_an_answer_that_is_continued_publishes_no_payload_twice() -> None:
    chat = chat_with('Here.\nNOTE: {"n": 1}')
    (answer,) = answers(chat)
    chat.command(ContinueMessage(client_request_id="c", message_id=answer.message_id))
    chat.says('\nMore.\nNOTE: {"n": 2}')
    assert [payload.data for payload in added(chat.events)] == [{"n": 1}, {"n": 2}]
    (answer,) = answers(chat)
    assert answer.content == "Here.\nMore."
    assert len(answer.payloads) == 2


@pytest.mark.row("PAY-6", "DIAG-2")
def test_actions_that_nobody_declared_are_dropped_and_counted() -> None:
    text = 'Do.\nSUGGESTED_ACTIONS: [{"label": "Go", "action": "go"}, {"label": "Rob", "action": "rob"}]'
    chat = chat_with(text, actions={"go": Action(action="go", handler="server")})
    (answer,) = answers(chat)
    assert answer.content == "Do."
    assert answer.suggested_actions == [{"label": "Go", "action": "go", "handler": "server"}]
    raw = chat.state.private.raw_answers[answer.message_id]
    assert (raw.text, raw.dropped_actions_count) == (text, 1)
    chat = chat_with(text)
    assert answers(chat)[0].suggested_actions == []


@pytest.mark.row("PAY-5")
def test_a_chosen_value_is_a_message_that_says_so() -> None:
    chat = chat_with('Which?\nSUGGESTED_VALUES: ["red"]')
    body = {"type": "user_message", "client_request_id": "v", "content": "red"}
    chosen = msgspec.convert({**body, "interaction": {"type": "value_selected"}}, UserMessage)
    chat.command(chosen)
    message = next(m for m in chat.state.nodes.values() if m.client_request_id == "v")
    assert message.interaction == {"type": "value_selected"}


def test_a_type_made_of_a_struct_has_its_schema() -> None:
    class Point(msgspec.Struct):
        x: float

    class Track(msgspec.Struct):
        """Where it went."""

        points: list[Point]

    kind = payload_type(name="track", model=Track, summary=lambda data: f"{len(data['points'])} points")
    check_type(kind)
    assert kind.description == "Where it went."
    assert problem_with(kind, {"points": [{"x": 1}]}) == ""
    assert "/points/0" in problem_with(kind, {"points": [{"y": 1}]})
    assert summary_of(kind, "track", {"points": []}) == "0 points"


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"marker": "chart"}, "capital letters"),
        ({"marker": "SUGGESTED_VALUES"}, "the server's own"),
        ({"schema": {"type": "array"}}, "must be of an object"),
        ({"schema": {"type": "object", "properties": 3}}, "schema: "),
        ({"schema": {"type": "object", "$ref": "https://example.com/x"}}, "is not fetched"),
        ({"summary": "{a.b}"}, "plain name"),
        ({"summary": "{a"}, "summary: "),
        ({"schema": {"type": "object", "properties": {"a": {}}}, "summary": "{b}"}, "no field 'b'"),
    ],
)
def test_a_type_that_cannot_be_is_refused_at_start(wrong: JsonObject, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        check_type(PayloadType(name="t", **wrong))
