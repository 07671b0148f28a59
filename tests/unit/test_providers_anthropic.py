"""The words of Anthropic's Messages API: requests out, events in. No socket."""

import json
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.deltas import SetThinkingBlocks
from protocol.errors import ModelFailed
from protocol.messages import (
    AudioPart,
    FilePart,
    FunctionCall,
    ImagePart,
    ImageUrl,
    InputAudio,
    JsonObject,
    Message,
    Part,
    TextPart,
    ToolCall,
    Usage,
)
from server.agent.answer.assembler import Assembler
from server.providers.anthropic.events import Event, EventReader
from server.providers.anthropic.request import request_body
from server.providers.base import (
    Citation,
    Delta,
    Finished,
    ModelNamed,
    ModelParams,
    ProviderData,
    ReasoningDelta,
    Request,
    ServerBlock,
    TextDelta,
    ThinkingBlock,
    ToolCallDelta,
    ToolSpec,
    UsageReported,
)
from server.providers.sse_split import SseSplitter

PIXEL = "data:image/jpg;base64,/9j/4A=="


def message(role: str, content: str, message_id: str = "m", **fields: object) -> Message:
    return msgspec.convert({"role": role, "content": content, "message_id": message_id, **fields}, Message)


def asking(*calls: ToolCall, content: str = "", message_id: str = "a") -> Message:
    return Message(role="assistant", content=content, message_id=message_id, tool_calls=list(calls))


def call(call_id: str, index: int = 0, arguments: str = '{"zone":1}') -> ToolCall:
    return ToolCall(call_id, index, FunctionCall("clock", arguments))


def body_of(*messages: Message, **fields: object) -> JsonObject:
    return request_body(Request(model="m", messages=list(messages), **fields), is_caching=False)  # type: ignore[arg-type]  # the caller's words


def turns_of(*messages: Message, **fields: object) -> list[JsonObject]:
    turns: list[JsonObject] = body_of(*messages, **fields)["messages"]
    return turns


def text(said: str) -> JsonObject:
    return {"type": "text", "text": said}


# Requests


@pytest.mark.row("LOOP-4")
def test_results_of_a_round_stand_in_one_user_turn_after_the_calls_they_answer() -> None:
    turns = turns_of(
        message("user", "What time is it?"),
        asking(call("c1"), call("c2", 1, ""), content="Let me look."),
        message("tool", "noon", tool_call_id="c1"),
        message("tool", "no such zone", tool_call_id="c2", tool_failed=True),
        message("user", "Hurry up."),
    )
    assert turns == [
        {"role": "user", "content": [text("What time is it?")]},
        {
            "role": "assistant",
            "content": [
                text("Let me look."),
                {"type": "tool_use", "id": "c1", "name": "clock", "input": {"zone": 1}},
                {"type": "tool_use", "id": "c2", "name": "clock", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": [text("noon")]},
                {"type": "tool_result", "tool_use_id": "c2", "content": [text("no such zone")], "is_error": True},
                text("Hurry up."),
            ],
        },
    ]


KEPT: list[JsonObject] = [
    {"type": "thinking", "thinking": "Hm.", "signature": "s1"},
    text("Searching."),
    {"type": "server_tool_use", "id": "srv", "name": "web_search", "input": {"query": "x"}},
    {"type": "tool_use", "call": 1},
    {"type": "tool_use", "call": 0, "caller": {"type": "direct"}},
]


@pytest.mark.row("PROV-4")
def test_kept_blocks_go_back_in_their_order_with_the_calls_as_the_chat_knows_them() -> None:
    asked = asking(call("made-anew"), call("c2", 1, '{"edited":true}'), content="Searching.")
    results = [message("tool", "x", tool_call_id="made-anew"), message("tool", "y", tool_call_id="c2")]
    turns = turns_of(message("user", "hi"), asked, *results, provider_data={"a": KEPT})
    assert turns[1]["content"] == [
        *KEPT[:3],
        {"type": "tool_use", "id": "c2", "name": "clock", "input": {"edited": True}},
        {"type": "tool_use", "id": "made-anew", "name": "clock", "input": {"zone": 1}, "caller": {"type": "direct"}},
    ]


def test_blocks_of_an_answer_that_broke_off_are_completed_from_the_message() -> None:
    asked = asking(call("c1"), content="Searching. And th")
    turns = turns_of(
        message("user", "hi"), asked, message("tool", "x", tool_call_id="c1"), provider_data={"a": KEPT[:2]}
    )
    assert turns[1]["content"][:-1] == [*KEPT[:2], text(" And th")]
    assert turns[1]["content"][-1]["id"] == "c1"


def test_call_without_a_result_is_left_out_of_the_kept_blocks_too() -> None:
    turns = turns_of(message("user", "hi"), asking(content="Searching."), provider_data={"a": KEPT})
    assert turns[1]["content"] == KEPT[:3]


def test_conversation_begins_and_ends_with_the_user_whatever_is_left_of_it() -> None:
    turns = turns_of(message("assistant", "Hello."))
    assert [turn["role"] for turn in turns] == ["user", "assistant", "user"]
    assert turns_of(message("user", " \n"), message("assistant", "")) == []


def test_prefix_is_the_last_word_and_loses_only_white_space() -> None:
    params = ModelParams(thinking_budget=5_000)
    body = body_of(message("user", "hi"), prefix="Once upon \n", params=params)
    assert body["messages"][-1] == {"role": "assistant", "content": [text("Once upon")]}
    assert "thinking" not in body


def test_words_of_the_system_within_a_conversation_are_marked_as_such() -> None:
    body = body_of(message("system", "Be brief."), message("user", "hi"), message("system", "Noon."), system="Be kind.")
    assert body["system"] == [text("Be kind.\n\nBe brief.")]
    assert body["messages"] == [{"role": "user", "content": [text("hi"), text("<system>\nNoon.\n</system>")]}]


def test_round_that_another_provider_began_goes_on_without_thinking_and_the_next_one_thinks_again() -> None:
    params = ModelParams(thinking_budget=2_000)
    messages = [message("user", "hi"), asking(call("c1")), message("tool", "noon", tool_call_id="c1")]
    signed = {"a": [{"type": "thinking", "thinking": "", "signature": "s"}]}
    assert "thinking" not in body_of(*messages, params=params)
    assert "thinking" in body_of(*messages, params=params, provider_data=signed)
    assert "thinking" in body_of(
        *messages, message("assistant", "It is noon."), message("user", "And now?"), params=params
    )


@pytest.mark.parametrize("role", ["event", "diff", "plan", "error", "context_file", "User"])
def test_messages_of_pass_through_roles_never_reach_a_model(role: str) -> None:
    assert turns_of(message(role, "secret")) == []


def test_images_and_documents_take_anthropics_shape_and_what_it_does_not_take_is_named() -> None:
    parts: list[Part] = [
        TextPart("Look:"),
        ImagePart(ImageUrl(PIXEL)),
        FilePart("a.pdf", "application/pdf", data="JVBERg=="),
        FilePart("b.txt", "text/plain", text="hello"),
        FilePart("c.docx", "application/msword", data="AAAA"),
        AudioPart(InputAudio("AAAA", "wav")),
    ]
    (turn,) = turns_of(Message(role="user", content=parts, message_id="u"))
    assert turn["content"][:4] == [
        text("Look:"),
        {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": "/9j/4A=="}},
        {
            "type": "document",
            "title": "a.pdf",
            "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERg=="},
        },
        text("File b.txt:\nhello"),
    ]
    assert [block["text"].partition(" left")[0] for block in turn["content"][4:]] == ["[file c.docx", "[audio"]


def test_image_that_a_tool_returned_stands_in_its_result() -> None:
    parts: list[Part] = [TextPart("a pixel"), ImagePart(ImageUrl(PIXEL))]
    result = Message(role="tool", content=parts, message_id="t", tool_call_id="c1")
    (block,) = turns_of(message("user", "hi"), asking(call("c1")), result)[-1]["content"]
    assert [part["type"] for part in block["content"]] == ["text", "image"]


def test_ids_that_the_api_refuses_are_replaced_alike_in_calls_and_results() -> None:
    turns = turns_of(message("user", "hi"), asking(call("call:1/é")), message("tool", "x", tool_call_id="call:1/é"))
    used, answered = turns[1]["content"][0]["id"], turns[2]["content"][0]["tool_use_id"]
    assert used == answered
    assert used.isascii() and used.replace("_", "").isalnum()


def test_misspelt_arguments_do_not_block_the_chat() -> None:
    turns = turns_of(
        message("user", "hi"), asking(call("c1", arguments="{oops")), message("tool", "x", tool_call_id="c1")
    )
    assert turns[1]["content"][0]["input"] == {"invalid_json": "{oops"}


@pytest.mark.row("PROV-5", "PROV-6")
@pytest.mark.parametrize(
    ("params", "expected"),
    [
        (ModelParams(), {"max_tokens": 8_192}),
        (ModelParams(max_tokens=5, temperature=0.5, top_p=0.9), {"max_tokens": 5, "temperature": 0.5}),
        (ModelParams(top_p=0.9, frequency_penalty=1.0), {"max_tokens": 8_192, "top_p": 0.9}),
        (
            ModelParams(thinking_budget=2_000, temperature=0.5),
            {"max_tokens": 8_192, "thinking": {"type": "enabled", "budget_tokens": 2_000}},
        ),
        (
            ModelParams(thinking_budget=1, max_tokens=1_000),
            {"max_tokens": 2_024, "thinking": {"type": "enabled", "budget_tokens": 1_024}},
        ),
        (ModelParams(thinking_budget=0, top_p=0.9), {"max_tokens": 8_192, "top_p": 0.9}),
        (
            ModelParams(reasoning_effort="minimal", temperature=0.5),
            {
                "max_tokens": 8_192,
                "thinking": {"type": "adaptive", "display": "summarized"},
                "output_config": {"effort": "low"},
            },
        ),
        (ModelParams(reasoning_effort="none", temperature=0.5), {"max_tokens": 8_192, "temperature": 0.5}),
        (ModelParams(extra_body={"max_tokens": 7, "top_k": 3}), {"max_tokens": 7, "top_k": 3}),
    ],
)
def test_parameters_become_what_the_api_takes_together(params: ModelParams, expected: JsonObject) -> None:
    body = body_of(message("user", "hi"), params=params)
    assert {key: body[key] for key in body if key not in ("model", "messages", "stream")} == expected


def test_tools_are_offered_and_parallel_calls_forbidden_only_on_request() -> None:
    tools = [ToolSpec("clock", "The time.", {"type": "object"})]
    offered = body_of(message("user", "hi"), tools=tools)
    assert offered["tools"] == [{"name": "clock", "description": "The time.", "input_schema": {"type": "object"}}]
    assert "tool_choice" not in offered
    serial = body_of(message("user", "hi"), tools=tools, params=ModelParams(parallel_tool_calls=False))
    assert serial["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}


def test_prompt_is_marked_for_the_cache_after_the_system_and_after_the_newest_message() -> None:
    request = Request(model="m", system="Be kind.", messages=[message("user", "hi")], prefix="Well,")
    body = request_body(request)
    marked = {"cache_control": {"type": "ephemeral"}}
    assert body["system"] == [{**text("Be kind."), **marked}]
    assert body["messages"][0]["content"] == [{**text("hi"), **marked}]
    assert body["messages"][1]["content"] == [text("Well,")]


def test_person_is_named_to_the_provider_by_nothing_that_says_who_it_is() -> None:
    assert "anna" not in body_of(message("user", "hi"), user="anna@example.org")["metadata"]["user_id"]


# Events


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
    """Without regard to how text is cut."""
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
    places = [0, *sorted(cuts), len(STREAM)]
    assert read(*(STREAM[a:b] for a, b in pairwise(places))) == read(STREAM)


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


def test_white_space_that_the_prefix_had_is_not_said_twice() -> None:
    reader = EventReader(drops_leading_space=True)
    pieces = ({"type": "text_delta", "text": " "}, {"type": "text_delta", "text": "\n a "})
    stream = block(0, {"type": "text", "text": ""}, *pieces)
    deltas = [d for data in SseSplitter().feed(stream) for d in reader.read(msgspec.json.decode(data, type=Event))]
    assert deltas == [TextDelta("a ")]
