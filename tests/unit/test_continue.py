"""Continuing an answer: in the same message, after the message's calls, or from scratch (CMD-6)."""

import pytest

from tests.unit.fake_tools import FakeTool
from tests.unit.pure_chat import PureChat, acks, call, say, table
from threadcast.agent_loop.steps import CallModel
from threadcast_protocol.fold.reducer import reduce
from threadcast_protocol.fold.snapshot import snapshot_of, state_from_snapshot
from threadcast_protocol.framing.codec import encode
from threadcast_protocol.wire.commands import Abort, ContinueMessage, RestoreMessages, SetParams
from threadcast_protocol.wire.deltas import AppendContent
from threadcast_protocol.wire.events import StreamStarted
from threadcast_protocol.wire.failures import failure_of, without_failure


def stopped(text: str = "half an ", *, on_abort: str = "keep") -> PureChat:
    """Return a chat whose only answer was stopped."""
    chat = PureChat(table(), say("q"))
    chat.stream(AppendContent(text))
    chat.command(Abort(client_request_id="x"))
    chat.command(SetParams(client_request_id="p", patch={"on_abort": on_abort}))
    return chat


def go_on(chat: PureChat, request_id: str = "c") -> str:
    message_id = chat.state.path[-1]
    chat.command(ContinueMessage(client_request_id=request_id, message_id=message_id))
    return message_id


@pytest.mark.row("CMD-6")
def test_a_stopped_answer_goes_on_in_the_same_message() -> None:
    chat = stopped()
    message_id = go_on(chat)
    started = [event for event in chat.events if isinstance(event, StreamStarted)][-1]
    assert (started.message_id, started.append, started.round) == (message_id, True, 0)
    assert isinstance(chat.step, CallModel)
    assert chat.step.continuing
    chat.says("answer")
    message = chat.state.nodes[message_id]
    assert (message.content, message.status, message.finish_reason) == ("half an answer", None, "stop")
    assert chat.state.path[-1] == message_id
    assert chat.state.runtime.outcome == "complete"


def test_a_late_joiner_of_a_continued_answer_loses_nothing() -> None:
    chat = stopped()
    go_on(chat)
    chat.stream(AppendContent("ans"))
    joined = chat.state
    client = state_from_snapshot("c1", snapshot_of(joined), joined.position)
    since = len(chat.events)
    chat.stream(AppendContent("wer"))
    for event in chat.events[since:]:
        client = reduce(client, client.position + 1, event)
    assert snapshot_of(client).messages[-1].content == "half an answer"
    since = len(chat.events)
    chat.finish()
    for event in chat.events[since:]:
        client = reduce(client, client.position + 1, event)
    assert encode(snapshot_of(client)) == encode(snapshot_of(chat.state))


@pytest.mark.parametrize("ending", ["discard", "error", "nothing new"])
def test_what_was_to_be_continued_stands_as_it_was_when_nothing_comes_of_it(ending: str) -> None:
    chat = stopped(on_abort="discard" if ending == "discard" else "keep")
    before = chat.state.nodes[chat.state.path[-1]]
    message_id = go_on(chat)
    if ending == "error":
        chat.break_off()
    else:
        if ending == "discard":
            chat.stream(AppendContent("more"))
        chat.command(Abort(client_request_id="y"))
    last = chat.state.nodes[message_id]
    assert without_failure(last) == before
    assert (failure_of(last) is None) == (ending != "error")
    assert chat.state.draft is None


def test_a_new_owner_goes_on_with_a_continued_answer_and_takes_nothing_back() -> None:
    chat = stopped()
    message_id = go_on(chat)
    chat.stream(AppendContent("ans"))
    chat.crash(can_continue=False)
    assert "message_removed" not in chat.types()
    assert isinstance(chat.step, CallModel)
    assert chat.step.continuing
    chat.says("wer")
    assert chat.state.nodes[message_id].content == "half an answer"


@pytest.mark.row("CMD-6")
def test_an_answer_whose_calls_are_answered_starts_the_next_round() -> None:
    chat = PureChat(table({"clock": FakeTool(name="clock")}, max_rounds=1), say("q"))
    chat.asks(call("c0", "clock"))
    chat.tool_answers("noon")
    assert chat.state.runtime.outcome == "limit"
    length = len(chat.state.path)
    asking = chat.state.path[1]
    chat.command(ContinueMessage(client_request_id="c", message_id=asking))
    assert isinstance(chat.step, CallModel)
    assert not chat.step.continuing
    assert len(chat.state.path) == length + 1


@pytest.mark.row("CMD-6")
def test_an_answer_with_unanswered_calls_is_asked_for_again() -> None:
    chat = PureChat(table({"clock": FakeTool(name="clock")}))
    asks = {"role": "assistant", "content": "", "message_id": "a", "tool_calls": [wire_call("c0")]}
    chat.command(RestoreMessages(client_request_id="r", messages=[{"role": "user", "content": "q"}, asks]))
    chat.command(ContinueMessage(client_request_id="c", message_id="a"))
    assert isinstance(chat.step, CallModel)
    assert chat.state.path[1] != "a"
    assert "a" in chat.state.nodes


def wire_call(call_id: str) -> dict[str, object]:
    return {"id": call_id, "type": "function", "function": {"name": "clock", "arguments": "{}"}}


def test_only_the_last_answer_can_be_continued_and_no_question() -> None:
    chat = stopped()
    first = chat.state.path[-1]
    chat.command(say("r"))
    chat.finish()
    codes = [
        acks(chat.command(ContinueMessage(client_request_id=f"c{i}", message_id=message_id)))[-1][2]["code"]
        for i, message_id in enumerate([first, chat.state.path[0], "nowhere"])
    ]
    assert codes == ["conflict", "bad_request", "not_found"]
