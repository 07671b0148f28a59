"""The OpenAI-compatible adapter with the real SDK against a scripted server: its requests, and its reading of
replies."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator

import anyio
import pytest

from tests.integration.fake_openai import (
    CUT,
    DONE,
    HANG,
    REQUEST,
    STOP,
    FakeOpenAI,
    Reply,
    chunk,
    collect,
    failure,
    failure_of,
    text,
)
from tests.ports import free_port
from threadcast.agent_loop.answer.assembler import Assembler
from threadcast.providers import model_http
from threadcast.providers.base import (
    Finished,
    ModelInfo,
    ModelNamed,
    ModelParams,
    ReasoningDelta,
    Request,
    TextDelta,
    ToolSpec,
    UsageReported,
)
from threadcast.providers.openai.chat import ChunkReader, OpenAIChat
from threadcast.providers.openai.client import joined
from threadcast.providers.unchanged import Unchanged
from threadcast.settings import Provider as ProviderSettings
from threadcast.settings import Secret
from threadcast_protocol.wire.errors import ModelFailed
from threadcast_protocol.wire.messages import JsonObject, Message, Usage

pytestmark = pytest.mark.anyio

KEY = "sk-very-secret"


@pytest.fixture
async def provider(fake: FakeOpenAI) -> AsyncIterator[OpenAIChat]:
    made = OpenAIChat(
        "fake", ProviderSettings(base_url=fake.base_url, api_key=Secret(KEY), idle_timeout_seconds=5), max_retries=0
    )
    yield made
    await made.aclose()


def test_texts_of_one_read_are_one_delta_and_none_is_lost_to_an_error_behind_them() -> None:
    reader = ChunkReader()
    events = [text(piece).removeprefix(b"data: ") for piece in ("Hel", "lo", ", you")]
    deltas = joined(reader, [*events, b'{"error":{"message":"no"}}', *events])
    assert [next(deltas), next(deltas)] == [ModelNamed("fake-1"), TextDelta("Hello, you")]
    with pytest.raises(ModelFailed, match="broke off"):
        next(deltas)


def test_an_event_nested_too_deep_is_refused_also_among_others() -> None:
    deep = b'{"choices":' + b"[" * 200 + b"]" * 200 + b"}"
    deltas = joined(ChunkReader(), [text("a").removeprefix(b"data: "), deep])
    assert [next(deltas), next(deltas)] == [ModelNamed("fake-1"), TextDelta("a")]
    with pytest.raises(ModelFailed, match="could not be read"):
        next(deltas)


@pytest.mark.parametrize("is_proxied", [False, True])
async def test_request_with_kept_messages_is_sent_whole_and_again_after_a_failure(
    fake: FakeOpenAI, monkeypatch: pytest.MonkeyPatch, is_proxied: bool
) -> None:
    """Behind a proxy, the pieces go through httpx2's own transport."""
    if is_proxied:
        monkeypatch.setattr(model_http, "model_transport", lambda _: None)
    messages = [Message(role="user", content=f"{n} é" + "x" * 50_000, message_id=f"m{n}") for n in range(20)]
    told = [{"role": "user", "content": message.content} for message in messages]
    provider = OpenAIChat("fake", ProviderSettings(base_url=fake.base_url, api_key=Secret(KEY)), max_retries=1)
    fake.replies = [failure(500, {"message": "once"}), *[Reply([text("Hi"), STOP, DONE])] * 2]
    made: dict[str, tuple[int, object]] = {}
    for count in (18, 19):
        request = Request(model="fake", messages=messages[: count + 1], system="S", unchanged=Unchanged(count, made))
        assert TextDelta("Hi") in await collect(provider, request)
    await provider.aclose()
    system = {"role": "system", "content": "S"}
    assert [asked.body["messages"] for asked in fake.asked] == [[system, *told[:n]] for n in (19, 19, 20)]
    assert all(asked.body["stream"] is True and asked.headers["content-length"] for asked in fake.asked)
    assert not any("transfer-encoding" in asked.headers for asked in fake.asked)


@pytest.mark.row("PROV-1", "PROV-2", "EVT-14")
async def test_answer_with_reasoning_text_and_usage_comes_as_neutral_deltas(
    fake: FakeOpenAI, provider: OpenAIChat
) -> None:
    counts = {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}
    fake.replies = [
        Reply(
            [
                b": a comment\n\n",
                chunk(delta={"role": "assistant", "content": ""}),
                chunk(delta={"reasoning_content": "Hm. "}),
                chunk(delta={"reasoning": "Yes."}),
                text("Hel"),
                text("lo é😀"),
                STOP,
                chunk(usage={**counts, "prompt_tokens_details": {"cached_tokens": 5}}),
                DONE,
            ]
        )
    ]
    assert await collect(provider) == [
        ModelNamed("fake-1"),
        ReasoningDelta("Hm. "),
        ReasoningDelta("Yes."),
        TextDelta("Hello é😀"),
        UsageReported(Usage(9, 4, 13, cache_read_input_tokens=5)),
        Finished("stop"),
    ]


async def test_request_is_what_the_wire_wants_and_carries_the_key(fake: FakeOpenAI, provider: OpenAIChat) -> None:
    fake.replies = [Reply([text("x"), STOP, DONE])]
    tool = ToolSpec("clock", "The time.", {"type": "object", "properties": {}})
    request = Request(
        model="org/model-7b",
        system="Be kind.",
        messages=REQUEST.messages,
        tools=[tool],
        params=ModelParams(temperature=0.5, max_tokens=9, extra_body={"top_k": 3}),
    )
    await collect(provider, request)
    (asked,) = fake.asked
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    assert asked.body == {
        "model": "org/model-7b",
        "messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.5,
        "max_tokens": 9,
        "top_k": 3,
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "clock",
                    "description": "The time.",
                    "parameters": {"type": "object", "properties": {}},
                },
            }
        ],
    }


@pytest.mark.row("PROV-4")
async def test_tool_call_fragments_of_two_calls_become_two_whole_calls(fake: FakeOpenAI, provider: OpenAIChat) -> None:
    def fragment(index: int, arguments: str, **head: str) -> JsonObject:
        name = {"name": head.pop("name")} if "name" in head else {}
        return {"index": index, **head, "function": {**name, "arguments": arguments}}

    fake.replies = [
        Reply(
            [
                chunk(delta={"tool_calls": [fragment(0, "", id="a", name="clock")]}),
                chunk(delta={"tool_calls": [fragment(0, '{"zo')]}),
                chunk(delta={"tool_calls": [fragment(1, "", id="b", name="calculator"), fragment(0, 'ne": 1}')]}),
                chunk(delta={"tool_calls": [fragment(1, "{}")]}),
                chunk(finish_reason="tool_calls"),
                DONE,
            ]
        )
    ]
    deltas = await collect(provider)
    assembler = Assembler(set(), lambda: "made")
    for delta in deltas:
        assembler.feed(delta)
    calls = [(call.id, call.function.name, call.function.arguments) for call in assembler.tool_calls()]
    assert calls == [("a", "clock", '{"zone": 1}'), ("b", "calculator", "{}")]
    assert deltas[-1] == Finished("tool_calls")


async def test_bytes_cut_inside_a_character_and_other_line_ends_are_read_all_the_same(
    fake: FakeOpenAI, provider: OpenAIChat
) -> None:
    stream = 'data: {"choices": [{"delta": {"content": "é😀"}}]}\r\n\r\n'.encode() + STOP.replace(b"\n", b"\r") + DONE
    fake.replies = [Reply([bytes([byte]) for byte in stream])]
    assert TextDelta("é😀") in await collect(provider)


@pytest.mark.row("PROV-3")
async def test_server_that_does_not_stream_is_one_delta(fake: FakeOpenAI, provider: OpenAIChat) -> None:
    whole = b'{"model": "m", "choices": [{"message": {"content": "Hello"}, "finish_reason": "stop"}]}'
    fake.replies = [Reply([whole[:20], whole[20:]], headers={"content-type": "application/json; charset=utf-8"})]
    assert await collect(provider) == [ModelNamed("m"), TextDelta("Hello"), Finished("stop")]


async def test_done_without_a_finish_reason_and_a_finish_reason_without_done_are_both_an_end(
    fake: FakeOpenAI, provider: OpenAIChat
) -> None:
    fake.replies = [Reply([text("a"), DONE]), Reply([text("a"), STOP])]
    expected = [ModelNamed("fake-1"), TextDelta("a"), Finished("stop")]
    assert await collect(provider) == expected
    assert await collect(provider) == expected


async def test_connection_is_used_again_for_the_next_call(fake: FakeOpenAI, provider: OpenAIChat) -> None:
    fake.replies = [Reply([text("a"), STOP, DONE]) for _ in range(3)]
    for _ in range(3):
        await collect(provider)
    assert len({asked.client for asked in fake.asked}) == 1


OVERFLOW_SENTENCE = "This model's maximum context length is 4096 tokens."


@pytest.mark.row("PROV-7", "LOOP-8")
@pytest.mark.parametrize(
    ("reply", "code", "retryable"),
    [
        (failure(401, {"message": f"Incorrect API key provided: {KEY}"}), "auth_failed", False),
        (failure(403, {"message": "no"}), "auth_failed", False),
        (failure(404, {"message": "no such model"}), "llm_error", False),
        (failure(429, {"message": "slow down"}), "rate_limited", True),
        (failure(400, {"message": "x", "code": "context_length_exceeded"}), "context_overflow", False),
        (failure(400, {"message": "x", "type": "exceed_context_size_error"}), "context_overflow", False),
        (failure(400, {"message": OVERFLOW_SENTENCE}), "context_overflow", False),
        (failure(400, {"message": "bad temperature"}), "llm_error", False),
        (failure(500, {"message": "boom"}), "llm_error", True),
        (failure(504, {"message": "gateway"}), "timeout", True),
        (Reply([b"<html>"], 502, {"content-type": "text/html"}), "llm_error", True),
        (Reply([b"<html>hello</html>"], 200, {"content-type": "text/html"}), "llm_error", True),
        (Reply([b'data: {"error": {"code": 429, "message": "x"}}\n\n']), "rate_limited", True),
        (Reply([b'data: {"error": {"code": "429", "message": "x"}}\n\n']), "rate_limited", True),
        (Reply([b'data: {"error": {"type": "invalid_api_key"}}\n\n']), "auth_failed", False),
        (Reply([b'data: {"error": "' + OVERFLOW_SENTENCE.encode() + b'"}\n\n']), "context_overflow", False),
        (Reply([CUT]), "connection", True),
        (Reply([]), "llm_error", True),
        (Reply([b"data: {oops}\n\n"]), "stream_error", True),
    ],
)
async def test_call_that_cannot_start_has_its_code_and_a_sentence_of_ours(
    fake: FakeOpenAI, provider: OpenAIChat, reply: Reply, code: str, retryable: bool
) -> None:
    fake.replies = [reply]
    failed, seen = await failure_of(provider)
    assert (failed.code, failed.retryable, seen) == (code, retryable, [])
    assert failed.message.startswith(("The model", "The conversation"))
    assert failed.detail
    assert KEY not in failed.detail + failed.message


@pytest.mark.row("LOOP-9")
@pytest.mark.parametrize(
    "rest",
    [
        [CUT],
        [b'data: {"choices": [{"del\n\n'],
        [b'data: {"choices": [{"delta": {"content": 5}}]}\n\n'],
        [b'data: {"error": {"code": 429, "message": "x"}}\n\n'],
        [chunk(finish_reason="error")],
        [b'data: {"choices"'],
        [],
    ],
)
async def test_stream_that_breaks_after_the_first_delta_is_a_stream_error(
    fake: FakeOpenAI, provider: OpenAIChat, rest: list[bytes]
) -> None:
    fake.replies = [Reply([text("Hel"), *rest])]
    failed, seen = await failure_of(provider)
    assert (failed.code, seen) == ("stream_error", [ModelNamed("fake-1"), TextDelta("Hel")])
    assert failed.detail
    assert len(fake.asked) == 1


async def test_silence_is_a_timeout_before_the_first_delta_and_a_stream_error_after_it(fake: FakeOpenAI) -> None:
    provider = OpenAIChat("fake", ProviderSettings(base_url=fake.base_url, idle_timeout_seconds=0.2), max_retries=5)
    fake.replies = [Reply(hangs=True), Reply([HANG]), Reply([text("Hel"), HANG])]
    codes = []
    for _ in range(3):
        failed, _seen = await failure_of(provider)
        codes.append(failed.code)
    await provider.aclose()
    assert codes == ["timeout", "timeout", "stream_error"]
    assert len(fake.asked) == 3


async def test_nobody_listening_is_a_connection_failure() -> None:
    provider = OpenAIChat("fake", ProviderSettings(base_url=f"http://127.0.0.1:{free_port()}/v1"), max_retries=0)
    failed, _ = await failure_of(provider)
    await provider.aclose()
    assert (failed.code, failed.retryable) == ("connection", True)


async def test_nothing_is_retried_after_the_first_byte_and_everything_passing_before_it(fake: FakeOpenAI) -> None:
    provider = OpenAIChat("fake", ProviderSettings(base_url=fake.base_url), max_retries=2)
    busy = failure(429, {"message": "slow down"}, retry_after_ms="1")
    fake.replies = [busy, failure(500, {"message": "boom"}, retry_after_ms="1"), Reply([text("a"), STOP, DONE])]
    assert TextDelta("a") in await collect(provider)
    assert len(fake.asked) == 3

    fake.asked.clear()
    fake.replies = [busy] * 4
    failed, _ = await failure_of(provider)
    assert (failed.code, len(fake.asked)) == ("rate_limited", 3)

    fake.asked.clear()
    fake.replies = [failure(429, {"message": "come back tomorrow"}, retry_after="86400")]
    failed, _ = await failure_of(provider)
    assert (failed.code, len(fake.asked)) == ("rate_limited", 1)

    fake.asked.clear()
    fake.replies = [Reply([text("a"), CUT]), Reply([text("b"), STOP, DONE])]
    failed, _ = await failure_of(provider)
    assert (failed.code, len(fake.asked)) == ("stream_error", 1)
    await provider.aclose()


async def test_cancelling_the_reader_closes_the_connection(fake: FakeOpenAI, provider: OpenAIChat) -> None:
    fake.replies = [Reply([text("Hel"), HANG])]
    has_text = asyncio.Event()

    async def listen() -> None:
        async for delta in provider.stream(REQUEST):
            if isinstance(delta, TextDelta):
                has_text.set()

    with anyio.fail_after(30):
        task = asyncio.create_task(listen())
        await has_text.wait()
        task.cancel()
        await asyncio.wait({task})
    assert task.cancelled()
    assert await anyio.to_thread.run_sync(fake.client_left.wait, 5)


async def test_provider_can_be_closed_at_any_time_and_opens_again(fake: FakeOpenAI, provider: OpenAIChat) -> None:
    await provider.aclose()
    for _ in range(2):
        fake.replies = [Reply([text("a"), STOP, DONE])]
        assert TextDelta("a") in await collect(provider)
        await provider.aclose()


def test_official_server_is_given_its_own_word_for_the_token_limit() -> None:
    """OpenAI's reasoning models refuse the parameter `max_tokens`; most other servers accept only this name."""
    fields = {
        url: OpenAIChat("x", ProviderSettings(base_url=url)).max_tokens_field
        for url in ("https://api.openai.com/v1", "http://127.0.0.1:11434/v1", "https://notopenai.com/v1")
    }
    assert list(fields.values()) == ["max_completion_tokens", "max_tokens", "max_tokens"]


def test_models_are_those_it_was_given() -> None:
    info = ModelInfo(name="m", context_tokens=5)
    assert OpenAIChat("x", ProviderSettings(models=[info])).models() == [info]


def test_the_sdk_is_imported_when_a_configured_provider_is_warmed_up_and_not_before() -> None:
    script = (
        "import asyncio, sys; from threadcast.providers.openai.chat import OpenAIChat; "
        "from threadcast.providers.registry import Providers; from threadcast.settings import Provider; "
        "loaded = lambda: 'openai.resources.chat.completions' in sys.modules; "
        "asyncio.run(Providers([]).warm_up()); before = loaded(); "
        "configured = OpenAIChat('x', Provider(base_url='http://127.0.0.1:9')); "
        "asyncio.run(Providers([configured]).warm_up()); print(before, loaded())"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.split() == ["False", "True"]
