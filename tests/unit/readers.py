"""The reading end of a stream without HTTP; it can refuse bytes.

The reader's `Watcher` folds the frames and refuses any gap, so every test that reads also checks the law of the fold.
An error that it finds is raised at the end of the test: inside `send` it would only end that one reader, like any
failure of a connection.
"""

import asyncio
from collections.abc import AsyncIterator, MutableMapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio

from tests.support.reader import Watcher
from tests.unit.faulty_store import DEADLINE_SECONDS
from threadcast.base.telemetry import Metrics
from threadcast.fanout.connection import ReaderConnection
from threadcast.fanout.hub import Hub
from threadcast.fanout.relay import Relay
from threadcast.fanout.subscriber import Subscriber
from threadcast_protocol.framing.sse import EventFrame, FrameParser, ParsedFrame
from threadcast_protocol.wire.ids import Position
from threadcast_protocol.wire.principal import LOCAL

__all__ = ["Socket", "reading"]


class Socket:
    """A reader's end. While `is_blocked`, the socket accepts no bytes; `watcher` has the frames that it accepted.
    `ended` is the reason of the stream's end."""

    def __init__(self, chat_id: str = "c1", *, is_hidden: bool = False) -> None:
        self._is_hidden = is_hidden
        self.watcher = Watcher(chat_id)
        self.frames: list[ParsedFrame] = []
        self.bodies: list[bytes] = []
        self.is_blocked = False
        self.is_aborted = False
        self.ended: str | None = None
        self.joined = anyio.Event()
        self._relay: Relay | None = None
        self.mistake: AssertionError | None = None
        self._parser = FrameParser()
        self._freed = asyncio.Event()

    @property
    def relay(self) -> Relay:
        assert self._relay is not None
        return self._relay

    @property
    def stream_position(self) -> Position:
        """Return the position from which a client would resume."""
        stream_position = Position.parse(self.watcher.last_id)
        assert stream_position is not None
        return stream_position

    def free(self) -> None:
        """Take bytes again."""
        self.is_blocked = False
        self._freed.set()
        self._freed = asyncio.Event()

    def look_now(self) -> None:
        """Make the relay due for the hub's next position check."""
        self.relay.changed_at -= 1.0
        self.relay.checked_at -= 20.0

    def abort(self) -> None:
        self.is_aborted = True

    def put(self, block: bytes) -> bool:
        """Direct send: the socket accepts a whole block at once, or refuses it."""
        if not self.is_blocked:
            self._take(block)
        return not self.is_blocked

    async def send(self, message: MutableMapping[str, Any]) -> None:  # Any: ASGI's own type
        while self.is_blocked:
            await self._freed.wait()
        self._take(message["body"])

    def _take(self, body: bytes) -> None:
        self.bodies.append(body)
        frames = self._parser.feed(body)
        self.frames += frames
        for frame in frames:
            if isinstance(frame, EventFrame) and self.mistake is None:
                try:
                    self.watcher.take(frame)
                # raised at the end of the test, since here it would only end a reader
                except AssertionError as mistake:
                    self.mistake = mistake

    async def serve(
        self, hub: Hub, metrics: Metrics, stream_position: Position | None, principal_id: str, **more: Any
    ) -> None:
        """Serve a request as the endpoint does, and return when the stream has ended. Any: limits of a Subscriber."""
        async with (
            hub.relay(self.watcher.chat_id, is_hidden=self._is_hidden) as relay,
            anyio.create_task_group() as tasks,
        ):
            self._relay = relay
            self.watcher.begin()
            connection = ReaderConnection(
                self.send, tasks, metrics, principal_id=principal_id, abort=self.abort, put=self.put, **more
            )
            subscriber = Subscriber(connection, relay, relay.chat_id, is_one_of_many=False)
            with hub.kept_alive(connection):
                try:
                    await relay.join(subscriber, stream_position)
                    self.joined.set()
                    await anyio.sleep_forever()
                finally:
                    relay.leave(subscriber)
                    self.ended = connection.ended
        self.watcher.end()


@asynccontextmanager
async def reading(
    hub: Hub,
    chat_id: str = "c1",
    *,
    socket: Socket | None = None,
    stream_position: Position | None = None,
    principal_id: str = LOCAL.id,
    **more: Any,  # Any: bounds of a Subscriber
) -> AsyncIterator[Socket]:
    """Subscribe until the block or the stream ends."""
    mine = socket or Socket(chat_id)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(mine.serve, hub, Metrics(), stream_position, principal_id, **more))
        with anyio.fail_after(DEADLINE_SECONDS):
            await mine.joined.wait()
        yield mine
        tasks.cancel_scope.cancel()
    if mine.mistake is not None:
        raise mine.mistake
