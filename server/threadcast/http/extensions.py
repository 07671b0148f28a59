"""The ASGI extensions that our HTTP server adds to a request, and streams that continue after their endpoint has
returned.

The endpoints of event streams use both. Under another ASGI server the extensions are missing, and streams work without
them.
"""

from collections.abc import AsyncGenerator, Callable

from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = [
    "ABORT",
    "BEGIN_DIRECT",
    "HAS_LEFT",
    "STREAM_LIFE",
    "abort_of",
    "begin",
    "has_left",
    "lingering",
]

ABORT = "threadcast.abort"
"""ASGI extension with the function that drops a connection that takes no bytes."""


def abort_of(scope: Scope) -> Callable[[], None]:
    """Return the function that drops the connection of a request. Under another server the returned function does
    nothing, and that server handles the connection."""
    abort: Callable[[], None] = scope.get("extensions", {}).get(ABORT, _do_nothing)
    return abort


def _do_nothing() -> None:
    pass


HAS_LEFT = "threadcast.has_left"
"""ASGI extension with the function that returns whether the client has closed the connection, without waiting."""


def has_left(scope: Scope) -> bool:
    """Return whether the client of a request has closed the connection, as far as the server has read the connection.
    Returns False under another server."""
    closed: Callable[[], bool] | None = scope.get("extensions", {}).get(HAS_LEFT)
    return closed is not None and closed()


BEGIN_DIRECT = "threadcast.begin_direct"
"""ASGI extension with the function `begin_direct(send, start)`. It begins an answer through `send`, and returns a
`DirectSend`, which writes to the socket, or None (`direct_send.py`)."""


class _Life:
    """The parts of a stream's request that are still needed when its endpoint has returned. `send` is the server's own
    function, without the wrappers of middleware; `rest` is the rest of the stream."""

    __slots__ = ("rest", "send")

    def __init__(self, send: Send) -> None:
        self.send = send
        self.rest: AsyncGenerator[None] | None = None


STREAM_LIFE = "threadcast.life"
"""ASGI extension with the object in which an endpoint stores the rest of the stream that it began."""


async def lingering(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Handle one request with `app`. If its endpoint began a stream, continue the stream afterwards.

    Routing, middleware and the endpoint are a dozen nested coroutines. They have returned when a stream has begun, so
    an idle reader needs no memory for them (`bench.memory`).
    """
    life = _Life(send)
    scope.setdefault("extensions", {})[STREAM_LIFE] = life
    try:
        await app(scope, receive, send)
        if life.rest is not None:
            method = scope["method"]
            scope.clear()  # a stream needs no more of it, and uvicorn only the method
            scope["method"] = method
            async for _ in life.rest:
                pass
    finally:
        if life.rest is not None:
            await life.rest.aclose()


async def begin(scope: Scope, stream: AsyncGenerator[None]) -> None:
    """Run `stream` up to its `yield`, by which its answer has begun, and let the server run the rest after the endpoint
    has returned. An endpoint calls this function last."""
    await anext(stream)
    life = scope.pop("extensions", {}).get(STREAM_LIFE)
    if life is None:  # under another ASGI server
        async for _ in stream:
            pass
    else:
        life.rest = stream
