"""Keeps the single pub/sub connection of a process, which serves all listeners.

The listeners subscribe to log channels, inbox signals, feeds and topics. `log_messages.py` parses the messages. Redis
does not guarantee delivery of a published message, so every gap is reported: after the connection was rebuilt, or when
a listener's queue was full, the listener's next item is None. Its reader then compares the head (DISPATCH §6).

The order matters. `subscribe` returns only when the server has confirmed the channels, and a listener yields None only
when all its channels are confirmed again. In any other order, a message that is published between the comparison of
heads and the confirmation would be missed by both.
"""

import asyncio
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import anyio
import msgspec
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import NoPermissionError

from threadcast.store.redis.connection import CONNECT_TIMEOUT_SECONDS, Redis, Reply, explain_error, pack
from threadcast.store.redis.keys import OlderFeeds
from threadcast.store.redis.listener import Listener
from threadcast.store.redis.outage import Outage, address_of
from threadcast.store.topology.route import NOT_AT_HAND, hang_up, reply_at_hand, settled_seconds_of
from threadcast_protocol.wire.errors import Unavailable

__all__ = ["PLAIN", "SHARDED", "SUBSCRIBE_TIMEOUT_SECONDS", "Channels", "Subscriptions", "Words"]

SILENCE_SECONDS = 1.0
"""Seconds without a message after which the process sends a PING, and seconds within which the server must answer it
(DESIGN §3)."""

SUBSCRIBE_TIMEOUT_SECONDS = 3.0
"""Seconds to wait for the confirmation of a subscription. They cover one rebuild of a lost connection (silence, a
connect, a round trip)."""

REBUILD_PAUSE_SECONDS = 0.1
"""Seconds between attempts to connect: short compared with a lease, long compared with a busy loop. A connection that
was open for longer than this pause is rebuilt at once, because other workers take over the chats of a worker that does
not listen."""


class Words(msgspec.Struct, frozen=True):
    """The names of the commands and replies for one kind of channel."""

    subscribe: bytes
    unsubscribe: bytes
    message: bytes


PLAIN = Words(b"SUBSCRIBE", b"UNSUBSCRIBE", b"message")
SHARDED = Words(b"SSUBSCRIBE", b"SUNSUBSCRIBE", b"smessage")
"""The names for sharded channels of a Cluster. A sharded channel belongs to the node that has its slot. When the slot
moves, that node ends the subscription."""


class Subscriptions(Protocol):
    """The store's channels, on one server (`Channels`) or in a Cluster (`cluster_channels.ClusterChannels`)."""

    def subscribe(
        self, channels: Sequence[bytes], woken: Callable[[], None] | None = None
    ) -> AbstractAsyncContextManager[Listener]: ...

    def confirmed_listeners(self, channel: bytes) -> Sequence[Listener]:
        """Return the listeners of this process on a channel. The result is empty while the server has not confirmed the
        subscription, and always empty in a Cluster. A process that publishes a message may pass it to these listeners
        directly (`log.py`)."""


def _not_told() -> None:
    return None


class Channels:
    """The channels of one server. Start `run` in the store's task group; then any task may call `subscribe`. `on_loss`
    is called whenever the connection was lost or could not be opened."""

    def __init__(
        self,
        redis: Redis,
        words: Words = PLAIN,
        on_loss: Callable[[], None] = _not_told,
    ) -> None:
        self.older: OlderFeeds | None = None
        """The channels on which processes of version 0.1.0 announce changes of lists (decision 0049)."""
        self._hears_older = False
        self._redis = redis
        self._words = words
        self._on_loss = on_loss
        self._listeners: dict[bytes, list[Listener]] = {}
        self._confirmed: set[bytes] = set()
        self._unanswered: dict[bytes, int] = {}
        self._outbox: list[bytes] = []
        self._has_outbox = asyncio.Event()
        self._heard_at = -math.inf
        self._settled_seconds: float | None = None  # see `_seconds_before`; None before the first connection
        self._outage = Outage()

    def subscribe(
        self, channels: Sequence[bytes], woken: Callable[[], None] | None = None
    ) -> AbstractAsyncContextManager[Listener]:
        """Return a context manager that subscribes to the channels. Entering it waits until the server has confirmed
        every channel. Raises Unavailable when a confirmation does not arrive in time."""
        return _Subscription(self, Listener(channels, woken))

    def add(self, channel: bytes, listener: Listener) -> None:
        """Register `listener` for `channel`; it receives messages once the server has confirmed the channel."""
        holders = self._listeners.setdefault(channel, [])
        holders.append(listener)
        if len(holders) == 1:
            self._hear_older(channel)  # sent first, so that the confirmation of `channel` covers both
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

    def confirmed_listeners(self, channel: bytes) -> Sequence[Listener]:
        return self._listeners[channel] if channel in self._confirmed else ()

    def _hear_older(self, channel: bytes) -> None:
        """Subscribe to the feed channels of all lists with one pattern, when the first list is subscribed to."""
        if self.older is not None and not self._hears_older and self.older.is_list(channel):
            self._hears_older = True
            self._outbox.append(pack(b"PSUBSCRIBE", self.older.pattern))

    def _say(self, verb: bytes, channel: bytes) -> None:
        self._outbox.append(pack(verb, channel))
        if verb == self._words.subscribe:
            self._unanswered[channel] = self._unanswered.get(channel, 0) + 1
        self._has_outbox.set()

    async def run(self) -> None:
        """Keep one connection open until the task is cancelled. Boundary: every failure of the connection is handled
        here, and a new connection is opened."""
        route = self._redis.route
        connection = route.connection()
        while True:
            opened_at: float | None = None
            try:
                with anyio.fail_after(CONNECT_TIMEOUT_SECONDS):
                    await route.open(connection)
                opened_at = asyncio.get_running_loop().time()
                self._outage.reachable(address_of(connection))
                self._settled_seconds = await self._seconds_before(connection)
                self._begin()
                async with anyio.create_task_group() as both:
                    both.start_soon(self._speak, connection)
                    both.start_soon(self._leave, connection)
                    await self._listen(connection)
            except Exception as wrong:
                trouble = explain_error(_first(wrong))
                if opened_at is not None:
                    self._outage.broken(trouble, len(self._listeners))
                else:
                    self._outage.unreachable(trouble, address_of(connection))
            finally:
                await hang_up(connection)
                self._end()
            self._on_loss()
            if opened_at is None or asyncio.get_running_loop().time() - opened_at < REBUILD_PAUSE_SECONDS:
                await anyio.sleep(REBUILD_PAUSE_SECONDS)

    async def _seconds_before(self, connection: AbstractConnection) -> float:
        """Return for how many seconds before its first connection a process may assume that the channels of other
        processes were not interrupted. The answer is 0 for a rebuilt connection, because there was an interruption
        just now. In a Cluster the answer is 0, because a slot may have moved."""
        if self._settled_seconds is not None or self._words is not PLAIN:
            return 0.0
        with anyio.fail_after(CONNECT_TIMEOUT_SECONDS):
            return await settled_seconds_of(connection)

    def _begin(self) -> None:
        """Prepare a new connection: replace the pending subscriptions by a subscription to every channel that has
        listeners."""
        self._outbox.clear()
        self._has_outbox.clear()  # otherwise `_speak` would find nothing to send, and loop without a pause
        self._unanswered.clear()
        self._hears_older = False
        for channel in self._listeners:
            self._hear_older(channel)
            self._say(self._words.subscribe, channel)
        self._heard_at = asyncio.get_running_loop().time()

    def _end(self) -> None:
        self._confirmed.clear()
        for listener in {holder for holders in self._listeners.values() for holder in holders}:
            listener.lose(self._listeners)

    async def _leave(self, connection: AbstractConnection) -> None:
        """Raise Unavailable when this server is not the primary any more, so that the connection is rebuilt. A demoted
        server still accepts subscriptions, but may never again receive messages that it could pass on."""
        await self._redis.route.left(connection)
        raise Unavailable("the store's primary has changed")

    async def _listen(self, connection: AbstractConnection) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                reply: Reply = reply_at_hand(connection)
                if reply is NOT_AT_HAND:
                    reply = await connection.read_response(timeout=math.inf)
                elif isinstance(reply, Exception):
                    raise reply
            except NoPermissionError:
                # An ACL that allows channels by patterns refuses every other pattern. The feeds of this process then
                # report changes by processes of version 0.1.0 late.
                if not self._hears_older:
                    raise
                reply = None
            if isinstance(reply, list):  # other replies: PONG while no channel is subscribed, or None from above
                kind, channel = reply[0], reply[1]
                if kind == self._words.message:
                    for listener in self._listeners.get(channel, ()):
                        listener.offer(reply[2])
                elif kind == b"pmessage" and self.older is not None:
                    for listener in self._listeners.get(self.older.list_channel(reply[2]), ()):
                        listener.offer(reply[3])
                elif kind == self._words.unsubscribe.lower() and channel in self._confirmed:
                    # The node has ended the subscription without a request of this process.
                    raise Unavailable("a channel has moved to another node")
                elif kind == self._words.subscribe.lower():
                    self._confirm(channel)
            self._heard_at = loop.time()

    def _confirm(self, channel: bytes) -> None:
        left = self._unanswered.get(channel, 0) - 1
        if left > 0:  # the reply to a cancelled SUBSCRIBE; the reply to the newest SUBSCRIBE follows
            self._unanswered[channel] = left
            return
        self._unanswered.pop(channel, None)
        if channel in self._listeners:
            self._confirmed.add(channel)
            for listener in self._listeners[channel]:
                listener.confirm(channel, self._settled_seconds or 0.0)

    async def _speak(self, connection: AbstractConnection) -> None:
        """Send pending subscriptions in one write per tick, and a PING after silence."""
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
                raise Unavailable("the store's channels do not answer any more")


class _Subscription:
    """Subscribes a listener to its channels while the `async with` block runs. It is a class for the same reason as
    `Following`."""

    __slots__ = ("_channels", "_listener")

    def __init__(self, channels: Channels, listener: Listener) -> None:
        self._channels = channels
        self._listener = listener

    async def __aenter__(self) -> Listener:
        listener = self._listener
        try:
            for channel in listener.channels:
                self._channels.add(channel, listener)
            with anyio.fail_after(SUBSCRIBE_TIMEOUT_SECONDS):
                await listener.ready.wait()
        except BaseException as wrong:
            self._drop()
            if isinstance(wrong, TimeoutError):
                raise Unavailable("the store's channels do not answer") from None
            raise
        return listener

    async def __aexit__(self, *_: object) -> None:
        self._drop()

    def _drop(self) -> None:
        for channel in self._listener.channels:
            self._channels.drop(channel, self._listener)


def _first(wrong: Exception) -> Exception:
    """Return the first error of an exception group, or `wrong` itself if it is no group."""
    while isinstance(wrong, ExceptionGroup) and wrong.exceptions:
        wrong = wrong.exceptions[0]
    return wrong
