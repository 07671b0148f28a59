"""Reads every chat's log straight from the store, past all proxies, before a trim can remove entries.

Long logs are read again and again during the run, so that in the end every entry is known; other logs are read once.
The audit itself checks only that a log's position never decreases.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from redis.asyncio import Redis

from tests.torture.evidence import ChatEvidence, InboxId, Mishap, ToolRun
from threadcast.chat.entries import RawEntry
from threadcast.store.redis.keys import Keys
from threadcast.store.redis.store import RedisStore
from threadcast_protocol.framing.codec import decode_events
from threadcast_protocol.wire.errors import ThreadcastError, Unavailable
from threadcast_protocol.wire.events import AT_REST, MessageAdded, SubchatUpdate
from threadcast_protocol.wire.ids import Head
from threadcast_protocol.wire.messages import FilePart

__all__ = ["Archive", "read_tool_runs"]

AT_ONCE = 20
"""Number of chats whose logs are read together, some MB in all."""

TRIES = 5
"""Maximum attempts to read a batch, each of at most 4 s, because hundreds of clients share the machine."""

PULL_SECONDS = 3.0
"""Seconds between reads of long logs; a log keeps 1 MB or 2,000 events, half a minute of the busiest chat here."""


class Archive:
    """All log entries that were read, by chat. `plain` is another connection to the same store, for commands that no
    port of the product offers."""

    def __init__(self, store: RedisStore, plain: Redis, mishaps: list[Mishap]) -> None:
        self.store = store
        self._plain = plain
        self.entries: dict[str, list[RawEntry]] = {}
        self._mishaps = mishaps

    async def watch(self, chat_ids: Sequence[str]) -> None:
        """Read these logs again and again until cancelled. Errors are ignored: an unreachable store trims nothing
        meanwhile."""
        while True:
            for chat_id in chat_ids:
                try:
                    await self.pull(chat_id)
                except ThreadcastError:
                    continue
            await asyncio.sleep(PULL_SECONDS)

    async def pull(self, chat_id: str) -> None:
        """Add the new entries. Raises Unavailable.

        Only entries after the last known one are read. A page of a long log may end early, because the log was trimmed
        while it was read; then the next read continues.
        """
        held = self.entries.setdefault(chat_id, [])
        while read := await self.store.read_log(chat_id, after=held[-1].entry_id if held else None):
            if held and read[0].before != held[-1].head:
                words = f"after {held[-1].head!r} the log goes on with what follows {read[0].before!r}"
                self._mishaps.append(Mishap("hole", chat_id, f"the log went back, or was trimmed unread: {words}"))
                return
            held += read

    async def children(self, chat_ids: Sequence[str]) -> list[str]:
        """Return the sub-chats that tools of these chats began, and the sub-chats of these sub-chats. Raises
        Unavailable."""
        found: list[str] = []
        while chat_ids:
            for chat_id in chat_ids:
                await self.pull(chat_id)
            entries = [entry for chat_id in chat_ids for entry in self.entries[chat_id]]
            told = [e for entry in entries for e in decode_events(entry.events) if isinstance(e, SubchatUpdate)]
            chat_ids = [event.subchat_id for event in told]
            found += chat_ids
        return found

    def files(self, chat_id: str) -> set[str]:
        """Return the hashes of the blobs to which this chat's known events refer."""
        events = (event for entry in self.entries.get(chat_id, []) for event in decode_events(entry.events))
        added = [event.message.content for event in events if isinstance(event, MessageAdded)]
        parts = [part for content in added if not isinstance(content, str) for part in content]
        return {part.blob for part in parts if isinstance(part, FilePart) and part.blob is not None}

    async def is_settled(self, chat_id: str) -> bool:
        """Return whether the chat rests and no command waits. Raises Unavailable."""
        meta, inbox = await asyncio.gather(self.store.meta(chat_id), self.store.read_inbox(chat_id, 1))
        return meta is not None and meta.state in AT_REST and not meta.queue and not inbox

    async def positions(self, chat_ids: Sequence[str]) -> dict[str, int]:
        """Return the position of the last event of each chat. Raises Unavailable."""
        heads = await self.store.heads(chat_ids)
        return {name: Head.parse(head).position if head else 0 for name, head in zip(chat_ids, heads, strict=True)}

    async def accepted(self, chat_id: str) -> dict[str, InboxId]:
        """Return the place of each command that the store remembers, in the order of acceptance: the generation of
        remembered ids, and the number within that generation. `post.lua` writes the ids in this order, and
        `ORDERED_HASHES` keeps the order."""
        keys = Keys(self.store.buckets).chat(chat_id)
        found: dict[str, InboxId] = {}
        for generation, key in enumerate((keys.seen_old, keys.seen)):
            answer = await self._plain.execute_command("HKEYS", key)  # type: ignore[no-untyped-call]  # theirs
            remembered: list[bytes] = answer
            for number, request_id in enumerate(remembered):
                if not request_id.startswith(b"!"):  # the nonce of a delete
                    found[request_id.decode()] = (generation, number)
        return found

    async def evidence(self, chat_ids: Sequence[str], snapshots: dict[str, bytes]) -> list[ChatEvidence]:
        """Return what the store and the readers have of these chats, which the judge compares. Raises Unavailable."""
        found: list[ChatEvidence] = []
        for start in range(0, len(chat_ids), AT_ONCE):
            found += await self._patiently(chat_ids[start : start + AT_ONCE], snapshots)
        return found

    async def _patiently(self, chat_ids: Sequence[str], snapshots: dict[str, bytes]) -> list[ChatEvidence]:
        for _ in range(TRIES - 1):
            with suppress(Unavailable):
                return await self._read(chat_ids, snapshots)
        return await self._read(chat_ids, snapshots)

    async def _read(self, chat_ids: Sequence[str], snapshots: dict[str, bytes]) -> list[ChatEvidence]:
        await asyncio.gather(*(self.pull(chat_id) for chat_id in chat_ids))
        loads = await asyncio.gather(*(self.store.load(chat_id) for chat_id in chat_ids))
        inboxes = await asyncio.gather(*(self.store.read_inbox(chat_id, 100) for chat_id in chat_ids))
        orders = await asyncio.gather(*(self.accepted(chat_id) for chat_id in chat_ids))
        return [
            ChatEvidence(
                chat_id=chat_id,
                entries=self.entries[chat_id],
                loaded=loaded,
                inbox_count=len(inbox),
                http_snapshot=snapshots.get(chat_id, b""),
                accepted=accepted,
            )
            for chat_id, loaded, inbox, accepted in zip(chat_ids, loads, inboxes, orders, strict=True)
        ]


def read_tool_runs(path: Path) -> list[ToolRun]:
    """Return the runs that the tools of `tools_app.py` wrote."""
    if not path.exists():
        return []
    return [ToolRun(*line.split()) for line in path.read_text().splitlines()]
