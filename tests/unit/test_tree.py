"""Editing the tree: regenerate, edit, remove, retry, select a branch. The tests check the law of the fold after every
step."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.fake_tools import FakeTool
from tests.unit.pure_chat import PureChat, acks, call, say, table
from threadcast.agent_loop.history.request import build_request
from threadcast.agent_loop.steps import CallModel
from threadcast_protocol.fold.reducer import reduce
from threadcast_protocol.fold.snapshot import snapshot_of, state_from_snapshot
from threadcast_protocol.fold.tree import children_of
from threadcast_protocol.framing.codec import encode
from threadcast_protocol.wire.commands import (
    Command,
    ContinueMessage,
    Regenerate,
    RemoveMessage,
    RetryFromIndex,
    SelectBranch,
    UpdateMessage,
)
from threadcast_protocol.wire.events import BranchSelected, MessageAdded, MessageUpdated


def talk(*questions: str) -> PureChat:
    chat = PureChat()
    for number, question in enumerate(questions):
        answered(chat, say(f"q{number}", question), f"re {question}")
    return chat


def answered(chat: PureChat, command: Command, text: str) -> None:
    """Post `command`, which the model answers with `text`."""
    chat.command(command)
    chat.says(text)


def texts(chat: PureChat) -> list[str]:
    return [str(chat.state.nodes[key].content) for key in chat.state.path]


def refusal(events: list[Any]) -> list[str]:
    return [result["code"] for _, accepted, result in acks(events) if not accepted]


def check_law(chat: PureChat) -> None:
    """Check that a client without branches, which starts at any entry and takes a snapshot where branches change, folds
    the same state."""
    final = encode(snapshot_of(chat.state))
    position = 0
    per_entry = []
    for before, after in zip(chat.states, chat.states[1:], strict=False):
        per_entry.append((before, after, chat.events[position : position + after.position - before.position]))
        position += after.position - before.position
    for start in range(len(per_entry)):
        client = state_from_snapshot("c1", snapshot_of(chat.states[start]), chat.states[start].position)
        for _, after, events in per_entry[start:]:
            if any(isinstance(event, BranchSelected) for event in events):
                client = state_from_snapshot("c1", snapshot_of(after), after.position)
                continue
            for event in events:
                client = reduce(client, client.position + 1, event)
        assert encode(snapshot_of(client)) == final


@pytest.mark.row("CMD-5", "TREE-3", "TREE-4", "EVT-17")
def test_a_regenerated_answer_is_a_sibling_and_the_old_one_comes_back_byte_for_byte() -> None:
    chat = talk("one")
    old = chat.state.nodes[chat.state.path[-1]]
    since = len(chat.events)
    chat.command(Regenerate(client_request_id="r", model="demo/essay"))
    assert chat.types(since)[:5] == ["queue_updated", "ack", "runtime_updated", "queue_updated", "messages_truncated"]
    assert isinstance(chat.step, CallModel) and chat.step.model == "demo/essay"
    request = build_request(chat.state, chat.tools, "demo", "m", with_tools=True)
    assert [message.content for message in request.messages] == ["one"]
    chat.says("another")
    new = chat.state.nodes[chat.state.path[-1]]
    assert (new.sibling_ids, new.sibling_index) == ([old.message_id, new.message_id], 1)
    assert refusal(chat.command(SelectBranch(client_request_id="s", message_id=old.message_id))) == []
    back = chat.state.nodes[chat.state.path[-1]]
    assert (back.content, back.message_id) == (old.content, old.message_id)
    assert (back.sibling_ids, back.sibling_index) == ([old.message_id, new.message_id], 0)
    check_law(chat)


@pytest.mark.row("CMD-7", "TREE-1", "TREE-2")
def test_editing_a_user_message_as_a_branch_keeps_the_old_subtree_and_answers_anew() -> None:
    chat = talk("one", "two")
    first = chat.state.path[0]
    answered(
        chat,
        UpdateMessage(client_request_id="u", message_id=first, content="uno", mode="branch", regenerate=True),
        "re uno",
    )
    assert texts(chat) == ["uno", "re uno"]
    edited = chat.state.nodes[chat.state.path[0]]
    assert edited.sibling_ids == [first, edited.message_id]
    assert edited.client_request_id == "u"
    chat.command(SelectBranch(client_request_id="s", message_id=first))
    assert texts(chat) == ["one", "re one", "two", "re two"]
    check_law(chat)


@pytest.mark.row("TREE-1", "CMD-11")
def test_a_branch_that_is_selected_goes_on_along_its_newest_children_to_their_end() -> None:
    chat = talk("one", "two")
    old = chat.state.path
    answered(chat, Regenerate(client_request_id="newer"), "newer")
    answered(chat, say("three", "three"), "re three")
    answered(
        chat,
        UpdateMessage(client_request_id="u", message_id=old[0], content="uno", mode="branch", regenerate=True),
        "re uno",
    )
    assert texts(chat) == ["uno", "re uno"]
    chat.command(SelectBranch(client_request_id="s", message_id=old[0]))
    assert texts(chat) == ["one", "re one", "two", "newer", "three", "re three"]
    chat.command(SelectBranch(client_request_id="t", message_id=old[3]))
    assert texts(chat) == ["one", "re one", "two", "re two"]
    assert len(chat.state.nodes) == 9, "nothing left the tree"
    check_law(chat)


@pytest.mark.row("CMD-7")
def test_the_native_default_edits_a_user_message_in_place_and_runs_nothing() -> None:
    chat = talk("one", "two")
    events = chat.command(UpdateMessage(client_request_id="u", message_id=chat.state.path[0], content="uno"))
    assert texts(chat) == ["uno", "re one", "two", "re two"]
    assert [type(e).__name__ for e in events] == ["QueueUpdated", "Ack", "QueueUpdated", "MessageUpdated"]
    assert chat.is_waiting
    check_law(chat)


def test_editing_in_place_and_regenerating_answers_the_new_words() -> None:
    chat = talk("one", "two")
    first = chat.state.path[0]
    old_answer = chat.state.path[1]
    answered(chat, UpdateMessage(client_request_id="u", message_id=first, content="uno", regenerate=True), "re uno")
    assert texts(chat) == ["uno", "re uno"]
    assert chat.state.nodes[chat.state.path[1]].sibling_ids[0] == old_answer
    check_law(chat)


@pytest.mark.row("CMD-8")
def test_an_answer_is_edited_in_place_or_as_a_sibling() -> None:
    chat = talk("one")
    target = chat.state.path[1]
    events = chat.command(UpdateMessage(client_request_id="u", message_id=target, content="better"))
    assert [e.message.content for e in events if isinstance(e, MessageUpdated)] == ["better"]
    chat.command(UpdateMessage(client_request_id="v", message_id=target, content="other", mode="branch"))
    assert texts(chat) == ["one", "other"]
    assert chat.state.nodes[target].content == "better"
    assert chat.is_waiting
    check_law(chat)


def test_an_edited_sibling_of_an_answer_with_calls_has_none_since_they_were_answered_elsewhere() -> None:
    chat = PureChat(table({"clock": FakeTool(name="clock")}), say("q"))
    chat.asks(call("c0", "clock"))
    chat.tool_answers("noon")
    chat.says("It is noon.")
    asking = chat.state.path[1]
    chat.command(UpdateMessage(client_request_id="u", message_id=asking, content="no tools", mode="branch"))
    assert chat.state.nodes[chat.state.path[-1]].tool_calls == []
    assert [c.id for c in chat.state.nodes[asking].tool_calls] == ["c0"]


@pytest.mark.row("CMD-9")
def test_removing_a_message_takes_what_hangs_below_and_the_path_goes_on_along_the_newest_sibling() -> None:
    chat = talk("one", "two")
    old_answer = chat.state.path[1]
    answered(chat, Regenerate(client_request_id="r", message_id=old_answer), "newer")
    newer = chat.state.path[1]
    since = len(chat.events)
    events = chat.command(RemoveMessage(client_request_id="d", message_id=newer))
    assert chat.types(since)[3:] == ["message_removed", "message_added", "message_added", "message_added"]
    assert texts(chat) == ["one", "re one", "two", "re two"]
    entering = next(e.message for e in events if isinstance(e, MessageAdded))
    assert entering.sibling_ids == [old_answer]
    chat.command(RemoveMessage(client_request_id="e", message_id=old_answer))
    assert texts(chat) == ["one"]
    assert set(chat.state.nodes) == {chat.state.path[0]}
    check_law(chat)


@pytest.mark.row("CMD-9")
def test_of_several_siblings_that_are_left_the_newest_ones_deepest_leaf_ends_the_path() -> None:
    chat = talk("one")
    for text in ("second", "third", "fourth"):
        answered(chat, Regenerate(client_request_id=text, message_id=chat.state.path[1]), text)
        if text == "third":
            answered(chat, say("deeper", "deeper"), "deepest")
    chat.command(RemoveMessage(client_request_id="d", message_id=chat.state.path[1]))
    assert texts(chat) == ["one", "third", "deeper", "deepest"]
    check_law(chat)


@pytest.mark.row("CMD-9")
def test_removing_a_message_aside_tells_the_sibling_on_the_path() -> None:
    chat = talk("one")
    old = chat.state.path[1]
    answered(chat, Regenerate(client_request_id="r"), "newer")
    chat.command(RemoveMessage(client_request_id="d", message_id=old))
    left = chat.state.nodes[chat.state.path[1]]
    assert (left.sibling_ids, left.sibling_index) == ([left.message_id], 0)
    check_law(chat)


def test_removing_and_regenerating_answers_what_is_left_or_changes_nothing() -> None:
    chat = talk("one", "two")
    answered(chat, RemoveMessage(client_request_id="d", message_id=chat.state.path[2], regenerate=True), "again")
    assert texts(chat) == ["one", "again"]
    before = chat.state.path
    assert refusal(chat.command(RemoveMessage(client_request_id="e", message_id=before[0], regenerate=True))) == [
        "not_found"
    ]
    assert chat.state.path == before


@pytest.mark.row("CMD-10")
@pytest.mark.parametrize("prune", [False, True])
def test_retry_cuts_at_the_index_and_runs_from_there(prune: bool) -> None:
    chat = talk("one", "two")
    old = chat.state.path[2:]
    since = len(chat.events)
    chat.command(RetryFromIndex(client_request_id="t", index=2, content="zwei", prune=prune))
    assert ("messages_truncated" in chat.types(since)) is not prune
    assert chat.types(since).count("message_removed") == (2 if prune else 0)
    chat.says("re zwei")
    assert texts(chat) == ["one", "re one", "zwei", "re zwei"]
    assert all((key in chat.state.nodes) is not prune for key in old)
    check_law(chat)


def test_retry_beyond_the_end_is_refused_and_at_the_end_appends() -> None:
    chat = talk("one")
    assert refusal(chat.command(RetryFromIndex(client_request_id="t", index=3, content="x"))) == ["not_found"]
    answered(chat, RetryFromIndex(client_request_id="u", index=2, content="two"), "re two")
    assert texts(chat) == ["one", "re one", "two", "re two"]


@pytest.mark.row("CMD-11")
def test_select_branch_goes_down_the_newest_children_and_waits_for_no_run() -> None:
    chat = talk("one", "two")
    first_answer = chat.state.path[1]
    answered(chat, Regenerate(client_request_id="r", message_id=first_answer), "newer")
    events = chat.command(SelectBranch(client_request_id="s", message_id=first_answer))
    assert [type(e).__name__ for e in events] == ["BranchSelected", "Ack"]
    assert texts(chat) == ["one", "re one", "two", "re two"]
    chat.command(SelectBranch(client_request_id="d", message_id=chat.state.path[0]))
    assert texts(chat) == ["one", "newer"]
    assert refusal(chat.command(SelectBranch(client_request_id="n", message_id="nowhere"))) == ["not_found"]
    chat.command(say("b"))
    assert refusal(chat.command(SelectBranch(client_request_id="c", message_id=first_answer))) == ["conflict"]


def test_a_refused_edit_leaves_no_trace_but_its_ack_and_the_queue_goes_on() -> None:
    chat = talk("one")
    before = snapshot_of(chat.state).messages
    chat.command(UpdateMessage(client_request_id="u", message_id="nowhere", content="x"))
    chat.command(RemoveMessage(client_request_id="v", message_id="nowhere"))
    chat.command(ContinueMessage(client_request_id="w", message_id=chat.state.path[0]))
    assert snapshot_of(chat.state).messages == before
    assert chat.state.runtime.queue_size == 0
    assert refusal(chat.events) == ["not_found", "not_found", "bad_request"]
    chat.command(say("b"))
    assert not chat.is_waiting


KINDS = ["say", "regenerate", "edit", "branch", "remove", "retry", "prune", "select", "continue"]


def edit_of(kind: str, name: str, message_id: str, index: int, pick: int) -> Command:
    match kind:
        case "say":
            return say(name, name)
        case "regenerate":
            return Regenerate(client_request_id=name, message_id=message_id if pick % 2 else None)
        case "edit":
            return UpdateMessage(client_request_id=name, message_id=message_id, content=name)
        case "branch":
            runs = bool(pick % 2)
            return UpdateMessage(
                client_request_id=name, message_id=message_id, content=name, mode="branch", regenerate=runs
            )
        case "remove":
            return RemoveMessage(client_request_id=name, message_id=message_id, regenerate=pick % 3 == 0)
        case "retry" | "prune":
            return RetryFromIndex(client_request_id=name, index=index, content=name, prune=kind == "prune")
        case "select":
            return SelectBranch(client_request_id=name, message_id=message_id)
        case _:
            return ContinueMessage(client_request_id=name, message_id=message_id)


EDITS = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 30)), max_size=12)


@settings(max_examples=60, deadline=None)
@given(EDITS)
def test_any_mix_of_edits_keeps_the_tree_sound_and_every_reader_equal(edits: list[tuple[str, int]]) -> None:
    chat = talk("one")
    for number, (kind, pick) in enumerate(edits):
        keys = list(chat.state.nodes) or ["none"]
        command = edit_of(kind, f"e{number}", keys[pick % len(keys)], pick % (len(chat.state.path) + 1), pick)
        chat.command(command)
        if not chat.is_waiting:
            chat.says(f"a{number}")
        nodes, path = chat.state.nodes, chat.state.path
        assert all(key in nodes for key in path)
        parents = [nodes[key].parent_id for key in path]
        assert parents == [None, *path[:-1]][: len(path)]
        for key in path:
            siblings = [k for k, node in nodes.items() if node.parent_id == nodes[key].parent_id]
            assert nodes[key].sibling_ids == siblings
        order = {key: number for number, key in enumerate((None, *nodes))}
        assert all(order[node.parent_id] < order[key] for key, node in nodes.items())
        for parent_id in (None, *nodes):
            assert children_of(nodes, parent_id) == [k for k, node in nodes.items() if node.parent_id == parent_id]
    check_law(chat)
