"""A small OpenAI-compatible server that sends exactly the bytes that a test chooses, over real HTTP on loopback.

Each call (POST), on any path, takes the next `Reply`: a status with a body, or a stream of steps. A request for a list
(GET) is answered with `lists` each time, or with 404. A step is bytes to send, `CUT` (drop the connection) or `HANG`
(send nothing until the client disconnects). The server records each request, its connection, and whether the client
disconnected. The server runs in a separate thread, so that the code under test keeps its event loop.
"""

import asyncio
import json
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

import anyio
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from threadcast.providers.base import Delta, Provider, Request, TextDelta
from threadcast_protocol.wire.errors import ModelFailed
from threadcast_protocol.wire.messages import JsonObject, Message

CUT: Literal["cut"] = "cut"
HANG: Literal["hang"] = "hang"
Step = bytes | Literal["cut", "hang"]

REQUEST = Request(model="fake", messages=[Message(role="user", content="Hi", message_id="u")])

DONE = b"data: [DONE]\n\n"


def in_whole(deltas: Sequence[Delta]) -> list[Delta]:
    """Join neighbouring texts, because the number of texts depends on how the bytes were read."""
    whole: list[Delta] = []
    for delta in deltas:
        last = whole[-1] if whole else None
        if isinstance(delta, TextDelta) and isinstance(last, TextDelta):
            whole[-1] = TextDelta(last.text + delta.text)
        else:
            whole.append(delta)
    return whole


def chunk(**fields: object) -> bytes:
    """Return a chunk as one event, whose only choice has `delta` and `finish_reason`."""
    choice = {key: fields.pop(key) for key in ("delta", "finish_reason") if key in fields}
    body: JsonObject = {
        "id": "c1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "fake-1",
        "choices": [],
        **fields,
    }
    if choice:
        body["choices"] = [{"index": 0, "delta": {}, **choice}]
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def text(content: str) -> bytes:
    return chunk(delta={"content": content})


STOP = chunk(finish_reason="stop")


@dataclass
class Reply:
    """The answer to one call. With `hangs`, the server sends nothing, not even the status line."""

    steps: Sequence[Step] = ()
    status: int = 200
    headers: dict[str, str] = field(default_factory=lambda: {"content-type": "text/event-stream"})
    hangs: bool = False


def failure(status: int, error: JsonObject, **headers: str) -> Reply:
    """Return an error in OpenAI's form; `_` in a header's name stands for `-`."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    body = json.dumps({"error": error}).encode()
    return Reply([body], status, {"content-type": "application/json", **named})


@dataclass
class Asked:
    body: JsonObject
    headers: dict[str, str]
    client: tuple[str, int]
    path: str = ""


class _Cut(Exception):
    pass


class FakeOpenAI:
    def __init__(self) -> None:
        self.replies: list[Reply] = []
        self.asked: list[Asked] = []
        self.lists: Reply | None = None
        self.listed: list[Asked] = []
        self.client_left = threading.Event()
        self.base_url = ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = b""
        while (message := await receive())["type"] == "http.request":
            body += message["body"]
            if not message.get("more_body"):
                break
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        said = json.loads(body) if body.startswith(b"{") else {}  # a sign-in is sent as a form
        asked = Asked(said, headers, tuple(scope["client"]), scope["path"])
        if scope["method"] == "GET":
            self.listed.append(asked)
            reply = self.lists or failure(404, {"message": "there is no list"})
        else:
            self.asked.append(asked)
            reply = self.replies.pop(0) if self.replies else failure(418, {"message": "the test has no more replies"})
        if reply.hangs:
            return await self._hang(receive)
        head = [(name.encode(), value.encode()) for name, value in reply.headers.items()]
        await send({"type": "http.response.start", "status": reply.status, "headers": head})
        for step in reply.steps:
            if step == CUT:
                raise _Cut
            if step == HANG:
                return await self._hang(receive)
            await send({"type": "http.response.body", "body": step, "more_body": True})
            await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": b""})
        return None

    async def _hang(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.client_left.set()


@contextmanager
def serve_fake_openai(port: int = 0) -> Iterator[FakeOpenAI]:
    """Run a server; `port` 0 takes any free port.

    The server's socket listens before the thread starts, so callers need not wait.
    """
    fake = FakeOpenAI()
    app = Starlette(routes=[Route("/{path:path}", fake, methods=["GET", "POST"])])
    listener = socket.create_server(("127.0.0.1", port))
    fake.base_url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    config = uvicorn.Config(app, log_config=None, log_level="critical", lifespan="off", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        yield fake
    finally:
        server.should_exit = True
        thread.join(5)
        listener.close()
        assert not thread.is_alive()


@pytest.fixture(scope="module")
def fake_server() -> Iterator[FakeOpenAI]:
    with serve_fake_openai() as server:
        yield server


@pytest.fixture
def fake(fake_server: FakeOpenAI) -> FakeOpenAI:
    """The server that all tests of a module share, with the requests of earlier tests forgotten."""
    fake_server.replies.clear()
    fake_server.asked.clear()
    fake_server.listed.clear()
    fake_server.lists = None
    fake_server.client_left.clear()
    return fake_server


async def collect(provider: Provider, request: Request = REQUEST) -> list[Delta]:
    with anyio.fail_after(30):
        return in_whole([delta async for delta in provider.stream(request)])


async def failure_of(provider: Provider, request: Request = REQUEST) -> tuple[ModelFailed, list[Delta]]:
    """Return the failure of the call, and the deltas that came before the failure."""
    seen: list[Delta] = []
    with anyio.fail_after(30), pytest.raises(ModelFailed) as failed:
        async for delta in provider.stream(request):
            seen.append(delta)
    return failed.value, seen
