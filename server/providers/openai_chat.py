"""Any server that speaks OpenAI's chat completions: OpenAI itself, Ollama, llama.cpp, vLLM, gateways.

The SDK brings authentication, retries before the first byte, timeouts and connection pooling. The stream is read raw
and decoded by our own structs: above the cost of httpx2 itself, a small part of what the SDK's typed stream takes
(`bench/openai_chunks.py`). It knows nothing of chats and runs; `Providers` hands it out, the agent loop iterates it.
The one rule: whatever goes wrong leaves as `ModelFailed`, and nothing is retried once a byte has been passed on.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing, suppress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import anyio.to_thread
import httpx2
import msgspec

from protocol.errors import ModelFailed
from server.providers.base import (
    Citation,
    Delta,
    Finished,
    FinishReason,
    ModelInfo,
    ModelNamed,
    ReasoningDelta,
    Request,
    TextDelta,
    TimingsReported,
    UsageReported,
)
from server.providers.failures import model_failed
from server.providers.openai_wire import CallNumbers, Chunk, Spoken, finish_reason, request_body, usage_of
from server.providers.sse_split import EVENT_MAX_BYTES, EventTooLarge, SseSplitter

if TYPE_CHECKING:
    from openai import AsyncOpenAI

__all__ = ["OPENAI_BASE_URL", "OpenAIChat", "warm_import"]

OPENAI_BASE_URL = "https://api.openai.com/v1"

CONNECT_TIMEOUT_SECONDS = 10.0
"""Name resolution, TCP and TLS to a distant server take 1 to 3 s on a bad line."""

IDLE_TIMEOUT_SECONDS = 120.0
"""No byte for so long, retries included, means that none will come. Reasoning models are silent for a minute or more;
a model on a small machine may need longer to read its prompt: raise it there."""

MAX_RETRIES = 2
"""The SDK's default: before the first byte, on 408, 409, 429, 5xx and connection errors, honouring Retry-After."""

DRAIN_TIMEOUT_SECONDS = 0.5
"""After `[DONE]` the end of the body is normally in the same packet."""

_DONE = b"[DONE]"
_decode_chunk = msgspec.json.Decoder(Chunk).decode


def warm_import() -> None:
    """Import the SDK now. Half a second of CPU: run it in a thread once the server is ready, before a user waits."""
    import openai.resources.chat.completions  # noqa: F401

    import server.providers.openai_errors  # noqa: F401


class OpenAIChat:
    """A `Provider`. `api_key` None is for local servers that ask for none; seconds bound silence, never an answer."""

    can_continue = False
    """The wire has no way to go on after a prefix that all these servers would honour."""

    def __init__(
        self,
        name: str,
        *,
        base_url: str = OPENAI_BASE_URL,
        api_key: str | None = None,
        models: list[ModelInfo] | None = None,
        connect_timeout_seconds: float = CONNECT_TIMEOUT_SECONDS,
        idle_timeout_seconds: float = IDLE_TIMEOUT_SECONDS,
        max_retries: int = MAX_RETRIES,
        send_reasoning_back: bool = False,
    ) -> None:
        self.name = name
        self._base_url = base_url
        self._api_key = api_key
        self._models = models or []
        self._idle_timeout_seconds = idle_timeout_seconds
        self._timeout = httpx2.Timeout(idle_timeout_seconds, connect=connect_timeout_seconds)
        self._max_retries = max_retries
        self._send_reasoning_back = send_reasoning_back
        # OpenAI's reasoning models refuse `max_tokens`, most other servers know nothing else.
        host = urlsplit(base_url).hostname or ""
        is_official = host.endswith((".openai.com", ".openai.azure.com"))
        self.max_tokens_field = "max_completion_tokens" if is_official else "max_tokens"
        self._client: AsyncOpenAI | None = None
        self._opening = asyncio.Lock()

    def models(self) -> list[ModelInfo]:
        return list(self._models)

    async def aclose(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        """Ask the model. Closing or cancelling the iterator closes the connection, which stops the model."""
        client = await self._open()
        from server.providers.openai_errors import FOREIGN_ERRORS, from_error_body, from_exception

        reader = ChunkReader()
        try:
            async with aclosing(self._events(client, request)) as events:
                async for data in events:
                    if data == _DONE:
                        reader.is_done = True
                        continue
                    chunk = _decode_chunk(data)
                    if chunk.error is not None:
                        raise self._private(from_error_body(chunk.error, has_begun=reader.has_begun))
                    for delta in reader.read(chunk):
                        yield delta
        except FOREIGN_ERRORS as wrong:
            raise self._private(from_exception(wrong, has_begun=reader.has_begun)) from wrong
        except TimeoutError as wrong:
            raise model_failed("timeout", f"no answer within {self._idle_timeout_seconds} s") from wrong
        except (msgspec.DecodeError, UnicodeDecodeError, EventTooLarge) as wrong:
            # The decoder's sentence names a place and a type, never the content.
            raise model_failed("malformed", f"{type(wrong).__name__}: {wrong}") from wrong
        for delta in reader.end():
            yield delta

    async def _events(self, client: "AsyncOpenAI", request: Request) -> AsyncGenerator[bytes, None]:
        """The data of each event up to `[DONE]`. A server that does not stream is read as one event (PROV-3)."""
        body = request_body(
            request, max_tokens_field=self.max_tokens_field, send_reasoning_back=self._send_reasoning_back
        )
        # The body goes as `extra_body`, which the SDK lays over its own: it would walk through every typed message.
        call = client.chat.completions.with_streaming_response.create(
            model=request.model, messages=[], stream=True, extra_body=body
        )
        async with AsyncExitStack() as stack:
            # Without this deadline each retry would be given the whole idle time again.
            async with asyncio.timeout(self._idle_timeout_seconds):
                response = await stack.enter_async_context(call)
            pieces = response.iter_bytes()
            if response.headers.get("content-type", "").startswith("application/json"):
                yield await _whole(pieces)
                return
            splitter = SseSplitter()
            async for piece in pieces:
                for data in splitter.feed(piece):
                    yield data
                    if data == _DONE:
                        await _drain(pieces)
                        return

    async def _open(self) -> "AsyncOpenAI":
        async with self._opening:
            if self._client is None:
                # In a thread: the import (0.5 s) and the certificates (0.1 s) would hold up every other chat.
                self._client = await anyio.to_thread.run_sync(self._make_client)
            return self._client

    def _make_client(self) -> "AsyncOpenAI":
        warm_import()
        from openai import AsyncOpenAI

        # The SDK insists on a key; servers without authentication ignore it.
        return AsyncOpenAI(
            api_key=self._api_key or "none",
            base_url=self._base_url,
            timeout=self._timeout,
            max_retries=self._max_retries,
        )

    def _private(self, failure: ModelFailed) -> ModelFailed:
        """Some servers repeat the key they refuse; it must not reach the log."""
        if self._api_key:
            failure.detail = failure.detail.replace(self._api_key, "***")
        return failure


async def _whole(pieces: AsyncIterator[bytes]) -> bytes:
    whole = bytearray()
    async for piece in pieces:
        whole += piece
        if len(whole) > EVENT_MAX_BYTES:
            raise EventTooLarge(f"the answer is larger than {EVENT_MAX_BYTES} bytes")
    return bytes(whole)


async def _drain(pieces: AsyncIterator[bytes]) -> None:
    """Read the end of a body, so that its connection can serve the next call. A server that keeps it open is left."""
    with suppress(TimeoutError, httpx2.HTTPError):
        async with asyncio.timeout(DRAIN_TIMEOUT_SECONDS):
            async for _ in pieces:
                pass


class ChunkReader:
    """Chunks to deltas. `has_begun`: something of the answer has been passed on; `is_done`: the server said so."""

    def __init__(self) -> None:
        self.has_begun = False
        self.is_done = False
        self._calls = CallNumbers()
        self._model: str | None = None
        self._finish: FinishReason | None = None
        self._usage: UsageReported | None = None

    def read(self, chunk: Chunk) -> list[Delta]:
        """What `chunk` adds to the answer. Usage is kept for the end: some servers repeat a growing count."""
        deltas: list[Delta] = []
        if chunk.model and chunk.model != self._model:
            self._model = chunk.model
            deltas.append(ModelNamed(chunk.model))
        for choice in chunk.choices or ():
            spoken = choice.delta or choice.message
            if spoken is not None:
                self._say(spoken, deltas)
            if choice.finish_reason == "error":
                raise model_failed("broken" if self.has_begun else "server_error", "finish_reason: error")
            if choice.finish_reason:
                self._finish = finish_reason(choice.finish_reason)
        if chunk.usage is not None:
            self._usage = UsageReported(usage_of(chunk.usage))
        if chunk.timings is not None:
            deltas.append(TimingsReported(chunk.timings))
        return deltas

    def _say(self, spoken: Spoken, deltas: list[Delta]) -> None:
        before = len(deltas)
        # Some servers send the reasoning under both names at once.
        if reasoning := spoken.reasoning_content or spoken.reasoning:
            deltas.append(ReasoningDelta(reasoning))
        # A refusal is what the model says instead of its answer.
        if text := spoken.content or spoken.refusal:
            deltas.append(TextDelta(text))
        if spoken.tool_calls:
            deltas.extend(self._calls.delta(fragment) for fragment in spoken.tool_calls)
        if spoken.annotations:
            deltas.extend(Citation(annotation) for annotation in spoken.annotations)
        self.has_begun = self.has_begun or len(deltas) > before

    def end(self) -> list[Delta]:
        """The last deltas of a stream that ended by itself.

        Raises:
            ModelFailed: it ended without saying why the model stopped, so it was cut (`broken`) or was no answer.
        """
        if self._finish is None and not (self.is_done and self.has_begun):
            raise model_failed("broken" if self.has_begun else "empty", "the stream ended without a finish reason")
        last: list[Delta] = [] if self._usage is None else [self._usage]
        return [*last, Finished(self._finish or "stop")]
