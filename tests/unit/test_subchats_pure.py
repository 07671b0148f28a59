"""Two chats without any I/O: the messages that they send each other, the effects of these messages, and the ends of the
chats."""

import pytest

from tests.unit.pure_chat import PureChat, call, say, table
from tests.unit.pure_family import TOOLS, begun, calling, deliver, opened, outbound_of
from tests.unit.test_tree import check_law
from threadcast.agent_loop.steps import CallModel
from threadcast.chat.internal_commands import (
    BeginSubchat,
    StopSubchat,
    SubchatFinished,
    decode_inbox_body,
)
from threadcast.chat.outbound import REPORT_MAX_CHARACTERS, deleted
from threadcast.chat.subchats import begin_failed
from threadcast_protocol.wire.commands import Abort, decode_command, encode_command
from threadcast_protocol.wire.errors import BadRequest
from threadcast_protocol.wire.events import SubchatUpdate


def test_a_child_begins_by_one_outbound_message_answers_and_reports_its_end_to_its_parent() -> None:
    chat = calling()
    opened(chat, params={"temperature": 1}, title="A child")
    child = begun(chat)
    assert isinstance(child.step, CallModel)
    thread = child.state.thread
    assert (thread.title, thread.temperature, thread.link_type) == ("A child", 1, "subchat")
    child.says("done")
    (end,) = outbound_of(child)
    assert isinstance(end, SubchatFinished)
    assert (end.outcome, end.text, end.message_id) == ("complete", "done", child.state.path[-1])
    chat.command(end)
    (kept,) = chat.state.private.relations.children
    assert (kept.outcome, kept.text) == ("complete", "done")
    chat.tool_answers("done")
    assert chat.state.private.relations.children == ()
    answer = next(message for message in chat.state.nodes.values() if message.role == "tool")
    assert answer.extra["subchats"] == [child.state.chat_id]
    assert outbound_of(chat) == []
    check_law(chat)
    check_law(child)


def test_the_same_call_and_name_is_the_same_child_and_another_name_another_one() -> None:
    chat = calling()
    first, again, other = opened(chat), opened(chat), opened(chat, name="other")
    assert first == again != other
    assert [type(event) for event in chat.events].count(SubchatUpdate) == 2
    assert len(outbound_of(chat)) == 2


def test_an_outbound_message_delivered_twice_changes_nothing_the_second_time() -> None:
    chat = calling()
    opened(chat)
    (begin,) = deliver(chat)
    child = PureChat(table(TOOLS))
    child.command(begin)
    before = child.state.path
    assert isinstance(child.command(begin), list) and child.state.path == before
    child.command(StopSubchat(client_request_id="stop:x"))
    (end,) = outbound_of(child)
    chat.command(end)
    kept = chat.state.private.relations
    chat.command(end)
    assert chat.state.private.relations == kept


def test_an_end_that_nobody_waits_for_is_taken_and_forgotten() -> None:
    chat = calling()
    before = chat.state.private.relations
    events = chat.command(SubchatFinished(client_request_id="finished:x", subchat_id="x", outcome="complete"))
    assert (events, chat.state.private.relations) == ([], before)
    assert chat.final_acks[-1] == ("finished:x", False)


@pytest.mark.parametrize("how", ["abort", "answer", "takeover"])
def test_whatever_answers_the_call_stops_its_children(how: str) -> None:
    chat = calling()
    child = opened(chat)
    deliver(chat)
    match how:
        case "abort":
            chat.command(Abort(client_request_id="stop"))
        case "answer":
            chat.tool_answers("too slow", failed=True)
        case _:
            chat.crash()
    (command,) = outbound_of(chat)
    assert isinstance(command, StopSubchat)
    assert chat.state.private.relations.outbox[0].chat_id == child.chat_id
    assert chat.state.private.relations.children == ()
    check_law(chat)


@pytest.mark.row("CMD-3")
def test_a_child_that_is_stopped_while_a_person_is_asked_ends_and_tells_of_it() -> None:
    chat = calling()
    opened(chat)
    child = begun(chat)
    child.asks(call("c1", "mail"))
    assert child.state.runtime.paused
    child.command(StopSubchat(client_request_id="stop:x"))
    assert child.state.is_at_rest and not child.state.runtime.pause_reasons
    (end,) = outbound_of(child)
    assert isinstance(end, SubchatFinished) and end.outcome == "aborted"
    check_law(child)


def test_a_child_with_something_in_its_queue_has_not_ended() -> None:
    chat = calling()
    opened(chat)
    child = begun(chat)
    child.command(say("more", "and this"))
    child.says("first")
    assert outbound_of(child) == []
    child.says("second")
    (end,) = outbound_of(child)
    assert isinstance(end, SubchatFinished) and end.text == "second"
    deliver(child)
    child.command(say("later", "a person's own"))
    child.says("third")
    assert outbound_of(child) == [], "only the first end is the parent's business"


def test_a_long_answer_is_cut_with_a_note() -> None:
    chat = calling()
    opened(chat)
    child = begun(chat)
    child.says("x" * (REPORT_MAX_CHARACTERS + 1))
    (end,) = outbound_of(child)
    assert isinstance(end, SubchatFinished)
    assert end.text.startswith("x" * REPORT_MAX_CHARACTERS + "\n[cut: ")


def test_a_child_that_cannot_begin_tells_its_parent() -> None:
    chat = calling()
    opened(chat)
    (begin,) = deliver(chat)
    assert isinstance(begin, BeginSubchat)
    child = PureChat(table(TOOLS))
    child.write(lambda builder: begin_failed(builder, begin, "It failed."))
    (end,) = outbound_of(child)
    assert isinstance(end, SubchatFinished) and (end.outcome, end.text) == ("error", "It failed.")


# the end of a chat, and the messages that each side still accepts


def test_the_parent_of_a_deleted_chat_hears_that_nothing_will_come() -> None:
    chat = calling()
    child = opened(chat)
    chat.command(deleted(child.chat_id))
    (kept,) = chat.state.private.relations.children
    assert (kept.outcome, kept.text) == ("aborted", "The chat was deleted.")


@pytest.mark.parametrize("command", ["begin_subchat", "stop_subchat", "subchat_finished"])
def test_a_client_cannot_say_what_chats_say_to_each_other(command: str) -> None:
    chat = calling()
    opened(chat)
    (begin,) = outbound_of(chat)
    bodies = {
        "begin_subchat": encode_command(begin),
        "stop_subchat": encode_command(StopSubchat(client_request_id="x")),
        "subchat_finished": encode_command(SubchatFinished(client_request_id="x", subchat_id="y", outcome="complete")),
    }
    assert f'"type":"{command}"'.encode() in bodies[command]
    with pytest.raises(BadRequest):
        decode_command(bodies[command])


def test_an_outbound_message_reads_back_as_it_was_written() -> None:
    chat = calling()
    opened(chat)
    (command,) = outbound_of(chat)
    assert decode_inbox_body(encode_command(command)) == command
