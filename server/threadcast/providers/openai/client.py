"""The common part of both OpenAI APIs: the SDK's client, one raw call, and errors as `ModelFailed`.

The SDK brings authentication, retries before the first byte, timeouts and connection pooling; the raw bytes go to the
adapter's reader, which decodes them with our structs. `openai/chat.py` and `openai/responses.py` define the formats.
Every error is raised as `ModelFailed`, and nothing is retried once a byte has been passed on.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from typing import TYPE_CHECKING, ClassVar, cast

from threadcast.base.deadlines import Deadline
from threadcast.providers.base import Delta, Request, TextDelta
from threadcast.providers.failures import checked
from threadcast.providers.openai.body_pieces import BodyPieces, encoded_body
from threadcast.providers.reader import AnswerReader
from threadcast.providers.sdk import SdkProvider
from threadcast.providers.sse_split import EVENT_MAX_BYTES, EventTooLarge, SseSplitter
from threadcast_protocol.wire.bodies import is_too_deep
from threadcast_protocol.wire.messages import JsonObject

if TYPE_CHECKING:
    import httpx2
    from openai import AsyncOpenAI
    from openai._types import RequestOptions

__all__ = ["OpenAIReader", "OpenAIServer", "joined"]

DRAIN_TIMEOUT_SECONDS = 0.5
"""Seconds to read the end of the body, which is normally in the same packet as `[DONE]`."""


class OpenAIReader(AnswerReader, ABC):
    """Reads one answer of an OpenAI API."""

    @abstractmethod
    def feed(self, data: bytes) -> list[Delta]:
        """Return the deltas of one event, or of the whole body of an answer that is not streamed.

        Raises:
            ModelFailed: the event reports an error.
            ValueError: the event cannot be decoded.
        """


class OpenAIServer(SdkProvider["AsyncOpenAI"]):
    """A `Provider` without the format of its requests and answers, which subclasses define."""

    path: ClassVar[str]
    """The path of the API below the base URL."""

    @abstractmethod
    def _body(self, request: Request) -> JsonObject:
        """Return the JSON body of `request`."""

    @abstractmethod
    def _reader(self) -> OpenAIReader: ...

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        """Ask the model. Closing or cancelling the iterator closes the connection, which stops the model."""
        client = await self._open()
        request = await self._named(request)
        from threadcast.providers.model_http import plain_pieces
        from threadcast.providers.openai.errors import ERRORS

        reader = self._reader()
        with self._failures(ERRORS, reader):
            async with AsyncExitStack() as stack:
                # Without this deadline each retry would get the whole idle timeout again.
                async with Deadline(self._settings.idle_timeout_seconds):
                    response = await stack.enter_async_context(self._call(client, self._body(request)))
                pieces = plain_pieces(response) or response.aiter_bytes()
                if response.headers.get("content-type", "").startswith("application/json"):
                    for delta in joined(reader, [await _whole(pieces)]):  # the answer is not streamed (PROV-3)
                        yield delta
                else:
                    splitter = SseSplitter()
                    async for piece in pieces:
                        for delta in joined(reader, splitter.feed(piece)):
                            yield delta
                        if reader.is_done:
                            await _drain(pieces)
                            break
        for delta in reader.end():
            yield delta

    @asynccontextmanager
    async def _call(self, client: "AsyncOpenAI", body: JsonObject) -> "AsyncIterator[httpx2.Response]":
        """Send the request, and yield the response before its body is read. The body is encoded here, because the SDK
        would traverse all typed messages and its own encoder takes 13 times as long."""
        from openai import AsyncStream

        content = encoded_body(body)
        options: RequestOptions = {"security": {"bearer_auth": True}}  # the SDK's own methods set this option, too
        if isinstance(content, BodyPieces):
            options["headers"] = {"Content-Length": str(content.size_bytes)}
        stream = await client.post(
            self.path,
            content=cast("AsyncIterable[bytes] | bytes", content),  # memoryviews are sent alike
            cast_to=object,
            options=options,
            stream=True,
            stream_cls=AsyncStream[object],
        )
        async with aclosing(stream.response):
            yield stream.response

    def _make_client(self) -> "AsyncOpenAI":
        import openai.resources.chat.completions
        import openai.resources.responses  # noqa: F401 - half a second of CPU that the first call would cost otherwise
        from openai import AsyncOpenAI, DefaultAsyncHttpxClient

        import threadcast.providers.openai.errors  # noqa: F401
        from threadcast.providers.error_bodies import guard_errors
        from threadcast.providers.model_http import model_transport

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


def joined(reader: OpenAIReader, events: Sequence[bytes]) -> Iterator[Delta]:
    """Yield the deltas of one read's events until `reader` is done, with adjacent texts joined. A read of a fast model
    has several events, and handling a delta costs as much as decoding it.

    Raises:
        ModelFailed: an event is nested too deep. The reader's exceptions pass through. Deltas before the error have
        been yielded.
    """
    texts: list[str] = []
    is_flat = len(events) > 1 and not is_too_deep(b"".join(events))  # then no single event is too deep
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
    """Read the end of a body, so that its connection can be reused; stop waiting for a server that keeps the body
    open."""
    from httpx2 import HTTPError  # already imported with the SDK

    with suppress(TimeoutError, HTTPError):
        async with asyncio.timeout(DRAIN_TIMEOUT_SECONDS):
            async for _ in pieces:
                pass
