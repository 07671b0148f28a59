"""Tests the queue: which commands wait, in which order, and how clients change waiting commands (PROTOCOL §9)."""

from typing import Any

import pytest

from tests.unit.fake_tools import FakeTool
from tests.unit.pure_chat import PureChat, acks, call, say, table
from threadcast.chat.internal_commands import CancelQueued
from threadcast.chat.queue import is_steered
from threadcast_protocol.wire.commands import (
    Abort,
    EditQueued,
    Regenerate,
    SetParams,
    UpdateMessage,
    UserMessage,
)
from threadcast_protocol.wire.deltas import AppendContent
from threadcast_protocol.wire.messages import TextPart


def busy(*waiting: str) -> PureChat:
    """Return a chat that answers `first`, with these messages in its queue."""
    chat = PureChat(table(), SetParams(client_request_id="p", patch={"merge_queued": False}), say("first"))
    for name in waiting:
        chat.command(say(name, name))
    return chat


def queued(chat: PureChat) -> list[str]:
    return [item.client_request_id for item in chat.state.runtime.queued_items]


def results(events: list[Any]) -> list[tuple[bool, str | None]]:
    return [(accepted, result.get("code")) for _, accepted, result in acks(events)]


@pytest.mark.row("CMD-17")
def test_a_waiting_command_can_be_reworded_and_moved() -> None:
    chat = busy("a", "b", "c")
    edit = EditQueued(client_request_id="e", target_request_id="c", content="sea", position=0)
    assert results(chat.command(edit)) == [(True, None)]
    assert queued(chat) == ["c", "a", "b"]
    assert chat.state.runtime.queued_items[0].preview == "sea"
    chat.finish()
    assert chat.state.nodes[chat.state.path[2]].content == "sea"
    assert chat.state.nodes[chat.state.path[2]].client_request_id == "c"


def test_an_edit_keeps_priority_before_all_others() -> None:
    chat = busy("a", "b")
    chat.command(say("now", priority=True))
    chat.command(EditQueued(client_request_id="e", target_request_id="b", position=0))
    assert queued(chat) == ["now", "b", "a"]
    chat.command(EditQueued(client_request_id="f", target_request_id="now", position=9))
    assert queued(chat) == ["now", "b", "a"]


def test_an_edit_with_priority_lets_a_waiting_command_steer_behind_those_that_steer_already() -> None:
    chat = busy("a", "b", "c")
    chat.command(EditQueued(client_request_id="e", target_request_id="b", priority=True))
    chat.command(EditQueued(client_request_id="f", target_request_id="c", priority=True))
    assert queued(chat) == ["b", "c", "a"]
    chat.command(EditQueued(client_request_id="g", target_request_id="a", priority=True, position=0))
    assert queued(chat) == ["a", "b", "c"]
    assert [item.priority for item in chat.state.runtime.queued_items] == [True, True, True]
    assert is_steered(chat.state)


def test_new_words_for_a_waiting_message_leave_what_is_attached_to_it() -> None:
    image = {"type": "image_url", "image_url": {"url": "/v1/chats/c/blobs/" + "0" * 64}}
    chat = busy()
    chat.command(UserMessage(client_request_id="i", content=[{"type": "text", "text": "old"}, image]))
    chat.command(EditQueued(client_request_id="e", target_request_id="i", content="new"))
    chat.finish()
    parts = chat.state.nodes[chat.state.path[2]].content
    assert [type(part).__name__ for part in parts] == ["TextPart", "ImagePart"]
    assert parts[0] == TextPart("new")


def test_an_edit_of_what_does_not_wait_or_has_no_words_or_bad_ones_is_refused() -> None:
    chat = busy("a")
    chat.command(Regenerate(client_request_id="r"))
    for number, (target, content, code) in enumerate(
        [("first", "x", "not_found"), ("r", "x", "bad_request"), ("a", " ", "invalid_content")]
    ):
        edit = EditQueued(client_request_id=f"e{number}", target_request_id=target, content=content)
        assert results(chat.command(edit)) == [(False, code)]
    assert queued(chat) == ["a", "r"]


def test_abort_keeps_the_queue_or_clears_it_when_asked_and_each_cleared_command_hears_so() -> None:
    chat = busy("a", "b")
    chat.command(Abort(client_request_id="x"))
    assert queued(chat) == ["b"]
    assert not chat.is_waiting
    chat.command(say("c"))
    events = chat.command(Abort(client_request_id="y", clear_queue=True))
    assert sorted(acks(events)) == sorted(
        [
            ("b", False, {"error": "withdrawn before it ran", "code": "cancelled"}),
            ("c", False, {"error": "withdrawn before it ran", "code": "cancelled"}),
            ("y", True, {"aborted": True}),
        ]
    )
    assert chat.state.is_at_rest


def test_an_abort_of_another_run_is_accepted_and_does_nothing() -> None:
    chat = busy("a")
    chat.command(Abort(client_request_id="x", run_id="run_other", clear_queue=True))
    assert queued(chat) == ["a"]
    assert not chat.is_waiting


def test_a_cancelled_command_ends_in_a_final_ack() -> None:
    chat = busy("a")
    events = chat.command(CancelQueued(client_request_id="cancel:a:1", target="a"))
    assert results(events) == [(False, "cancelled")]
    assert queued(chat) == []


def test_edits_wait_for_their_turn_and_are_made_between_runs() -> None:
    chat = busy()
    chat.stream(AppendContent("hello"))
    question = chat.state.path[0]
    chat.command(UpdateMessage(client_request_id="u", message_id=question, content="changed"))
    assert [(i.command_type, i.preview) for i in chat.state.runtime.queued_items] == [("update_message", "changed")]
    chat.command(say("next", "next"))
    chat.finish()
    assert chat.state.nodes[question].content == "changed"
    assert [chat.state.nodes[key].content for key in chat.state.path[:3]] == ["changed", "hello", "next"]
    assert queued(chat) == []


def test_an_edit_with_priority_that_starts_no_run_does_not_steer() -> None:
    for regenerate in (False, True):
        chat = PureChat(table({"clock": FakeTool(name="clock")}), say("first"))
        chat.asks(call("c0", "clock"))
        question = chat.state.path[0]
        chat.command(
            UpdateMessage(client_request_id="u", message_id=question, content="x", priority=True, regenerate=regenerate)
        )
        first_run = chat.state.runtime.run_id
        chat.tool_answers()
        assert chat.state.private.run is not None
        assert (chat.state.private.run.run_id == first_run) is not regenerate


def test_acks_of_acceptance_and_of_a_later_refusal_are_two_and_the_last_one_decides() -> None:
    chat = busy()
    chat.command(UpdateMessage(client_request_id="u", message_id="nowhere", content="x"))
    chat.finish()
    mine = [(accepted, result) for name, accepted, result in acks(chat.events) if name == "u"]
    assert mine[0] == (True, {"queued": True})
    assert (mine[1][0], mine[1][1]["code"]) == (False, "not_found")
