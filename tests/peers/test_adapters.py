"""Tests each adapter against aimock, a third party's server: the same answers must give the same results over every
wire.

Each line of `ADAPTERS` adds one adapter to the tests. Features that only one wire has (signatures, codes for a refusal)
have separate tests.
"""

from collections.abc import AsyncIterator, Callable

import anyio
import pytest
from msgspec.structs import replace

from tests.peers.aimock import Aimock
from tests.peers.recorder import recording
from threadcast.agent_loop.answer.assembler import Assembler
from threadcast.providers.anthropic.messages import Anthropic
from threadcast.providers.base import (
    Delta,
    Finished,
    ModelNamed,
    ModelParams,
    Provider,
    ReasoningDelta,
    Request,
    TextDelta,
    ToolCallDelta,
    ToolSpec,
    UsageReported,
)
from threadcast.providers.google.gemini import Google
from threadcast.providers.openai.chat import OpenAIChat
from threadcast.providers.openai.responses import OpenAIResponses
from threadcast.settings import Provider as ProviderSettings
from threadcast.settings import Secret
from threadcast_protocol.wire.errors import ModelFailed
from threadcast_protocol.wire.messages import Message, Usage

pytestmark = [
    pytest.mark.anyio,
    # aimock's own word for a Gemini answer with calls; Google says STOP.
    pytest.mark.filterwarnings("ignore:FUNCTION_CALL is not a valid FinishReason:UserWarning"),
]

KEY = "sk-of-the-peer-tests"

Make = Callable[[str, int], Provider]
"""Return an adapter for the peer at a URL, with this number of retries."""

ADAPTERS: dict[str, Make] = {
    "openai_chat": lambda url, retries: OpenAIChat(
        "p", ProviderSettings(base_url=f"{url}/v1", api_key=Secret(KEY)), max_retries=retries
    ),
    "openai_responses": lambda url, retries: OpenAIResponses(
        "p", ProviderSettings(base_url=f"{url}/v1", api_key=Secret(KEY)), max_retries=retries
    ),
    "anthropic": lambda url, retries: Anthropic(
        "p", ProviderSettings(kind="anthropic", base_url=url, api_key=Secret(KEY)), max_retries=retries
    ),
    "google": lambda url, retries: Google(
        "p",
        ProviderSettings(kind="google", base_url=url, api_key=Secret(KEY), api_version="v1beta"),
        max_retries=retries,
    ),
}

CALCULATOR = ToolSpec("calculator", "Computes.", {"type": "object", "properties": {"expression": {"type": "string"}}})


@pytest.fixture(params=list(ADAPTERS))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def provider(kind: str, aimock: Aimock) -> AsyncIterator[Provider]:
    made = ADAPTERS[kind](aimock.url, 0)
    yield made
    await made.aclose()


def asking(text: str, *more: Message, **fields: object) -> Request:
    messages = [Message(role="user", content=text, message_id="u"), *more]
    return Request(model="peer-1", messages=messages, tools=[CALCULATOR], **fields)  # type: ignore[arg-type]  # the test's words


async def collect(provider: Provider, request: Request) -> list[Delta]:
    with anyio.fail_after(20):
        return [delta async for delta in provider.stream(request)]


def text_of(deltas: list[Delta]) -> str:
    return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


@pytest.mark.row("PROV-1", "PROV-2", "EVT-14")
async def test_text_comes_in_pieces_and_ends(provider: Provider, kind: str) -> None:
    deltas = await collect(provider, asking("hello"))
    assert text_of(deltas) == "Hello! How can I help you today?"
    pieces = [delta for delta in deltas if isinstance(delta, TextDelta)]
    # our adapter yields one piece for each read of the connection
    assert len(pieces) >= (1 if kind.startswith("openai") else 2)
    assert deltas[-1] == Finished("stop")
    if kind != "google":  # aimock names no model in this answer
        assert ModelNamed("peer-1") in deltas


@pytest.mark.row("PROV-1", "PROV-4", "EVT-7")
async def test_reasoning_comes_before_a_call_whose_arguments_are_put_together(provider: Provider, kind: str) -> None:
    deltas = await collect(provider, asking("compute 6*7"))
    reasoning = [delta.text for delta in deltas if isinstance(delta, ReasoningDelta)]
    assert "".join(reasoning) == "I had better use the calculator for that."
    assembler = Assembler(set(), lambda: "made")
    for delta in deltas:
        assembler.feed(delta)
    (call,) = assembler.tool_calls()
    assert (call.id, call.function.name) == ("call_from_the_peer", "calculator")
    assert call.function.arguments == '{"expression":"6*7"}'
    assert deltas[-1] == Finished("tool_calls")
    pieces = [delta for delta in deltas if isinstance(delta, ToolCallDelta) and delta.arguments]
    assert (len(pieces) > 1) == (kind != "google"), "only Gemini's calls come whole"


@pytest.mark.row("EVT-12")
async def test_usage_is_counted_alike(provider: Provider) -> None:
    deltas = await collect(provider, asking("count my tokens"))
    assert [delta.usage for delta in deltas if isinstance(delta, UsageReported)] == [Usage(11, 4, 15)]


@pytest.mark.row("LOOP-14")
@pytest.mark.parametrize(("text", "reason"), [("do something forbidden", "content_filter"), ("be short", "length")])
async def test_refusals_and_full_answers_say_so(provider: Provider, kind: str, text: str, reason: str) -> None:
    if kind == "openai_responses" and reason == "content_filter":
        pytest.skip("aimock calls this a failed response, where the API says incomplete")
    request = replace(asking(text), model=f"peer-of-{kind}")  # each wire has a different value for this
    deltas = await collect(provider, request)
    assert text_of(deltas)
    assert deltas[-1] == Finished(reason)  # type: ignore[arg-type]  # the table above is the test


@pytest.mark.row("PROV-7", "LOOP-8")
@pytest.mark.parametrize(
    ("text", "codes", "retryable"),
    [
        ("no more for now", {"rate_limited"}, True),
        ("wrong key", {"auth_failed"}, False),
        ("too long", {"context_overflow"}, False),
        ("nobody knows an answer to this", {"llm_error", "rate_limited"}, True),  # aimock: 503
        ("overloaded", {"llm_error", "rate_limited"}, True),  # 529 is Anthropic's own number
    ],
)
async def test_call_that_cannot_start_has_its_code(
    provider: Provider, text: str, codes: set[str], retryable: bool
) -> None:
    with pytest.raises(ModelFailed) as failed:
        await collect(provider, asking(text))
    assert failed.value.code in codes
    assert failed.value.retryable == retryable
    assert KEY not in failed.value.detail


@pytest.mark.row("LOOP-9")
async def test_cut_in_the_middle_is_a_stream_error_after_what_was_said(provider: Provider, aimock: Aimock) -> None:
    seen: list[Delta] = []
    with anyio.fail_after(20), pytest.raises(ModelFailed) as failed:
        async for delta in provider.stream(asking("break off")):
            seen.append(delta)
    assert (failed.value.code, failed.value.retryable) == ("stream_error", True)
    assert text_of(seen)
    assert "This answer is cut in the middle of its only sentence".startswith(text_of(seen))
    assert len(aimock.journal()) == 1, "nothing is asked again once a byte has been passed on"


@pytest.mark.row("PROV-7")
async def test_answer_that_nobody_can_read_is_a_stream_error(provider: Provider) -> None:
    with pytest.raises(ModelFailed) as failed:
        await collect(provider, asking("garbage"))
    assert failed.value.code == "stream_error"


async def test_refused_before_the_first_byte_is_asked_again_as_late_as_the_peer_wished(
    kind: str, aimock: Aimock
) -> None:
    provider = ADAPTERS[kind](aimock.url, 1)
    deltas = await collect(provider, asking(f"busy for {kind}"))
    await provider.aclose()
    assert text_of(deltas) == "Now I have time."
    first, second = aimock.journal()
    assert [entry["response"]["status"] for entry in (first, second)] == [429, 200]
    if kind != "google":  # its SDK ignores Retry-After
        assert second["timestamp"] - first["timestamp"] >= 900


async def test_second_round_carries_the_call_and_its_result(provider: Provider, aimock: Aimock) -> None:
    question, first = "compute 6*7", Assembler(set(), lambda: "made")
    for delta in await collect(provider, asking(question)):
        first.feed(delta)
    asked = Message(role="assistant", content="", message_id="a", tool_calls=first.tool_calls())
    result = Message(role="tool", content="42", message_id="t", tool_call_id=asked.tool_calls[0].id)
    deltas = await collect(provider, asking(question, asked, result, provider_data={"a": first.provider_data}))
    assert text_of(deltas) == "It is 42."
    sent = aimock.asked()[-1]["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant", "tool"]
    assert sent[1]["tool_calls"][0]["id"] == sent[2]["tool_call_id"]


@pytest.mark.parametrize("question", ["compute 6*7", "keep it secret"])
async def test_thinking_of_anthropic_goes_back_verbatim_and_is_refused_without(aimock: Aimock, question: str) -> None:
    """aimock refuses, as the API does, a tool round whose answer does not begin with its signed thinking."""
    params = ModelParams(thinking_budget=2_000)
    with recording(aimock.url) as recorder:
        provider = ADAPTERS["anthropic"](recorder.url, 0)
        first = Assembler(set(), lambda: "made")
        for delta in await collect(provider, asking(question, params=params)):
            first.feed(delta)
        asked = Message(role="assistant", content="", message_id="a", tool_calls=first.tool_calls())
        result = Message(role="tool", content="42", message_id="t", tool_call_id=asked.tool_calls[0].id)
        again = asking(question, asked, result, params=params, provider_data={"a": first.provider_data})
        await collect(provider, again)
        sent = recorder.bodies[-1]["messages"][1]["content"]
        # This request asks for thinking without a signature; the adapter never sends such a request by itself:
        forced = ModelParams(extra_body={"thinking": {"type": "enabled", "budget_tokens": 2_000}})
        with pytest.raises(ModelFailed, match="refused"):
            await collect(provider, asking(question, asked, result, params=forced))
        await provider.aclose()
    expected = {
        "compute 6*7": {
            "type": "thinking",
            "thinking": "I had better use the calculator for that.",
            "signature": "signature of the first round",
        },
        "keep it secret": {"type": "redacted_thinking", "data": "what nobody may read"},
    }
    assert [block["type"] for block in sent] == [expected[question]["type"], "tool_use"]
    assert sent[0] == expected[question]
