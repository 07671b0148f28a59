"""Parses the messages of the store's channels into log messages and chat ids (DISPATCH §3).

The scripts and the in-memory store write the bytes. A log channel carries only the public part of an entry, never facts
or a checkpoint. An unreadable message counts as a missed message.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from types import TracebackType
from typing import Generic, Self, TypeVar

import msgspec

from threadcast.chat.entries import Fence, RawEntry
from threadcast.store.ports import AtOnce, LogMessage
from threadcast.store.redis.listener import Listener
from threadcast_protocol.wire.ids import EntryId

__all__ = [
    "DELETED",
    "Following",
    "InboxSignals",
    "ListenedSignals",
    "LogMessages",
    "delta_payload",
    "parse_log_message",
]

DELETED = b'["deleted"]'


class _Payload(msgspec.Struct, frozen=True, array_like=True):
    """The payload of a log channel. A payload without `events` announces a large entry; only the payload of a fence has
    a `why`."""

    head: str
    before: str
    time_ms: int
    version: int
    events: msgspec.Raw = msgspec.Raw(b"")
    acks: msgspec.Raw = msgspec.Raw(b"")
    why: str = ""


_payload = msgspec.json.Decoder(_Payload)


def parse_log_message(chat_id: str, payload: bytes | None) -> LogMessage:
    """Parse a message of the log channel. A `payload` of None means that messages may be missing."""
    if payload is None:
        return LogMessage(kind="reconnected", chat_id=chat_id)
    if payload == DELETED:
        return LogMessage(kind="deleted", chat_id=chat_id)
    try:
        decoded = _payload.decode(payload)
        if not bytes(decoded.events):
            return LogMessage(
                kind="large", chat_id=chat_id, head=decoded.head, before=decoded.before, version=decoded.version
            )
        entry_id, _, position = decoded.head.split(" ")
        entry = RawEntry(
            entry_id=EntryId.parse(entry_id),
            head=decoded.head,
            before=decoded.before,
            position=int(position),
            time_ms=decoded.time_ms,
            version=decoded.version,
            events=bytes(decoded.events),
            acks=b"" if (acks := bytes(decoded.acks)) == b"[]" else acks,
            fence=Fence("", decoded.why) if decoded.why else None,
        )
    except (ValueError, msgspec.DecodeError):
        # Any client of the store can publish on the channel, so an unreadable message counts as a missed message.
        return LogMessage(kind="reconnected", chat_id=chat_id)
    return LogMessage(
        kind="entry", chat_id=chat_id, entry=entry, head=decoded.head, before=decoded.before, version=decoded.version
    )


def delta_payload(head: str, before: str, time_ms: bytes, version: int, events: bytes) -> bytes:
    """Return the message that `append_delta.lua` publishes for an entry."""
    return b'["%b","%b",%b,%d,%b,[]]' % (head.encode(), before.encode(), time_ms, version, events)


class LogMessages:
    """Iterates over a listener's payloads as log messages. A payload is parsed when it is read."""

    def __init__(self, chat_id: str, listener: Listener, at_once: AtOnce | None = None) -> None:
        self._chat_id = chat_id
        self._listener = listener
        if at_once is not None:
            listener.first_ask(at_once, partial(parse_log_message, chat_id))

    @property
    def is_empty(self) -> bool:
        return self._listener.is_empty

    def __aiter__(self) -> "LogMessages":
        return self

    async def __anext__(self) -> LogMessage:
        return parse_log_message(self._chat_id, await self._listener.__anext__())


_M = TypeVar("_M")


class Following(Generic[_M]):
    """A context manager that enters a subscription, and returns an iterator that `over` makes from its listener. It is
    a class because each watched chat has such an object: a generator would take half a kilobyte more
    (`bench.memory`)."""

    __slots__ = ("_over", "_subscription")

    def __init__(self, subscription: AbstractAsyncContextManager[Listener], over: Callable[[Listener], _M]) -> None:
        self._subscription = subscription
        self._over = over

    async def __aenter__(self) -> _M:
        return self._over(await self._subscription.__aenter__())

    async def __aexit__(
        self, kind: type[BaseException] | None, wrong: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._subscription.__aexit__(kind, wrong, trace)


class InboxSignals:
    """Iterates over a listener's payloads as chat ids."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    @property
    def is_empty(self) -> bool:
        return self._listener.is_empty

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str | None:
        payload = await self._listener.__anext__()
        return None if payload is None else payload.decode(errors="replace")


class ListenedSignals(InboxSignals):
    """Iterates over the inbox signals of a worker. `channels` has one channel per bucket, in the buckets' order."""

    def __init__(self, listener: Listener, channels: Sequence[bytes]) -> None:
        super().__init__(listener)
        self._channels = channels

    def heard_since(self, bucket: int) -> float | None:
        is_lost = self._channels[bucket] in self._listener.unconfirmed
        return None if is_lost else self._listener.whole_since
