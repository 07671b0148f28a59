"""Opens the transport to a server and adds the bounds of `traffic.py` and an event for the end of the transport, which
the SDK's client does not expose.

Importing this module imports the SDK. Only `connection.py` calls it. A message that the SDK would refuse for a small
fault in its text is repaired, since a refused answer would be lost.
"""

import logging
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cache
from types import TracebackType
from typing import Self

import anyio
import anyio.to_thread
import httpx2
from mcp.client._transport import ReadStream, TransportStreams, WriteStream
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCRequest, JSONRPCResponse, jsonrpc_message_adapter
from pydantic import ValidationError

from threadcast.base.redirects import keep_origin
from threadcast.settings.mcp import Mcp
from threadcast.settings.values import revealed
from threadcast.tools.mcp.messages import mended_json
from threadcast.tools.mcp.stdio import stdio_transport
from threadcast.tools.mcp.traffic import ServerBroke, Throttle, Traffic, lines

__all__ = ["watched_transport"]

for _name in ("mcp", "client"):  # the SDK's loggers, which log a stack for each bad message of a server
    logging.getLogger(_name).setLevel(logging.CRITICAL)  # the end of a connection is logged here

HTTP_TIMEOUT = httpx2.Timeout(30.0, read=300.0)
"""Timeouts in seconds: 30 to connect and to send, 300 between two parts of an answer, because a server may hold a
stream open. The SDK's own client has the same timeouts."""

STREAMS_PER_SECOND = 1.0
STREAMS_BURST = 20.0
"""Requests for a stream of messages (GET) to a server over HTTP: 20 at once, then one a second. A server chooses the
time after which such a stream is opened again, and this time may be zero."""


@asynccontextmanager
async def watched_transport(
    name: str, server: Mcp, ended: anyio.Event, refused: Callable[[], None], end: Callable[[str], None]
) -> AsyncGenerator[TransportStreams]:
    """Open the transport to the server `name`, a child process or an HTTP server. `ended` is set when no further
    message can come, `refused` is called when an HTTP server answers 400 to a request with its session's id, and `end`
    is called with the reason when the server breaks a bound."""
    traffic = Traffic(name, server, end)
    async with _transport(name, server, refused, traffic) as (read, write):
        yield _Watched(read, ended, traffic), _Answers(write, traffic)


def _transport(
    name: str, server: Mcp, refused: Callable[[], None], traffic: Traffic
) -> AbstractAsyncContextManager[TransportStreams]:
    return _over_http(server, refused, traffic) if server.url else stdio_transport(name, server, traffic)


@asynccontextmanager
async def _over_http(server: Mcp, refused: Callable[[], None], traffic: Traffic) -> AsyncGenerator[TransportStreams]:
    streams_pace = Throttle(STREAMS_BURST)

    async def slow_down(request: httpx2.Request) -> None:
        if request.method == "GET":
            await anyio.sleep(streams_pace.late_seconds(1 / STREAMS_PER_SECOND))

    async def look(response: httpx2.Response) -> None:
        keep_origin(response)  # the server's `headers` may contain keys
        if response.status_code == 400 and "mcp-session-id" in response.request.headers:
            refused()
        if response.headers.get("content-encoding", "identity") != "identity":
            raise traffic.broke("compressed an answer, though we accept none that is compressed")
        if isinstance(response.stream, httpx2.AsyncByteStream):
            is_stream = response.headers.get("content-type", "").startswith("text/event-stream")
            response.stream = (_Events if is_stream else _Body)(response.stream, traffic)

    headers = {**revealed(server.headers), "Accept-Encoding": "identity"}
    tls = await anyio.to_thread.run_sync(_tls_context)
    async with (
        httpx2.AsyncClient(headers=headers, timeout=HTTP_TIMEOUT, verify=tls) as http,
        streamable_http_client(
            server.url, http_client=http, max_sse_event_size=traffic.message_max_bytes + 4_096
        ) as streams,
    ):
        http.event_hooks["request"].append(slow_down)
        http.event_hooks["response"].append(look)
        yield streams


@cache
def _tls_context() -> ssl.SSLContext:
    """Return the TLS context of all connections. Making a context reads all certificates, which takes up to half a
    second."""
    return httpx2.create_ssl_context()


class _Body(httpx2.AsyncByteStream):
    """An HTTP response body that holds one message. The message is checked against the connection's bounds and
    repaired."""

    def __init__(self, inner: httpx2.AsyncByteStream, traffic: Traffic) -> None:
        self._inner = inner
        self._traffic = traffic

    async def __aiter__(self) -> AsyncIterator[bytes]:
        body = bytearray()
        async for piece in self._inner:
            body += piece
            if len(body) > self._traffic.message_max_bytes:
                raise self._traffic.too_long()
        yield await _mended(await self._traffic.take(bytes(body)))

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Events(_Body):
    """A stream of server-sent events. Its messages are kept within the bounds and repaired. Only events with a single
    line of data are repaired."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        traffic = self._traffic
        size = 0
        """Bytes of the event so far."""
        values = 0
        has_data = False
        try:
            async for line in lines(aiter(self._inner), traffic.message_max_bytes):
                size += len(line) + 1
                if size > traffic.message_max_bytes:
                    raise traffic.too_long()
                if line.startswith(b"data:"):
                    data = await traffic.take(line[5:], messages=0)
                    values += line.count(b",") + line.count(b"[") + line.count(b"{")
                    if has_data:  # the SDK joins the lines, so their values count together
                        traffic.check_values(values)
                    line = b"data:" + (data if has_data else await _mended(data))
                    has_data = True
                elif not line.strip() or line.startswith(b":"):
                    await traffic.wait(messages=1)
                    if not line.strip():
                        size, values, has_data = 0, 0, False
                yield line + b"\n"
        except OverflowError:
            raise traffic.too_long() from None


async def _mended(data: bytes) -> bytes:
    if not data.lstrip().startswith(b"{"):
        return data
    try:
        jsonrpc_message_adapter.validate_json(data, by_name=False)
    except ValidationError:
        return await mended_json(data) or data
    return data


class _Watched(ReadStream[SessionMessage | Exception]):
    """Wraps a stream of messages, enforces the bounds, and sets an event at the end of the stream."""

    def __init__(self, inner: ReadStream[SessionMessage | Exception], ended: anyio.Event, traffic: Traffic) -> None:
        self._inner = inner
        self._ended = ended
        self._traffic = traffic

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)  # for `last_context`, which some streams have

    async def receive(self) -> SessionMessage | Exception:
        try:
            return self._bounded(await self._inner.receive())
        except ServerBroke as broke:
            self._ended.set()
            raise anyio.EndOfStream from broke
        except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
            self._ended.set()
            raise

    def _bounded(self, item: SessionMessage | Exception) -> SessionMessage | Exception:
        message = item.message if isinstance(item, SessionMessage) else None
        if isinstance(message, JSONRPCRequest):
            self._traffic.requested()
        elif isinstance(message, JSONRPCResponse) and isinstance(tools := message.result.get("tools"), list):
            message.result["tools"] = self._traffic.tools(tools)
        return item

    async def aclose(self) -> None:
        self._ended.set()
        await self._inner.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return self._bounded(await self._inner.__anext__())
        except ServerBroke as broke:
            self._ended.set()
            raise StopAsyncIteration from broke
        except (StopAsyncIteration, anyio.ClosedResourceError, anyio.BrokenResourceError):
            self._ended.set()
            raise

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, wrong: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        self._ended.set()
        return await self._inner.__aexit__(kind, wrong, trace)


class _Answers(WriteStream[SessionMessage]):
    """Wraps the stream of messages to a server, and counts the answers to the server's requests."""

    def __init__(self, inner: WriteStream[SessionMessage], traffic: Traffic) -> None:
        self._inner = inner
        self._traffic = traffic

    async def send(self, item: SessionMessage, /) -> None:
        await self._inner.send(item)
        if isinstance(item.message, JSONRPCResponse | JSONRPCError):
            self._traffic.answered()

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, wrong: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._inner.__aexit__(kind, wrong, trace)
