"""The transport to a server, and a way to notice that it ended: the SDK's client keeps that to itself.

Whoever imports this imports the SDK. Called by the connection alone. The one rule: what passes through is not touched.
"""

import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import Self

import anyio
import httpx2
from mcp.client._transport import ReadStream, TransportStreams
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.shared.message import SessionMessage

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
    parameters = StdioServerParameters(command=spec.command, args=list(spec.args), env=dict(spec.env))
    return stdio_client(parameters, errlog=sys.stderr)


@asynccontextmanager
async def _over_http(spec: ServerSpec, refused: Callable[[], None]) -> AsyncGenerator[TransportStreams]:
    async def look(response: httpx2.Response) -> None:
        if response.status_code == 400 and "mcp-session-id" in response.request.headers:
            refused()

    async with (
        create_mcp_http_client(headers=dict(spec.headers)) as http,
        streamable_http_client(spec.url, http_client=http) as streams,
    ):
        http.event_hooks["response"].append(look)
        yield streams


class _Watched(ReadStream[SessionMessage | Exception]):
    """A stream of messages that tells when it is over."""

    def __init__(self, inner: ReadStream[SessionMessage | Exception], ended: anyio.Event) -> None:
        self._inner = inner
        self._ended = ended

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)  # `last_context`, which some streams have

    async def receive(self) -> SessionMessage | Exception:
        try:
            return await self._inner.receive()
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
            return await self._inner.__anext__()
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
