"""The transport to a server, and a way to notice that it ended: the SDK's client keeps that to itself.

Importing this module imports the SDK. Only the connection calls it. Messages pass through unchanged, except those that
the SDK refuses for a small fault in their text: these are repaired, since a refused answer is lost.
"""

import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import Self

import anyio
import httpx2
import msgspec
from mcp.client._transport import ReadStream, TransportStreams
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter
from pydantic import ValidationError

from protocol.bodies import is_too_deep
from protocol.mending import mend, read_mended
from server.tools.mcp.base import ServerSpec

__all__ = ["watched_transport"]


@asynccontextmanager
async def watched_transport(
    spec: ServerSpec, ended: anyio.Event, refused: Callable[[], None]
) -> AsyncGenerator[TransportStreams]:
    """A child process or HTTP; `ended` is set when nothing more can come from it, `refused` called when a server over
    HTTP answers 400 to a request that names its session."""
    async with _transport(spec, refused) as (read, write):
        yield _Watched(read, ended), write


def _transport(spec: ServerSpec, refused: Callable[[], None]) -> AbstractAsyncContextManager[TransportStreams]:
    if spec.url:
        return _over_http(spec, refused)
    parameters = StdioServerParameters(
        command=spec.command, args=list(spec.args), env=dict(spec.env), encoding_error_handler="replace"
    )
    return stdio_client(parameters, errlog=sys.stderr)


@asynccontextmanager
async def _over_http(spec: ServerSpec, refused: Callable[[], None]) -> AsyncGenerator[TransportStreams]:
    async def look(response: httpx2.Response) -> None:
        if response.status_code == 400 and "mcp-session-id" in response.request.headers:
            refused()
        is_plain = response.headers.get("content-encoding", "identity") == "identity"
        if is_plain and isinstance(response.stream, httpx2.AsyncByteStream):
            response.stream = _Mended(response.stream)

    async with (
        create_mcp_http_client(headers={**spec.headers, "Accept-Encoding": "identity"}) as http,
        streamable_http_client(spec.url, http_client=http) as streams,
    ):
        http.event_hooks["response"].append(look)
        yield streams


class _Mended(httpx2.AsyncByteStream):
    """Repairs the lines of a body that hold JSON which a strict decoder refuses. The data of an event is one line, and
    so is a JSON body that needs repair."""

    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        open_line: list[bytes] = []
        async for piece in self._inner:
            first, *others = piece.split(b"\n")
            open_line.append(first)
            if others:
                lines = [b"".join(open_line), *others[:-1]]
                open_line = [others[-1]]
                yield b"".join(_mended_line(line) + b"\n" for line in lines)
        if rest := b"".join(open_line):
            yield _mended_line(rest)

    async def aclose(self) -> None:
        await self._inner.aclose()


def _mended_line(line: bytes) -> bytes:
    field, data = (b"data:", line[5:]) if line.startswith(b"data:") else (b"", line)
    if not data.lstrip().startswith(b"{"):
        return line
    try:
        jsonrpc_message_adapter.validate_json(data, by_name=False)
    except ValidationError:
        return field + (_mended_json(data) or data)
    return line


def _mended_json(data: bytes) -> bytes | None:
    """Return the repaired JSON; None when it cannot be repaired."""
    try:
        return None if is_too_deep(data) else msgspec.json.encode(mend(read_mended(data)))
    except ValueError:
        return None


def _mended_message(message: SessionMessage | Exception) -> SessionMessage | Exception:
    """Return the repaired message in place of the error that the SDK passes on for a child process's line that it could
    not read."""
    if not isinstance(message, ValidationError):
        return message
    line = next((wrong["input"] for wrong in message.errors() if wrong["type"] == "json_invalid"), None)
    data = _mended_json(line.encode(errors="replace")) if isinstance(line, str) else None
    if data is None:
        return message
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(data, by_name=False))
    except ValidationError:
        return message


class _Watched(ReadStream[SessionMessage | Exception]):
    """A stream of messages that tells when it is over."""

    def __init__(self, inner: ReadStream[SessionMessage | Exception], ended: anyio.Event) -> None:
        self._inner = inner
        self._ended = ended

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)  # `last_context`, which some streams have

    async def receive(self) -> SessionMessage | Exception:
        try:
            return _mended_message(await self._inner.receive())
        except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
            self._ended.set()
            raise

    async def aclose(self) -> None:
        self._ended.set()
        await self._inner.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return _mended_message(await self._inner.__anext__())
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
