"""Makes the store write its append-only file anew, so that the file no longer contains deleted chats.

The file records every command, so it contains a deleted chat until the file is rewritten (valkey.io, "Persistence", Log
rewriting). `store/embedded/erasure.py` decides when to rewrite the file. `RedisStore` in `store.py` inherits from the
class of this module.
"""

import asyncio

import anyio

from threadcast.store.redis.part import RedisPart
from threadcast_protocol.wire.errors import Unavailable

__all__ = ["RedisErasure"]

REWRITE_POLL_SECONDS = 0.2
"""Seconds between two checks whether a rewrite has ended. The store sends no event at its end."""

REWRITE_MAX_SECONDS = 600.0
"""Seconds that a rewrite may take. A disk that writes 20 MB a second rewrites 12 GB in this time."""


class RedisErasure(RedisPart):
    """Rewrites the append-only file of the private store for `RedisStore`."""

    async def last_erased_ms(self) -> int:
        """Return the time of the last deletion of a chat, or 0 if the file has been rewritten since. Raises
        Unavailable."""
        found = await self._redis.all([(b"GET", key) for key in self._keys.erased()])
        return max(int(each or 0) for each in found)

    async def rewrite_file(self) -> None:
        """Rewrite the file, and record that it no longer contains the chats deleted before the rewrite.

        Raises:
            Unavailable: the rewrite failed, for instance because the disk is full, or the store does not answer.
            Internal: the store does not rewrite files.
        """
        seconds, microseconds = await self._redis.send(b"TIME")
        await self._until_idle()  # a rewrite that runs already may write chats deleted after it began
        await self._redis.send(b"BGREWRITEAOF")
        told = await self._until_idle()
        if told.get("aof_last_bgrewrite_status") != "ok":
            raise Unavailable("the store could not rewrite its file; does its disk have room for a second copy?")
        begun_ms = int(seconds) * 1_000 + int(microseconds) // 1_000
        await asyncio.gather(*(self._redis.call("erase_done", (key,), begun_ms) for key in self._keys.erased()))

    async def _until_idle(self) -> dict[str, str]:
        """Wait until no rewrite runs or is planned, and return the persistence section of the store's INFO."""
        with anyio.move_on_after(REWRITE_MAX_SECONDS):
            while True:
                info = (await self._redis.send(b"INFO", b"persistence")).decode(errors="replace")
                told = dict(line.split(":", 1) for line in info.splitlines() if ":" in line)
                if "1" not in (told.get("aof_rewrite_in_progress"), told.get("aof_rewrite_scheduled")):
                    return told
                await anyio.sleep(REWRITE_POLL_SECONDS)
        raise Unavailable(f"the store did not finish the rewrite of its file within {REWRITE_MAX_SECONDS:.0f} s")
