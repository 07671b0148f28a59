"""What the channels say, from bytes to notices and chat ids (DISPATCH §3). The scripts and `memory.py` write the bytes.

It knows neither Redis nor who listens. A log channel carries the public part of an entry alone: never facts, never a
checkpoint. What cannot be read counts as something missed.
"""

import msgspec

from protocol.entries import Fence, RawEntry
from protocol.ids import EntryId
from server.store.listener import Listener
from server.store.notice import AtOnce, Notice

__all__ = ["DELETED", "Mail", "Notices", "parse_notice"]

DELETED = b'["deleted"]'


class _News(msgspec.Struct, frozen=True, array_like=True):
    """What the log channel carries. Without `events` it is a notice; `why` is a fence's."""

    head: str
    before: str
    time_ms: int
    version: int
    events: msgspec.Raw = msgspec.Raw(b"")
    acks: msgspec.Raw = msgspec.Raw(b"")
    why: str = ""


_news = msgspec.json.Decoder(_News)


def parse_notice(chat_id: str, payload: bytes | None) -> Notice:
    """A message of the log channel; None stands for a rebuilt one."""
    if payload is None:
        return Notice(kind="reconnected", chat_id=chat_id)
    if payload == DELETED:
        return Notice(kind="deleted", chat_id=chat_id)
    try:
        news = _news.decode(payload)
        if not bytes(news.events):
            return Notice(kind="large", chat_id=chat_id, head=news.head, before=news.before, version=news.version)
        entry_id, _, position = news.head.split(" ")
        entry = RawEntry(
            entry_id=EntryId.parse(entry_id),
            head=news.head,
            before=news.before,
            position=int(position),
            time_ms=news.time_ms,
            version=news.version,
            events=bytes(news.events),
            acks=b"" if (acks := bytes(news.acks)) == b"[]" else acks,
            fence=Fence("", news.why) if news.why else None,
        )
    except (ValueError, msgspec.DecodeError):
        # A channel can be written by anybody who reaches the store: what we cannot read is something missed.
        return Notice(kind="reconnected", chat_id=chat_id)
    return Notice(kind="entry", chat_id=chat_id, entry=entry, head=news.head, before=news.before, version=news.version)


class Notices:
    """A listener's payloads as notices, translated when they are read."""

    def __init__(self, chat_id: str, listener: Listener, at_once: AtOnce | None = None) -> None:
        self._chat_id = chat_id
        self._listener = listener
        if at_once is not None:
            listener.first_ask(lambda payload: at_once(parse_notice(chat_id, payload)))

    def __aiter__(self) -> "Notices":
        return self

    async def __anext__(self) -> Notice:
        return parse_notice(self._chat_id, await self._listener.__anext__())


class Mail:
    """A listener's payloads as chat ids."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    def __aiter__(self) -> "Mail":
        return self

    async def __anext__(self) -> str | None:
        payload = await self._listener.__anext__()
        return None if payload is None else payload.decode(errors="replace")
