"""The effects of each command, in the order that the protocol promises; no command that a client can send raises an
exception."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.fake_tools import FakeTool
from tests.unit.pure_chat import PureChat, acks, call, say, table
from threadcast.agent_loop.steps import CallModel, RunTool
from threadcast.chat.decider import decide
from threadcast.chat.entry_builder import EntryBuilder
from threadcast.chat.internal_commands import CancelQueued, Refuse
from threadcast.chat.owner_state import empty_owner_state
from threadcast_protocol.wire.commands import (
    Abort,
    Command,
    Interaction,
    Regenerate,
    SetParams,
    UserMessage,
)
from threadcast_protocol.wire.deltas import AppendContent, SetToolCalls
from threadcast_protocol.wire.events import Ack, MessageAdded, RuntimeUpdated, StreamStarted, ThreadUpdated
from threadcast_protocol.wire.principal import LOCAL, Principal

ASK = {"mail": FakeTool(name="mail", policy="ask"), "clock": FakeTool(name="clock")}


@pytest.mark.row("CMD-1", "EVT-5")
def test_a_plain_turn_has_the_order_of_the_wire() -> None:
    chat = PureChat(table(), say("a"))
    chat.stream(AppendContent("he"))
    chat.says("llo")
    assert chat.types() == [
        "queue_updated",
        "ack",
        "runtime_updated",
        "queue_updated",
        "message_added",
        "thread_updated",
        "stream_started",
        "stream_delta",
        "stream_delta",
        "stream_finished",
        "message_added",
        "thread_updated",
        "runtime_updated",
    ]
    last = chat.events[-1]
    assert isinstance(last, RuntimeUpdated)
    assert (last.state, last.outcome) == ("idle", "complete")
    assert [m.content for m in (chat.state.nodes[key] for key in chat.state.path)] == ["hi", "hello"]
    (started,) = [event for event in chat.events if isinstance(event, StreamStarted)]
    assert (started.message_id, started.round, started.append) == (chat.state.path[1], 0, False)
    assert (started.run_id, started.model) == (last.run_id, "demo/echo")


@pytest.mark.row("CMD-1", "CTX-1", "CMD-18", "FE-1")
def test_all_that_comes_with_a_message_stands_on_it() -> None:
    chat = PureChat()
    message = UserMessage(
        client_request_id="a",
        content="look",
        context_files=[{"file_name": "a.py", "file_content": "x = 1"}],
        context={"page": "reports"},
        interaction=Interaction(type="value_selected", action="choose", data={"n": 1}),
        params={"temperature": 0.5},
    )
    events = chat.command(message)
    (added,) = [event.message for event in events if isinstance(event, MessageAdded)]
    assert (added.role, added.content, added.client_request_id) == ("user", "look", "a")
    assert added.context_files == [{"file_name": "a.py", "file_content": "x = 1"}]
    assert added.context == {"page": "reports"}
    assert added.interaction == {"type": "value_selected", "action": "choose", "data": {"n": 1}}
    run = chat.state.private.run
    assert run is not None and run.params == {"temperature": 0.5} and run.context == {"page": "reports"}


@pytest.mark.row("EVT-5")
def test_every_model_call_is_announced_once_with_its_round_counted_from_0() -> None:
    chat = PureChat(table(ASK), say("a"))
    for number in range(2):
        chat.asks(call(f"c{number}", "clock"))
        chat.tool_answers("noon")
    chat.finish()
    started = [event for event in chat.events if isinstance(event, StreamStarted)]
    assert [event.round for event in started] == [0, 1, 2]
    assert len({event.message_id for event in started}) == 3 and len({event.run_id for event in started}) == 1


def test_messages_that_wait_are_merged_into_one_turn() -> None:
    chat = PureChat()
    for name in ("a", "b", "c"):
        chat.command(say(name, name))
    assert chat.state.runtime.queue_size == 2
    chat.finish()
    assert [chat.state.nodes[key].content for key in chat.state.path][2:4] == ["b", "c"]
    assert isinstance(chat.step, CallModel)
    assert chat.types().count("stream_started") == 2


def test_merging_stops_at_a_message_that_is_not_plain_and_can_be_switched_off() -> None:
    chat = PureChat()
    for command in (say("a"), say("b"), say("c", params={"temperature": 1}), say("d")):
        chat.command(command)
    chat.finish()
    assert [item.client_request_id for item in chat.state.runtime.queued_items] == ["c", "d"]
    chat = PureChat(table(), SetParams(client_request_id="p", patch={"merge_queued": False}))
    for name in ("a", "b", "c"):
        chat.command(say(name))
    chat.finish()
    assert chat.state.runtime.queue_size == 1


def test_priority_goes_before_all_others_and_keeps_its_own_order() -> None:
    chat = PureChat()
    for name, first in (("a", False), ("b", False), ("c", True), ("d", True)):
        chat.command(say(name, priority=first))
    assert [item.client_request_id for item in chat.state.runtime.queued_items] == ["c", "d", "b"]


def test_a_message_with_priority_steers_the_run_at_its_next_step() -> None:
    chat = PureChat(table(ASK), say("a"))
    chat.asks(call("c0", "clock"), call("c1", "clock"))
    assert isinstance(chat.step, RunTool)
    chat.command(say("b", "turn left", priority=True))
    chat.tool_answers("noon")
    path = [chat.state.nodes[key] for key in chat.state.path]
    assert path[-3].content.startswith("Interrupted")  # type: ignore[union-attr]  # tool messages are strings
    assert (path[-2].content, path[-1].role) == ("turn left", "assistant")
    outcomes = [e.outcome for e in chat.events if isinstance(e, RuntimeUpdated) and e.outcome]
    assert outcomes == ["interrupted"]


def test_a_queued_command_that_is_cancelled_ends_in_a_final_ack() -> None:
    chat = PureChat(table(), say("a"), say("b"))
    events = chat.command(CancelQueued(client_request_id="cancel:b", target="b"))
    assert acks(events) == [("b", False, {"error": "withdrawn before it ran", "code": "cancelled"})]
    assert chat.state.runtime.queue_size == 0
    assert chat.command(CancelQueued(client_request_id="cancel:x", target="x")) == []


@pytest.mark.row("CMD-4")
def test_abort_when_idle_is_accepted_and_does_nothing() -> None:
    chat = PureChat()
    events = chat.command(Abort(client_request_id="x"))
    assert events == [Ack("x", True, {"aborted": True, "noop": True})]


@pytest.mark.row("EVT-16")
def test_abort_keeps_the_partial_answer_and_acks_after_its_own_events() -> None:
    chat = PureChat(table(), say("a"))
    chat.stream(AppendContent("half an ans"))
    since = len(chat.events)
    events = chat.command(Abort(client_request_id="x"))
    assert chat.types(since) == ["stream_finished", "message_added", "thread_updated", "runtime_updated", "ack"]
    last = chat.state.nodes[chat.state.path[-1]]
    assert (last.content, last.status, last.finish_reason) == ("half an ans", "partial", "abort")
    assert acks(events) == [("x", True, {"aborted": True})]
    assert chat.state.runtime.outcome == "aborted"
    assert chat.is_waiting


@pytest.mark.row("CMD-3")
def test_abort_with_discard_takes_the_partial_answer_back() -> None:
    chat = PureChat(table(), SetParams(client_request_id="p", patch={"on_abort": "discard"}), say("a"))
    chat.stream(AppendContent("half"))
    since = len(chat.events)
    chat.command(Abort(client_request_id="x"))
    assert chat.types(since) == [
        "stream_finished",
        "message_removed",
        "message_updated",
        "thread_updated",
        "runtime_updated",
        "ack",
    ]
    assert [chat.state.nodes[key].role for key in chat.state.path] == ["user"]


@pytest.mark.row("CMD-3")
def test_abort_drops_half_received_calls_and_answers_unrun_ones() -> None:
    chat = PureChat(table(ASK), say("a"))
    chat.stream(AppendContent("x"), SetToolCalls([call("c0", "clock", "{")]))
    chat.command(Abort(client_request_id="x"))
    assert chat.state.nodes[chat.state.path[-1]].tool_calls == []
    chat = PureChat(table(ASK), say("a"))
    chat.asks(call("c0", "clock"), call("c1", "clock"))
    chat.command(Abort(client_request_id="x"))
    answers = [m for m in (chat.state.nodes[key] for key in chat.state.path) if m.role == "tool"]
    assert [(m.tool_call_id, m.tool_failed) for m in answers] == [("c0", True), ("c1", True)]


def test_abort_keeps_the_queue_which_goes_on_unless_told_to_clear_it() -> None:
    chat = PureChat(table(), say("a"), say("b"), Abort(client_request_id="x"))
    assert isinstance(chat.step, CallModel)
    chat.command(say("c"))
    events = chat.command(Abort(client_request_id="y", clear_queue=True))
    assert [(name, accepted) for name, accepted, _ in acks(events)] == [("c", False), ("y", True)]
    assert chat.is_waiting


def test_abort_of_another_run_does_nothing() -> None:
    chat = PureChat(table(), say("a"))
    events = chat.command(Abort(client_request_id="x", run_id="run_other"))
    assert acks(events) == [("x", True, {"aborted": True, "noop": True})]
    assert isinstance(chat.step, CallModel)


def test_regenerate_with_nothing_to_answer_ends_in_a_negative_ack() -> None:
    chat = PureChat()
    events = chat.command(Regenerate(client_request_id="r"))
    assert [(accepted, result.get("code")) for _, accepted, result in acks(events)] == [
        (True, None),
        (False, "not_found"),
    ]
    assert chat.state.runtime.queue_size == 0


def test_set_params_acts_in_every_state_and_says_what_now_holds() -> None:
    chat = PureChat(table(), say("a"))
    events = chat.command(SetParams(client_request_id="p", patch={"temperature": 1, "zzz": 4}))
    assert events[0] == ThreadUpdated(temperature=1.0)
    assert acks(events) == [("p", True, {"applied": True})]
    refused = chat.command(SetParams(client_request_id="q", patch={"temperature": 9, "top_p": 0.5}))
    assert [e[1] for e in acks(refused)] == [False]
    assert chat.state.thread.top_p is None


def test_a_command_refused_at_the_edge_gets_its_ack() -> None:
    chat = PureChat()
    refuse = Refuse(client_request_id="refused:a:1", target="a", code="invalid_content", error="empty")
    assert acks(chat.command(refuse)) == [("a", False, {"error": "empty", "code": "invalid_content"})]


def test_who_acted_is_shown_once_auth_is_on() -> None:
    chat = PureChat()
    events = chat.command(say("a"), by=Principal("ann", ("approve",)))
    added = next(e for e in events if isinstance(e, MessageAdded))
    assert added.message.by == "ann"
    assert [e.by for e in events if isinstance(e, Ack)] == ["ann"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=200, deadline=None)
@given(json_values, json_values, st.sampled_from(["message", "params", "patch"]))
def test_decide_never_raises_whatever_the_content(content: object, other: object, kind: str) -> None:
    params = other if isinstance(other, dict) else {}
    command: Command
    if kind == "patch":
        command = SetParams(client_request_id="p", patch=content)
    else:
        command = UserMessage(client_request_id="p", content=content, params=params if kind == "params" else {})
    builder = EntryBuilder(empty_owner_state("c1"), 1, lambda prefix: prefix)
    decide(builder, command, LOCAL)
    assert any(isinstance(event, Ack) for event in builder.events)
