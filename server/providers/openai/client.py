"""What every wire of OpenAI shares: the SDK's client, one raw call, and the failures of both as `ModelFailed`.

The SDK brings authentication, retries before the first byte, timeouts and connection pooling; the bytes are read raw
and handed to the adapter's reader, which decodes them with structs of ours. It knows no wire's words: `openai/chat.py`
and `openai/responses.py` do. The one rule: whatever goes wrong leaves as `ModelFailed`, and nothing is retried once a
byte has been passed on.
"""

import asyncio
from abc import abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, suppress
from typing import TYPE_CHECKING, Any, Protocol, Unpack
from urllib.parse import urlsplit

from protocol.bodies import is_too_deep
from protocol.messages import JsonObject
from server.deadlines import Deadline
from server.providers.base import Delta, Request, TextDelta
from server.providers.failures import UNREADABLE, checked, model_failed
from server.providers.openai.chat_wire import ErrorBody
from server.providers.sdk import Reach, SdkProvider
from server.providers.sse_split import EVENT_MAX_BYTES, EventTooLarge, SseSplitter

if TYPE_CHECKING:
    from openai import AsyncAPIResponse, AsyncOpenAI

__all__ = ["OPENAI_BASE_URL", "OpenAIServer", "Reader", "SaidInStream", "joined"]

OPENAI_BASE_URL = "https://api.openai.com/v1"

DRAIN_TIMEOUT_SECONDS = 0.5
"""After `[DONE]` the end of the body is normally in the same packet."""


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
            ValueError: it cannot be read.
        """

    def end(self) -> list[Delta]:
        """The last deltas of a stream that ended by itself; raises ModelFailed when it was cut or is no answer."""


class OpenAIServer(SdkProvider["AsyncOpenAI"]):
    """A `Provider` but for its wire."""

    usual_base_url = OPENAI_BASE_URL

    def __init__(self, name: str, **reach: Unpack[Reach]) -> None:
        super().__init__(name, **reach)
        host = urlsplit(self._base_url).hostname or ""
        self._is_official = host.endswith((".openai.com", ".openai.azure.com"))

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

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        """Ask the model. Closing or cancelling the iterator closes the connection, which stops the model."""
        client = await self._open()
        request = await self._named(request)
        from server.providers.openai.errors import FOREIGN_ERRORS, from_error_body, from_exception

        reader = self._reader()
        try:
            async with aclosing(self._events(client, self._body(request), reader)) as reads:
                async for events in reads:
                    for delta in joined(reader, events):
                        yield delta
        except SaidInStream as said:
            raise self._private(from_error_body(said.error, has_begun=reader.has_begun)) from None
        except FOREIGN_ERRORS as wrong:
            raise self._private(from_exception(wrong, has_begun=reader.has_begun)) from wrong
        except TimeoutError as wrong:
            raise self._silent() from wrong
        except UNREADABLE as wrong:
            # The decoder's sentence names a place and a type, never the content.
            raise model_failed("malformed", f"{type(wrong).__name__}: {wrong}") from wrong
        for delta in reader.end():
            yield delta

    async def _events(
        self, client: "AsyncOpenAI", body: JsonObject, reader: Reader
    ) -> AsyncGenerator[list[bytes], None]:
        """The data of the events of each read until `reader` has its end. An answer that is not streamed is one event
        (PROV-3)."""
        async with AsyncExitStack() as stack:
            # Without this deadline each retry would be given the whole idle time again.
            async with Deadline(self._idle_timeout_seconds):
                response = await stack.enter_async_context(self._call(client, body))
            pieces = response.iter_bytes()
            if response.headers.get("content-type", "").startswith("application/json"):
                yield [await _whole(pieces)]
                return
            splitter = SseSplitter()
            async for piece in pieces:
                if events := splitter.feed(piece):
                    yield events
                if reader.is_done:
                    await _drain(pieces)
                    return

    def _make_client(self) -> "AsyncOpenAI":
        import openai.resources.chat.completions
        import openai.resources.responses  # noqa: F401 - half a second of CPU that the first call would cost otherwise
        from openai import AsyncOpenAI, DefaultAsyncHttpxClient

        import server.providers.openai.errors  # noqa: F401
        from server.providers.error_bodies import guard_errors
        from server.providers.model_http import model_transport

        return AsyncOpenAI(
            api_key=self._key,
            base_url=self._base_url,
            timeout=self._timeout,
            max_retries=self._max_retries,
            http_client=DefaultAsyncHttpxClient(
                transport=model_transport(self._base_url),
                timeout=self._timeout,
                event_hooks={"response": [guard_errors]},
            ),
        )

    async def _close(self, client: "AsyncOpenAI") -> None:
        await client.close()


def joined(reader: Reader, events: Sequence[bytes]) -> Iterator[Delta]:
    """What the events of one read add, until `reader` has its end; texts that follow each other as one. Several come
    with each read of a fast model, and what is done for a delta costs as much as reading it.

    Raises:
        ModelFailed: an event is nested too deep; and what `reader` raises. What came before it has been yielded.
    """
    texts: list[str] = []
    is_flat = len(events) > 1 and not is_too_deep(b"".join(events))  # then none of them is
    try:
        for data in events:
            for delta in reader.feed(data if is_flat else checked(data)):
                if type(delta) is TextDelta:
                    texts.append(delta.text)
                    continue
                if texts:
                    yield TextDelta("".join(texts))
                    texts.clear()
                yield delta
            if reader.is_done:
                break
    except Exception:
        if texts:
            yield TextDelta("".join(texts))
        raise
    if texts:
        yield TextDelta("".join(texts))


async def _whole(pieces: AsyncIterator[bytes]) -> bytes:
    whole = bytearray()
    async for piece in pieces:
        whole += piece
        if len(whole) > EVENT_MAX_BYTES:
            raise EventTooLarge(f"the answer is larger than {EVENT_MAX_BYTES} bytes")
    return bytes(whole)


async def _drain(pieces: AsyncIterator[bytes]) -> None:
    """Read the end of a body, so that its connection can serve the next call. A server that keeps it open is left."""
    from httpx2 import HTTPError  # which the answer that is read here has brought along

    with suppress(TimeoutError, HTTPError):
        async with asyncio.timeout(DRAIN_TIMEOUT_SECONDS):
            async for _ in pieces:
                pass
