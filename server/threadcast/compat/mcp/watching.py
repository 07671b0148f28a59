"""Notifies clients of changes to the chats that they have subscribed to as resources.

Up to revision 2025-11-25 a session has one stream (`GET /mcp`) and names resources by `resources/subscribe`; both must
reach the same process. From 2026-07-28 on a request `subscriptions/listen` opens the stream and also names the
resources.
"""

import time
from collections.abc import Sequence

import anyio
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectSendStream
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from threadcast.api.edge import Edge
from threadcast.api.opening import SSE_HEADERS, goodbye
from threadcast.api.run_watch import watch_chat
from threadcast.base.deadlines import Deadline
from threadcast.compat.base import json_frame
from threadcast.compat.mcp.chats import chat_at
from threadcast.compat.mcp.messages import META, RequestId, notification
from threadcast.http.extensions import abort_of
from threadcast_protocol.framing.sse import encode_event, heartbeat
from threadcast_protocol.wire.errors import Conflict, NotFound, RateLimited, ThreadcastError
from threadcast_protocol.wire.events import (
    Event,
    MessageAdded,
    MessageRemoved,
    MessagesTruncated,
    MessageUpdated,
    PauseRequired,
    RuntimeUpdated,
    ThreadUpdated,
)
from threadcast_protocol.wire.messages import JsonObject
from threadcast_protocol.wire.principal import Principal

__all__ = ["STREAMS_MAX", "SUBSCRIPTIONS_MAX", "Streams", "UpdatesAnswer"]

SUBSCRIPTIONS_MAX = 64
"""The maximum resources that one stream watches at the same time: equal to the maximum chats of an SSE stream of this
server (PROTOCOL §4)."""

STREAMS_MAX = 16
"""The maximum streams of one caller that wait for changes, in each process."""

OPENED_WITHIN_SECONDS = 5.0
"""Seconds that a subscription waits for the stream of its session."""

TICK_SECONDS = 1.0


class Streams:
    """The open streams of this process."""

    def __init__(self) -> None:
        self._changed = anyio.Event()
        self._of_caller: dict[str, dict[int, UpdatesAnswer]] = {}

    def enter(self, principal: Principal, stream: "UpdatesAnswer") -> None:
        """Register a stream. Raises RateLimited: the caller already has the maximum number of streams."""
        mine = self._of_caller.setdefault(principal.id, {})
        if len(mine) >= STREAMS_MAX:
            raise RateLimited(f"you have {STREAMS_MAX} streams of updates open; close one of them first")
        mine[id(stream)] = stream

    def leave(self, principal: Principal, stream: "UpdatesAnswer") -> None:
        mine = self._of_caller.get(principal.id, {})
        mine.pop(id(stream), None)
        if not mine:
            self._of_caller.pop(principal.id, None)

    async def of_session(self, principal: Principal, session: str) -> "UpdatesAnswer":
        """Return the stream of a session. Clients open this stream while they send their first request. Raises
        Conflict: the stream is not open, or is open at another process."""
        with anyio.move_on_after(OPENED_WITHIN_SECONDS):
            while True:
                changed = self._changed
                for stream in self._of_caller.get(principal.id, {}).values():
                    if session and stream.session == session and stream.is_open:
                        return stream
                await changed.wait()
        raise Conflict("open the stream of this session first (GET /mcp), at the same process of the server")

    def tell(self) -> None:
        """Wake the tasks that wait for a stream, so that they check again."""
        changed, self._changed = self._changed, anyio.Event()
        changed.set()


class UpdatesAnswer(Response):
    """A stream of `notifications/resources/updated`. With `listen_id`, the stream is the answer to
    `subscriptions/listen`."""

    def __init__(
        self,
        edge: Edge,
        principal: Principal,
        streams: Streams,
        *,
        session: str = "",
        uris: Sequence[str] = (),
        listen_id: RequestId | None = None,
    ) -> None:
        super().__init__()
        self.session = session
        self._edge = edge
        self._principal = principal
        self._streams = streams
        self._listen_id = listen_id
        self._uris = list(dict.fromkeys(uris))
        self._watched: dict[str, anyio.CancelScope] = {}
        self._tasks: TaskGroup | None = None

    @property
    def is_open(self) -> bool:
        return self._tasks is not None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._streams.enter(self._principal, self)
        try:
            for uri in self._uris:
                await self._check(uri)
            self._told, told = anyio.create_memory_object_stream[JsonObject](2 * SUBSCRIPTIONS_MAX)
            await send({"type": "http.response.start", "status": 200, "headers": SSE_HEADERS})
            async with anyio.create_task_group() as self._tasks, self._told, told:
                self._tasks.start_soon(self._listen, receive, self._tasks.cancel_scope)
                for uri in self._uris:
                    self._begin(uri)
                await self._write(scope, send, self._first())
                self._streams.tell()
                while not self._edge.hub.is_closing:
                    message = None
                    with anyio.move_on_after(self._edge.limits.heartbeat_seconds):
                        message = await told.receive()
                    if message is None:
                        await self._write(scope, send, heartbeat(int(time.time())))
                    else:
                        await self._write(scope, send, _block(message))
                self._tasks.cancel_scope.cancel()
            if self._edge.hub.is_closing:
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._tasks = None
            self._streams.leave(self._principal, self)

    def _first(self) -> bytes:
        if self._listen_id is None:
            return heartbeat(int(time.time()))
        honoured = {"resourceSubscriptions": self._uris} if self._uris else {}
        return _block(self._stamped("notifications/subscriptions/acknowledged", {"notifications": honoured}))

    def _stamped(self, method: str, params: JsonObject) -> JsonObject:
        if self._listen_id is not None:
            params = {**params, "_meta": {f"{META}subscriptionId": self._listen_id}}
        return notification(method, params)

    async def _listen(self, receive: Receive, telling: anyio.CancelScope) -> None:
        await goodbye(receive)
        telling.cancel()

    async def _write(self, scope: Scope, send: Send, data: bytes) -> None:
        """Send bytes; drop the connection if the client accepts no bytes for too long."""
        try:
            async with Deadline(self._edge.limits.subscriber_stall_seconds):
                await send({"type": "http.response.body", "body": data, "more_body": True})
        except TimeoutError:
            abort_of(scope)()

    async def subscribe(self, uri: str) -> None:
        """Raises NotFound, RateLimited."""
        await self._check(uri)
        if uri not in self._watched:
            self._begin(uri)

    def unsubscribe(self, uri: str) -> None:
        if (watched := self._watched.pop(uri, None)) is not None:
            watched.cancel()

    async def _check(self, uri: str) -> None:
        if len(self._watched) >= SUBSCRIPTIONS_MAX or len(self._uris) > SUBSCRIPTIONS_MAX:
            raise RateLimited(f"a stream watches at most {SUBSCRIPTIONS_MAX} resources")
        await self._edge.own(chat_at(uri), self._principal)

    def _begin(self, uri: str) -> None:
        if self._tasks is None:
            raise Conflict("the stream of this session has just ended")
        self._watched[uri] = scope = anyio.CancelScope()
        self._tasks.start_soon(self._watch, uri, scope, self._told.clone())

    async def _watch(self, uri: str, scope: anyio.CancelScope, told: MemoryObjectSendStream[JsonObject]) -> None:
        """Send changes of one chat until it is deleted. While a change waits to be sent, later changes are merged with
        it."""
        updated = self._stamped("notifications/resources/updated", {"uri": uri})
        with scope, told:
            while True:
                try:
                    async with watch_chat(self._edge.store, chat_at(uri)) as watch:
                        while True:
                            if any(_changes(event) for event in await watch.next(TICK_SECONDS)):
                                await told.send(updated)
                except NotFound:
                    await told.send(updated)
                    return
                except ThreadcastError:
                    await anyio.sleep(TICK_SECONDS)  # the store does not answer, or the log was trimmed too fast
                    await told.send(updated)


def _changes(event: Event) -> bool:
    """Return whether an event changes the chat's content for readers, apart from deltas of an unfinished answer."""
    if isinstance(event, RuntimeUpdated):
        return event.outcome is not None
    kinds = MessageAdded | MessageUpdated | MessageRemoved | MessagesTruncated | PauseRequired | ThreadUpdated
    return isinstance(event, kinds)


def _block(message: JsonObject) -> bytes:
    frame = json_frame("message", message)
    return encode_event(frame.event, frame.data, None)
