"""The one pub/sub connection of a process, shared by all who follow a chat's log or a worker's mail.

It does not know what a message means; `log.py` and `dispatch.py` translate. Redis promises nothing about a published
message, so this file keeps one rule: whoever may have missed something is told so. After a rebuilt connection, or when
a listener's queue was full, its next item is None, and it compares the head (DISPATCH §6).

Order that matters: a listener is let in only when the server has confirmed its channels, and is told None only when
all of them are confirmed anew; else something published in between would be missed by both looks.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Protocol

import anyio
import msgspec
from redis.asyncio.connection import AbstractConnection

from protocol.errors import Unavailable
from server.store.connection import CONNECT_TIMEOUT_SECONDS, Redis, Reply, explain_error, pack
from server.store.listener import Listener
from server.store.outage import Outage, address_of

__all__ = ["PLAIN", "SHARDED", "SUBSCRIBE_TIMEOUT_SECONDS", "Channels", "Subscriptions", "Words"]

SILENCE_SECONDS = 1.0
"""Silence after which the server is asked for a sign of life, and again how long it has to answer (DESIGN §3)."""

SUBSCRIBE_TIMEOUT_SECONDS = 3.0
"""Covers one rebuild after a lost connection: silence, a connect, a round trip."""

REBUILD_PAUSE_SECONDS = 0.1
"""Between attempts to connect: short against a lease, long against a busy loop."""


class Words(msgspec.Struct, frozen=True):
    """What this kind of channel calls things."""

    subscribe: bytes
    unsubscribe: bytes
    message: bytes


PLAIN = Words(b"SUBSCRIBE", b"UNSUBSCRIBE", b"message")
SHARDED = Words(b"SSUBSCRIBE", b"SUNSUBSCRIBE", b"smessage")
"""Of a Cluster: a channel lives on the node that has its slot, and is taken from us when the slot moves."""


class Subscriptions(Protocol):
    """The store's channels, be they on one server (`Channels`) or on many (`cluster_channels.ClusterChannels`)."""

    def subscribe(self, channels: Sequence[bytes]) -> AbstractAsyncContextManager[Listener]: ...


def _not_told() -> None:
    return None


class Channels:
    """Start `run` in the store's task group, then `subscribe` from anywhere. `on_loss` is told of a lost connection."""

    def __init__(self, redis: Redis, words: Words = PLAIN, on_loss: Callable[[], None] = _not_told) -> None:
        self._redis = redis
        self._words = words
        self._on_loss = on_loss
        self._listeners: dict[bytes, list[Listener]] = {}
        self._confirmed: set[bytes] = set()
        self._unanswered: dict[bytes, int] = {}
        self._outbox: list[bytes] = []
        self._has_outbox = asyncio.Event()
        self._heard_at = -math.inf
        self._outage = Outage()

    @asynccontextmanager
    async def subscribe(self, channels: Sequence[bytes]) -> AsyncIterator[Listener]:
        """Entering returns once the server has confirmed every channel. Raises Unavailable when it does not."""
        listener = Listener(channels)
        try:
            for channel in channels:
                self.add(channel, listener)
            try:
                with anyio.fail_after(SUBSCRIBE_TIMEOUT_SECONDS):
                    await listener.ready.wait()
            except TimeoutError:
                raise Unavailable("the store's channels do not answer") from None
            yield listener
        finally:
            for channel in channels:
                self.drop(channel, listener)

    def add(self, channel: bytes, listener: Listener) -> None:
        """From here on it is told of what comes, once it is confirmed."""
        holders = self._listeners.setdefault(channel, [])
        holders.append(listener)
        if len(holders) == 1:
            self._say(self._words.subscribe, channel)
        elif channel in self._confirmed:
            listener.confirm(channel)

    def drop(self, channel: bytes, listener: Listener) -> None:
        holders = self._listeners[channel]
        holders.remove(listener)
        if not holders:
            del self._listeners[channel]
            self._confirmed.discard(channel)
            self._say(self._words.unsubscribe, channel)

    def _say(self, verb: bytes, channel: bytes) -> None:
        self._outbox.append(pack(verb, channel))
        if verb == self._words.subscribe:
            self._unanswered[channel] = self._unanswered.get(channel, 0) + 1
        self._has_outbox.set()

    async def run(self) -> None:
        """Keep one connection for ever. Boundary: every failure of it ends here and in a new one."""
        route = self._redis.route
        connection = route.connection()
        while True:
            is_open = False
            try:
                with anyio.fail_after(CONNECT_TIMEOUT_SECONDS):
                    await route.open(connection)
                is_open = True
                self._outage.reachable(address_of(connection))
                self._begin()
                async with anyio.create_task_group() as both:
                    both.start_soon(self._speak, connection)
                    both.start_soon(self._leave, connection)
                    await self._listen(connection)
            except Exception as wrong:
                trouble = explain_error(_first(wrong))
                if is_open:
                    self._outage.broken(trouble, len(self._listeners))
                else:
                    self._outage.unreachable(trouble, address_of(connection))
            finally:
                with suppress(Exception):  # it is broken or being closed; either way we are done with it
                    await connection.disconnect(nowait=True)
                self._end()
            self._on_loss()
            await anyio.sleep(REBUILD_PAUSE_SECONDS)

    def _begin(self) -> None:
        """A new connection knows no channel: what was to be said is replaced by one look at who listens now."""
        self._outbox.clear()
        self._has_outbox.clear()  # else `_speak` would turn without a pause: nothing is left that it could send
        self._unanswered.clear()
        for channel in self._listeners:
            self._say(self._words.subscribe, channel)
        self._heard_at = asyncio.get_running_loop().time()

    def _end(self) -> None:
        self._confirmed.clear()
        for listener in {holder for holders in self._listeners.values() for holder in holders}:
            listener.lose(self._listeners)

    async def _leave(self, connection: AbstractConnection) -> None:
        """A demoted server goes on taking subscriptions, and may never hear again what it would have to pass on."""
        await self._redis.route.left(connection)
        raise Unavailable("the store's primary has changed")

    async def _listen(self, connection: AbstractConnection) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._hear(await connection.read_response(timeout=math.inf))
            self._heard_at = loop.time()

    def _hear(self, reply: Reply) -> None:
        if not isinstance(reply, list):
            return  # PONG, while no channel is subscribed
        kind, channel = reply[0], reply[1]
        if kind == self._words.message:
            for listener in self._listeners.get(channel, ()):
                listener.offer(reply[2])
        elif kind == self._words.unsubscribe.lower() and channel in self._confirmed:
            raise Unavailable("a channel has moved to another node")  # we did not ask for that
        elif kind == self._words.subscribe.lower():
            left = self._unanswered.get(channel, 0) - 1
            if left > 0:  # the answer to a SUBSCRIBE that was taken back since; the one that counts is on its way
                self._unanswered[channel] = left
                return
            self._unanswered.pop(channel, None)
            if channel in self._listeners:
                self._confirmed.add(channel)
                for listener in self._listeners[channel]:
                    listener.confirm(channel)

    async def _speak(self, connection: AbstractConnection) -> None:
        """Send what is to be said, in one write per tick; ask for a sign of life after silence."""
        loop = asyncio.get_running_loop()
        pinged_at: float | None = None
        while True:
            if pinged_at is not None and self._heard_at >= pinged_at:
                pinged_at = None
            asked_since = self._heard_at if pinged_at is None else pinged_at
            with anyio.move_on_after(max(0.0, asked_since + SILENCE_SECONDS - loop.time())):
                await self._has_outbox.wait()
            if self._outbox:
                batch, self._outbox = self._outbox, []
                self._has_outbox.clear()
                with anyio.fail_after(SILENCE_SECONDS):
                    await connection.send_packed_command([b"".join(batch)], False)
            elif pinged_at is None:
                if loop.time() - self._heard_at >= SILENCE_SECONDS:
                    pinged_at = loop.time()
                    with anyio.fail_after(SILENCE_SECONDS):
                        await connection.send_packed_command(pack("PING"), False)
            elif self._heard_at < pinged_at and loop.time() - pinged_at >= SILENCE_SECONDS:
                raise Unavailable("the store's channels have gone silent")


def _first(wrong: Exception) -> Exception:
    """What a task group wrapped."""
    while isinstance(wrong, ExceptionGroup) and wrong.exceptions:
        wrong = wrong.exceptions[0]
    return wrong
