"""The events of Anthropic's Messages API: an answer is read correctly, however its bytes are cut. No socket."""

import json
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.anthropic_words import asking, message, turns_of
from threadcast.agent_loop.answer.assembler import Assembler
from threadcast.providers.anthropic.events import Event, EventReader
from threadcast.providers.base import (
    Citation,
    Delta,
    Finished,
    ModelNamed,
    ProviderData,
    ReasoningDelta,
    ServerBlock,
    TextDelta,
    ThinkingBlock,
    ToolCallDelta,
    UsageReported,
)
from threadcast.providers.sse_split import SseSplitter
from threadcast_protocol.wire.deltas import SetThinkingBlocks
from threadcast_protocol.wire.errors import ModelFailed
from threadcast_protocol.wire.messages import JsonObject, Usage


def event(kind: str, **fields: object) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields}, ensure_ascii=False)}\n\n".encode()


def block(index: int, start: JsonObject, *pieces: JsonObject) -> bytes:
    deltas = [event("content_block_delta", index=index, delta=piece) for piece in pieces]
    return b"".join(
        [
            event("content_block_start", index=index, content_block=start),
            *deltas,
            event("content_block_stop", index=index),
        ]
    )


def head(**usage: int) -> bytes:
    return event("message_start", message={"id": "msg_1", "model": "claude-1", "content": [], "usage": usage})


def tail(reason: str, **fields: object) -> bytes:
    delta = {"stop_reason": reason, "stop_sequence": None, **fields}
    return event("message_delta", delta=delta, usage={"output_tokens": 9}) + event("message_stop")


CITED = {"type": "web_search_result_location", "url": "https://e.org", "encrypted_index": "xyz", "cited_text": "é😀"}

STREAM = b"".join(
    [
        head(input_tokens=5, cache_read_input_tokens=3, cache_creation_input_tokens=2, output_tokens=1),
        event("ping"),
        block(
            0,
            {"type": "thinking", "thinking": "", "signature": ""},
            {"type": "thinking_delta", "thinking": "Hm, "},
            {"type": "thinking_delta", "thinking": "é😀."},
            {"type": "signature_delta", "signature": "c2ln"},
        ),
        block(1, {"type": "redacted_thinking", "data": "b3BhcXVl"}),
        block(
            2,
            {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}},
            {"type": "input_json_delta", "partial_json": '{"query":'},
            {"type": "input_json_delta", "partial_json": '"x"}'},
        ),
        block(
            3,
            {
                "type": "web_search_tool_result",
                "tool_use_id": "srvtoolu_1",
                "content": [{"type": "web_search_result", "url": "https://e.org", "encrypted_content": "abc"}],
            },
        ),
        block(
            4,
            {"type": "text", "text": "", "citations": None},
            {"type": "text_delta", "text": "Hel"},
            {"type": "citations_delta", "citation": CITED},
            {"type": "text_delta", "text": "lo é😀"},
        ),
        block(
            5,
            {"type": "tool_use", "id": "toolu_1", "name": "clock", "input": {}},
            {"type": "input_json_delta", "partial_json": ""},
            {"type": "input_json_delta", "partial_json": '{"zo'},
            {"type": "input_json_delta", "partial_json": 'ne":1}'},
        ),
        block(6, {"type": "tool_use", "id": "toolu_2", "name": "clock", "input": {}}),
        tail("tool_use"),
    ]
)

SENT_BACK: list[JsonObject] = [
    {"type": "thinking", "thinking": "Hm, é😀.", "signature": "c2ln"},
    {"type": "redacted_thinking", "data": "b3BhcXVl"},
    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}},
    {
        "type": "web_search_tool_result",
        "tool_use_id": "srvtoolu_1",
        "content": [{"type": "web_search_result", "url": "https://e.org", "encrypted_content": "abc"}],
    },
    {"type": "text", "text": "Hello é😀", "citations": [CITED]},
    {"type": "tool_use", "id": "toolu_1", "name": "clock", "input": {"zone": 1}},
    {"type": "tool_use", "id": "toolu_2", "name": "clock", "input": {}},
]


def read(*pieces: bytes) -> list[Delta]:
    reader, splitter, deltas = EventReader(), SseSplitter(), list[Delta]()
    for piece in pieces:
        for data in splitter.feed(piece):
            deltas += reader.read(msgspec.json.decode(data, type=Event))
    return deltas + reader.end()


def merged(deltas: list[Delta]) -> list[Delta]:
    """Join adjacent pieces of text, so that the comparison ignores where text was cut."""
    whole: list[Delta] = []
    for delta in deltas:
        match whole[-1:], delta:
            case [TextDelta(text=before)], TextDelta(text=after):
                whole[-1] = TextDelta(before + after)
            case [ReasoningDelta(text=before)], ReasoningDelta(text=after):
                whole[-1] = ReasoningDelta(before + after)
            case _:
                whole.append(delta)
    return whole


@pytest.mark.row("PROV-1", "EVT-12")
def test_every_kind_of_block_becomes_neutral_deltas_and_nothing_opaque_is_public() -> None:
    deltas = merged(read(STREAM))
    public = [delta for delta in deltas if not isinstance(delta, ProviderData)]
    assert public == [
        ModelNamed("claude-1"),
        ReasoningDelta("Hm, é😀."),
        ThinkingBlock({"type": "thinking", "thinking": "Hm, é😀."}),
        ThinkingBlock({"type": "redacted_thinking"}),
        ServerBlock({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}),
        ServerBlock(
            {
                "type": "web_search_tool_result",
                "tool_use_id": "srvtoolu_1",
                "content": [{"type": "web_search_result", "url": "https://e.org"}],
            }
        ),
        TextDelta("Hel"),
        Citation({"type": "web_search_result_location", "url": "https://e.org", "cited_text": "é😀"}),
        TextDelta("lo é😀"),
        ToolCallDelta(0, "toolu_1", "clock"),
        ToolCallDelta(0, arguments='{"zo'),
        ToolCallDelta(0, arguments='ne":1}'),
        ToolCallDelta(1, "toolu_2", "clock"),
        UsageReported(Usage(10, 9, 19, cache_creation_input_tokens=2, cache_read_input_tokens=3)),
        Finished("tool_calls"),
    ]


@given(st.lists(st.integers(0, len(STREAM)), max_size=6))
def test_however_the_bytes_are_cut_the_same_comes_out(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(STREAM)]
    assert read(*(STREAM[a:b] for a, b in pairwise(edges))) == read(STREAM)


@pytest.mark.row("PROV-4")
def test_what_was_kept_of_an_answer_goes_back_exactly_as_it_came() -> None:
    assembler = Assembler(set(), lambda: "made", reasoning="off")
    shown = [assembler.feed(delta) for delta in read(STREAM)]
    assert not any(isinstance(op, SetThinkingBlocks) for op in shown)
    answer = assembler.answer()
    asked = asking(*answer.calls, content="Hello é😀")
    results = [message("tool", "x", tool_call_id=f"toolu_{n}") for n in (1, 2)]
    turns = turns_of(message("user", "hi"), asked, *results, provider_data={"a": answer.provider_data})
    assert turns[1]["content"] == SENT_BACK


def test_answer_of_text_and_calls_alone_keeps_nothing() -> None:
    plain = block(0, {"type": "text", "text": "Hi"}) + block(1, {"type": "tool_use", "id": "t", "name": "clock"})
    deltas = read(head() + plain + tail("tool_use"))
    assert not any(isinstance(delta, ProviderData) for delta in deltas)


def test_thinking_that_only_the_provider_can_read_is_kept_and_not_shown() -> None:
    omitted = block(0, {"type": "thinking", "thinking": ""}, {"type": "signature_delta", "signature": "s"})
    deltas = read(head() + omitted + tail("end_turn"))
    assert not any(isinstance(delta, ThinkingBlock | ReasoningDelta) for delta in deltas)
    assert ProviderData({"type": "thinking", "thinking": "", "signature": "s"}) in deltas


@pytest.mark.row("LOOP-14")
@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "content_filter"),
        ("a word of tomorrow", "stop"),
    ],
)
def test_reasons_to_stop_are_translated(theirs: str, ours: str) -> None:
    assert read(head() + tail(theirs))[-1] == Finished(ours)  # type: ignore[arg-type]  # the table above is the test


def test_refusal_without_a_word_is_explained() -> None:
    details = {"type": "refusal", "category": "bio", "explanation": "I cannot help with that."}
    assert TextDelta("I cannot help with that.") in read(head() + tail("refusal", stop_details=details))


@pytest.mark.row("LOOP-9")
def test_stream_that_ends_without_a_reason_broke_off_or_was_no_answer() -> None:
    for stream, code in ((head(), "llm_error"), (STREAM[: STREAM.index(b"event: message_delta")], "stream_error")):
        with pytest.raises(ModelFailed) as failed:
            read(stream)
        assert failed.value.code == code


def test_answer_that_paused_goes_on_with_numbers_that_add_up() -> None:
    reader = EventReader()
    splitter = SseSplitter()
    deltas: list[Delta] = []
    first = head(input_tokens=5) + block(0, {"type": "text", "text": "a"}) + tail("pause_turn")
    second = head(input_tokens=7) + block(0, {"type": "tool_use", "id": "t", "name": "clock"}) + tail("tool_use")
    for part in (first, second):
        if reader.is_paused:
            assert reader.blocks == [{"type": "text", "text": "a"}]
            reader.next_call()
        for data in splitter.feed(part):
            deltas += reader.read(msgspec.json.decode(data, type=Event))
    assert [*deltas, *reader.end()][1:] == [
        TextDelta("a"),
        ToolCallDelta(0, "t", "clock"),
        UsageReported(Usage(12, 18, 30)),
        Finished("tool_calls"),
    ]
