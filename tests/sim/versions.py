"""Simulates processes of two versions on one store, as during a deploy and its rollback.

The code under test is of one version. A newer process is therefore simulated by its connection to the store, which
marks written data with the next version and removes the mark from read data. An older process receives such an entry
without the parts that it does not know. `world.py` decides which processes are newer. Only processes that must refuse
an entry receive it without these parts, so a visible loss shows that a process did not refuse the entry.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tests.sim.loop import Process
from tests.sim.store import Way
from tests.sim.tally import COUNTS
from threadcast.chat.entries import FORMAT_VERSION, RawEntry
from threadcast.store.ports import Appended, AppendRequest, AtOnce, Loaded, LogMessage, Messages
from threadcast.store.redis.log_messages import LogMessages
from threadcast_protocol.wire.ids import EntryId

if TYPE_CHECKING:
    from tests.sim.world import World

__all__ = ["MixedWay", "understood", "understood_all"]

NEWER = FORMAT_VERSION + 1


def understood(entry: RawEntry) -> RawEntry:
    """Return the data as read by a process of the same version as the writer."""
    return replace(entry, version=FORMAT_VERSION) if entry.version == NEWER else entry


def understood_all(loaded: Loaded) -> Loaded:
    checkpoint = loaded.checkpoint
    if checkpoint is not None and checkpoint[1] == NEWER:
        checkpoint = (checkpoint[0], FORMAT_VERSION, checkpoint[2])
    return replace(loaded, checkpoint=checkpoint, entries=[understood(entry) for entry in loaded.entries])


def _half_understood(entry: RawEntry) -> RawEntry:
    """Return the data as an older process would read it: without the facts, and without the beginning of an answer."""
    if entry.version != NEWER:
        return entry
    COUNTS["newer log met by an older process"] += 1
    return replace(entry, events=_without_beginnings(entry.events), facts=b"")


def _half_understood_all(loaded: Loaded) -> Loaded:
    checkpoint = loaded.checkpoint
    if checkpoint is not None and checkpoint[1] == NEWER:
        COUNTS["newer log met by an older process"] += 1
        checkpoint = (checkpoint[0], NEWER, _without_beginnings(checkpoint[2]))
    return replace(loaded, checkpoint=checkpoint, entries=[_half_understood(entry) for entry in loaded.entries])


def _without_beginnings(data: bytes) -> bytes:
    return data.replace(b"To [", b"[")


class _Noticed:
    """Log messages as another version reads them."""

    def __init__(self, messages: LogMessages, noticed: Callable[[LogMessage], LogMessage]) -> None:
        self._messages = messages
        self._noticed = noticed

    @property
    def is_empty(self) -> bool:
        return self._messages.is_empty

    def __aiter__(self) -> "_Noticed":
        return self

    async def __anext__(self) -> LogMessage:
        return self._noticed(await self._messages.__anext__())


class MixedWay(Way):
    """The connection to the store of a process that is newer or older than the others."""

    def __init__(self, world: "World", process: Process, *, is_newer: bool, has_clients: bool = False) -> None:
        super().__init__(world, process, has_clients=has_clients)
        self.is_newer = is_newer
        self._read = understood if is_newer else _half_understood

    async def append(self, request: AppendRequest) -> Appended:
        if self.is_newer:
            request = replace(request, version=NEWER, checkpoint_version=NEWER)
        return await super().append(request)

    async def load(self, chat_id: str) -> Loaded:
        loaded = await super().load(chat_id)
        return understood_all(loaded) if self.is_newer else _half_understood_all(loaded)

    async def read_entry(self, chat_id: str, entry_id: EntryId) -> RawEntry | None:
        entry = await super().read_entry(chat_id, entry_id)
        return None if entry is None else self._read(entry)

    async def read_log(
        self,
        chat_id: str,
        through: EntryId | None = None,
        *,
        after: EntryId | None = None,
        newest: bool = False,
    ) -> list[RawEntry]:
        entries = await super().read_log(chat_id, through, after=after, newest=newest)
        return [self._read(entry) for entry in entries]

    @asynccontextmanager
    async def follow(
        self, chat_id: str, at_once: AtOnce | None = None, woken: Callable[[], None] | None = None
    ) -> AsyncIterator[Messages[LogMessage]]:
        take = None if at_once is None else lambda log_message: at_once(self._noticed(log_message))
        async with self._listen(f"log:{chat_id}", woken) as listener:
            yield _Noticed(LogMessages(chat_id, listener, take), self._noticed)

    def _noticed(self, log_message: LogMessage) -> LogMessage:
        return log_message if log_message.entry is None else replace(log_message, entry=self._read(log_message.entry))
