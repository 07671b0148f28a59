"""Chats that begin with copied messages: forks of other chats, and restored messages (CMD-12)."""

from collections.abc import Sequence

import pytest

from tests.unit.fake_tools import FakeTool
from tests.unit.pure_chat import PureChat, acks, call, say, table
from threadcast.agent_loop.history.request import build_request
from threadcast.chat.owner_state import OwnerState
from threadcast.chat.restores import NOTES_MAX_BYTES, RESTORED_MAX_COUNT, read_messages
from threadcast_protocol.fold.reducer import reduce_added
from threadcast_protocol.wire.commands import BranchFromChat, Regenerate, RestoreMessages, SetParams
from threadcast_protocol.wire.deltas import AppendContent
from threadcast_protocol.wire.errors import BadRequest, TooLarge
from threadcast_protocol.wire.events import MessageAdded
from threadcast_protocol.wire.messages import JsonObject
from threadcast_protocol.wire.principal import Principal


def source() -> PureChat:
    chat = PureChat(
        table({"clock": FakeTool(name="clock")}),
        SetParams(client_request_id="p", patch={"temperature": 1, "model": "demo/essay"}),
        say("q", "what time is it"),
    )
    chat.asks(call("c0", "clock"))
    chat.tool_answers("noon")
    chat.says("It is noon.")
    return chat


def fork(of: PureChat | None, message_id: str) -> PureChat:
    chat = PureChat(table({"clock": FakeTool(name="clock")}), first_id=100)
    chat.source = of.state if of is not None else None
    chat.command(BranchFromChat(client_request_id="b", source_chat_id="c0", up_to_message_id=message_id))
    return chat


def refusals(chat: PureChat) -> list[str]:
    return [result["code"] for _, accepted, result in acks(chat.events) if not accepted]


@pytest.mark.row("CMD-12")
def test_a_fork_has_copies_of_the_path_under_new_ids_and_the_source_is_untouched() -> None:
    old = source()
    before = old.state
    new = fork(old, old.state.path[-1])
    assert old.state == before
    assert [(m.role, m.content) for m in new.state.nodes.values()] == [
        (m.role, m.content) for m in old.state.nodes.values()
    ]
    assert not set(new.state.path) & set(old.state.path)
    assert [new.state.nodes[key].parent_id for key in new.state.path] == [None, *new.state.path[:-1]]
    thread = new.state.thread
    assert thread.forked_from == {"chat_id": "c1", "message_id": old.state.path[-1]}
    assert (thread.temperature, thread.model, thread.title) == (1.0, "demo/essay", "what time is it")
    assert (thread.parent_id, thread.link_type, thread.root_chat_id) == ("c1", "branch", "c1")


def test_a_fork_goes_on_from_where_it_was_taken() -> None:
    old = source()
    new = fork(old, old.state.path[1])
    assert len(new.state.path) == 2
    new.command(Regenerate(client_request_id="r"))
    request = build_request(new.state, new.tools, "demo", "m", with_tools=True)
    assert [m.content for m in request.messages] == ["what time is it"]


def test_a_fork_of_an_unfinished_answer_has_it_as_far_as_it_came() -> None:
    old = PureChat(table(), say("q"))
    old.stream(AppendContent("half"))
    new = fork(old, old.state.path[-1])
    last = new.state.nodes[new.state.path[-1]]
    assert (last.content, last.status, last.finish_reason) == ("half", "partial", "abort")
    assert new.state.is_at_rest


@pytest.mark.row("CMD-12")
def test_a_fork_of_nothing_or_into_a_chat_with_messages_is_refused() -> None:
    old = source()
    assert refusals(fork(None, "m")) == ["not_found"]
    assert refusals(fork(old, "nowhere")) == ["not_found"]
    new = fork(old, old.state.path[0])
    new.command(BranchFromChat(client_request_id="again", source_chat_id="c0", up_to_message_id=old.state.path[0]))
    assert refusals(new) == ["conflict"]


def test_messages_are_restored_with_their_ids_and_the_next_question_follows_on_them() -> None:
    chat = PureChat()
    messages: list[JsonObject] = [
        {"role": "user", "content": "hello\nthere", "message_id": "m1", "unknown": 1},
        {"role": "assistant", "content": None, "message_id": "m1", "finish_reason": "stop"},
        {"role": "plan", "content": [{"type": "text", "text": "a plan"}], "parent_id": "elsewhere", "hidden": True},
    ]
    chat.command(RestoreMessages(client_request_id="r", messages=messages))
    first, second, third = (chat.state.nodes[key] for key in chat.state.path)
    assert (first.message_id, second.content, third.role, third.hidden) == ("m1", "", "plan", False)
    assert second.message_id != "m1"
    assert third.parent_id == second.message_id
    assert chat.state.thread.title == "hello"
    chat.command(say("q"))
    assert len(chat.state.path) == 5
    chat.command(RestoreMessages(client_request_id="s", messages=messages))
    assert refusals(chat) == ["conflict"]


@pytest.mark.parametrize(
    ("message", "path"),
    [
        ({"content": "x"}, "/messages/1"),
        ({"role": "user", "content": 3}, "/messages/1/content"),
        ({"role": "user", "content": "x", "tool_calls": [{"id": 3}]}, "/messages/1/tool_calls/0/id"),
        ({"role": "x" * 65, "content": ""}, "/messages/1/role"),
        ({"role": "user", "content": "x", "message_id": "no good"}, "/messages/1/message_id"),
    ],
)
def test_a_bad_message_is_refused_with_its_place(message: JsonObject, path: str) -> None:
    with pytest.raises(BadRequest) as refusal:
        read_messages([{"role": "user", "content": "fine"}, message])
    assert refusal.value.path == path


def test_too_many_messages_or_too_long_ones_are_refused() -> None:
    with pytest.raises(BadRequest, match=str(RESTORED_MAX_COUNT)):
        read_messages([{"role": "user", "content": ""}] * (RESTORED_MAX_COUNT + 1))
    with pytest.raises(TooLarge):
        read_messages([{"role": "user", "content": "x" * 262_145}])


def test_who_restores_or_forks_is_the_owner_once_auth_is_on() -> None:
    chat = PureChat()
    anna = Principal("anna")
    chat.command(RestoreMessages(client_request_id="r", messages=[{"role": "user", "content": "x"}]), by=anna)
    assert chat.state.thread.owner == "anna"
    assert chat.state.thread.created_at is not None


def test_what_the_server_derives_is_not_believed_and_what_stands_beside_the_words_is_bounded() -> None:
    forged: JsonObject = {
        "role": "user",
        "content": [{"type": "text", "text": "x"}],
        "attachments": [{"image_url": {"url": "http://evil/x.png"}}],
        "status": "streaming",
        "finish_reason": "zzz",
        "created_at": -5,
        "by": "somebody",
        "hidden": True,
    }
    (message,) = read_messages([forged])
    assert (message.attachments, message.status, message.finish_reason, message.created_at) == ([], None, None, None)
    assert (message.by, message.hidden) == (None, False)
    for beside in ({"extra": {"x": "y" * NOTES_MAX_BYTES}}, {"reasoning_content": "y" * 262_145}):
        with pytest.raises(TooLarge):
            read_messages([{"role": "assistant", "content": "x", **beside}])


def test_calls_of_one_id_are_told_apart_and_each_result_stays_with_its_call() -> None:
    def asks(*ids: str) -> JsonObject:
        calls = [{"id": key, "function": {"name": "clock", "arguments": "{}"}} for key in ids]
        return {"role": "assistant", "content": "", "tool_calls": calls}

    def result(key: str) -> JsonObject:
        return {"role": "tool", "content": "noon", "tool_call_id": key}

    read = read_messages([asks("dup", "dup"), result("dup"), result("dup"), asks("dup"), result("dup"), asks("")])
    ids = [call.id for message in read for call in message.tool_calls]
    assert ids == ["dup", "dup-2", "dup-3", "call"]
    assert [message.tool_call_id for message in read if message.role == "tool"] == ["dup", "dup-2", "dup-3"]


def test_a_long_chat_is_restored_at_the_cost_of_its_length(monkeypatch: pytest.MonkeyPatch) -> None:
    folds: list[int] = []

    def counting(state: OwnerState, events: Sequence[MessageAdded]) -> OwnerState:
        folds.append(len(events))
        return reduce_added(state, events)

    monkeypatch.setattr("threadcast.chat.entry_builder.reduce_added", counting)
    chat = PureChat()
    messages: list[JsonObject] = [{"role": "user", "content": str(number)} for number in range(500)]
    chat.command(RestoreMessages(client_request_id="r", messages=messages))
    assert len(chat.state.path) == 500
    assert folds == [500]
