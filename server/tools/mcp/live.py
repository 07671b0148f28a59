"""One connection while it lasts: its requests, the changes it announces, and why it ended.

Everything here runs in tasks below the connection's own, and ends with it. Called by `connection.py` alone. The one
rule: every request that was taken is answered, by its result, its error, or the end of the connection.
"""

import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import anyio

from server.foreign import pass_on

if TYPE_CHECKING:
    import mcp

__all__ = ["Live", "Request", "reason_of"]

REQUESTS_WAITING_MAX = 64
REQUESTS_AT_ONCE_MAX = 16
"""To one server. More wait within their own deadlines; more than can wait are refused."""

HTTP_PROBE_SECONDS = 30.0
"""How often a server behind HTTP, which has no connection to lose, is asked for its tools."""

LISTEN_AGAIN_SECONDS = 1.0
"""Before a stream of changes that the server closed is opened again."""

REASON_MAX_CHARACTERS = 300

_EXPIRED = re.compile(r"session.*(terminated|not found|expired|unknown|invalid)", re.IGNORECASE | re.DOTALL)

_WORDLESS = "Server returned an error response"
"""What the SDK says of an HTTP error whose body it cannot read."""


class Request:
    """One `make` on its way. `done` and no error though `is_answered` is False: the connection was lost."""

    def __init__(self, make: "Callable[[mcp.Client], Awaitable[None]]") -> None:
        self.make = make
        self.scope = anyio.CancelScope()
        self.done = anyio.Event()
        self.is_answered = False
        self.error: BaseException | None = None


class Live:
    """`why` it ended; None when only its session had expired."""

    def __init__(self) -> None:
        self._send, self._received = anyio.create_memory_object_stream[Request](REQUESTS_WAITING_MAX)
        self.changed = anyio.Event()
        self.over = anyio.Event()
        self.ended = anyio.Event()
        self.why: str | None = "the connection ended"
        self.session_was_refused = False

    def submit(self, request: Request) -> None:
        """Raises anyio.WouldBlock: too many wait."""
        self._send.send_nowait(request)

    def end(self, why: str | None) -> None:
        if not self.over.is_set():
            self.why = why
            self.over.set()

    async def watch_end(self) -> None:
        await self.ended.wait()
        self.end("the server ended the connection")

    async def serve(self, client: "mcp.Client") -> None:
        """Carry requests out, some at once, for as long as the connection lasts."""
        places = anyio.Semaphore(REQUESTS_AT_ONCE_MAX)
        async with anyio.create_task_group() as tasks:
            while True:
                await places.acquire()
                request = await self._next()
                if request is None:
                    return
                tasks.start_soon(self._carry_out, client, request, places)

    async def _next(self) -> Request | None:
        """None: the connection is being closed."""
        try:
            return await self._received.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            return None

    async def _carry_out(self, client: "mcp.Client", request: Request, places: anyio.Semaphore) -> None:
        try:
            with request.scope:
                await request.make(client)
                request.is_answered = True
        except BaseException as wrong:  # boundary: the caller gets it
            pass_on(wrong)
            request.error = wrong
            if self.is_expired(wrong):
                self.end(None)
            self.changed.set()  # a look at the list shows whether the server is still there
        finally:
            request.done.set()
            places.release()

    async def listen(self, client: "mcp.Client") -> None:
        """Hear of changes where the protocol has a stream for them; elsewhere they come as messages."""
        from mcp import MCPError
        from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost

        while True:
            try:
                async with client.listen(
                    tools_list_changed=True, prompts_list_changed=True, resources_list_changed=True
                ) as events:
                    async for _ in events:
                        self.changed.set()
            except (ListenNotSupportedError, MCPError):
                return
            except SubscriptionLost:
                self.end("the server ended the stream of its changes")
                return
            await anyio.sleep(LISTEN_AGAIN_SECONDS)
            self.changed.set()

    async def probe(self) -> None:
        while True:
            await anyio.sleep(HTTP_PROBE_SECONDS)
            self.changed.set()

    def is_expired(self, wrong: BaseException) -> bool:
        """Did the server forget the session, and so never look at the request? It should say 404 (streamable HTTP,
        "Session Management"); some say 400 in words that the SDK drops."""
        from mcp import MCPError

        if not isinstance(wrong, MCPError):
            return False
        return _EXPIRED.search(wrong.message) is not None or (self.session_was_refused and wrong.message == _WORDLESS)

    def refuse_session(self) -> None:
        """The server answered 400 to a request that named its session."""
        self.session_was_refused = True

    def close(self) -> None:
        """Tell whoever still waits that there is nobody to wait for."""
        self._send.close()
        while True:
            try:
                self._received.receive_nowait().done.set()
            except (anyio.WouldBlock, anyio.EndOfStream, anyio.ClosedResourceError):
                break
        self._received.close()


def reason_of(wrong: BaseException) -> str:
    """The innermost error in a few words, for logs, lists and models."""
    while isinstance(wrong, BaseExceptionGroup):
        wrong = wrong.exceptions[0]
    text = str(getattr(wrong, "message", None) or wrong) or type(wrong).__name__
    return " ".join(text.split())[:REASON_MAX_CHARACTERS]
