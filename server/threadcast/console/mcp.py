"""`threadcast mcp`: passes MCP messages between standard input and output and a server's `/mcp`.

Over stdio a message is a line of JSON, and there are no headers (MCP, transports, revisions 2025-03-26 to 2026-07-28).
So this command adds the headers. If a client of revision 2026-07-28 cancels a request by a notification, the command
closes the HTTP request.
"""

import asyncio
import base64
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from typing import Any, BinaryIO

import httpx2

__all__ = ["LINE_MAX_BYTES", "Bridge", "mcp"]

LINE_MAX_BYTES = 16_777_216
"""Maximum bytes of a message of the client, equal to the maximum body of a request (PROTOCOL §18)."""

SILENCE_SECONDS = 60.0
"""Seconds without a byte after which a stream of the server counts as lost; the server sends heartbeats every 15 s."""

AGAIN_SECONDS = 2.0
"""Seconds between two tries to open the stream of a session."""

_REVISION = "io.modelcontextprotocol/protocolVersion"

_SAFE = frozenset(map(chr, range(0x21, 0x7F))) | {" "}


def mcp(url: str, token: str | None) -> int:
    """Pass messages on until standard input ends. Returns the exit code."""

    async def run() -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, os._exit, 130)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        timeout = httpx2.Timeout(SILENCE_SECONDS, pool=None)
        limits = httpx2.Limits(max_connections=None)
        async with httpx2.AsyncClient(headers=headers, timeout=timeout, limits=limits) as http:
            await Bridge(http, f"{url.rstrip('/')}/mcp", sys.stdout.buffer).serve(sys.stdin.buffer)

    asyncio.run(run())
    return 0


class Bridge:
    """Passes the messages of one client to the server at `url`, and writes the server's answers to `out`."""

    def __init__(self, http: httpx2.AsyncClient, url: str, out: BinaryIO) -> None:
        self._http = http
        self._url = url
        self._out = out
        self._session: dict[str, str] = {}
        self._requests: dict[object, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, lines: BinaryIO) -> None:
        """Read messages until the end of `lines`, and then close the open requests."""
        while line := await asyncio.to_thread(lines.readline, LINE_MAX_BYTES + 1):
            if len(line) > LINE_MAX_BYTES and not line.endswith(b"\n"):
                print(f"threadcast mcp: a message has more than {LINE_MAX_BYTES} bytes", file=sys.stderr, flush=True)
                break
            if line.strip():
                await self._take(line.strip())
        for task in [*self._tasks]:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _take(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except ValueError:
            message = None  # the server describes the error
        message = message if isinstance(message, dict) else {}
        method = message.get("method")
        params = message.get("params")
        params = params if isinstance(params, dict) else {}
        if method == "notifications/cancelled" and not self._session:
            request = self._requests.get(_key(params.get("requestId")))
            if request is not None:
                request.cancel()
            return
        task = asyncio.create_task(self._pass_on(line, message, params))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if isinstance(method, str) and (key := _key(message.get("id"))) is not None:
            self._requests[key] = task
            task.add_done_callback(lambda _: self._requests.pop(key, None))
        if method == "initialize":
            await asyncio.wait([task])
        elif method == "notifications/initialized" and self._session:
            stream = asyncio.create_task(self._follow())
            self._tasks.add(stream)
            stream.add_done_callback(self._tasks.discard)

    async def _pass_on(self, line: bytes, message: dict[str, Any], params: dict[str, Any]) -> None:
        """Send a message, and write the answer."""
        request_id = message.get("id")
        try:
            headers = {"Content-Type": "application/json", **_ACCEPT, **self._headers(message, params)}
            async with self._http.stream("POST", self._url, content=line, headers=headers) as answer:
                if answer.headers.get("content-type", "").startswith("text/event-stream"):
                    async for told in _told_in(answer):
                        self._write(told)
                    return
                body = await answer.aread()
                if message.get("method") == "initialize" and "mcp-session-id" in answer.headers:
                    revision = json.loads(body)["result"]["protocolVersion"]
                    self._session = {
                        "Mcp-Session-Id": answer.headers["mcp-session-id"],
                        "MCP-Protocol-Version": revision,
                    }
                if body:
                    self._write(_with_id(body, request_id))
        except httpx2.HTTPError as wrong:
            why = (
                f"the server at {self._url} does not answer ({type(wrong).__name__}); start it with `threadcast serve`"
            )
            print(f"threadcast mcp: {why}", file=sys.stderr, flush=True)
            if request_id is not None and "method" in message:
                error = {"jsonrpc": "2.0", "id": request_id, "error": {"code": -32000, "message": why}}
                self._write(json.dumps(error).encode())

    def _headers(self, message: dict[str, Any], params: dict[str, Any]) -> dict[str, str]:
        meta = params.get("_meta")
        revision = meta.get(_REVISION) if isinstance(meta, dict) else None
        if not isinstance(revision, str):
            return self._session
        name = params.get("name") if message.get("method") == "tools/call" else params.get("uri")
        named = {"Mcp-Name": _encoded(name)} if isinstance(name, str) else {}
        return {"MCP-Protocol-Version": _encoded(revision), "Mcp-Method": _encoded(str(message.get("method"))), **named}

    async def _follow(self) -> None:
        """Write the events of the session's stream, and open the stream again when it is lost."""
        while True:
            with contextlib.suppress(httpx2.HTTPError):
                async with self._http.stream("GET", self._url, headers={**_ACCEPT, **self._session}) as answer:
                    if answer.status_code >= 400:
                        return
                    async for told in _told_in(answer):
                        self._write(told)
            await asyncio.sleep(AGAIN_SECONDS)

    def _write(self, message: bytes) -> None:
        self._out.write(message + b"\n")
        self._out.flush()


_ACCEPT = {"Accept": "application/json, text/event-stream"}


async def _told_in(answer: httpx2.Response) -> AsyncIterator[bytes]:
    """Yield the data of each event. The server writes each event on one line."""
    rest = b""
    async for chunk in answer.aiter_bytes():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line.startswith(b"data: "):
                yield line.removeprefix(b"data: ")


def _key(request_id: object) -> object:
    """Return a key of a dictionary for an id, such that 1 and "1" have different keys; None for a value that is no
    id."""
    return (type(request_id), request_id) if isinstance(request_id, str | int) else None


def _with_id(body: bytes, request_id: object) -> bytes:
    """Return an answer as one line. An error without a request id, such as for status 401, gets the id of the request
    that was sent."""
    told = json.loads(body)
    if isinstance(told, dict) and told.get("id") is None and request_id is not None:
        told["id"] = request_id
    return json.dumps(told).encode()


def _encoded(value: str) -> str:
    """Return a header's value, in base64 if it is not plain ASCII (2026-07-28, streamable HTTP)."""
    if value == value.strip() and set(value) <= _SAFE and not value.startswith("=?base64?"):
        return value
    return f"=?base64?{base64.b64encode(value.encode('utf-8', 'surrogatepass')).decode()}?="
