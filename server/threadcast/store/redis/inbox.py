"""The inbox of a chat in Redis: stores a command once, reads waiting commands, and stores a command that was given up
as a dead letter. It also deletes a chat.

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
)
from threadcast.store.ports import InboxEntry, Posted, PostOutcome, PostRequest, list_owner_of
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
        found = await self._redis.send(b"XRANGE", self._keys.chat(chat_id).inbox, b"-", b"+", b"COUNT", limit)
        return [
            InboxEntry(inbox_id.decode(), fields[1].decode(), fields[3], fields[5]) for inbox_id, fields in found
        ]  # `post` writes the fields r, u and d in this order

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
        parent = await self._redis.send(b"HGET", keys.meta, b"parent")  # never changes
        list_owner = list_owner_of(owner, parent.decode() if parent else "")
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
        )
        return bool(answer == b"OK")
