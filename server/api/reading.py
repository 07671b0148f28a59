"""A chat as it is stored, folded for an answer: off the event loop when it is large, so that nobody else waits for it.

Folding and encoding a chat of ten thousand messages takes a tenth of a second; every stream of the process would stand
still for that long.
"""

from collections.abc import Callable
from typing import TypeVar

import anyio.to_thread

from protocol.state import ChatState
from server.store.load import fold_loaded, fold_whole
from server.store.port import Store

__all__ = ["read_chat_as"]

_T = TypeVar("_T")

THREAD_MIN_BYTES = 64 * 1024
"""Folding less takes the event loop less time than handing it to a thread would."""


async def read_chat_as(store: Store, chat_id: str, shape: Callable[[ChatState], _T]) -> _T:
    """What `shape` makes of the chat. It may run in a thread, so it must not touch what others change."""
    loaded = await store.load(chat_id)
    if not loaded.is_whole:
        state, _ = await fold_whole(store, chat_id, loaded, with_facts=False)
        return await anyio.to_thread.run_sync(shape, state)
    size = sum(len(entry.events) for entry in loaded.entries) + (len(loaded.checkpoint[2]) if loaded.checkpoint else 0)

    def fold() -> _T:
        return shape(fold_loaded(chat_id, loaded, with_facts=False))

    return await anyio.to_thread.run_sync(fold) if size > THREAD_MIN_BYTES else fold()
