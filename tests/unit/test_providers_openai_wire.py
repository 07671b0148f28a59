"""The translation of the chat-completions wire: requests that are sent, and fragments that are received. No socket is
used."""

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from threadcast.agent_loop.answer.assembler import Assembler
from threadcast.providers.base import (
    Citation,
    Delta,
    Finished,
    ModelNamed,
    ModelParams,
    ReasoningDelta,
    Request,
    TextDelta,
    TimingsReported,
    ToolCallDelta,
    ToolSpec,
    UsageReported,
)
from threadcast.providers.openai.chat import ChunkReader
from threadcast.providers.openai.chat_wire import CallFragment, CallNumbers, Chunk, finish_reason, request_body
from threadcast_protocol.wire.errors import ModelFailed
from threadcast_protocol.wire.messages import (
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


def body_of(request: Request, *, send_reasoning_back: bool = False) -> JsonObject:
    return request_body(request, max_tokens_field="max_tokens", send_reasoning_back=send_reasoning_back)


def message(role: str, content: str, **fields: object) -> Message:
    return msgspec.convert({"role": role, "content": content, "message_id": "m", **fields}, Message)


def call(arguments: str) -> ToolCall:
    return ToolCall("call_1", 0, FunctionCall("clock", arguments))


@pytest.mark.row("LOOP-4")
def test_history_becomes_one_assistant_message_with_calls_and_one_tool_message_per_call() -> None:
    request = Request(
        model="m",
        system="Be kind.",
        messages=[
            message("user", "What time is it?"),
            Message(
                role="assistant",
                content="Let me look.",
                message_id="a",
                tool_calls=[call('{"time_zone":"UTC"}')],
                reasoning_content="private",
            ),
            message("tool", "noon", tool_call_id="call_1"),
        ],
    )
    function = {"name": "clock", "arguments": '{"time_zone":"UTC"}'}
    assert body_of(request)["messages"] == [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "What time is it?"},
        {
            "role": "assistant",
            "content": "Let me look.",
            "tool_calls": [{"id": "call_1", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "noon"},
    ]


@pytest.mark.row("PROV-6")
def test_reasoning_goes_back_only_if_it_is_asked_for() -> None:
    request = Request(model="m", messages=[message("assistant", "x", reasoning_content="because")])
    assert body_of(request)["messages"] == [{"role": "assistant", "content": "x"}]
    assert body_of(request, send_reasoning_back=True)["messages"][0]["reasoning_content"] == "because"


@pytest.mark.parametrize("role", ["event", "diff", "plan", "error", "context_file", "User"])
def test_messages_of_pass_through_roles_never_reach_a_model(role: str) -> None:
    assert body_of(Request(model="m", messages=[message(role, "secret")]))["messages"] == []


def test_answer_without_a_word_or_a_call_is_left_out() -> None:
    assert body_of(Request(model="m", messages=[message("assistant", "")]))["messages"] == []


@pytest.mark.parametrize(
    ("written", "sent"),
    [
        ("", "{}"),
        (" \n", "{}"),
        ('{"a": 1}', '{"a": 1}'),
        ('{"a":', '{"invalid_json":"{\\"a\\":"}'),
        ("[1]", '{"invalid_json":"[1]"}'),
    ],
)
def test_calls_of_the_history_always_carry_a_json_object(written: str, sent: str) -> None:
    asked = Message(role="assistant", content="", message_id="a", tool_calls=[call(written)])
    said = body_of(Request(model="m", messages=[asked]))["messages"][0]
    assert said["tool_calls"][0]["function"]["arguments"] == sent
    assert said["content"] is None


def test_content_parts_take_openais_shape() -> None:
    parts: list[Part] = [
        TextPart("Look:"),
        ImagePart(ImageUrl("data:image/png;base64,AA")),
        ImagePart(ImageUrl("data:image/png;base64,BB", detail="low")),
        AudioPart(InputAudio("CC", "wav")),
        FilePart("a.pdf", "application/pdf", data="DD"),
        FilePart("b.txt", "text/plain", data="EE", text="its text"),
    ]
    sent = body_of(Request(model="m", messages=[Message(role="user", content=parts, message_id="u")]))
    assert sent["messages"][0]["content"] == [
        {"type": "text", "text": "Look:"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,BB", "detail": "low"}},
        {"type": "input_audio", "input_audio": {"data": "CC", "format": "wav"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,DD"}},
        {"type": "text", "text": "File b.txt:\nits text"},
    ]


@pytest.mark.row("PROV-5")
def test_parameters_are_sent_when_set_and_extra_body_has_the_last_word() -> None:
    params = ModelParams(
        temperature=0.0, max_tokens=5, parallel_tool_calls=False, extra_body={"top_k": 3, "temperature": 1}
    )
    tool = ToolSpec("clock", "The time.", {"type": "object"})
    sent = body_of(Request(model="m", messages=[], params=params, tools=[tool], user="ann"))
    assert sent == {
        "model": "m",
        "messages": [],
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 1,
        "max_tokens": 5,
        "top_k": 3,
        "parallel_tool_calls": False,
        "tools": [
            {
                "type": "function",
                "function": {"name": "clock", "description": "The time.", "parameters": {"type": "object"}},
            }
        ],
        "user": "ann",
    }
    assert "parallel_tool_calls" not in body_of(Request(model="m", messages=[], params=params))


def fragment(**fields: object) -> CallFragment:
    name, arguments = fields.pop("name", None), fields.pop("arguments", None)
    return msgspec.convert({**fields, "function": {"name": name, "arguments": arguments}}, CallFragment)


def numbered(*fragments: CallFragment) -> list[ToolCallDelta]:
    numbers = CallNumbers()
    return [numbers.delta(piece) for piece in fragments]


@pytest.mark.row("PROV-4")
def test_id_and_name_come_through_once_per_call() -> None:
    assert numbered(
        fragment(index=3, id="a", name="f"),
        fragment(index=3, id="a", name="f", arguments="{"),
        fragment(index=3, arguments="}"),
    ) == [ToolCallDelta(0, "a", "f"), ToolCallDelta(0, arguments="{"), ToolCallDelta(0, arguments="}")]


def test_name_that_comes_late_is_passed_on() -> None:
    assert numbered(fragment(index=0, id="a"), fragment(index=0, name="f"), fragment(index=0, name="f")) == [
        ToolCallDelta(0, "a"),
        ToolCallDelta(0, None, "f"),
        ToolCallDelta(0),
    ]


def test_whole_calls_without_an_index_or_all_under_one_are_told_apart() -> None:
    for index in ({}, {"index": 0}):
        deltas = numbered(
            fragment(**index, id="a", name="f", arguments="{}"), fragment(**index, id="b", name="f", arguments="{}")
        )
        assert deltas == [ToolCallDelta(0, "a", "f", "{}"), ToolCallDelta(1, "b", "f", "{}")]


def test_new_id_without_a_name_belongs_to_the_call_that_is_open() -> None:
    """Some servers make up an id for every fragment."""
    assert numbered(fragment(index=0, id="a", name="f"), fragment(index=0, id="b", arguments="{}")) == [
        ToolCallDelta(0, "a", "f"),
        ToolCallDelta(0, arguments="{}"),
    ]


@given(st.data())
@pytest.mark.row("PROV-4")
def test_calls_survive_any_cutting_and_interleaving_of_their_fragments(data: st.DataObject) -> None:
    texts = data.draw(st.lists(st.text(max_size=20), min_size=1, max_size=4))
    fragments: list[list[CallFragment]] = []
    for index, text in enumerate(texts):
        cuts = sorted({0, len(text), *data.draw(st.lists(st.integers(0, len(text))))})
        pieces = [text[start:end] for start, end in pairwise(cuts)]
        head = fragment(index=index, id=f"id{index}", name=f"tool{index}")
        fragments.append([head, *(fragment(index=index, arguments=piece) for piece in pieces)])
    numbers, assembler = CallNumbers(), Assembler(set(), lambda: "made")
    while any(fragments):
        queue = data.draw(st.sampled_from([queue for queue in fragments if queue]))
        assembler.feed(numbers.delta(queue.pop(0)))
    came = {(call.id, call.function.name, call.function.arguments) for call in assembler.tool_calls()}
    assert came == {(f"id{index}", f"tool{index}", text) for index, text in enumerate(texts)}


def read(*chunks: JsonObject) -> list[Delta]:
    reader = ChunkReader()
    deltas = [delta for chunk in chunks for delta in reader.read(msgspec.convert(chunk, Chunk))]
    return [*deltas, *reader.end()]


def said(**delta: object) -> JsonObject:
    return {"choices": [{"delta": delta}]}


STOP = {"choices": [{"delta": {}, "finish_reason": "stop"}]}


@pytest.mark.row("EVT-14")
def test_chunks_become_neutral_deltas_and_usage_comes_last() -> None:
    counts = {"prompt_tokens": 7, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}
    assert read(
        {"model": "m-1", **said(role="assistant", content="")},
        {"model": "m-1", **said(reasoning_content="hm", reasoning="hm")},
        {"model": "m-1", "usage": {"prompt_tokens": 1}, **said(reasoning="aha")},
        said(content="Hi", annotations=[{"type": "url_citation"}]),
        said(refusal="No."),
        {**STOP, "timings": {"prompt_ms": 3}},
        {"choices": [], "usage": counts},
    ) == [
        ModelNamed("m-1"),
        ReasoningDelta("hm"),
        ReasoningDelta("aha"),
        TextDelta("Hi"),
        Citation({"type": "url_citation"}),
        TextDelta("No."),
        TimingsReported({"prompt_ms": 3}),
        UsageReported(Usage(7, 2, 9, cache_read_input_tokens=4)),
        Finished("stop"),
    ]


@pytest.mark.row("LOOP-14")
@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("stop", "stop"),
        ("tool_calls", "tool_calls"),
        ("function_call", "tool_calls"),
        ("length", "length"),
        ("MAX_TOKENS", "length"),
        ("content_filter", "content_filter"),
        ("SAFETY", "content_filter"),
        ("something new", "stop"),
    ],
)
def test_finish_reasons_are_normalised(theirs: str, ours: str) -> None:
    assert finish_reason(theirs) == ours


def failure_of(*chunks: JsonObject) -> str:
    with pytest.raises(ModelFailed) as failed:
        read(*chunks)
    return failed.value.code


def test_end_without_a_finish_reason_is_a_broken_or_an_empty_answer() -> None:
    assert failure_of(said(content="Hel")) == "stream_error"
    assert failure_of({"model": "m"}) == "llm_error"


def test_finish_reason_error_is_a_failure() -> None:
    failed: JsonObject = {"choices": [{"delta": {}, "finish_reason": "error"}]}
    assert failure_of(failed) == "llm_error"
    assert failure_of(said(content="Hel"), failed) == "stream_error"
