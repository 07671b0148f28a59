"""Follows the log of one chat: checks whether a log message continues the log, and reads the entries that were missed.

A follower stores a head string. An entry continues the log if and only if its `before` equals the follower's head
string (DISPATCH §6). The follower subscribes with `Log.follow` before it reads its first head, so that it misses no
entry between the subscription and the read. Log messages about entries that the follower's head already includes are
recognised by their id and skipped. After the exception `Missed`, the follower reads the log with `entries_after`.
"""

from typing import Literal, TypeAlias

from threadcast.chat.entries import RawEntry
from threadcast.store.ports import Log, LogMessage
from threadcast_protocol.wire.ids import EntryId, Head

__all__ = ["Missed", "MissedReason", "carried_entry", "entries_after", "next_entry"]

MissedReason: TypeAlias = Literal["deleted", "gap", "large", "reconnected"]
"""deleted: the chat was deleted. gap: an entry is missing. large: an entry that was too large for the channel cannot be
read. reconnected: the channel was rebuilt, so messages may be lost."""


class Missed(Exception):
    """Entries after the follower's head are missing, or the chat was deleted."""

    def __init__(self, reason: MissedReason) -> None:
        super().__init__(reason)
        self.reason: MissedReason = reason


def carried_entry(head: str, log_message: LogMessage) -> RawEntry | None:
    """Return the entry in `log_message` if it continues the log at `head`, and otherwise None. The function does not
    read the store."""
    entry = log_message.entry
    return entry if entry is not None and entry.before == head else None


async def next_entry(store: Log, head: str, log_message: LogMessage) -> RawEntry | None:
    """Return the entry that `log_message` announces, or None if `head` includes that entry already.

    Raises:
        Missed: the message does not continue the log at `head`.
        Unavailable: an entry too large for the channel could not be read from the store.
    """
    entry = carried_entry(head, log_message)
    if entry is not None:  # true for nearly all messages
        return entry
    if log_message.kind == "deleted" or log_message.kind == "reconnected":
        raise Missed(log_message.kind)
    entry_id = Head.parse(log_message.head).entry_id
    if entry_id <= _entry_id(head):
        return None
    if log_message.kind == "large" and log_message.before == head:
        entry = await store.read_entry(log_message.chat_id, entry_id)
        if entry is None:
            raise Missed("large")
        if entry.before == head:
            return entry
    raise Missed("gap")


async def entries_after(store: Log, chat_id: str, head: str, *, pages_max: int | None = None) -> list[RawEntry]:
    """Return the entries between `head` and the store's present head, oldest first.

    `pages_max` bounds the calls of `Log.read_log`; None reads to the end.

    Raises:
        Missed: the log does not contain `head` any more, or has more than `pages_max` pages after `head`.
        Unavailable: the store does not answer.
    """
    (through,) = await store.heads([chat_id])
    entries: list[RawEntry] = []
    pages = 0
    while head != through:
        if not through or pages == pages_max:
            raise Missed("gap")
        page = await store.read_log(chat_id, Head.parse(through).entry_id, after=_entry_id(head))
        if not page:
            raise Missed("gap")
        for entry in page:
            if entry.before != head:
                raise Missed("gap")
            entries.append(entry)
            head = entry.head
        pages += 1
    return entries


def _entry_id(head: str) -> EntryId:
    return Head.parse(head).entry_id if head else EntryId(0, 0)
