"""Rewrites the append-only file of the embedded store after a chat was deleted, so that the chat's content leaves the
disk.

The store records each deletion (`delete.lua`), so a restart forgets no deletion. The server itself rewrites its file
only when the size of the file has doubled, which may never happen. At most one rewrite runs within `after_seconds`,
however many chats are deleted.
"""

from typing import Protocol

import anyio
import structlog

from threadcast_protocol.wire.errors import Failed

__all__ = ["erase_forever"]

LOOK_SECONDS = 60.0
"""Seconds between checks for deletions; each check sends 16 small commands. A deletion before the start of the server
is noticed at the first check, and the deleted content leaves the file at the second check."""

AGAIN_SECONDS = 300.0
"""Seconds between attempts while a rewrite fails: a full disk stays full for a while."""

_log = structlog.get_logger(__name__)


class _Store(Protocol):
    async def last_erased_ms(self) -> int: ...

    async def rewrite_file(self) -> None: ...


async def erase_forever(store: _Store, after_seconds: float) -> None:
    """Rewrite the store's file `after_seconds` after a deletion. Never returns."""
    look_seconds = min(LOOK_SECONDS, after_seconds / 2)
    is_first, waited_seconds = True, 0.0
    while True:
        pause_seconds = look_seconds
        try:
            if await store.last_erased_ms() == 0:
                waited_seconds = 0.0
            elif is_first:
                waited_seconds = after_seconds  # the deletion was before this start, perhaps long before
            elif (waited_seconds := waited_seconds + look_seconds) >= after_seconds:
                begun = anyio.current_time()
                await store.rewrite_file()
                waited_seconds = 0.0
                _log.info("store.erased", duration_ms=round(1_000 * (anyio.current_time() - begun)))
        except Failed as trouble:
            _log.error("store.erase_failed", error=trouble.message)
            pause_seconds = max(look_seconds, min(AGAIN_SECONDS, after_seconds))
        is_first = False
        await anyio.sleep(pause_seconds)
