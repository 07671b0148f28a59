"""Answers of models' servers, read by each real adapter, and the arguments and text that models write.

The adapters' own `stream` runs, with only the response's bytes replaced, so that the table of exceptions is fuzzed as
well as the readers. The law is PROV-7's: deltas of the right types that can form an answer, or `ModelFailed`.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import httpx2
import msgspec

from tests.fuzz.mutator import pieces
from tests.fuzz.target import Law, Target, held
from tests.fuzz.targets.wires import ANTHROPIC, GOOGLE, OPENAI_CHAT, OPENAI_RESPONSES
from threadcast.agent_loop.answer.assembler import Assembler
from threadcast.providers.anthropic.messages import Anthropic
from threadcast.providers.anthropic.request import request_body as anthropic_body
from threadcast.providers.base import Delta, Provider, Request
from threadcast.providers.google.answer import Chunk, read_chunk
from threadcast.providers.google.gemini import Google
from threadcast.providers.google.request import contents_and_config
from threadcast.providers.openai.chat import OpenAIChat
from threadcast.providers.openai.chat_wire import object_text
from threadcast.providers.openai.client import OpenAIServer
from threadcast.providers.openai.responses import OpenAIResponses
from threadcast.providers.sse_split import SseSplitter
from threadcast.providers.tolerant import Mender
from threadcast.providers.turns import arguments_object
from threadcast.settings import Provider as ProviderSettings
from threadcast.tools.base import read_arguments
from threadcast_protocol.framing.codec import encode
from threadcast_protocol.wire.errors import ModelFailed
from threadcast_protocol.wire.messages import FunctionCall, JsonObject, Message, ToolCall

__all__ = ["import_sdks", "model_targets"]

_REQUEST = Request(model="m", messages=[Message(role="user", content="hi", message_id="m1")])


class _Fed:
    """Yields the bytes of the pretended answer, in pieces."""

    def __init__(self) -> None:
        self.chunks: list[bytes] = []

    def events(self) -> list[bytes]:
        splitter = SseSplitter()
        return [event for chunk in self.chunks for event in splitter.feed(chunk)]


class _Body(httpx2.AsyncByteStream):
    """The body of an answer; each read returns one chunk."""

    def __init__(self, chunks: Sequence[bytes]) -> None:
        self._chunks = chunks

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self._chunks:
            yield chunk


class _Unasked(OpenAIServer):
    fed = _Fed()

    async def _open(self) -> Any:  # Any: there is no client, and the code does not call one
        return None

    @asynccontextmanager
    async def _call(self, client: object, body: JsonObject) -> AsyncIterator[httpx2.Response]:
        encode(body)
        yield httpx2.Response(200, stream=_Body(self.fed.chunks))


class _Chat(_Unasked, OpenAIChat):
    fed = _Fed()


class _Responses(_Unasked, OpenAIResponses):
    fed = _Fed()


class _Anthropic(Anthropic):
    fed = _Fed()

    async def _open(self) -> Any:  # Any: as above
        return None

    async def _events(self, client: object, body: JsonObject) -> AsyncGenerator[bytes, None]:
        encode(body)  # must not raise: encodes the request body, also of the request after a pause
        for event in self.fed.events():
            yield event


class _Google(Google):
    fed = _Fed()

    async def _open(self) -> Any:  # Any: as above
        return None

    async def _chunks(self, client: object, request: Request, mender: Mender) -> AsyncGenerator[Chunk, None]:
        for event in self.fed.events():
            yield read_chunk(event, mender)


_loop = asyncio.new_event_loop()
"""The event loop for all inputs, because a new loop for each input would cost more than the input."""


async def _gathered(deltas: AsyncIterator[Delta]) -> list[Delta]:
    return [delta async for delta in deltas]


def _adapter(provider: Provider, fed: _Fed) -> Law:
    def law(data: bytes, random: Random) -> bool:
        fed.chunks = pieces(random, data)
        try:
            deltas = _loop.run_until_complete(_gathered(provider.stream(_REQUEST)))
            assembler = Assembler((), lambda: f"c{random.getrandbits(64):x}")
            ops = [assembler.feed(delta) for delta in deltas]
        except ModelFailed as failed:
            held(failed.code and failed.message, failed)
            return False
        for delta in deltas:
            held(msgspec.convert(msgspec.to_builtins(delta), type(delta)) == delta, "not what its type says", delta)
        encode([op for op in ops if op is not None])
        encode(assembler.answer())
        return True

    return law


def _arguments(data: bytes, random: Random) -> bool:
    """Pass arguments as a model wrote them to a tool and back to each wire."""
    text = data.decode("utf-8", "replace")
    values = read_arguments(text)
    held(values is None or isinstance(values, dict), values)
    if values is not None:
        encode(values)
    held(isinstance(msgspec.json.decode(object_text(text)), dict), "a wire gets no object", text)
    encode(arguments_object(text))
    asked = Message(
        role="assistant",
        content="",
        message_id="m2",
        tool_calls=[ToolCall(id="c", index=0, function=FunctionCall("clock", text))],
    )
    told = Message(role="tool", content=text, message_id="m3", tool_call_id="c")
    request = Request(model="m", messages=[*_REQUEST.messages, asked, told])
    encode(anthropic_body(request, max_tokens=10, is_caching=True))
    contents, _ = contents_and_config(request)
    encode(contents)
    return values is not None


def import_sdks() -> None:
    """Import the SDKs whose exceptions the adapters use; each takes a second, which would count as the time of an
    input."""
    import threadcast.providers.anthropic.errors
    import threadcast.providers.google.errors
    import threadcast.providers.openai.errors  # noqa: F401


def model_targets() -> list[Target]:
    chat, responses = _Chat("o", ProviderSettings()), _Responses("o", ProviderSettings())
    anthropic, google = (
        _Anthropic("a", ProviderSettings(kind="anthropic", base_url="http://127.0.0.1")),
        _Google("g", ProviderSettings(kind="google")),
    )
    arguments = [b'{"a":1,"b":[{"c":"d"}]}', b"{}", b"", b'{"zone":"UTC"}', b'"text"', b"[1]"]
    return [
        Target("openai-chat", _adapter(chat, chat.fed), OPENAI_CHAT),
        Target("openai-responses", _adapter(responses, responses.fed), OPENAI_RESPONSES),
        Target("anthropic", _adapter(anthropic, anthropic.fed), ANTHROPIC),
        Target("google", _adapter(google, google.fed), GOOGLE),
        Target("tool-arguments", _arguments, arguments),
    ]
