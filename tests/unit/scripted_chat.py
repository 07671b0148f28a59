"""A chat server of a few lines, for tests of its clients. It serves one chat.

The server keeps a list of events. A subscriber gets the fold of these events as a snapshot, or the events after its
Last-Event-ID. The test's `react` decides which events a command causes. `served` runs any app on a free loopback port
in its own thread.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from threadcast_protocol.fold.reducer import reduce
from threadcast_protocol.fold.snapshot import snapshot_of
from threadcast_protocol.fold.state import ChatState, empty_state
from threadcast_protocol.framing.codec import decode_event, encode
from threadcast_protocol.wire.ids import Position

Json = dict[str, Any]  # Any: commands and events as on the wire

START_SECONDS = 30.0


class ScriptedChat:
    """`react(command)` returns the events that follow a command."""

    def __init__(self, react: Callable[[Json], list[Json]], *, ready_status: int = 200) -> None:
        self.posted: list[Json] = []
        self._react = react
        self._ready_status = ready_status
        self._events: list[Json] = []
        self._grown = asyncio.Event()
        self.app = Starlette(
            routes=[
                Route("/v1/chats/subscribe", self._subscribe),
                Route("/v1/chats/{chat_id}/commands", self._post, methods=["POST"]),
                Route("/v1/ping", self._ping),
                Route("/readyz", self._ready),
                Route("/v1/models", self._models),
            ]
        )

    async def _ping(self, _: Request) -> Response:
        return PlainTextResponse("pong")

    async def _ready(self, _: Request) -> Response:
        if self._ready_status == 200:
            return JSONResponse({"status": "ready", "store": "ok"})
        said = {"status": "unavailable", "store": "is loading", "detail": "the store: is loading"}
        return JSONResponse(said, self._ready_status)

    async def _models(self, _: Request) -> Response:
        return JSONResponse({"object": "list", "data": [{"id": "tiny"}, {"id": "large"}]})

    async def _post(self, request: Request) -> Response:
        command = msgspec.json.decode(await request.body())
        self.posted.append(command)
        self._events += self._react(command)
        self._grown.set()
        self._grown = asyncio.Event()
        return JSONResponse({"status": "accepted"}, 202)

    async def _subscribe(self, request: Request) -> Response:
        place = Position.parse(request.headers.get("last-event-id", ""))
        return StreamingResponse(self._play(place.position if place else None), media_type="text/event-stream")

    async def _play(self, position: int | None) -> AsyncIterator[bytes]:
        if position is None:
            position = len(self._events)
            yield self._block(position, msgspec.json.decode(encode(snapshot_of(self._state()))))
        while True:
            while position < len(self._events):
                position += 1
                yield self._block(position, self._events[position - 1])
            await self._grown.wait()

    def _state(self) -> ChatState:
        state = empty_state("c1")
        for position, event in enumerate(self._events, 1):
            state = reduce(state, position, decode_event(msgspec.json.encode(event)))
        return state

    def _block(self, position: int, event: Json) -> bytes:
        data = msgspec.json.encode({"chat_id": "c1", "seq": str(position), **event})
        return b"data: %b\nid: 1-%d-0\n\n" % (data, position)


@contextmanager
def served(app: ASGIApp) -> Iterator[str]:
    """Serve an app for a block. Yields its URL."""
    server = uvicorn.Server(
        uvicorn.Config(app, port=0, log_config=None, lifespan="off", ws="none", timeout_graceful_shutdown=1)
    )
    is_up = threading.Event()

    async def serve() -> None:
        serving = asyncio.create_task(server.serve())
        while not server.started and not serving.done():
            await asyncio.sleep(0.005)
        is_up.set()
        await serving

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert is_up.wait(START_SECONDS)
        (listener,) = server.servers[0].sockets
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(START_SECONDS)
