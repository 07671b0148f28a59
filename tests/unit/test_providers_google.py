"""The translation of the Gemini API: requests that are sent, and chunks that are received. No socket is used; the SDK
only checks whether it accepts the adapter's requests."""

from base64 import b64encode

import msgspec
import pytest
from google.genai import types
from hypothesis import given
from hypothesis import strategies as st

from threadcast.agent_loop.answer.assembler import Assembler
from threadcast.providers.base import (
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
    ToolCallDelta,
    ToolSpec,
    UsageReported,
)
from threadcast.providers.google.answer import ChunkReader, read_chunk
from threadcast.providers.google.request import UNSIGNED, contents_and_config
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

PIXEL = "data:image/png;base64,iVBORw=="


def message(role: str, content: str, **fields: object) -> Message:
    return msgspec.convert({"role": role, "content": content, "message_id": "m", **fields}, Message)


def asking(*calls: ToolCall, content: str = "") -> Message:
    return Message(role="assistant", content=content, message_id="a", tool_calls=list(calls))


def call(call_id: str, index: int = 0, arguments: str = '{"zone":1}') -> ToolCall:
    return ToolCall(call_id, index, FunctionCall("clock", arguments))


def contents_of(*messages: Message, model: str = "gemini-2.5-pro", kept: list[JsonObject] | None = None) -> object:
    request = Request(model=model, messages=list(messages), provider_data={"a": kept} if kept else {})
    contents, _ = contents_and_config(request)
    for content in contents:
        types.Content.model_validate(content)  # the SDK refuses names that it does not know
    return contents


def config_of(model: str = "gemini-2.5-pro", **fields: object) -> JsonObject:
    request = msgspec.structs.replace(Request(model=model, messages=[]), **fields)
    config = contents_and_config(request)[1]
    types.GenerateContentConfig.model_validate(config)
    assert config.pop("automatic_function_calling") == {"disable": True}, "we run the tools"
    return config


def called(call_id: str, args: JsonObject) -> JsonObject:
    return {"function_call": {"id": call_id, "name": "clock", "args": args}}


def answered(call_id: str, response: JsonObject) -> JsonObject:
    return {"function_response": {"id": call_id, "name": "clock", "response": response}}


@pytest.mark.row("LOOP-4")
def test_results_of_a_round_stand_in_one_content_and_their_images_behind_them() -> None:
    seen: list[Part] = [TextPart("a pixel"), ImagePart(ImageUrl(PIXEL))]
    contents = contents_of(
        message("user", "What time is it?"),
        asking(call("c1"), call("c2", 1, "{oops"), content="Let me look."),
        Message(role="tool", content=seen, message_id="t", tool_call_id="c1"),
        message("tool", "no such zone", tool_call_id="c2", tool_failed=True),
        message("user", "Hurry up."),
    )
    assert contents == [
        {"role": "user", "parts": [{"text": "What time is it?"}]},
        {
            "role": "model",
            "parts": [{"text": "Let me look."}, called("c1", {"zone": 1}), called("c2", {"invalid_json": "{oops"})],
        },
        {
            "role": "user",
            "parts": [
                answered("c1", {"output": "a pixel"}),
                answered("c2", {"error": "no such zone"}),
                {"text": "The images that the tools above returned:"},
                {"inline_data": {"mime_type": "image/png", "data": b"\x89PNG"}},
                {"text": "Hurry up."},
            ],
        },
    ]


def test_signatures_go_back_on_the_parts_they_came_on() -> None:
    kept: list[JsonObject] = [
        {"text": "Let me", "thought_signature": "LV8-"},
        {"text": " look."},
        {"call": 0, "thought_signature": "c2ln"},
        {"call": 1},
    ]
    results = [message("tool", "x", tool_call_id="made"), message("tool", "y", tool_call_id="c2")]
    asked = asking(call("made"), call("c2", 1), content="Let me look.")
    contents = contents_of(message("user", "hi"), asked, *results, kept=kept, model="gemini-3-pro")
    assert isinstance(contents, list)
    assert contents[1]["parts"] == [
        {"text": "Let me", "thought_signature": b"-_>"},
        {"text": " look."},
        {**called("made", {"zone": 1}), "thought_signature": b"sig"},
        called("c2", {"zone": 1}),
    ]


@pytest.mark.parametrize(("model", "is_signed"), [("gemini-2.5-pro", False), ("gemini-3-pro", True), ("latest", True)])
def test_calls_of_another_model_pass_where_signatures_are_wanted(model: str, is_signed: bool) -> None:
    asked = [message("user", "hi"), asking(call("c1"), call("c2", 1))]
    contents = contents_of(*asked, message("tool", "x", tool_call_id="c1"), model=model)
    assert isinstance(contents, list)
    signatures = [part.get("thought_signature") for part in contents[1]["parts"]]
    assert signatures == [UNSIGNED if is_signed else None, None]


def test_conversation_begins_and_ends_with_the_user_whatever_is_left_of_it() -> None:
    contents = contents_of(message("assistant", "Hello."))
    assert isinstance(contents, list)
    assert [content["role"] for content in contents] == ["user", "model", "user"]


def test_attachments_are_inline_data() -> None:
    parts: list[Part] = [
        FilePart("a.pdf", "application/pdf", data="JVBERg=="),
        FilePart("b.txt", "text/plain", text="hello"),
        AudioPart(InputAudio("AAAA", "wav")),
    ]
    contents = contents_of(Message(role="user", content=parts, message_id="u"))
    assert isinstance(contents, list)
    assert contents[0]["parts"] == [
        {"inline_data": {"mime_type": "application/pdf", "data": b"%PDF"}},
        {"text": "File b.txt:\nhello"},
        {"inline_data": {"mime_type": "audio/wav", "data": b"\0\0\0"}},
    ]


@pytest.mark.row("PROV-5", "PROV-6")
@pytest.mark.parametrize(
    ("model", "params", "expected"),
    [
        ("gemini-2.5-pro", ModelParams(), {}),
        ("gemini-2.5-pro", ModelParams(max_tokens=5, top_p=0.9), {"max_output_tokens": 5, "top_p": 0.9}),
        (
            "gemini-2.5-pro",
            ModelParams(reasoning_effort="medium"),
            {"thinking_config": {"thinking_budget": 8_192, "include_thoughts": True}},
        ),
        (
            "gemini-3-pro",
            ModelParams(reasoning_effort="medium"),
            {"thinking_config": {"thinking_level": "medium", "include_thoughts": True}},
        ),
        (
            "gemini-3-pro",
            ModelParams(thinking_budget=0, reasoning_effort="low"),
            {"thinking_config": {"thinking_budget": 0, "include_thoughts": False}},
        ),
        (
            "gemini-3-pro",
            ModelParams(extra_body={"safetySettings": []}),
            {"http_options": {"extra_body": {"safetySettings": []}}},
        ),
    ],
)
def test_parameters_take_googles_words(model: str, params: ModelParams, expected: JsonObject) -> None:
    assert config_of(model, params=params) == expected


def test_tools_are_declared_by_their_json_schema_and_run_by_us() -> None:
    schema = {"type": "object", "properties": {"zone": {"anyOf": [{"type": "string"}, {"type": "null"}]}}}
    config = config_of(tools=[ToolSpec("clock", "The time.", schema)], system="Be kind.")
    (declared,) = config["tools"][0]["function_declarations"]
    assert declared == {"name": "clock", "description": "The time.", "parameters_json_schema": schema}
    assert config["system_instruction"] == "Be kind."


# Answers


def chunk(*parts: JsonObject, finish: str | None = None, **fields: object) -> JsonObject:
    return {"candidates": [{"content": {"role": "model", "parts": list(parts)}, "finishReason": finish}], **fields}


def read(*chunks: JsonObject) -> list[Delta]:
    """Feed events as the adapter does; each must also be valid for the SDK."""
    reader, deltas = ChunkReader(), list[Delta]()
    for one in chunks:
        types.GenerateContentResponse.model_validate(one)
        deltas += reader.read(read_chunk(msgspec.json.encode(one), reader.mender))
    return deltas + reader.end()


SIGNATURE = b64encode(b"-_>\xff\xfe").decode()
COUNTS = {"promptTokenCount": 9, "candidatesTokenCount": 3, "thoughtsTokenCount": 4, "totalTokenCount": 16}
STREAM = [
    chunk({"text": "Hm, ", "thought": True}, modelVersion="gemini-3-pro-001", usageMetadata={"promptTokenCount": 9}),
    chunk({"text": "yes.", "thought": True}),
    chunk({"text": "Hel"}),
    chunk({"text": "lo é😀"}),
    chunk({"functionCall": {"name": "clock", "args": {"zone": 1}}, "thoughtSignature": SIGNATURE}),
    chunk({"functionCall": {"id": "theirs", "name": "clock"}}),
    chunk(finish="STOP", usageMetadata={**COUNTS, "cachedContentTokenCount": 5}),
]


@pytest.mark.row("PROV-1", "PROV-4", "EVT-12")
def test_thoughts_text_calls_and_counts_become_neutral_deltas() -> None:
    deltas = [delta for delta in read(*STREAM) if not isinstance(delta, ProviderData)]
    assert deltas == [
        ModelNamed("gemini-3-pro-001"),
        ReasoningDelta("Hm, "),
        ReasoningDelta("yes."),
        TextDelta("Hel"),
        TextDelta("lo é😀"),
        ToolCallDelta(0, None, "clock", '{"zone":1}'),
        ToolCallDelta(1, "theirs", "clock", "{}"),
        UsageReported(Usage(9, 7, 16, cache_read_input_tokens=5)),
        Finished("tool_calls"),
    ]


@given(st.lists(st.booleans(), min_size=8, max_size=8))
def test_however_text_is_cut_the_same_is_kept(cuts: list[bool]) -> None:
    pieces = [""]
    for letter, cut in zip("Hello é😀", cuts, strict=True):
        pieces = [*pieces, letter] if cut else [*pieces[:-1], pieces[-1] + letter]
    deltas = read(*(chunk({"text": piece}) for piece in pieces), *STREAM[4:])
    kept = [delta.data for delta in deltas if isinstance(delta, ProviderData)]
    assert kept[:1] == [{"text": "Hello é😀"}]
    assert [part.get("call") for part in kept[1:]] == [0, 1]


def test_what_was_kept_of_an_answer_goes_back_with_its_signature() -> None:
    assembler = Assembler(set(), lambda: "made")
    for delta in read(*STREAM):
        assembler.feed(delta)
    answer = assembler.answer()
    results = [message("tool", "x", tool_call_id=call.id) for call in answer.calls]
    asked = asking(*answer.calls, content="Hello é😀")
    contents = contents_of(message("user", "hi"), asked, *results, kept=answer.provider_data, model="gemini-3-pro")
    assert isinstance(contents, list)
    assert contents[1]["parts"] == [
        {"text": "Hello é😀"},
        {**called("made", {"zone": 1}), "thought_signature": b"-_>\xff\xfe"},
        called("theirs", {}),
    ]


def test_signature_on_a_last_part_without_a_word_is_kept_behind_the_text() -> None:
    signed: JsonObject = {"text": "", "thoughtSignature": SIGNATURE}
    deltas = read(chunk({"text": "a"}), chunk({"text": "b"}), chunk(signed, finish="STOP"))
    kept = [delta.data for delta in deltas if isinstance(delta, ProviderData)]
    assert [part["text"] for part in kept] == ["ab", ""]
    assert "thought_signature" in kept[1]


def test_answer_without_signatures_keeps_nothing() -> None:
    deltas = read(chunk({"text": "a"}), chunk({"functionCall": {"name": "clock"}}, finish="STOP"))
    assert not any(isinstance(delta, ProviderData) for delta in deltas)


@pytest.mark.row("LOOP-14")
@pytest.mark.parametrize(
    ("theirs", "ours"),
    [("STOP", "stop"), ("MAX_TOKENS", "length"), ("SAFETY", "content_filter"), ("OTHER", "stop")],
)
def test_reasons_to_stop_are_translated(theirs: str, ours: str) -> None:
    assert read(chunk({"text": "a"}, finish=theirs))[-1] == Finished(ours)  # type: ignore[arg-type]  # the table above is the test


def test_blocked_prompt_is_a_refusal_that_says_why() -> None:
    deltas = read({"promptFeedback": {"blockReason": "SAFETY"}})
    assert deltas == [TextDelta("The provider blocked this request (SAFETY)."), Finished("content_filter")]


@pytest.mark.row("LOOP-9")
@pytest.mark.parametrize(
    ("chunks", "code"),
    [
        ([], "llm_error"),
        ([chunk({"text": "a"})], "stream_error"),
        ([chunk(finish="MALFORMED_FUNCTION_CALL")], "stream_error"),
    ],
)
def test_stream_that_ends_without_an_answer_is_a_failure(chunks: list[JsonObject], code: str) -> None:
    with pytest.raises(ModelFailed) as failed:
        read(*chunks)
    assert failed.value.code == code


def test_sources_are_cited_once_and_code_of_the_provider_is_a_server_block() -> None:
    grounding = {"groundingChunks": [{"web": {"uri": "https://e.org", "title": "E"}}]}
    first = chunk({"executableCode": {"language": "PYTHON", "code": "1+1"}})
    second = chunk({"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "2"}}, {"text": "2"})
    last = chunk(finish="STOP")
    for one in (second, last):
        one["candidates"][0]["groundingMetadata"] = grounding
    deltas = read(first, second, last)
    assert [delta.citation for delta in deltas if isinstance(delta, Citation)] == [
        {"type": "grounding", "web": {"uri": "https://e.org", "title": "E"}}
    ]
    assert [delta.block["type"] for delta in deltas if isinstance(delta, ServerBlock)] == [
        "executable_code",
        "code_execution_result",
    ]
    assert len([delta for delta in deltas if isinstance(delta, ProviderData)]) == 3
