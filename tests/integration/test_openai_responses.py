"""The Responses adapter: with the real SDK against a scripted server, its reader with bytes cut anywhere, and its
costs."""

import json
from collections.abc import AsyncIterator
from itertools import pairwise

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.integration.fake_openai import CUT, FakeOpenAI, Reply, collect, failure, in_whole
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
    UsageReported,
)
from threadcast.providers.complete import complete
from threadcast.providers.openai.client import joined
from threadcast.providers.openai.responses import OpenAIResponses, ResponsesReader
from threadcast.providers.sse_split import SseSplitter
from threadcast.settings import Provider as ProviderSettings
from threadcast.settings import Secret
from threadcast_protocol.wire.errors import ModelFailed
from threadcast_protocol.wire.messages import FunctionCall, JsonObject, Message, ToolCall, Usage

KEY = "sk-very-secret"
QUESTION = Message(role="user", content="Hi", message_id="u")
REQUEST = Request(model="gpt-5", messages=[QUESTION])
JSON = {"content-type": "application/json"}


def event(kind: str, **fields: object) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def words(text: str, at: int = 1) -> bytes:
    return event("response.output_text.delta", output_index=at, delta=text)


def last(status: str = "completed", **fields: object) -> bytes:
    return event(f"response.{status}", response={"model": "gpt-5-x", "status": status, **fields})


COUNTS = {"input_tokens": 9, "output_tokens": 4, "total_tokens": 13, "input_tokens_details": {"cached_tokens": 5}}
REASONING: JsonObject = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}
CALL: JsonObject = {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": ""}
SEARCH: JsonObject = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
STREAM = [
    event("response.created", response={"model": "gpt-5-x", "status": "in_progress"}),
    event("response.reasoning_summary_text.delta", output_index=0, delta="Hm."),
    event("response.output_item.done", output_index=0, item={**REASONING, "status": "completed"}),
    words("Hel"),
    words("lo é😀"),
    event("response.output_text.annotation.added", output_index=1, annotation={"type": "url_citation", "url": "u"}),
    event("response.output_item.done", output_index=2, item=SEARCH),
    event("response.output_item.added", output_index=3, item=CALL),
    event("response.function_call_arguments.delta", output_index=3, delta='{"a"'),
    event("response.function_call_arguments.delta", output_index=3, delta=":1}"),
    event("response.output_item.done", output_index=3, item={**CALL, "arguments": '{"a":1}'}),
    last(usage=COUNTS),
]
KEPT: JsonObject = {"item": REASONING, "after_text": False, "calls_before": 0}
DELTAS: list[Delta] = [
    ModelNamed("gpt-5-x"),
    ReasoningDelta("Hm."),
    ProviderData(KEPT),
    TextDelta("Hello é😀"),
    Citation({"type": "url_citation", "url": "u"}),
    ServerBlock(SEARCH),
    ToolCallDelta(0, "call_1", "look"),
    ToolCallDelta(0, arguments='{"a"'),
    ToolCallDelta(0, arguments=":1}"),
    UsageReported(Usage(9, 4, 13, cache_read_input_tokens=5)),
    Finished("tool_calls"),
]


@pytest.fixture
async def provider(fake: FakeOpenAI) -> AsyncIterator[OpenAIResponses]:
    made = OpenAIResponses(
        "fake", ProviderSettings(base_url=fake.base_url, api_key=Secret(KEY), idle_timeout_seconds=5), max_retries=0
    )
    yield made
    await made.aclose()


@pytest.mark.anyio
@pytest.mark.row("PROV-1", "EVT-14")
async def test_answer_comes_as_neutral_deltas(fake: FakeOpenAI, provider: OpenAIResponses) -> None:
    fake.replies = [Reply(STREAM)]
    assert await collect(provider) == DELTAS


@given(cuts=st.lists(st.integers(0, len(b"".join(STREAM))), max_size=12))
def test_bytes_cut_anywhere_give_the_same_deltas(cuts: list[int]) -> None:
    whole = b"".join(STREAM)
    ends = [0, *sorted(cuts), len(whole)]
    splitter, reader = SseSplitter(), ResponsesReader()
    seen: list[Delta] = []
    for begin, end in pairwise(ends):
        seen += joined(reader, splitter.feed(whole[begin:end]))
    assert in_whole([*seen, *reader.end()]) == DELTAS


@pytest.mark.anyio
@pytest.mark.row("PROV-6")
async def test_encrypted_reasoning_goes_back_before_what_it_led_to(fake: FakeOpenAI, provider: OpenAIResponses) -> None:
    call = ToolCall(id="call_1", index=0, function=FunctionCall("look", '{"a":1}'))
    answer = Message(role="assistant", content="Let me look.", message_id="a", tool_calls=[call])
    second: JsonObject = {"item": {**REASONING, "id": "rs_2"}, "after_text": True, "calls_before": 0}
    without_successor: JsonObject = {"item": {**REASONING, "id": "rs_3"}, "after_text": True, "calls_before": 1}
    result = Message(role="tool", content="42", message_id="t", tool_call_id="call_1")
    fake.replies = [Reply(STREAM)]
    await collect(
        provider,
        Request(
            model="gpt-5",
            system="Be brief.",
            messages=[QUESTION, answer, result],
            params=ModelParams(reasoning_effort="low", max_tokens=7),
            provider_data={"a": [KEPT, second, without_successor]},
        ),
    )
    body = fake.asked[0].body
    assert body["input"] == [
        {"role": "user", "content": "Hi"},
        REASONING,
        {"role": "assistant", "content": "Let me look."},
        {**REASONING, "id": "rs_2"},
        {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": '{"a":1}'},
        {"type": "function_call_output", "call_id": "call_1", "output": "42"},
    ]
    assert (body["store"], body["include"]) == (False, ["reasoning.encrypted_content"])
    assert body["reasoning"] == {"effort": "low", "summary": "auto"}
    assert (body["instructions"], body["max_output_tokens"], body["stream"]) == ("Be brief.", 7, True)


@pytest.mark.anyio
@pytest.mark.row("PROV-3")
async def test_whole_answer_is_asked_for_and_read_as_one_delta(fake: FakeOpenAI, provider: OpenAIResponses) -> None:
    output = [{"type": "message", "content": [{"type": "output_text", "text": "Hello", "annotations": []}]}]
    whole = {"object": "response", "model": "m", "status": "completed", "output": output, "usage": COUNTS}
    fake.replies = [Reply([json.dumps(whole).encode()], headers=JSON)]
    with anyio.fail_after(30):
        done = await complete(provider, REQUEST)
    assert fake.asked[0].body["stream"] is False
    assert (done.text, done.finish_reason, done.usage) == (
        "Hello",
        "stop",
        Usage(9, 4, 13, cache_read_input_tokens=5),
    )


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("ending", "reason"),
    [
        (last("incomplete", incomplete_details={"reason": "max_output_tokens"}), "length"),
        (last("incomplete", incomplete_details={"reason": "content_filter"}), "content_filter"),
        (event("response.refusal.delta", delta="No.") + last(), "stop"),
    ],
)
async def test_end_says_why_the_model_stopped(
    fake: FakeOpenAI, provider: OpenAIResponses, ending: bytes, reason: str
) -> None:
    fake.replies = [Reply([words("a"), ending])]
    assert (await collect(provider))[-1] == Finished(reason)  # type: ignore[arg-type]  # one of its four words


@pytest.mark.anyio
@pytest.mark.row("PROV-7")
@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (failure(401, {"message": f"wrong key {KEY}"}), "auth_failed"),
        (failure(429, {"message": "slow down"}, retry_after="1"), "rate_limited"),
        (failure(400, {"message": "x", "code": "context_length_exceeded"}), "context_overflow"),
        (Reply([event("error", code="rate_limit_exceeded", message="x")]), "rate_limited"),
        (Reply([last("failed", error={"code": "server_error", "message": "x"})]), "llm_error"),
        (Reply([words("a"), CUT]), "stream_error"),
        (Reply([words("a")]), "stream_error"),
        (Reply([words("a"), b"data: {oops}\n\n"]), "stream_error"),
        (Reply([]), "llm_error"),
    ],
)
async def test_failure_has_its_code_and_tells_no_secret(
    fake: FakeOpenAI, provider: OpenAIResponses, reply: Reply, code: str
) -> None:
    fake.replies = [reply]
    with pytest.raises(ModelFailed) as failed:
        await collect(provider)
    assert failed.value.code == code
    assert KEY not in failed.value.detail
