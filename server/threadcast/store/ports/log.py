"""Defines the log of a chat, and the operations to append to a log, to load it and to follow it."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from enum import Enum
from typing import Literal, Protocol, TypeAlias, TypeVar

import msgspec

from threadcast.chat.entries import RawEntry
from threadcast_protocol.wire.ids import EntryId

__all__ = ["AppendRequest", "Appended", "AtOnce", "Fenced", "Loaded", "Log", "LogMessage", "Messages", "absent_id_of"]

_M_co = TypeVar("_M_co", covariant=True)


class Messages(Protocol[_M_co]):
    """Iterates over the messages of a channel."""

    def __aiter__(self) -> AsyncIterator[_M_co]: ...

    async def __anext__(self) -> _M_co: ...

    @property
    def is_empty(self) -> bool:
        """Whether no message waits to be read, so that the iterator would wait for one."""


def absent_id_of(chat_id: str) -> str:
    """Return an id that no chat can have, since ids do not contain "~" (`wire/ids.py`).

    A caller must not notice that another principal has a chat with the id `chat_id`. So the store is queried for the
    absent id, which takes the same work and time as a query for an unknown chat."""
    return f"~{chat_id}"


class Fenced(Exception):
    """The head differs from the caller's, because another worker has written. Discard the chat's state, then `take` the
    chat again."""


class AppendRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One atomic commit to a log. `consumed` are the (inbox id, request id) pairs of commands that must still be in the
    inbox.

    `events`, `facts` and `acks` are JSON arrays ('' for none). `checkpoint` is the uncompressed state; the store
    compresses it and replaces the stored checkpoint. `checkpoint_version` is the largest format version that was folded
    into the checkpoint. Entries before the id `trim` are deleted, but never entries after the checkpoint. The
    `lifetime` 'expire' removes the chat from the lists and lets its keys expire in `expire_seconds`, unless commands
    wait; 'persist' cancels the expiry; '' changes nothing. An accepted post also cancels the expiry, so each append to
    a temporary chat, or to a chat without messages, passes 'expire'. A `meta` that is not empty is written into the
    chat's index record, updates `last_active` and is announced on the feed. `parent` is the chat that created this
    chat. A chat with a parent is listed among its parent's children instead of in its owner's list. `blobs` are the
    hashes of blobs that the entry refers to; from now on, these blobs are kept as long as the chat. Unknown hashes are
    skipped.
    """

    chat_id: str
    expected: str
    head: str
    version: int
    events: bytes
    facts: bytes = b""
    acks: bytes = b""
    consumed: tuple[tuple[str, str], ...] = ()
    checkpoint: bytes | None = None
    checkpoint_version: int = 1
    trim: EntryId | None = None
    meta: tuple[tuple[str, str], ...] = ()
    lifetime: Literal["", "expire", "persist"] = ""
    expire_seconds: int = 0
    owner: str = ""
    parent: str = ""
    blobs: tuple[str, ...] = ()


class Appended(Enum):
    """The result of an append. DUP: an earlier call has appended the same entry, and its answer was lost."""

    OK = "OK"
    DUP = "DUP"


class Loaded(msgspec.Struct, frozen=True):
    """The checkpoint (head string, format version, state) or None, the entries after the checkpoint, and the present
    head. `is_whole` is True when `entries` reaches the present head. Otherwise `entries` is the first page, and
    `read_log` returns the later entries."""

    checkpoint: tuple[str, int, bytes] | None
    entries: list[RawEntry]
    head: str
    is_whole: bool = True


class LogMessage(msgspec.Struct, frozen=True):
    """A message of a chat's log channel. Messages may be lost; a later `reconnected` message then reports that messages
    may be missing.

    `kind` is entry (`entry` contains the entry without its facts), large (the entry is too large for the channel; read
    the entry by its id), deleted (the chat was deleted) or reconnected (the channel was rebuilt and messages may be
    missing; compare the head).
    """

    kind: Literal["entry", "large", "deleted", "reconnected"]
    chat_id: str
    entry: RawEntry | None = None
    head: str = ""
    before: str = ""
    version: int = 0


AtOnce: TypeAlias = Callable[[LogMessage], bool]
"""A callback that handles a message in the task that received the message, or returns False to have the message queued.
The callback must neither wait nor raise."""


class Log(Protocol):
    """Stores the entries of each chat, and the checkpoint, into which the oldest entries are folded."""

    async def append(self, request: AppendRequest) -> Appended:
        """Raises Fenced."""

    async def load(self, chat_id: str) -> Loaded:
        """Return a consistent view of the chat, with at most LOG_PAGE_BYTES of entries. `load.py` reads longer logs."""

    async def read_entry(self, chat_id: str, entry_id: EntryId) -> RawEntry | None:
        """Return one entry with its head string, None when the entry was trimmed or deleted."""

    async def read_log(
        self,
        chat_id: str,
        through: EntryId | None = None,
        *,
        after: EntryId | None = None,
        newest: bool = False,
    ) -> list[RawEntry]:
        """Return a page of the stored entries after `after`, up to and including `through`, oldest first. The page has
        the oldest of these entries or, with `newest`, the newest. It has at most LOG_PAGE_BYTES, but at least one entry
        if any entry matches. The owner may trim entries between two calls, so check that each entry's `before` is the
        head of the entry before it."""

    async def read_history(self, chat_id: str, *, last_only: bool = False) -> list[bytes]:
        """Return the stored parts of the chat's history, oldest first, or only the last part (`history_parts.py`)."""

    async def heads(self, chat_ids: Sequence[str]) -> list[str]:
        """Return the head string of each chat ('' for a chat without a log), in one pipeline."""

    def follow(
        self, chat_id: str, at_once: AtOnce | None = None, woken: Callable[[], None] | None = None
    ) -> AbstractAsyncContextManager[Messages[LogMessage]]:
        """Iterate over the messages of the chat's log channel. Entering the context manager waits until the
        subscription is confirmed (DISPATCH §6). While no message waits to be read, the next message is passed to
        `at_once`, which must neither wait nor raise, and returns True when it has handled the message. `woken` is
        called for each message that waits to be read, so a reader needs no task that waits for messages."""

    async def watchers(self, chat_id: str) -> int:
        """Return the number of processes that follow the chat's log channel."""
