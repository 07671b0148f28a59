"""A trace refers to messages of the chat, and shows these messages as long as they are unchanged."""

import secrets

import msgspec
import pytest
from msgspec.structs import replace

from threadcast.agent_loop.tracing import MessagesRef, referred
from threadcast.api import trace_messages
from threadcast.api.trace_messages import has_references, with_messages
from threadcast.chat.owner_state import OwnerState, empty_owner_state
from threadcast.store.compression import compressed
from threadcast.store.trace_records import (
    COMBINED_TEXT_MAX_BYTES,
    RECORD_MAX_BYTES,
    combined,
    compose,
    decompose,
)
from threadcast_protocol.framing.codec import encode
from threadcast_protocol.wire.messages import JsonObject, Message


def chat(*texts: str) -> OwnerState:
    nodes: dict[str, Message] = {}
    for number, text in enumerate(texts):
        parent = f"m{number - 1}" if number else None
        nodes[f"m{number}"] = Message(message_id=f"m{number}", role="user", content=text, parent_id=parent)
    return replace(empty_owner_state("c1"), nodes=nodes, path=tuple(nodes))


def stored(messages: list[Message], state: OwnerState) -> JsonObject:
    return msgspec.json.decode(encode({"messages": referred(messages, state), "cut": []}), type=JsonObject)


def texts(record: JsonObject) -> list[str]:
    return [each["content"] for each in record["messages"]]


def test_consecutive_messages_of_the_chat_share_a_reference_and_others_stand_in_the_record() -> None:
    state = chat("a", "bb", "ccc", "dddd")
    own = [*state.nodes.values()]
    summary = Message(message_id="s", role="user", content="what was said")
    shortened = replace(own[2], content="c…")
    assert referred(own, state) == [MessagesRef("m3", 4, 10)]
    assert referred([summary, *own[1:]], state) == [summary, MessagesRef("m3", 3, 9)]
    assert referred([own[0], own[2], own[3]], state) == [MessagesRef("m0", 1, 1), MessagesRef("m3", 2, 7)]
    assert referred([own[0], own[1], shortened, own[3]], state) == [
        MessagesRef("m1", 2, 3),
        shortened,
        MessagesRef("m3", 1, 4),
    ]
    for messages in (own, [summary, *own[1:]], [own[0], own[2], own[3]], [own[0], own[1], shortened, own[3]], []):
        record = stored(messages, state)
        shown = with_messages(record, state.nodes)
        assert (texts(shown), shown["cut"]) == ([each.content for each in messages], [])
        assert has_references(record) is bool(messages)
        assert not has_references(shown)


def test_what_was_changed_or_removed_since_is_said() -> None:
    state = chat("a", "bb", "ccc")
    record = stored([*state.nodes.values()], state)
    changed = with_messages(record, {**state.nodes, "m1": replace(state.nodes["m1"], content="other")})
    assert (texts(changed), changed["cut"]) == (["a", "other", "ccc"], ["messages"])
    removed = with_messages(record, {key: each for key, each in state.nodes.items() if key != "m1"})
    assert (texts(removed), removed["cut"]) == (["ccc"], ["messages"])


@pytest.mark.parametrize(("bound", "value"), [("MESSAGES_MAX_COUNT", 2), ("CHARACTERS_MAX_COUNT", 7)])
def test_a_long_conversation_is_shown_from_its_end(monkeypatch: pytest.MonkeyPatch, bound: str, value: int) -> None:
    monkeypatch.setattr(trace_messages, bound, value)
    state = chat("a", "bb", "ccc", "dddd")
    shown = with_messages(stored([*state.nodes.values()], state), state.nodes)
    assert (texts(shown), shown["cut"]) == (["ccc", "dddd"], ["messages"])


def test_consecutive_records_are_combined_while_they_are_small() -> None:
    small = [make(encode({"run_id": f"r{number}"})) for number, make in enumerate((compose, compose, compressed))]
    ((count, whole),) = combined(small)
    assert count == 3 and decompose(whole) == [{"run_id": f"r{number}"} for number in range(3)]
    ((count, whole),) = combined([whole, small[0]])
    assert count == 2 and [each["run_id"] for each in decompose(whole)] == ["r0", "r1", "r2", "r0"]
    large, damaged = compose(encode({"x": "y" * COMBINED_TEXT_MAX_BYTES})), b"damaged"
    for apart in (large, damaged):
        assert combined([small[0], apart, small[1]]) == [(1, small[0]), (1, apart), (1, small[1])]
        assert [number for number, _ in combined([small[0], small[1], apart, small[1], small[0]])] == [2, 1, 2]
    assert combined([]) == []


def test_records_whose_text_hardly_shrinks_stay_apart() -> None:
    texts = [compose(encode({"x": secrets.token_urlsafe(40_000)})) for _ in range(2)]
    assert sum(map(len, texts)) > RECORD_MAX_BYTES
    assert combined(texts) == [(1, each) for each in texts]
