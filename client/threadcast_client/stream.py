"""One endless stream over successive connections: it reconnects, resumes where it stopped, and detects missing events
and silence.

The stream decodes only the heads of events and passes each event to a callback, in order. The callback must not block.
If events were lost, the next event of a chat is a snapshot. No event arrives twice.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import anyio
import msgspec

from threadcast_client.backoff import Backoff
from threadcast_client.beside import beside
from threadcast_client.errors import Refused, Unreachable
from threadcast_client.reading import Arrival, Beat, Missed, Reading
from threadcast_client.wire import Busy, Wire
from threadcast_protocol.wire.errors import NotFound, TooLarge, Unauthorized
from threadcast_protocol.wire.ids import Position

__all__ = ["ChatGone", "Heard", "Lost", "Opened", "Quiet", "Stream", "StreamItem"]


class Opened(msgspec.Struct, frozen=True):
    """A connection was opened. The missed events will follow."""


class Lost(msgspec.Struct, frozen=True):
    """The connection was lost or could not be opened."""

    reason: str
    retry_in_seconds: float
    """The time until the next attempt."""
    is_signed_out: bool = False
    """Whether the server has refused the token."""


class Quiet(msgspec.Struct, frozen=True):
    """The server has sent nothing for so long that a heartbeat is overdue. The connection may be dead."""

    seconds: float


class Heard(msgspec.Struct, frozen=True):
    """The server has sent something after `Quiet`."""


class ChatGone(msgspec.Struct, frozen=True):
    """The server has refused one chat of the stream; the others continue."""

    chat_id: str
    wrong: Refused


StreamItem: TypeAlias = Opened | Lost | Quiet | Heard | ChatGone | Arrival | Beat


class Stream:
    """The stream of one or several chats. A stream with a `name` can change its chats while it runs (PROTOCOL §4)."""

    def __init__(self, wire: Wire, chat_ids: Sequence[str], *, name: str = "") -> None:
        self.chat_ids = list(chat_ids)
        self.name = name
        self._wire = wire
        self._seqs: dict[str, int] = {}
        self._last_event_id = ""
        self._backoff = Backoff(wire.retry_policy)
        self._retry_seconds = 0.0
        self._scope: anyio.CancelScope | None = None
        self._heard_at = 0.0
        self._is_heard: anyio.Event | None = None
        """While a heartbeat is overdue: an event that is set when the server sends again."""

    def start_at(self, last_event_id: str) -> None:
        """Begin after the event with this id; works only for a stream of one chat."""
        self._last_event_id = last_event_id
        if (position := Position.parse(last_event_id)) is not None:
            self._seqs[self.chat_ids[0]] = position.seq

    def drop(self, chat_id: str) -> None:
        """Open all further connections without this chat."""
        if chat_id in self.chat_ids:
            self.chat_ids.remove(chat_id)
        self._seqs.pop(chat_id, None)

    def reconnect(self) -> None:
        """End the present connection, or the pause before the next one. The next connection carries the chats in
        `chat_ids`."""
        if self._scope is not None:
            self._scope.cancel()

    async def run(self, take: Callable[[StreamItem], None]) -> None:
        """Connect without end and pass each item to `take`. `take` may raise Missed to begin again with a snapshot.

        Raises:
            Refused: the server has refused the stream: because of the token (unless the client awaits a sign-in), a bad
                id, or a chat that is not the caller's.
            Unreadable: the server is not a Threadcast server.
        """
        while True:
            reason, is_out = "", False
            with anyio.CancelScope() as self._scope:
                try:
                    reason = await self._connect(take)
                except Unauthorized as wrong:
                    if not self._wire.awaits_sign_in:
                        raise
                    reason, is_out = wrong.message, True
                    self._retry_seconds = self._wire.retry_policy.sign_in_seconds
                except NotFound:
                    if len(self.chat_ids) < 2:
                        raise
                    reason = await self._find_the_gone(take)
            if self._scope.cancelled_caught:  # by `reconnect`
                continue
            pause = self._backoff.pause(self._retry_seconds)
            self._scope = anyio.CancelScope()  # set before `take`, which may call `reconnect`
            take(Lost(reason, pause, is_out))
            with self._scope:
                await anyio.sleep(pause)

    async def _connect(self, take: Callable[[StreamItem], None]) -> str:
        """Open one connection and read it to its end. Returns the reason of the end."""
        self._retry_seconds = 0.0
        opened_at = anyio.current_time()
        # If the form of the id is unknown, the number of the next event is unknown, too.
        begins_anywhere = bool(self._last_event_id) and not self._seqs
        reading = Reading(self._seqs, begins_anywhere=begins_anywhere, resumed_from=self._last_event_id)
        query = [("chat_id", chat_id) for chat_id in self.chat_ids]
        if self.name:
            query.append(("stream_id", self.name))
        try:
            async with self._wire.stream("/v1/chats/subscribe", query, self._last_event_id) as chunks:
                take(Opened())
                self._heard_at, self._is_heard = anyio.current_time(), None
                async with beside(lambda tasks: tasks.start_soon(self._tell_silence, take)):
                    async for chunk in chunks:
                        self._hear(take)
                        self._take(reading, chunk, take)
            reason = "the server ended the stream"
        except Unreachable as wrong:
            reason = wrong.message
        except Busy as wrong:
            reason, self._retry_seconds = str(wrong), wrong.retry_seconds
        except (Missed, TooLarge) as wrong:
            reason, self._last_event_id = str(wrong), ""
            self._seqs.clear()
        self._retry_seconds = max(self._retry_seconds, reading.goodbye_seconds)
        # A short connection does not reset the pauses, so that a server that drops connections is not overrun.
        if anyio.current_time() - opened_at > self._wire.retry_policy.pause_max_seconds:
            self._backoff.reset()
        return reason

    def _hear(self, take: Callable[[StreamItem], None]) -> None:
        self._heard_at = anyio.current_time()
        if self._is_heard is not None:
            self._is_heard.set()
            self._is_heard = None
            take(Heard())

    async def _tell_silence(self, take: Callable[[StreamItem], None]) -> None:
        """Pass a `Quiet` to `take` each time a heartbeat is overdue, as long as the connection is open."""
        quiet_seconds = self._wire.retry_policy.quiet_seconds
        while True:
            silent_seconds = anyio.current_time() - self._heard_at
            if silent_seconds < quiet_seconds:
                await anyio.sleep(quiet_seconds - silent_seconds)
                continue
            self._is_heard = anyio.Event()
            take(Quiet(silent_seconds))
            await self._is_heard.wait()

    def _take(self, reading: Reading, chunk: bytes, take: Callable[[StreamItem], None]) -> None:
        for item in reading.feed(chunk):
            if isinstance(item, Arrival) and item.seq is not None:
                self._last_event_id = item.event_id
            take(item)

    async def _find_the_gone(self, take: Callable[[StreamItem], None]) -> str:
        """Request each chat alone, because the server does not report which of several chats it has refused (PROTOCOL
        §4). Returns the reason of the lost connection."""
        for chat_id in list(self.chat_ids):
            try:
                async with self._wire.stream("/v1/chats/subscribe", [("chat_id", chat_id)]):
                    pass
            except NotFound as wrong:
                self.drop(chat_id)
                take(ChatGone(chat_id, wrong))
            except (Unreachable, Busy) as wrong:
                return str(wrong)
        return "one of the chats no longer exists"
