"""Tests export and import without I/O: the content of lines, refused lines, and that a chat survives the round trip."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.unit.import_files import read_exports
from tests.unit.pure_chat import PureChat, acks, say
from threadcast.chat.entry_builder import EntryBuilder
from threadcast.chat.exports import export_lines, export_of, tree_of
from threadcast.chat.owner_state import OwnerState, empty_owner_state
from threadcast.chat.restores import read_messages
from threadcast_protocol.fold.reducer import reduce
from threadcast_protocol.fold.snapshot import snapshot_of, state_from_snapshot
from threadcast_protocol.framing.codec import encode
from threadcast_protocol.wire.commands import RestoreMessages, SetParams, UserMessage, decode_command
from threadcast_protocol.wire.deltas import AppendContent
from threadcast_protocol.wire.errors import BadRequest, TooLarge
from threadcast_protocol.wire.events import (
    BackgroundAgentUpdated,
    BranchSelected,
    MessageRemoved,
    MessagesTruncated,
    PayloadAdded,
    StreamDelta,
    StreamStarted,
    ThreadUpdated,
)
from threadcast_protocol.wire.messages import JsonObject, Message, Part, TextPart
from threadcast_protocol.wire.principal import SYSTEM


def lines(state: OwnerState) -> bytes:
    return b"".join(export_lines(export_of(state)))


def usage(**changes: object) -> JsonObject:
    return {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2, **changes}


def nested(depth: int) -> JsonObject:
    value: JsonObject = {}
    for _ in range(depth - 1):
        value = {"in": value}
    return value


def grown(steps: list[tuple[str, int]]) -> OwnerState:
    """Return a chat made by random steps: messages anywhere in the tree, removals, cuts, an answer being written."""
    count = 0

    def new_id(prefix: str) -> str:
        nonlocal count
        count += 1
        return f"{prefix}_{count}"

    builder = EntryBuilder(empty_owner_state("c1"), 1_000, new_id)
    for step, number in steps:
        nodes = list(builder.state.nodes)
        path = builder.state.path
        match step:
            case "say":
                role = ("user", "assistant", "event")[number % 3]
                content: str | list[Part] = [TextPart(f"part {number}")] if number % 2 else f"text {number} \u2028 \n"
                builder.add_message(Message(role=role, content=content, message_id=new_id("msg"), created_at=number))
            case "cut":
                builder.say(MessagesTruncated(number % (len(path) + 1)))
            case "branch" if nodes:
                builder.say(BranchSelected(nodes[number % len(nodes)]))
            case "remove" if nodes:
                builder.say(MessageRemoved(nodes[number % len(nodes)]))
            case "speak":
                parent = path[-1] if path else None
                builder.say(StreamStarted(message_id=new_id("msg"), parent_id=parent, created_at=number))
                draft = builder.state.draft
                assert draft is not None
                builder.say(StreamDelta(draft.message.message_id, [AppendContent(f"so far {number}")]))
            case "rename":
                builder.say(ThreadUpdated(title=f"Title {number}", temperature=number / 100, metadata={"n": number}))
            case "payload":
                name = new_id("pay")
                builder.say(
                    PayloadAdded(
                        payload_id=name,
                        payload_type="t",
                        data={"n": number},
                        summary="s",
                        source="tool",
                        message_id="m",
                    )
                )
            case "agent":
                builder.say(BackgroundAgentUpdated({"id": f"agent{number % 3}", "n": number}))
    return builder.state


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["say", "say", "say", "cut", "branch", "remove", "speak", "rename", "payload", "agent"]),
        st.integers(0, 99),
    ),
    max_size=40,
)


@given(STEPS)
def test_any_tree_survives_export_and_import_byte_for_byte_and_every_reader_folds_it(
    steps: list[tuple[str, int]],
) -> None:
    before = grown(steps)
    first = lines(before)
    (read,) = read_exports(first)
    chat = PureChat()
    read.imported_into(chat)
    assert lines(chat.state) == first
    shown = [(m.role, m.content, m.message_id) for m in snapshot_of(before).messages]
    assert [(m.role, m.content, m.message_id) for m in snapshot_of(chat.state).messages] == shown
    if not any(isinstance(event, BranchSelected) for event in chat.events):  # readers get a snapshot in its place
        reader = state_from_snapshot("c1", snapshot_of(chat.states[1]), 0)
        for position, event in enumerate(chat.events, start=1):
            reader = reduce(reader, position, event)
        assert encode(snapshot_of(reader)) == encode(snapshot_of(chat.state))


RESTORED = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["user", "assistant", "tool", "diff", "plain_text", "ROOT", "no role", "", "a" * 65]),
        "content": st.sampled_from(["hi", "", [{"type": "text", "text": "a part"}]]),
    },
    optional={
        "message_id": st.sampled_from(["m1", "m2", "m 3", "x" * 129]),
        "tool_call_id": st.sampled_from(["", "t1", "t2"]),
        "created_at": st.sampled_from([1, 253_402_300_799_999, 10**30, -1, "yesterday"]),
        "usage": st.sampled_from([usage(), usage(prompt_tokens=-1), usage(total_tokens=10**30), usage(cost_usd=1.5)]),
        "tool_calls": st.just([{"id": "t1", "function": {"name": "n", "arguments": "{}"}}] * 2),
        "extra": st.sampled_from([{"a": 1}, {"deep": nested(100)}, {"large": 10**30}]),
        "model": st.just("some/model"),
        "finish_reason": st.sampled_from(["stop", "whim"]),
        "reasoning_content": st.just("so"),
    },
)


@pytest.mark.row("SES-6")
@given(st.lists(RESTORED, max_size=8))
def test_whatever_can_be_restored_survives_export_and_import_byte_for_byte(messages: list[JsonObject]) -> None:
    chat = PureChat()
    (ack,) = acks(chat.command(RestoreMessages(client_request_id="r", messages=messages)))
    if not ack[1]:
        assert ack[2]["code"] == "bad_request"
        return
    first = lines(chat.state)
    (read,) = read_exports(first)
    again = PureChat()
    read.imported_into(again)
    assert lines(again.state) == first


@pytest.mark.parametrize(
    ("wrong", "path"),
    [
        ({"role": "ROOT"}, "/role"),
        ({"role": "tool"}, "/tool_call_id"),
        ({"created_at": 10**30}, "/created_at"),
        ({"usage": usage(prompt_tokens=-1)}, "/usage/prompt_tokens"),
    ],
)
def test_restoring_refuses_what_an_import_refuses(wrong: JsonObject, path: str) -> None:
    foreign = {"role": "user", "content": "x", **wrong}
    with pytest.raises(BadRequest) as restoring:
        read_messages([foreign])
    assert restoring.value.path == f"/messages/0{path}"
    line = {"type": "message", "message": {"message_id": "m1", **foreign}}
    with pytest.raises(BadRequest) as importing_it:
        read_exports(b"\n".join(json.dumps(each).encode() for each in (header(message_count=1), line)))
    assert importing_it.value.path == f"/2/message{path}"


def test_what_a_body_may_nest_an_export_of_it_may_too() -> None:
    chat = PureChat()
    body = json.dumps({"type": "user_message", "client_request_id": "r", "content": "x", "context": nested(127)})
    command = decode_command(body.encode())
    assert isinstance(command, UserMessage)
    chat.command(command)
    chat.finish()
    (read,) = read_exports(lines(chat.state))
    assert read.messages[0].context == command.context


@pytest.mark.row("SES-6")
def test_payloads_and_agents_of_a_chat_go_over_with_it() -> None:
    chat = PureChat(None, say("a"))
    chat.finish()
    message_id = chat.state.path[-1]
    payload = PayloadAdded(
        payload_id="pl_1", payload_type="chart", data={"bars": [1]}, summary="one", source="tool", message_id=message_id
    )
    agent = {"id": "c2", "chat_id": "c2", "title": "t", "status": "completed", "outcome": "complete"}
    chat.write(lambda builder: builder.say(payload))
    chat.write(lambda builder: builder.say(BackgroundAgentUpdated(agent)))
    (there,) = read_exports(lines(chat.state))
    assert [each.payload_id for each in there.payloads] == ["pl_1"]
    assert [each["id"] for each in there.agents] == ["c2"]


def test_a_finished_conversation_goes_over_with_its_branches() -> None:
    chat = PureChat(None, say("r1", "hello"))
    chat.says("hi")
    builder = EntryBuilder(chat.state, 1, chat.new_id)
    builder.say(MessagesTruncated(1))
    builder.add_message(Message(role="assistant", content="other", message_id="other"))
    (read,) = read_exports(lines(builder.state))
    fresh = PureChat()
    read.imported_into(fresh)
    tree = tree_of(fresh.state)
    assert [message.content for message in tree] == ["hello", "hi", "other"]
    assert tree[1].sibling_ids == tree[2].sibling_ids == [tree[1].message_id, "other"]
    assert [message.sibling_index for message in tree] == [0, 0, 1]
    assert [message.content for message in snapshot_of(fresh.state).messages] == ["hello", "other"]


def test_an_unfinished_answer_goes_over_as_it_stands_and_is_called_partial() -> None:
    chat = PureChat(None, say("r1"))
    chat.stream(AppendContent("half an ans"))
    (read,) = read_exports(lines(chat.state))
    half = read.messages[-1]
    assert (half.content, half.status, half.finish_reason) == ("half an ans", "partial", "abort")


def test_messages_whose_parent_was_removed_keep_their_place_on_the_path() -> None:
    whole = grown([("say", 0), ("say", 1), ("say", 2)])
    path = (whole.path[0], whole.path[2])
    tree = tree_of(replace(whole, path=path, nodes={key: whole.nodes[key] for key in path}))
    assert [(m.message_id, m.parent_id) for m in tree] == [("msg_1", None), ("msg_3", "msg_1")]


def test_an_import_sets_back_what_it_does_not_name() -> None:
    chat = PureChat(None, SetParams(client_request_id="p", patch={"temperature": 1, "title": "mine", "max_tokens": 5}))
    first = lines(grown([("say", 0), ("rename", 50)]))
    (read,) = read_exports(first)
    read.imported_into(chat)
    assert (chat.state.thread.title, chat.state.thread.temperature) == ("Title 50", 0.5)
    assert chat.state.thread.max_tokens is None
    assert lines(chat.state) == first


def test_a_chat_with_messages_refuses_an_import_and_stays_as_it_was() -> None:
    chat = PureChat(None, say("r1"))
    chat.says("hi")
    before = lines(chat.state)
    (read,) = read_exports(lines(grown([("say", 0)])))
    (ack,) = acks(chat.command(read.parts[0], by=SYSTEM))
    assert (ack[1], ack[2]["code"]) == (False, "conflict")
    assert lines(chat.state) == before


def test_several_exports_one_after_the_other_are_several_chats() -> None:
    one, two = grown([("say", 0), ("rename", 3)]), replace(grown([("say", 1), ("say", 2)]), chat_id="c2")
    read = read_exports(lines(one) + b"\n\r\n" + lines(two))
    assert [(chat.chat_id, len(chat.messages)) for chat in read] == [("c1", 1), ("c2", 2)]


def header(**changes: object) -> JsonObject:
    return {
        "type": "chat",
        "format": 1,
        "chat_id": "c1",
        "leaf_id": None,
        "message_count": 0,
        "payload_count": 0,
        "agent_count": 0,
        "thread": {},
        **changes,
    }


def message(**changes: object) -> JsonObject:
    return {"type": "message", "message": {"role": "user", "content": "x", "message_id": "m1", **changes}}


def picture(url: str, size: int = 1) -> JsonObject:
    return message(content=[{"type": "image_url", "image_url": {"url": url, "bytes": size}}])


def call(index: int) -> JsonObject:
    return {"id": "t", "index": index, "type": "function", "function": {"name": "n", "arguments": "{}"}}


BLOB = f"/v1/chats/c1/blobs/{'0' * 64}"


def payload(**changes: object) -> JsonObject:
    words = {"payload_id": "p", "payload_type": "t", "data": {}, "summary": "", "source": "tool", "message_id": "m"}
    return {"type": "payload", "payload": {**words, **changes}}


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ([], None),
        (["{"], "/1"),
        ([message()], "/1"),
        ([{"type": "poem"}], "/1/type"),
        ([header(format=2)], "/1/format"),
        ([header(chat_id="../x")], "/1/chat_id"),
        ([header(chat_id="import")], "/1/chat_id"),
        ([header(thread={"temperature": 7})], "/1/thread/temperature"),
        ([header(thread={"metadata": {"x": "y" * 70_000}})], "/1/thread/metadata"),
        ([header(message_count=1)], "/1"),
        ([header(leaf_id="m9")], "/1/leaf_id"),
        ([header(message_count=1), message(content=5)], "/2/message/content"),
        ([header(message_count=1), message(message_id="a b")], "/2/message/message_id"),
        ([header(message_count=1), message(role="No Role")], "/2/message/role"),
        ([header(message_count=1), message(role="tool")], "/2/message/tool_call_id"),
        ([header(message_count=1), message(created_at=10**30)], "/2/message/created_at"),
        ([header(message_count=1), message(created_at=-1)], "/2/message/created_at"),
        ([header(message_count=1), message(usage=usage(prompt_tokens=-1))], "/2/message/usage/prompt_tokens"),
        ([header(message_count=1), message(usage=usage(total_tokens=2**53))], "/2/message/usage/total_tokens"),
        ([header(message_count=1), message(usage=usage(cost_usd=-0.5))], "/2/message/usage/cost_usd"),
        ([header(message_count=1), message(tool_calls=[call(-1)])], "/2/message/tool_calls/0/index"),
        (
            [header(message_count=1), picture(BLOB, -1)],
            "/2/message/content/0/image_url/bytes",
        ),
        ([header(thread={"created_at": 10**30})], "/1/thread/created_at"),
        ([header(thread={"last_active": -1})], "/1/thread/last_active"),
        ([header(thread={"usage": usage(completion_tokens=-1)})], "/1/thread/usage/completion_tokens"),
        ([header(payload_count=1), payload(source="me")], "/2/payload/source"),
        ([header(payload_count=1), payload(approval="perhaps")], "/2/payload/approval"),
        ([header(message_count=1), message(parent_id="m0")], "/2/message/parent_id"),
        ([header(message_count=1), message(parent_id="m1")], "/2/message/parent_id"),
        ([header(message_count=2), message(), message()], "/3/message/message_id"),
        ([header(), "\ud800", header()], "/2"),
        ([header(), header()], "/2/chat_id"),
        ([header(), {"type": "blob", "hash": "0" * 64, "mime": "text/plain", "data": "eA=="}], "/2/hash"),
        ([header(message_count=1), picture("javascript:alert(1)")], "/2/message/content/0/image_url/url"),
        ([header(message_count=1), picture(f"/v1/chats/c2/blobs/{'0' * 64}")], "/2/message/content/0/image_url/url"),
    ],
)
def test_a_bad_line_is_named_by_its_number_and_the_place_in_it(body: list[object], path: str | None) -> None:
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in body)
    with pytest.raises(BadRequest) as caught:
        read_exports(text.encode("utf-8", "surrogatepass"))
    assert caught.value.path == path
    assert path is None or f"line {path.split('/')[1]}: " in caught.value.message


def test_more_messages_or_chats_than_are_taken_are_too_large() -> None:
    with pytest.raises(TooLarge) as caught:
        read_exports(json.dumps(header(message_count=100_001)).encode())
    assert caught.value.path == "/1/message_count"
    for counts in ({"payload_count": 100_001}, {"message_count": 1, "payload_count": 99_999, "agent_count": 1}):
        with pytest.raises(TooLarge, match="line 1: a chat of more than 100000 messages, payloads and agents"):
            read_exports(json.dumps(header(**counts)).encode())
    many = [json.dumps(header(chat_id=f"c{number}")).encode() for number in range(1_001)]
    assert len(read_exports(b"\n".join(many[:1_000]))) == 1_000
    with pytest.raises(TooLarge):
        read_exports(b"\n".join(many))


@given(STEPS, st.data())
def test_a_file_that_was_cut_is_refused(steps: list[tuple[str, int]], data: st.DataObject) -> None:
    whole = lines(grown(steps))
    at = data.draw(st.integers(0, len(whole) - 2))
    with pytest.raises(BadRequest):
        read_exports(whole[:at])


def test_an_export_can_be_read_by_any_reader_of_json_lines() -> None:
    exported = lines(grown([("say", 1), ("payload", 1), ("agent", 2)]))
    kinds = [msgspec.json.decode(line)["type"] for line in exported.splitlines()]
    assert kinds == ["chat", "message", "payload", "background_agent"]
    assert isinstance(exported, bytes)
