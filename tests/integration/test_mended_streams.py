"""Small faults in a model's stream, with every kind of provider over HTTP: the received text is kept, and the run
continues."""

import json
from collections.abc import AsyncIterator, Callable
from itertools import pairwise
from typing import NamedTuple

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.integration.fake_openai import DONE, REQUEST, STOP, FakeOpenAI, Reply, Step, chunk
from tests.integration.test_openai_responses import event, last
from threadcast.providers.anthropic.messages import Anthropic
from threadcast.providers.base import Delta, Finished, Provider, TextDelta, ToolCallDelta, UsageReported
from threadcast.providers.google.gemini import Google
from threadcast.providers.openai.chat import ChunkReader, OpenAIChat
from threadcast.providers.openai.responses import OpenAIResponses
from threadcast.providers.tolerant import Mender
from threadcast.settings import Provider as ProviderSettings
from threadcast.settings import Secret
from threadcast_protocol.wire.mending import MENDED, mend, mend_text, mended_json, read_mended
from threadcast_protocol.wire.messages import JsonObject

pytestmark = pytest.mark.anyio

HALVES = json.dumps("😀")[1:-1]
FIRST, SECOND = HALVES[:6], HALVES[6:]


def anthropic(kind: str, **fields: object) -> bytes:
    return b"data: " + json.dumps({"type": kind, **fields}).encode() + b"\n\n"


def google(*parts: JsonObject, **fields: object) -> bytes:
    body = {"candidates": [{"content": {"parts": list(parts)}, **fields}]}
    return b"data: " + json.dumps(body).encode() + b"\n\n"


class Wire(NamedTuple):
    """`text`, `call` and `usage` make the provider's events from their arguments; `end` ends an answer. `counts` are
    the names of the fields with the prompt's and the answer's tokens."""

    make: Callable[[str], Provider]
    text: Callable[[str], bytes]
    call: Callable[[str], bytes]
    usage: Callable[[object], list[Step]]
    counts: tuple[str, str]


def _anthropic_call(arguments: str) -> bytes:
    return (
        anthropic("content_block_stop", index=0)
        + anthropic("content_block_start", index=1, content_block={"type": "tool_use", "id": "c", "name": "f"})
        + anthropic("content_block_delta", index=1, delta={"type": "input_json_delta", "partial_json": arguments})
        + anthropic("content_block_stop", index=1)
    )


WIRES = {
    "openai_chat": Wire(
        lambda url: OpenAIChat("p", ProviderSettings(base_url=url), max_retries=0),
        lambda said: chunk(delta={"content": said}, logprobs={"x": 1.5}),
        lambda said: chunk(
            delta={"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": said}}]}
        ),
        lambda usage: [STOP, chunk(usage=usage), DONE],
        ("prompt_tokens", "completion_tokens"),
    ),
    "openai_responses": Wire(
        lambda url: OpenAIResponses("p", ProviderSettings(base_url=url), max_retries=0),
        lambda said: event("response.output_text.delta", output_index=0, delta=said, logprobs={"x": 1.5}),
        lambda said: event(
            "response.output_item.done",
            output_index=1,
            item={"type": "function_call", "call_id": "c", "name": "f", "arguments": said},
        ),
        lambda usage: [last(usage=usage)],
        ("input_tokens", "output_tokens"),
    ),
    "anthropic": Wire(
        lambda url: Anthropic(
            "p", ProviderSettings(kind="anthropic", base_url=url, api_key=Secret("k")), max_retries=0
        ),
        lambda said: anthropic(
            "content_block_delta", index=0, delta={"type": "text_delta", "text": said}, logprobs={"x": 1.5}
        ),
        _anthropic_call,
        lambda usage: [anthropic("message_delta", delta={"stop_reason": "end_turn"}, usage=usage)],
        ("input_tokens", "output_tokens"),
    ),
    "google": Wire(
        lambda url: Google(
            "p", ProviderSettings(kind="google", base_url=url.removesuffix("/v1"), api_key=Secret("k")), max_retries=0
        ),
        lambda said: google({"text": said}, avgLogprobs=1.5),
        lambda said: google({"functionCall": {"id": "c", "name": "f", "args": json.loads(said)}}),
        lambda usage: [
            b"data: "
            + json.dumps({"candidates": [{"finishReason": "STOP"}], "usageMetadata": usage}).encode()
            + b"\n\n"
        ],
        ("promptTokenCount", "candidatesTokenCount"),
    ),
}


@pytest.fixture(params=list(WIRES))
def wire(request: pytest.FixtureRequest) -> Wire:
    return WIRES[request.param]


@pytest.fixture
async def provider(wire: Wire, fake: FakeOpenAI) -> AsyncIterator[Provider]:
    made = wire.make(fake.base_url)
    yield made
    await made.aclose()


async def heard(provider: Provider, fake: FakeOpenAI, steps: list[Step]) -> list[Delta]:
    fake.replies = [Reply(steps)]
    with anyio.fail_after(30):
        return [delta async for delta in provider.stream(REQUEST)]


def text_in(deltas: list[Delta]) -> str:
    return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


def opened(wire: Wire) -> list[Step]:
    if wire is not WIRES["anthropic"]:
        return []
    return [anthropic("content_block_start", index=0, content_block={"type": "text", "text": ""})]


def broken(piece: bytes, was: bytes, now: bytes) -> bytes:
    assert was in piece
    return piece.replace(was, now)


FAULTS: dict[str, tuple[bytes, bytes, str]] = {
    "a lone half": (b"#", FIRST.encode(), MENDED),
    "the other half alone": (b"#", SECOND.encode(), MENDED),
    "a byte that is no UTF-8": (b"#", b"\xff", MENDED),
    "half of a character's bytes": (b"#", "é".encode()[:1], MENDED),
    "a raw control character": (b"#", b"\x01", "\x01"),
    "NaN in a field that nobody reads": (b"1.5", b"NaN", "#"),
    "Infinity": (b"1.5", b"-Infinity", "#"),
    "a number without end": (b"1.5", b"9" * 5_000, "#"),
}


@pytest.mark.row("PROV-1", "ERR-2")
@pytest.mark.parametrize("fault", list(FAULTS))
async def test_a_small_fault_in_a_chunk_costs_no_more_than_itself(
    wire: Wire, provider: Provider, fake: FakeOpenAI, fault: str
) -> None:
    was, now, left = FAULTS[fault]
    steps = [*opened(wire), wire.text("be"), broken(wire.text("fo#re"), was, now), wire.text(" after")]
    deltas = await heard(provider, fake, [*steps, *wire.usage({})])
    assert text_in(deltas) == f"befo{left}re after"
    assert deltas[-1] == Finished("stop")


async def test_a_character_whose_halves_come_apart_is_whole(wire: Wire, provider: Provider, fake: FakeOpenAI) -> None:
    halves = [broken(wire.text("a#"), b"#", FIRST.encode()), broken(wire.text("#b"), b"#", SECOND.encode())]
    deltas = await heard(provider, fake, [*opened(wire), *halves, *wire.usage({})])
    assert text_in(deltas) == "a😀b"
    end = [*opened(wire), broken(wire.text("cut #"), b"#", FIRST.encode()), *wire.usage({})]
    assert text_in(await heard(provider, fake, end)) == f"cut {MENDED}"


async def test_arguments_are_mended_too(wire: Wire, provider: Provider, fake: FakeOpenAI) -> None:
    call = broken(wire.call('{"a":"#"}'), b"#", b"\xff")
    deltas = await heard(provider, fake, [*opened(wire), wire.text("Look"), call, *wire.usage({})])
    arguments = "".join(delta.arguments for delta in deltas if isinstance(delta, ToolCallDelta))
    assert json.loads(arguments) == {"a": MENDED}


@pytest.mark.parametrize(
    ("usage", "said"),
    [
        ({"prompt": -5, "answer": 7}, (0, 7)),
        ({"prompt": "9", "answer": 7.0}, (9, 7)),
        ({"prompt": 10**40, "answer": 7}, (0, 7)),
        ({"prompt": None, "answer": 7}, (0, 7)),
        ({"prompt": {"text": 3}, "answer": [7]}, None),
        ("many", None),
        ([1, 2], None),
        (None, None),
        (7, None),
    ],
)
async def test_a_bad_usage_loses_nothing(
    wire: Wire, provider: Provider, fake: FakeOpenAI, usage: object, said: tuple[int, int] | None
) -> None:
    if isinstance(usage, dict):
        usage = {name: usage[ours] for name, ours in zip(wire.counts, ("prompt", "answer"), strict=True)}
    deltas = await heard(provider, fake, [*opened(wire), wire.text("fine"), *wire.usage(usage)])
    assert text_in(deltas) == "fine"
    assert deltas[-1] == Finished("stop")
    reported = [delta.usage for delta in deltas if isinstance(delta, UsageReported)]
    tokens = [(each.prompt_tokens, each.completion_tokens) for each in reported]
    assert tokens == ([] if said is None else [said]) or (said is None and tokens == [(0, 0)])


@given(text=st.text(), at=st.lists(st.integers(0, 400)))
def test_escaped_text_cut_anywhere_between_its_halves_comes_whole(text: str, at: list[int]) -> None:
    """JSON writes every character outside the Basic Multilingual Plane as two escapes, which a server may send one by
    one."""
    units = text.encode("utf-16-le")
    halves = [chr(int.from_bytes(units[i : i + 2], "little")) for i in range(0, len(units), 2)]
    cuts = sorted({0, len(halves), *(cut for cut in at if cut < len(halves))})
    pieces = ["".join(halves[a:b]) for a, b in pairwise(cuts)]
    reader, deltas = ChunkReader(), list[Delta]()
    for piece in pieces:
        deltas += reader.feed(chunk(delta={"content": piece}).removeprefix(b"data: "))
    deltas += reader.feed(STOP.removeprefix(b"data: ")) + reader.end()
    assert text_in(deltas) == text


SURROGATES = st.text(alphabet=st.characters() | st.sampled_from("\ud83d\ude00"))


@given(pieces=st.lists(SURROGATES))
def test_pieces_mended_one_by_one_are_the_text_mended_as_a_whole(pieces: list[str]) -> None:
    mender = Mender()
    mender.is_needed = True
    deltas = [delta for piece in pieces for delta in mender.mend([TextDelta(piece)])] + mender.end()
    assert text_in(deltas) == mend_text("".join(pieces))
    text_in(deltas).encode()


@given(
    value=st.recursive(
        SURROGATES | st.floats() | st.integers() | st.none() | st.booleans(),
        lambda inner: st.lists(inner) | st.dictionaries(SURROGATES, inner),
    )
)
def test_what_was_mended_is_json_and_what_was_sound_is_left_alone(value: object) -> None:
    data = json.dumps(value).encode()
    assert json.loads(mended_json(mend(value))) == mend(value)
    assert mend(read_mended(data)) == mend(value)
    assert mend(mend(value)) == mend(value)
