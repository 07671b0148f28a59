"""Loads and folds a chat for an answer; in a thread if the chat is large.

Folding and encoding a chat of ten thousand messages takes a tenth of a second. On the event loop, this work would stop
every stream of the process for the same time.
"""

from collections.abc import Callable
from typing import TypeVar

import anyio.to_thread

from threadcast.chat.owner_state import OwnerState
from threadcast.store.load import fold_loaded, fold_whole
from threadcast.store.ports import Log

__all__ = ["read_chat_as"]

_T = TypeVar("_T")

THREAD_MIN_BYTES = 64 * 1024
"""Chats above this size are folded in a thread. For smaller chats, starting the thread would take the event loop longer
than folding."""


async def read_chat_as(store: Log, chat_id: str, shape: Callable[[OwnerState], _T]) -> _T:
    """Return the result of `shape` for the folded chat. `shape` may run in a thread, so it must not use state that
    other code changes."""
    loaded = await store.load(chat_id)
    if not loaded.is_whole:
        state, _ = await fold_whole(store, chat_id, loaded, with_facts=False)
        return await anyio.to_thread.run_sync(shape, state)
    size = sum(len(entry.events) for entry in loaded.entries) + (len(loaded.checkpoint[2]) if loaded.checkpoint else 0)

    def fold() -> _T:
        return shape(fold_loaded(chat_id, loaded, with_facts=False))

    return await anyio.to_thread.run_sync(fold) if size > THREAD_MIN_BYTES else fold()
