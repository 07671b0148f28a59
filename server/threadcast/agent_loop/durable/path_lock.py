"""Decides which operations of a durable agent may add messages to the path at the same time."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext

__all__ = ["PathLock"]


class PathLock:
    """Prevents additions to the path while an answer is written, because the answer must be the last message. Running
    calls share the lock; an answer holds the lock alone. `unfinished` is the key of an answer that a crash has left
    open, or ''. Until this answer continues, no message is added to the path. `resting` returns a context manager
    during which the waiting branch does not count as awake."""

    def __init__(self, unfinished: str = "", resting: Callable[[], AbstractContextManager[None]] = nullcontext) -> None:
        self._resting = resting
        self._calls_count = 0
        self._answer_key = self._unfinished = unfinished
        self._freed = asyncio.Event()

    @asynccontextmanager
    async def shared(self, *but: str) -> AsyncIterator[None]:
        """Wait until no answer is being written. During the block, no answer begins. This method does not wait for
        answers whose keys begin with an element of `but`, because their branches have lost a `first`."""
        while self._answer_key and not self._answer_key.startswith(but):
            await self._change()
        self._calls_count += 1
        try:
            yield
        finally:
            self._calls_count -= 1
            if self._unfinished and self._unfinished.startswith(but):
                self._answer_key = self._unfinished = ""
            self._freed.set()

    @asynccontextmanager
    async def alone(self, key: str) -> AsyncIterator[None]:
        """Wait until no call runs and no other answer is being written. During the block, no call and no other answer
        begins. `key` is the key of the answer that will be written."""
        while self._calls_count or (self._answer_key and self._unfinished != key):
            await self._change()
        self._answer_key, self._unfinished = key, ""
        try:
            yield
        finally:
            self._answer_key = ""
            self._freed.set()

    async def _change(self) -> None:
        self._freed.clear()
        with self._resting():
            await self._freed.wait()
