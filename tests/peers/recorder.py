"""A proxy before a peer that records the requests as they were sent; the peer's journal shows only how the peer
understood them.

The proxy passes streams on as they arrive. It runs in its own thread, so that it does not use the event loop of the
code under test.
"""

import json
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, contextmanager

import httpx2
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from threadcast_protocol.wire.messages import JsonObject

__all__ = ["Recorder", "recording"]

_HOP_BY_HOP = frozenset({"host", "content-length", "connection", "transfer-encoding"})


class Recorder:
    """`bodies` has the bodies of the requests so far, as they were sent; `url` is the address to use instead of the
    peer's."""

    def __init__(self, peer_url: str) -> None:
        self._peer_url = peer_url
        self.bodies: list[JsonObject] = []
        self.url = ""

    async def __call__(self, request: Request) -> StreamingResponse:
        body = await request.body()
        self.bodies.append(json.loads(body))
        headers = {name: value for name, value in request.headers.items() if name not in _HOP_BY_HOP}
        path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        peer = httpx2.AsyncClient(base_url=self._peer_url, timeout=30)
        asked = peer.build_request(request.method, path, headers=headers, content=body)
        answer = await peer.send(asked, stream=True)

        async def pieces() -> AsyncIterator[bytes]:
            async with aclosing(peer), aclosing(answer):
                async for piece in answer.aiter_raw():
                    yield piece

        kept = {name: value for name, value in answer.headers.items() if name not in _HOP_BY_HOP}
        return StreamingResponse(pieces(), answer.status_code, kept)


@contextmanager
def recording(peer_url: str) -> Iterator[Recorder]:
    """A running relay. The socket listens before the thread starts, so callers need not wait for the thread."""
    recorder = Recorder(peer_url)
    app = Starlette(routes=[Route("/{path:path}", recorder.__call__, methods=["POST"])])
    listener = socket.create_server(("127.0.0.1", 0))
    recorder.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    config = uvicorn.Config(app, log_config=None, log_level="critical", lifespan="off", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        yield recorder
    finally:
        server.should_exit = True
        thread.join(5)
        listener.close()
        assert not thread.is_alive()
