"""Stop and send: one command ends the open run and is carried out next, before all waiting commands (PROTOCOL §9)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.fake_tools import FakeTool
from tests.unit.pure_chat import PureChat, acks, call, say, table
from tests.unit.pure_family import begun, calling, opened, outbound_of
from tests.unit.test_previews import previewed
from tests.unit.test_tree import check_law
from threadcast.agent_loop.plan import stops
from threadcast.agent_loop.steps import CallModel, RunTool
from threadcast_protocol.wire.commands import Abort, EditQueued, Regenerate, SetParams, ToolDecision, UserMessage
from threadcast_protocol.wire.deltas import AppendContent
from threadcast_protocol.wire.events import MessageAdded, RuntimeUpdated, ToolStatus
from threadcast_protocol.wire.messages import text_of

TOOLS = {"mail": FakeTool(name="mail", policy="ask"), "clock": FakeTool(name="clock")}


def now(request_id: str, text: str = "", **more: object) -> UserMessage:
    return UserMessage(client_request_id=request_id, content=text or request_id, interrupt=True, **more)  # type: ignore[arg-type] # its fields


def send_now(target: str, request_id: str = "e", **more: object) -> EditQueued:
    return EditQueued(client_request_id=request_id, target_request_id=target, interrupt=True, **more)  # type: ignore[arg-type] # its fields


def busy(*waiting: str, first: str = "") -> PureChat:
    """Return a chat in the middle of an answer, with these messages in its queue; `first` has priority."""
    chat = PureChat(table(TOOLS), say("a", "a"))
    chat.stream(AppendContent("half an answer"))
    for name in waiting:
        chat.command(say(name, name, priority=name == first))
    return chat


def words(chat: PureChat) -> list[str]:
    return [text_of(chat.state.nodes[key].content) for key in chat.state.path]


def queued(chat: PureChat) -> list[str]:
    return [item.client_request_id for item in chat.state.runtime.queued_items]


def outcomes(chat: PureChat) -> list[str]:
    return [event.outcome for event in chat.events if isinstance(event, RuntimeUpdated) and event.outcome]


@pytest.mark.row("CMD-17", "CMD-3")
def test_an_interrupt_keeps_what_was_said_goes_first_and_leaves_the_rest_waiting() -> None:
    chat = busy("b", "c", first="c")
    since = len(chat.events)
    events = chat.command(now("d"))
    assert chat.types(since) == [
        "queue_updated",
        "ack",
        "stream_finished",
        "message_added",
        "thread_updated",
        "runtime_updated",
        "runtime_updated",
        "queue_updated",
        "message_added",
        "stream_started",
    ], "all of it in one entry"
    assert acks(events) == [("d", True, {"queued": True})]
    assert words(chat)[:3] == ["a", "half an answer", "d"]
    kept = chat.state.nodes[chat.state.path[1]]
    assert (kept.status, kept.finish_reason) == ("partial", "abort")
    assert queued(chat) == ["c", "b"]
    assert isinstance(chat.step, CallModel) and ("d", True) in chat.final_acks
    chat.finish()
    chat.finish()
    chat.finish()
    assert [word for word in words(chat) if len(word) == 1] == ["a", "d", "c", "b"]
    assert outcomes(chat) == ["aborted", "complete", "complete", "complete"]
    check_law(chat)


def test_an_interrupt_has_a_turn_of_its_own() -> None:
    chat = busy("b", "c")
    chat.command(now("d"))
    assert words(chat)[2:3] == ["d"] and queued(chat) == ["b", "c"]


def test_with_nothing_to_end_it_is_an_ordinary_message() -> None:
    chat, other = PureChat(), PureChat()
    chat.command(now("a"))
    other.command(say("a", "a"))
    assert chat.types() == other.types() and words(chat) == words(other)
    assert queued(chat) == []


def test_of_two_interrupts_the_later_one_ends_the_run_of_the_former_and_both_stay() -> None:
    chat = busy("b")
    chat.command(now("one"))
    chat.stream(AppendContent("beginn"))
    chat.command(now("two"))
    assert words(chat)[2:5] == ["one", "beginn", "two"]
    chat.command(now("three"))
    assert words(chat)[4:6] == ["two", "three"], "an answer of which nothing was said leaves no message"
    assert queued(chat) == ["b"]
    assert outcomes(chat) == ["aborted", "aborted", "aborted"]


def test_an_interrupt_behind_an_abort_finds_nothing_to_end() -> None:
    chat = busy("b")
    chat.command(Abort(client_request_id="x", clear_queue=True))
    chat.command(now("d"))
    assert outcomes(chat) == ["aborted"] and words(chat)[2:3] == ["d"]


@pytest.mark.parametrize("priority", [False, True])
def test_priority_adds_nothing_to_an_interrupt(priority: bool) -> None:
    chat = busy("b", "c", first="c")
    chat.command(now("d", priority=priority))
    assert words(chat)[2] == "d" and queued(chat) == ["c", "b"]


def test_it_brings_its_own_parameters_context_and_attachments() -> None:
    chat = busy()
    image = {"image_url": {"url": "/v1/chats/c1/blobs/" + "0" * 64}}
    chat.command(now("d", params={"temperature": 1}, context={"page": "x"}, attachments=[image]))
    run = chat.state.private.run
    assert run is not None and (run.params, run.context) == ({"temperature": 1}, {"page": "x"})
    assert len(chat.state.nodes[chat.state.path[2]].content) == 2


def test_an_interrupt_at_a_gate_answers_the_calls_and_takes_the_question_back() -> None:
    chat = busy()
    chat.asks(call("c0", "mail"), call("c1", "clock"))
    assert chat.state.runtime.pause_reasons
    since = len(chat.events)
    chat.command(now("d"))
    statuses = [(e.tool_call_id, e.status) for e in chat.events[since:] if isinstance(e, ToolStatus)]
    assert statuses == [("c0", "aborted"), ("c1", "aborted")]
    assert "pause_cleared" in chat.types(since) and not chat.state.runtime.paused
    assert words(chat)[-2] == "d" and isinstance(chat.step, CallModel)
    late = chat.command(ToolDecision(client_request_id="y", tool_call_id="c0", accepted=True))
    assert acks(late)[0][2]["code"] == "no_pending_decision"


def test_an_interrupt_during_a_tool_answers_it_as_aborted() -> None:
    chat = busy()
    chat.asks(call("c0", "clock"))
    assert isinstance(chat.step, RunTool)
    chat.command(now("d"))
    answer = next(m for m in chat.state.nodes.values() if m.role == "tool")
    assert answer.extra["outcome"] == "aborted" and words(chat)[-2] == "d"


def test_an_interrupt_tells_the_chats_of_a_call_to_stop() -> None:
    chat = calling()
    opened(chat)
    begun(chat)
    before = len(outbound_of(chat))
    chat.command(now("d"))
    assert [type(command).__name__ for command in outbound_of(chat)[before:]] == ["StopSubchat"]


def test_a_sub_chat_that_is_interrupted_goes_on_and_tells_its_parent_at_its_end() -> None:
    child = begun_child()
    child.command(now("d"))
    assert outbound_of(child) == []
    child.says("other words")
    (end,) = outbound_of(child)
    assert (end.outcome, end.text) == ("complete", "other words")  # type: ignore[union-attr] # a SubchatFinished


def begun_child() -> PureChat:
    parent = calling()
    opened(parent)
    return begun(parent)


def test_an_accepted_preview_is_carried_out_before_it() -> None:
    chat, preview = previewed()
    chat.command(say("b", "b"))
    decision = ToolDecision(client_request_id="y", payload_id=preview.payload_id, accepted=True)
    chat.command(decision)
    chat.command(say("c", "c"))
    chat.command(now("d"))
    assert isinstance(chat.step, RunTool) and queued(chat) == ["d", "c"]
    chat.command(say("e", "e", priority=True))
    assert queued(chat) == ["d", "e", "c"]
    chat.tool_answers("saved")
    assert words(chat)[-2] == "d" and queued(chat) == ["e", "c"]
    check_law(chat)


# a queued row


@pytest.mark.row("CMD-17")
def test_a_waiting_message_is_sent_at_once_by_one_command_with_new_words_too() -> None:
    chat = busy("b", "c", "d", first="d")
    events = chat.command(send_now("c", content="sea"))
    assert acks(events) == [("e", True, {"queued": True, "position": 0})]
    assert words(chat)[1:3] == ["half an answer", "sea"] and queued(chat) == ["d", "b"]
    assert outcomes(chat) == ["aborted"]
    assert [name for name, _ in chat.final_acks if name in ("c", "e")] == ["e", "c"]


def test_any_waiting_command_can_be_sent_at_once_and_a_position_does_not_count() -> None:
    chat = busy("b")
    chat.command(Regenerate(client_request_id="r"))
    chat.command(send_now("r", position=7))
    assert queued(chat) == ["b"] and words(chat)[:1] == ["a"] and len(chat.state.path) == 2
    assert outcomes(chat) == ["aborted"]


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (send_now("gone"), "not_found"),
        (send_now("r", content="words"), "bad_request"),
        (send_now("b", content=""), "invalid_content"),
    ],
)
def test_an_edit_that_is_refused_ends_nothing(command: EditQueued, code: str) -> None:
    chat = busy("b")
    chat.command(Regenerate(client_request_id="r"))
    before = chat.state
    assert not stops(command, before)
    events = chat.command(command)
    assert [result["code"] for _, _, result in acks(events)] == [code]
    assert chat.state.draft == before.draft and chat.state.private.queue == before.private.queue
    assert isinstance(chat.step, CallModel) and outcomes(chat) == []


def test_of_two_tabs_that_send_the_same_row_at_once_the_second_ends_nothing() -> None:
    chat = busy("b")
    chat.command(send_now("b", "e1"))
    chat.stream(AppendContent("the answer to b"))
    events = chat.command(send_now("b", "e2"))
    assert acks(events)[0][2]["code"] == "not_found"
    chat.finish()
    assert words(chat)[-1] == "the answer to b"


def test_a_message_that_cannot_be_said_ends_nothing() -> None:
    chat = busy("b")
    command = UserMessage(client_request_id="d", content=[{"type": "unknown"}], interrupt=True)
    assert not stops(command, chat.state)
    chat.command(command)
    assert outcomes(chat) == [] and isinstance(chat.step, CallModel)
    chat.finish()
    assert ("d", False) in chat.final_acks and ("b", True) not in chat.final_acks[:-1]


# the law


STEPS = ["say", "first", "now", "now", "send", "words", "calls", "finish", "tool", "crash"]


@st.composite
def schedules(draw: st.DrawFn) -> tuple[PureChat, list[str]]:
    """Post messages of all kinds in any order while answers grow, tools run and questions wait; return the chat, and
    the names of messages that interrupted."""
    chat, urgent = PureChat(table(TOOLS)), list[str]()
    chat.command(SetParams(client_request_id="p", patch={"merge_queued": draw(st.booleans())}))
    for number in range(draw(st.integers(1, 14))):
        name = f"r{number}"
        match draw(st.sampled_from(STEPS)):
            case "say" | "first" as kind:
                chat.command(say(name, name, priority=kind == "first"))
            case "now":
                urgent.append(name)
                chat.command(now(name))
                run = chat.state.private.run
                assert run is not None and run.request_ids == [name], "it runs at once, alone"
            case "send" if waiting := queued(chat):
                target = draw(st.sampled_from(waiting))
                chat.command(send_now(target, name))
                run = chat.state.private.run
                assert run is not None and run.request_ids == [target]
            case "words" if isinstance(chat.step, CallModel):
                chat.stream(AppendContent(name))
            case "calls" if isinstance(chat.step, CallModel):
                chat.asks(call(f"c{number}", draw(st.sampled_from(list(TOOLS)))))
            case "finish" if isinstance(chat.step, CallModel):
                chat.finish()
            case "tool" if isinstance(chat.step, RunTool):
                chat.tool_answers()
            case "crash":
                chat.crash(can_continue=draw(st.booleans()))
            case _:
                chat.command(say(name, name))
    return chat, urgent


@settings(max_examples=150, deadline=None)
@given(schedules())
def test_nothing_is_lost_or_said_twice_and_every_run_ends_once(drawn: tuple[PureChat, list[str]]) -> None:
    chat, urgent = drawn
    waiting = {item.request_id for item in chat.state.private.queue}
    assert not waiting & set(urgent)
    added = [event.message for event in chat.events if isinstance(event, MessageAdded)]
    said = [message.client_request_id for message in added if message.role == "user"]
    asked = {name for name, accepted, result in acks(chat.events) if accepted and "position" not in result} - {"p"}
    assert sorted(filter(None, said)) == sorted(asked - waiting)
    run_ids = [e.run_id for e in chat.events if isinstance(e, RuntimeUpdated) and e.outcome]
    assert len(run_ids) == len(set(run_ids))
    check_law(chat)
