"""What every wire of OpenAI shares: the SDK's client, one raw call, and the failures of both as `ModelFailed`.

The SDK brings authentication, retries before the first byte, timeouts and connection pooling; the bytes are read raw
and handed to the adapter's reader, which decodes them with structs of ours. It knows no wire's words: `openai/chat.py`
and `openai/responses.py` do. The one rule: whatever goes wrong leaves as `ModelFailed`, and nothing is retried once a
byte has been passed on.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, suppress
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

import anyio.to_thread
import httpx2
import msgspec

from protocol.errors import ModelFailed
from protocol.messages import JsonObject
from server.providers.base import Delta, ModelInfo, Request
from server.providers.failures import model_failed
from server.providers.openai.chat_wire import ErrorBody
from server.providers.sse_split import EVENT_MAX_BYTES, EventTooLarge, SseSplitter

if TYPE_CHECKING:
    from openai import AsyncAPIResponse, AsyncOpenAI

__all__ = ["OPENAI_BASE_URL", "OpenAIServer", "Reader", "SaidInStream", "warm_import"]

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


def warm_import() -> None:
    """Import the SDK now. Half a second of CPU: run it in a thread once the server is ready, before a user waits."""
    import openai.resources.chat.completions
    import openai.resources.responses  # noqa: F401

    import server.providers.openai.errors  # noqa: F401


class SaidInStream(Exception):
    """The server reports `error` in place of an answer."""

    def __init__(self, error: ErrorBody | str) -> None:
        super().__init__("the server reported an error in its stream")
        self.error = error


class Reader(Protocol):
    """One answer of one wire. `has_begun`: something of it has been passed on; `is_done`: the server said its end."""

    has_begun: bool
    is_done: bool

    def feed(self, data: bytes) -> list[Delta]:
        """What one event, or the whole body of an answer that is not streamed, adds.

        Raises:
            SaidInStream: it is an error.
            msgspec.DecodeError: it cannot be read.
        """

    def end(self) -> list[Delta]:
        """The last deltas of a stream that ended by itself; raises ModelFailed when it was cut or is no answer."""


class OpenAIServer(ABC):
    """A `Provider` but for its wire. `api_key` None is for local servers that ask for none; seconds bound silence,
    never an answer."""

    can_continue = False
    """The wires have no way to go on after a prefix that all these servers would honour."""

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
    ) -> None:
        self.name = name
        self._base_url = base_url
        self._api_key = api_key
        self._models = models or []
        self._idle_timeout_seconds = idle_timeout_seconds
        self._timeout = httpx2.Timeout(idle_timeout_seconds, connect=connect_timeout_seconds)
        self._max_retries = max_retries
        host = urlsplit(base_url).hostname or ""
        self._is_official = host.endswith((".openai.com", ".openai.azure.com"))
        self._client: AsyncOpenAI | None = None
        self._opening = asyncio.Lock()

    @abstractmethod
    def _body(self, request: Request) -> JsonObject:
        """The JSON body that asks for `request`."""

    @abstractmethod
    def _reader(self) -> Reader: ...

    @abstractmethod
    def _call(
        self, client: "AsyncOpenAI", body: JsonObject
    ) -> "AbstractAsyncContextManager[AsyncAPIResponse[Any]]":  # Any: the type that the SDK would parse; we read raw
        """The SDK's raw call. The body goes as `extra_body`, which the SDK lays over its own: it would walk through
        every typed message."""

    def models(self) -> list[ModelInfo]:
        return list(self._models)

    async def aclose(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        """Ask the model. Closing or cancelling the iterator closes the connection, which stops the model."""
        client = await self._open()
        from server.providers.openai.errors import FOREIGN_ERRORS, from_error_body, from_exception

        reader = self._reader()
        try:
            async with aclosing(self._events(client, self._body(request), reader)) as events:
                async for data in events:
                    for delta in reader.feed(data):
                        yield delta
        except SaidInStream as said:
            raise self._private(from_error_body(said.error, has_begun=reader.has_begun)) from None
        except FOREIGN_ERRORS as wrong:
            raise self._private(from_exception(wrong, has_begun=reader.has_begun)) from wrong
        except TimeoutError as wrong:
            raise model_failed("timeout", f"no answer within {self._idle_timeout_seconds} s") from wrong
        except (msgspec.DecodeError, UnicodeDecodeError, EventTooLarge) as wrong:
            # The decoder's sentence names a place and a type, never the content.
            raise model_failed("malformed", f"{type(wrong).__name__}: {wrong}") from wrong
        for delta in reader.end():
            yield delta

    async def _events(self, client: "AsyncOpenAI", body: JsonObject, reader: Reader) -> AsyncGenerator[bytes, None]:
        """The data of each event until `reader` has its end. An answer that is not streamed is one event (PROV-3)."""
        async with AsyncExitStack() as stack:
            # Without this deadline each retry would be given the whole idle time again.
            async with asyncio.timeout(self._idle_timeout_seconds):
                response = await stack.enter_async_context(self._call(client, body))
            pieces = response.iter_bytes()
            if response.headers.get("content-type", "").startswith("application/json"):
                yield await _whole(pieces)
                return
            splitter = SseSplitter()
            async for piece in pieces:
                for data in splitter.feed(piece):
                    yield data
                    if reader.is_done:
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
