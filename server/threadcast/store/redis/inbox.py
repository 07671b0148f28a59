"""Stores each command once in its chat's inbox in Redis, and reads the waiting commands.

This module also stores dead letters, which are commands that were given up, and deletes chats.

`RedisStore` in `store.py` inherits from the class of this module. An accepted command and its remembered request id are
written in one atomic step, so that the command takes effect once.
"""

import msgspec

from threadcast.store.bounds import (
    DEAD_MAX,
    DELETED_TTL_SECONDS,
    FAST_TAKEOVER_MS,
    INBOX_MAX,
    QUEUE_COUNTS,
    SEEN_GENERATION,
    SEEN_TTL_SECONDS,
    SLICE_BYTES,
)
from threadcast.store.ports import InboxEntry, Posted, PostOutcome, PostRequest, list_owner_of
from threadcast.store.redis.keys import ChatKeys
from threadcast.store.redis.part import RedisPart

__all__ = ["DeadLetter", "RedisInbox"]


class DeadLetter(msgspec.Struct, frozen=True):
    """A command that was given up, as stored in `dead` (JSON), for an operator to inspect."""

    chat_id: str
    inbox_id: str
    request_id: str
    reason: str
    principal: str
    body: str


LETTERS_AT_ONCE = 32
"""The number of dead letters that one command reads, which takes 0.4 ms if each letter has 10 kB."""

_dead_letters = msgspec.json.Encoder()


class RedisInbox(RedisPart):
    """Stores commands for `RedisStore`."""

    async def post(self, request: PostRequest) -> Posted:
        keys = self._keys.chat(request.chat_id)
        outcome, inbox_id = await self._redis.call(
            "post",
            (
                keys.meta,
                keys.inbox,
                keys.seen,
                keys.seen_old,
                keys.due,
                keys.own,
                keys.bell,
                keys.log,
                keys.head,
                keys.snap,
                keys.history,
                keys.account(request.owner),
                keys.snap_slices,
            ),
            keys.chat_id,
            request.owner,
            request.principal,
            request.request_id,
            request.digest,
            request.nonce,
            request.body,
            request.kind,
            1 if request.creates else 0,
            INBOX_MAX[request.kind],
            1 if request.kind in QUEUE_COUNTS else 0,
            SEEN_GENERATION,
            SEEN_TTL_SECONDS,
            FAST_TAKEOVER_MS,
            keys.inbox_signal_prefix,
            request.about,
            request.charged_bytes,
        )
        return Posted(PostOutcome(outcome.decode()), inbox_id.decode() or None)

    async def read_inbox(self, chat_id: str, limit: int) -> list[InboxEntry]:
        entries: list[InboxEntry] = []
        after = "-"
        while len(entries) < limit:
            key = self._keys.chat(chat_id).inbox
            found = await self._redis.call("inbox", (key,), after, limit - len(entries), SLICE_BYTES)
            for inbox_id, fields in found:  # `post` writes the fields r, u and d in this order
                entries.append(InboxEntry(inbox_id.decode(), fields[1].decode(), fields[3], fields[5]))
            if not found or sum(len(fields[5]) for _, fields in found) < SLICE_BYTES:
                break
            after = entries[-1].inbox_id
        return entries

    async def dead_letter(self, chat_id: str, entry: InboxEntry, reason: str) -> None:
        keys = self._keys.chat(chat_id)
        letter = DeadLetter(
            chat_id=chat_id,
            inbox_id=entry.inbox_id,
            request_id=entry.request_id,
            reason=reason,
            principal=entry.principal.decode(errors="replace"),
            body=entry.body.decode(errors="replace"),
        )
        await self._redis.call("dead", (keys.dead,), _dead_letters.encode(letter), DEAD_MAX)

    async def delete(self, chat_id: str, owner: str, nonce: str) -> bool:
        keys = self._keys.chat(chat_id)
        parent = await self._redis.send(b"HGET", keys.meta, b"parent")  # a chat's parent never changes
        list_owner = list_owner_of(owner, parent.decode() if parent else "")
        await self._drop_letters(keys)
        answer = await self._redis.call(
            "delete",
            (
                keys.meta,
                keys.log,
                keys.head,
                keys.inbox,
                keys.snap,
                keys.seen,
                keys.seen_old,
                keys.own,
                keys.due,
                keys.chats(list_owner),
                keys.blobs,
                keys.trace,
                keys.erased,
                keys.dead,
                keys.account(owner),
                keys.gone(owner),
                keys.recent,
                keys.history,
                keys.snap_slices,
                keys.traces,
            ),
            keys.chat_id,
            owner,
            nonce,
            SEEN_GENERATION,
            SEEN_TTL_SECONDS,
            DELETED_TTL_SECONDS,
            keys.log_channel,
            keys.feed_channel(list_owner),
            keys.inbox_signal_prefix,
            LETTERS_AT_ONCE,
            self._list_channel(list_owner),
        )
        return bool(answer == b"OK")

    async def _drop_letters(self, keys: ChatKeys) -> None:
        """Delete the chat's dead letters, beginning with the newest."""
        kept = 0
        while kept < DEAD_MAX:
            first, last = -kept - LETTERS_AT_ONCE, -kept - 1
            found, left = await self._redis.call("dead_drop", (keys.dead,), keys.chat_id, first, last)
            if not found:
                break
            kept += int(left)
