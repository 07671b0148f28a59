"""Manages an open connection: its requests, the changes that the server announces, and the reason of the connection's
end.

All tasks here are children of the connection's task and end with it. Only `connection.py` calls this module. Every
accepted request ends with its result, its error, or the end of the connection.
"""

import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import anyio

from threadcast.base.boundary import pass_on
from threadcast.tools.mcp.elicitation import AskingCall, Slot, current_call

if TYPE_CHECKING:
    import mcp

__all__ = ["Live", "Request", "reason_of"]

REQUESTS_WAITING_MAX = 64
REQUESTS_AT_ONCE_MAX = 16
"""Maximum concurrent requests to one server. Further requests wait within their own deadlines; requests beyond
`REQUESTS_WAITING_MAX` are refused."""

HTTP_PROBE_SECONDS = 30.0
"""Seconds between requests for an HTTP server's list of tools. There is no lasting connection to such a server, so only
a request shows that the server is lost."""

LISTEN_AGAIN_SECONDS = 1.0
"""Seconds until a stream of changes is opened again after the server closed it."""

REASON_MAX_CHARACTERS = 300

_EXPIRED = re.compile(r"session.{0,200}(terminated|not found|expired|unknown|invalid)", re.IGNORECASE | re.DOTALL)
"""Matches the message of a server that does not know the session. The distance between the words is bounded, because
the text comes from the server, and an unbounded search would take time proportional to the square of its length."""

_WORDLESS = "Server returned an error response"
"""The SDK's message for an HTTP error with a body that the SDK cannot read."""


class Request:
    """A request in progress. If the request is a tool call that may ask people, `asking` is this call. When `done` is
    set without an answer and without an error, the connection was lost."""

    def __init__(self, make: "Callable[[mcp.Client], Awaitable[None]]", asking: AskingCall | None = None) -> None:
        self.make = make
        self.asking = asking
        self.scope = anyio.CancelScope()
        self.done = anyio.Event()
        self.is_answered = False
        self.error: BaseException | None = None


class Live:
    """An open connection. `why` is the reason of the connection's end; None when only the session had expired."""

    def __init__(self) -> None:
        self._send, self._received = anyio.create_memory_object_stream[Request](REQUESTS_WAITING_MAX)
        self.changed = anyio.Event()
        self.over = anyio.Event()
        self.ended = anyio.Event()
        self.why: str | None = "the connection ended"
        self.session_was_refused = False

    def submit(self, request: Request) -> None:
        """Queue a request. Raises anyio.WouldBlock when too many requests wait."""
        self._send.send_nowait(request)

    def end(self, why: str | None) -> None:
        if not self.over.is_set():
            self.why = why
            self.over.set()

    async def watch_end(self) -> None:
        await self.ended.wait()
        self.end("the server ended the connection")

    async def serve(self, client: "mcp.Client") -> None:
        """Run requests, several at a time, while the connection is open."""
        slots = anyio.Semaphore(REQUESTS_AT_ONCE_MAX)
        async with anyio.create_task_group() as tasks:
            while True:
                await slots.acquire()
                request = await self._next()
                if request is None:
                    return
                tasks.start_soon(self._carry_out, client, request, slots)

    async def _next(self) -> Request | None:
        """Return the next request; None when the connection is closing."""
        try:
            return await self._received.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            return None

    async def _carry_out(self, client: "mcp.Client", request: Request, slots: anyio.Semaphore) -> None:
        current_call.set(request.asking)  # the SDK passes on the context of this task
        slot = Slot(slots)
        if request.asking is not None:
            request.asking.slot = slot
        try:
            with request.scope:
                await request.make(client)
                request.is_answered = True
        except BaseException as wrong:  # boundary: the caller gets the error
            pass_on(wrong)
            request.error = wrong
            if self.is_expired(wrong):
                self.end(None)
            self.changed.set()  # listing the tools shows whether the server still answers
        finally:
            request.done.set()
            slot.end()

    async def listen(self, client: "mcp.Client") -> None:
        """Receive changes from the stream of changes, if the server's version of the protocol has such a stream;
        otherwise changes come as messages."""
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
        """Return whether the server had forgotten the session, and so did not process the request. In this case a
        server should answer 404 (streamable HTTP, "Session Management"); some servers answer 400 with a text that the
        SDK drops."""
        from mcp import MCPError

        if not isinstance(wrong, MCPError):
            return False
        text = wrong.message[:REASON_MAX_CHARACTERS]  # the search takes quadratic time
        return _EXPIRED.search(text) is not None or (self.session_was_refused and text == _WORDLESS)

    def refuse_session(self) -> None:
        """Record that the server answered 400 to a request with the session's id."""
        self.session_was_refused = True

    def close(self) -> None:
        """End all waiting requests, because the connection is closed."""
        self._send.close()
        while True:
            try:
                self._received.receive_nowait().done.set()
            except (anyio.WouldBlock, anyio.EndOfStream, anyio.ClosedResourceError):
                break
        self._received.close()


def reason_of(wrong: BaseException) -> str:
    """Return the innermost error in a few words, for logs, lists and models."""
    while isinstance(wrong, BaseExceptionGroup):
        wrong = wrong.exceptions[0]
    text = str(getattr(wrong, "message", None) or wrong) or type(wrong).__name__
    return " ".join(text[: 2 * REASON_MAX_CHARACTERS].split())[:REASON_MAX_CHARACTERS]
