"""Lets threads read large texts of callers one at a time, with pauses in between.

Decoding 16 MB of JSON holds the interpreter's lock for up to 45 ms. During this time the event loop cannot run,
although the decoder runs in a thread. Without pauses, a caller who sends such bodies again and again would stop the
loop most of the time, and a request of another caller, which needs the loop several times, would wait each time.
"""

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import anyio
import anyio.to_thread

__all__ = ["PAUSES", "in_large_read", "large_read"]

_T = TypeVar("_T")

PAUSES = 4.0
"""The pause after a read, as a multiple of the CPU time that the read took: large reads take a fifth of one core. Only
the next large read waits for the end of the pause. With a factor of 3, another caller's p99 during a flood of 16 MB
bodies was close to three times its p99 without the flood (`scripts/bench floods`)."""

_turn = threading.Lock()
_free_at = -math.inf
"""The time of `time.monotonic` from which the next large read may begin."""


@contextmanager
def large_read() -> Iterator[None]:
    """Wait for this thread's turn among the large reads of the process. The turn lasts until the end of the block. Call
    this in a thread, since it may wait for seconds."""
    global _free_at
    with _turn:
        time.sleep(max(0.0, _free_at - time.monotonic()))
        began_at = time.thread_time()
        try:
            yield
        finally:
            _free_at = time.monotonic() + PAUSES * (time.thread_time() - began_at)


_readers = anyio.CapacityLimiter(1)
"""The single thread of `in_large_read`; further threads would only wait for their turn."""


async def in_large_read(read: Callable[[], _T]) -> _T:
    """Return the result of `read()`, which runs in a thread as a large read."""

    def in_turn() -> _T:
        with large_read():
            return read()

    return await anyio.to_thread.run_sync(in_turn, limiter=_readers)
