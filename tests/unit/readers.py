"""A reader's end of a stream, which may refuse to take bytes: what the endpoint does, without HTTP.

Its `Watcher` folds what came and refuses any hole, so every test that reads also checks the law. A mistake that it
finds is raised when the test leaves: inside `send` it would only end that one reader, as any trouble of a connection.
"""

import asyncio
from collections.abc import AsyncIterator, MutableMapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio

from protocol.ids import Position
from protocol.principal import LOCAL
from protocol.sse import EventFrame, FrameParser, ParsedFrame
from server.relay.connection import Connection
from server.relay.hub import Hub
from server.relay.relay import Relay
from server.relay.subscriber import Subscriber
from server.telemetry import Metrics
from tests.integration.harness import Watcher
from tests.unit.faulty_store import DEADLINE_SECONDS

__all__ = ["Socket", "reading"]


class Socket:
    """A reader's end. While `is_blocked` nothing is taken; `watcher` holds what was. `ended` says why it is over."""

    def __init__(self, chat_id: str = "c1") -> None:
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
    def place(self) -> Position:
        """Where a client would go on."""
        place = Position.parse(self.watcher.last_id)
        assert place is not None
        return place

    def free(self) -> None:
        """Take bytes again."""
        self.is_blocked = False
        self._freed.set()
        self._freed = asyncio.Event()

    def abort(self) -> None:
        self.is_aborted = True

    def put(self, block: bytes) -> bool:
        """The short way to the socket, which takes a block at once or not at all."""
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
                except AssertionError as mistake:  # told to the test when it leaves; raised here, a reader only ends
                    self.mistake = mistake

    async def serve(self, hub: Hub, metrics: Metrics, place: Position | None, principal_id: str, **more: Any) -> None:
        """What the endpoint does with a request; returns when the stream has ended. Any: bounds of a Subscriber."""
        async with hub.relay(self.watcher.chat_id) as relay, anyio.create_task_group() as tasks:
            self._relay = relay
            self.watcher.begin()
            connection = Connection(
                self.send, tasks, metrics, principal_id=principal_id, abort=self.abort, put=self.put, **more
            )
            subscriber = Subscriber(connection, relay, relay.chat_id, is_one_of_many=False)
            with hub.kept_alive(connection):
                try:
                    await relay.join(subscriber, place)
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
    place: Position | None = None,
    principal_id: str = LOCAL.id,
    **more: Any,  # Any: bounds of a Subscriber
) -> AsyncIterator[Socket]:
    """A subscription for as long as the block runs, if it does not end before."""
    mine = socket or Socket(chat_id)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(mine.serve, hub, Metrics(), place, principal_id, **more))
        with anyio.fail_after(DEADLINE_SECONDS):
            await mine.joined.wait()
        yield mine
        tasks.cancel_scope.cancel()
    if mine.mistake is not None:
        raise mine.mistake
