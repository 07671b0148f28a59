"""Counts the bytes that each principal stores. One hash per principal and bucket has the bytes of its chats and a sum.

`RedisStore` in `store.py` inherits from the class of this module. The hash is in the slot of its chats, so the scripts
`post`, `blob_put` and `delete` change the hash in the same step as the chat, and no crash makes the hash wrong. An
append does not count the growth of the log, because counting would cost every append. Instead, a chat is measured when
its log is compacted, or when its worker releases it without a compaction. A principal's total is the sum over all
buckets, read in one pipeline.
"""

import asyncio
from collections.abc import Sequence

import structlog

from threadcast.store.bounds import BLOB_OVERHEAD_BYTES, CHAT_OVERHEAD_BYTES
from threadcast.store.ports import Account
from threadcast.store.redis.part import RedisPart
from threadcast_protocol.wire.errors import Failed, Unavailable

__all__ = ["RedisAccounts"]

MEASURED_AT_ONCE = 50
"""The number of chats that one pipeline measures, which takes Redis some 1 ms, or 10 ms if each chat has hundreds of
blobs."""

NAMES_AT_ONCE = 1_000
"""The number of chat ids that one command returns, which takes 0.3 ms."""

_log = structlog.get_logger(__name__)


class RedisAccounts(RedisPart):
    """Keeps the accounts of principals for `RedisStore`."""

    async def account(self, owner: str) -> Account:
        found = await asyncio.gather(
            *(
                self._redis.call(
                    "account", (self._keys.account(bucket, owner), self._keys.gone(bucket, owner)), CHAT_OVERHEAD_BYTES
                )
                for bucket in range(self._keys.buckets)
            ),
            return_exceptions=True,
        )
        for each in found:
            if isinstance(each, BaseException) and not isinstance(each, Unavailable):
                raise each
        known = [each for each in found if not isinstance(each, BaseException)]
        return Account(sum(int(each[0]) for each in known), sum(int(each[1]) for each in known))

    async def chat_bytes(self, chat_id: str, owner: str) -> int:
        keys = self._keys.chat(chat_id)
        return max(int(await self._redis.send(b"HGET", keys.account(owner), keys.chat_id) or 0), 0)

    async def recount(self, owner: str) -> None:
        for bucket in range(self._keys.buckets):
            counted = await self._scanned(b"HSCAN", self._keys.account(bucket, owner))
            listed = await self._scanned(b"ZSCAN", self._keys.chats(bucket, owner))  # older versions did not count some
            chats = sorted({*counted, *listed} - {b"*"})
            for start in range(0, len(chats), MEASURED_AT_ONCE):
                await self._measure([chat.decode() for chat in chats[start : start + MEASURED_AT_ONCE]], owner)

    async def _scanned(self, command: bytes, key: bytes) -> list[bytes]:
        """Return all names in a hash or a sorted set, read with several commands."""
        names: list[bytes] = []
        cursor = b"0"
        while True:
            cursor, found = await self._redis.send(command, key, cursor, b"COUNT", NAMES_AT_ONCE)
            names += found[::2]
            if cursor == b"0":
                return names

    async def measure(self, chat_id: str) -> None:
        """Measure a chat. A failure is logged, because the chat's next compaction or release measures it again."""
        try:
            await self._measure([chat_id], "")
        except Failed as trouble:
            _log.warning("chat.not_measured", chat_id=chat_id, error=trouble.message)

    async def _measure(self, chat_ids: Sequence[str], owner: str) -> None:
        calls = []
        for chat_id in chat_ids:
            keys = self._keys.chat(chat_id)
            calls.append(
                self._redis.call(
                    "account_measure",
                    (
                        keys.account(owner),
                        keys.meta,
                        keys.blobs,
                        keys.log,
                        keys.head,
                        keys.snap,
                        keys.inbox,
                        keys.seen,
                        keys.seen_old,
                        keys.trace,
                        keys.recent,
                        keys.history,
                        keys.snap_slices,
                        keys.traces,
                    ),
                    keys.chat_id,
                    owner,
                    BLOB_OVERHEAD_BYTES,
                    CHAT_OVERHEAD_BYTES,
                    keys.account(""),
                )
            )
        await asyncio.gather(*calls)
