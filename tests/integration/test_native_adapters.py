"""The adapters of Anthropic and Google with the real SDKs against a scripted server: the tests send every kind of wrong
stream.

tests/unit tests how each adapter reads and writes its wire, and tests/peers tests them against other projects' servers.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing

import anyio
import pytest

from tests.integration.fake_openai import CUT, HANG, REQUEST, FakeOpenAI, Reply, Step, collect, failure, failure_of
from tests.ports import free_port
from threadcast.providers.anthropic.messages import Anthropic
from threadcast.providers.base import (
    Finished,
    ModelInfo,
    ModelParams,
    Provider,
    Request,
    TextDelta,
    UsageReported,
)
from threadcast.providers.google.gemini import Google
from threadcast.settings import Provider as ProviderSettings
from threadcast.settings import Secret
from threadcast_protocol.wire.messages import JsonObject, Usage

pytestmark = pytest.mark.anyio

KEY = "sk-very-secret"


def data(body: object) -> bytes:
    return b"data: " + json.dumps(body, ensure_ascii=False).encode() + b"\n\n"


class Wire:
    """How a provider's stream represents a word, the end of the stream, and an error."""

    def __init__(self, text: bytes, stop: bytes, error: bytes) -> None:
        self.text, self.stop, self.error = text, stop, error


def anthropic_text(said: str) -> bytes:
    piece = {"type": "text_delta", "text": said}
    return (
        data({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})
        + data({"type": "content_block_delta", "index": 0, "delta": piece})
        + data({"type": "content_block_stop", "index": 0})
    )


def anthropic_stop(reason: str) -> bytes:
    return data({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 2}})


def google_chunk(said: str, **fields: object) -> bytes:
    return data({"candidates": [{"content": {"role": "model", "parts": [{"text": said}]}, **fields}]})


WIRES = {
    "anthropic": Wire(
        anthropic_text("Hel"),
        anthropic_stop("end_turn"),
        data({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
    ),
    "google": Wire(
        google_chunk("Hel"),
        google_chunk("", finishReason="STOP"),
        data({"error": {"code": 503, "status": "UNAVAILABLE", "message": "The model is overloaded."}}),
    ),
}


def make(kind: str, url: str, *, idle_seconds: float = 5, retries: int = 0) -> Provider:
    url = url.removesuffix("/v1")
    if kind == "anthropic":
        return Anthropic(
            "a",
            ProviderSettings(kind="anthropic", base_url=url, api_key=Secret(KEY), idle_timeout_seconds=idle_seconds),
            max_retries=retries,
        )
    return Google(
        "g",
        ProviderSettings(kind="google", base_url=url, api_key=Secret(KEY), idle_timeout_seconds=idle_seconds),
        max_retries=retries,
    )


@pytest.fixture(params=list(WIRES))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def wire(kind: str) -> Wire:
    return WIRES[kind]


@pytest.fixture
async def provider(kind: str, fake: FakeOpenAI) -> AsyncIterator[Provider]:
    made = make(kind, fake.base_url)
    yield made
    await made.aclose()


async def test_connection_is_used_again_and_the_provider_can_be_closed_at_any_time(
    fake: FakeOpenAI, provider: Provider, wire: Wire
) -> None:
    fake.replies = [Reply([wire.text, wire.stop]) for _ in range(3)]
    for _ in range(2):
        deltas = await collect(provider)
        assert (deltas[0], deltas[-1]) == (TextDelta("Hel"), Finished("stop"))
    assert len({asked.client for asked in fake.asked}) == 1
    await provider.aclose()
    assert TextDelta("Hel") in await collect(provider)


async def test_bytes_cut_inside_a_character_are_read_all_the_same(
    fake: FakeOpenAI, provider: Provider, kind: str, wire: Wire
) -> None:
    said = anthropic_text("é😀") if kind == "anthropic" else google_chunk("é😀")
    whole = (said + wire.stop).replace(b"\n", b"\r\n")
    fake.replies = [Reply([bytes([byte]) for byte in whole])]
    assert TextDelta("é😀") in await collect(provider)


@pytest.mark.row("LOOP-9")
@pytest.mark.parametrize("trouble", ["cut", "garbage", "error", "end", "wrong type"])
async def test_stream_that_breaks_after_the_first_delta_is_a_stream_error(
    fake: FakeOpenAI, provider: Provider, wire: Wire, kind: str, trouble: str
) -> None:
    odd = {"type": "content_block_delta", "delta": 5} if kind == "anthropic" else {"candidates": "five"}
    rest: dict[str, list[Step]] = {
        "cut": [CUT],
        "garbage": [b"data: {oops\n\n"],
        "error": [wire.error],
        "end": [],
        "wrong type": [data(odd)],
    }
    fake.replies = [Reply([wire.text, *rest[trouble]])]
    failed, seen = await failure_of(provider)
    assert (failed.code, seen) == ("stream_error", [TextDelta("Hel")])
    assert failed.detail
    assert len(fake.asked) == 1


@pytest.mark.row("PROV-7", "LOOP-8")
async def test_trouble_before_the_first_delta_has_a_sharper_code(
    fake: FakeOpenAI, provider: Provider, wire: Wire
) -> None:
    cases: list[tuple[Reply, str]] = [
        (Reply([wire.error]), "rate_limited"),
        (Reply([CUT]), "connection"),
        (Reply([]), "llm_error"),
        (failure(403, {"message": f"no, {KEY}"}), "auth_failed"),
        (failure(404, {"message": "no such model"}), "llm_error"),
        (failure(400, {"message": "bad temperature"}), "llm_error"),
        (failure(500, {"message": "boom"}), "llm_error"),
        (Reply([b"<html>"], 502, {"content-type": "text/html"}), "llm_error"),
    ]
    for reply, code in cases:
        fake.replies = [reply]
        failed, seen = await failure_of(provider)
        assert (failed.code, seen) == (code, []), reply
        assert KEY not in failed.detail + failed.message


@pytest.mark.row("PROV-7")
async def test_silence_is_a_timeout_before_the_first_delta_and_a_stream_error_after_it(
    fake: FakeOpenAI, kind: str, wire: Wire
) -> None:
    provider = make(kind, fake.base_url, idle_seconds=0.3, retries=5)
    fake.replies = [Reply(hangs=True), Reply([HANG]), Reply([wire.text, HANG])]
    codes = [(await failure_of(provider))[0].code for _ in range(3)]
    await provider.aclose()
    assert codes == ["timeout", "timeout", "stream_error"]
    assert len(fake.asked) == 3


async def test_nobody_listening_is_a_connection_failure(kind: str) -> None:
    provider = make(kind, f"http://127.0.0.1:{free_port()}")
    failed, _ = await failure_of(provider)
    await provider.aclose()
    assert (failed.code, failed.retryable) == ("connection", True)


async def test_cancelling_the_reader_closes_the_connection(fake: FakeOpenAI, provider: Provider, wire: Wire) -> None:
    fake.replies = [Reply([wire.text, HANG])]
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


async def test_reader_that_has_enough_closes_the_connection(fake: FakeOpenAI, provider: Provider, wire: Wire) -> None:
    fake.replies = [Reply([wire.text, HANG])]
    with anyio.fail_after(30):
        async with aclosing(provider.stream(REQUEST)) as deltas:
            assert await anext(deltas) == TextDelta("Hel")
        assert await anyio.to_thread.run_sync(fake.client_left.wait, 5)


async def test_answer_that_pauses_for_the_providers_own_tools_goes_on_by_itself(fake: FakeOpenAI) -> None:
    provider = make("anthropic", fake.base_url)
    head = data({"type": "message_start", "message": {"model": "m", "usage": {"input_tokens": 3}}})
    fake.replies = [
        Reply([head, anthropic_text("Searching. "), anthropic_stop("pause_turn")]),
        Reply([head, anthropic_text("Found."), anthropic_stop("end_turn")]),
    ]
    deltas = await collect(provider)
    await provider.aclose()
    assert deltas[1:] == [
        TextDelta("Searching. Found."),
        UsageReported(Usage(6, 4, 10)),
        Finished("stop"),
    ]
    said = [turn["content"] for turn in fake.asked[1].body["messages"] if turn["role"] == "assistant"]
    assert said == [[{"type": "text", "text": "Searching. "}]]


async def test_answer_that_pauses_without_end_is_given_up(fake: FakeOpenAI) -> None:
    provider = make("anthropic", fake.base_url)
    fake.replies = [Reply([anthropic_text("a"), anthropic_stop("pause_turn")]) for _ in range(30)]
    failed, _ = await failure_of(provider)
    await provider.aclose()
    assert failed.code == "stream_error"
    assert len(fake.asked) == 10


async def test_requests_carry_the_key_and_the_body_as_we_made_it(fake: FakeOpenAI, kind: str, wire: Wire) -> None:
    provider = make(kind, fake.base_url)
    fake.replies = [Reply([wire.text, wire.stop])]
    extra: JsonObject = {"topK": 3} if kind == "google" else {"top_k": 3}
    await collect(provider, Request(model="fake", messages=REQUEST.messages, params=ModelParams(extra_body=extra)))
    await provider.aclose()
    (asked,) = fake.asked
    assert KEY in "".join(asked.headers.values())
    assert asked.body.items() >= extra.items()
    assert asked.body["contents" if kind == "google" else "messages"][0]["role"] == "user"


async def test_model_that_may_write_more_is_allowed_to(fake: FakeOpenAI) -> None:
    info = ModelInfo(name="fake", context_tokens=5, max_output_tokens=64_000)
    provider = Anthropic("a", ProviderSettings(kind="anthropic", base_url=fake.base_url, models=[info]), max_retries=0)
    fake.replies = [Reply([WIRES["anthropic"].text, WIRES["anthropic"].stop])]
    await collect(provider)
    await provider.aclose()
    assert fake.asked[0].body["max_tokens"] == 64_000
    assert provider.models() == [info]


def test_importing_the_adapters_does_not_import_the_sdks() -> None:
    script = (
        "import sys, threadcast.wiring, threadcast.providers.anthropic.messages, threadcast.providers.google.gemini; "
        "print('anthropic' in sys.modules, 'google.genai' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=True)
    assert ran.stdout.split() == ["False", "False"]
