"""One endless stream over as many connections as it takes: resumes where it stopped, notices a missing event and a
silent line, and comes back when it should.

It folds nothing and decodes nothing but the heads of events; whoever runs it is told of each arrival, in order, by a
plain call that never waits. The one rule: after a loss that cannot be mended the next event of a chat is a snapshot,
and nothing comes twice.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import anyio
import msgspec

from protocol.errors import NotFound, TooLarge
from protocol.ids import Position
from threadcast.backoff import Backoff
from threadcast.errors import Refused, Unreachable
from threadcast.reading import Arrival, Beat, Missed, Reading
from threadcast.wire import Busy, Wire

__all__ = ["ChatGone", "Lost", "Opened", "Stream", "StreamItem"]


class Opened(msgspec.Struct, frozen=True):
    """A connection stands; what was missed is on its way."""


class Lost(msgspec.Struct, frozen=True):
    """The connection went, or was not to be had, and when the next one is tried."""

    reason: str
    retry_in_seconds: float


class ChatGone(msgspec.Struct, frozen=True):
    """This chat is refused; the others of the stream go on."""

    chat_id: str
    wrong: Refused


StreamItem: TypeAlias = Opened | Lost | ChatGone | Arrival | Beat


class Stream:
    """One or several chats. `name` is needed to change them while it runs (PROTOCOL §4)."""

    def __init__(
        self, wire: Wire, chat_ids: Sequence[str], *, name: str = "", query: Sequence[tuple[str, str]] = ()
    ) -> None:
        self.chat_ids = list(chat_ids)
        self.name = name
        self._wire = wire
        self._query = list(query)
        self._seqs: dict[str, int] = {}
        self._place = ""
        self._backoff = Backoff(wire.patience)
        self._retry_seconds = 0.0
        self._scope: anyio.CancelScope | None = None

    def start_at(self, last_event_id: str) -> None:
        """Go on after an id that somebody kept, in a stream of one chat."""
        self._place = last_event_id
        if (position := Position.parse(last_event_id)) is not None:
            self._seqs[self.chat_ids[0]] = position.seq

    def drop(self, chat_id: str) -> None:
        """Not this chat any more; from the next connection on."""
        if chat_id in self.chat_ids:
            self.chat_ids.remove(chat_id)
        self._seqs.pop(chat_id, None)

    def reconnect(self) -> None:
        """Give the present connection up for one that carries what `chat_ids` now says."""
        if self._scope is not None:
            self._scope.cancel()

    async def run(self, take: Callable[[StreamItem], None]) -> None:
        """Tell `take` of everything, for ever. It may raise Missed when it cannot go on from what came.

        Raises:
            Refused: the stream will not be given: a refused token, a bad id, a chat that is not the caller's.
            Unreadable: who answers is no Threadcast server.
        """
        while True:
            reason = ""
            with anyio.CancelScope() as self._scope:
                try:
                    reason = await self._connect(take)
                except NotFound:
                    if len(self.chat_ids) < 2:
                        raise
                    reason = await self._find_the_gone(take)
            if self._scope.cancelled_caught:  # told to connect again at once
                continue
            pause = self._backoff.pause(self._retry_seconds)
            take(Lost(reason, pause))
            with anyio.CancelScope() as self._scope:
                await anyio.sleep(pause)

    async def _connect(self, take: Callable[[StreamItem], None]) -> str:
        """One connection, to its end; why it ended."""
        self._retry_seconds = 0.0
        opened_at = anyio.current_time()
        # An id of a form that we cannot read does not say which number comes next.
        reading = Reading(self._seqs, begins_anywhere=bool(self._place) and not self._seqs)
        query = [*self._query, *(("chat_id", chat_id) for chat_id in self.chat_ids)]
        if self.name:
            query.append(("stream_id", self.name))
        try:
            async with self._wire.stream("/v1/chats/subscribe", query, self._place) as chunks:
                take(Opened())
                async for chunk in chunks:
                    self._take(reading, chunk, take)
            reason = "the server ended the stream"
        except Unreachable as wrong:
            reason = wrong.message
        except Busy as wrong:
            reason, self._retry_seconds = str(wrong), wrong.retry_seconds
        except (Missed, TooLarge) as wrong:
            reason, self._place = str(wrong), ""
            self._seqs.clear()
        self._retry_seconds = max(self._retry_seconds, reading.goodbye_seconds)
        # A server that takes connections and drops them at once is not met by a herd of ours.
        if anyio.current_time() - opened_at > self._wire.patience.pause_max_seconds:
            self._backoff.reset()
        return reason

    def _take(self, reading: Reading, chunk: bytes, take: Callable[[StreamItem], None]) -> None:
        for item in reading.feed(chunk):
            if isinstance(item, Arrival) and item.seq is not None:
                self._place = item.event_id
            take(item)

    async def _find_the_gone(self, take: Callable[[StreamItem], None]) -> str:
        """One of several chats is not there, and the server does not say which (PROTOCOL §4); ask for each."""
        for chat_id in list(self.chat_ids):
            try:
                async with self._wire.stream("/v1/chats/subscribe", [("chat_id", chat_id)]):
                    pass
            except NotFound as wrong:
                self.drop(chat_id)
                take(ChatGone(chat_id, wrong))
            except (Unreachable, Busy) as wrong:
                return str(wrong)
        return "one of the chats is gone"
