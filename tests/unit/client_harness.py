"""A transport that replaces the server in tests of the Python client. A test decides how streams and posts end.

No socket is opened. `frame` and `snapshot` make blocks of the wire for a chat `c1` whose log began at epoch 5.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeAlias

import anyio
import httpx2
import msgspec

from threadcast_client import Chat, Client, RetryPolicy
from threadcast_protocol.fold.snapshot import snapshot_of
from threadcast_protocol.fold.state import empty_state
from threadcast_protocol.framing.codec import encode
from threadcast_protocol.wire.messages import JsonObject

__all__ = [
    "BEAT",
    "BROKEN",
    "DOWN",
    "QUICK",
    "URL",
    "Answer",
    "Server",
    "accepted",
    "frame",
    "live",
    "message",
    "refused",
    "snapshot",
    "stream",
    "until",
]

URL = "http://127.0.0.1:1"
BEAT = b": hb 1\n"
QUICK = RetryPolicy(pause_first_seconds=0.001, pause_max_seconds=0.002, open_seconds=30.0)
SSE = {"content-type": "text/event-stream"}


def frame(seq: int, kind: str = "pause_cleared", *, base: int = 10, chat_id: str = "c1", **fields: object) -> bytes:
    event = {"chat_id": chat_id, "seq": str(seq), "type": kind, **fields}
    return b"data: %b\nid: 5-%d-%d\n\n" % (msgspec.json.encode(event), base + seq, base)


def snapshot(*, base: int = 10, chat_id: str = "c1", **fields: object) -> bytes:
    """Return a snapshot of an empty chat, with some fields replaced."""
    empty: JsonObject = msgspec.json.decode(encode(snapshot_of(empty_state(chat_id))))
    del empty["type"]
    fields["runtime"] = {**empty["runtime"], **fields.get("runtime", {})}  # type: ignore[dict-item]  # objects of JSON
    return frame(0, "snapshot", base=base, chat_id=chat_id, **{**empty, **fields})


def message(message_id: str, role: str, content: str, **fields: object) -> JsonObject:
    return {"message_id": message_id, "role": role, "content": content, **fields}


class Stream(httpx2.AsyncByteStream):
    """Sends its parts. In a stream, an exception breaks the connection, an event is awaited, and "hold" keeps the
    connection open."""

    def __init__(self, *parts: bytes | Exception | str | anyio.Event) -> None:
        self._parts = parts

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for part in self._parts:
            if isinstance(part, Exception):
                raise part
            if isinstance(part, str):
                await anyio.sleep_forever()
                return
            if isinstance(part, anyio.Event):
                await part.wait()
                continue
            yield part


Answer: TypeAlias = httpx2.Response | Exception


class Server(httpx2.AsyncBaseTransport):
    """Answers the n-th stream request with the n-th of `streams`, and answers posts by calling `on_post`."""

    def __init__(self, *streams: Answer, on_post: Callable[[JsonObject], Answer] | None = None) -> None:
        self._streams = list(streams)
        self._on_post = on_post or (lambda body: accepted())
        self.asked_from: list[str | None] = []
        self.posted: list[JsonObject] = []
        self.requests: list[httpx2.Request] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        if request.method == "GET":
            self.asked_from.append(request.headers.get("last-event-id"))
            answer = self._streams.pop(0) if self._streams else stream("hold")
        else:
            body: JsonObject = msgspec.json.decode(request.content, type=JsonObject)
            self.posted.append(body)
            answer = self._on_post(body)
        if isinstance(answer, Exception):
            raise answer
        return answer


def accepted(status: str = "accepted", code: int = 202) -> httpx2.Response:
    return httpx2.Response(code, json={"status": status})


def stream(*parts: bytes | Exception | str | anyio.Event) -> httpx2.Response:
    return httpx2.Response(200, headers=SSE, stream=Stream(*parts))


def refused(status: int, code: str = "x", **headers: str) -> httpx2.Response:
    return httpx2.Response(status, headers=headers, json={"detail": "no", "code": code})


BROKEN = httpx2.ReadError("reset")
DOWN = httpx2.ConnectError("refused")


@asynccontextmanager
async def live(server: Server, *, wait: bool = True) -> AsyncIterator[Chat]:
    """Open the chat `c1` on a server until the block ends, at most 30 seconds later."""
    with anyio.fail_after(30):
        async with (
            Client(URL, retry_policy=QUICK, transport=server) as client,
            client.chat("c1", wait=wait) as chat,
        ):
            yield chat


async def until(is_so: Callable[[], object]) -> None:
    """Wait until a condition holds, for at most 30 seconds."""
    with anyio.fail_after(30):
        while not is_so():
            await anyio.sleep(0.001)
