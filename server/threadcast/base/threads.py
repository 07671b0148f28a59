"""Runs the sync code of operators in threads: functions, and generators whose items are read live.

Threads cannot be stopped. When its caller is cancelled, a thread is abandoned and no longer counts towards the limit,
because hanging code must not block all other code.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator
from functools import partial
from typing import TypeVar

import anyio
import anyio.from_thread
import anyio.to_thread
import msgspec
from anyio.abc import ObjectSendStream
from anyio.lowlevel import RunVar

from threadcast.base.boundary import failing_plainly

__all__ = ["THREADS_COUNT", "Returned", "in_thread", "items_in_thread"]

THREADS_COUNT = 40
"""Maximum number of threads of each kind that run at once; anyio has the same default limit. The limits are separate,
so that slow tools cannot starve agents or other thread work. Further calls wait, and their callers limit the waiting
time."""

ITEMS_BUFFER_COUNT = 16
"""Maximum number of unread items of a generator; when it is reached, the generator's thread waits."""

_limiters: RunVar[dict[str, anyio.CapacityLimiter]] = RunVar("threads by kind")  # for each event loop

_T = TypeVar("_T")


class Returned(msgspec.Struct, frozen=True):
    """The value that a generator has returned; it follows the generator's items."""

    value: object


async def in_thread(call: Callable[[], _T], kind: str) -> _T:
    """Return the result of `call()`, which runs in a thread. `kind` selects the limit of threads."""
    run = partial(failing_plainly, call)
    return await anyio.to_thread.run_sync(run, abandon_on_cancel=True, limiter=_limiter(kind))


async def items_in_thread(
    call: Callable[[], Generator[object, None, object]], kind: str, last: tuple[type, ...] = ()
) -> AsyncGenerator[object]:
    """Run a generator entirely in one thread, since its resources may belong to that thread. Yields its items live, and
    then `Returned`. An item of a type in `last` counts as the returned value, and ends the generator.

    After the reader has stopped, the generator's next `yield` raises GeneratorExit, so that even an abandoned generator
    ends.
    """
    sender, receiver = anyio.create_memory_object_stream[object](ITEMS_BUFFER_COUNT)

    async def drive() -> object:
        with sender:
            return await in_thread(partial(_drive, call, sender, last), kind)

    task = asyncio.create_task(drive())  # the `finally` of this generator ends the task
    try:
        with receiver:
            async for item in receiver:
                yield item
        yield Returned(await task)
    finally:
        task.cancel()
        await asyncio.wait({task})  # returns at once: a thread that still runs is left behind
        if not task.cancelled():
            task.exception()  # raised above, or no longer needed


def _drive(
    call: Callable[[], Generator[object, None, object]], out: ObjectSendStream[object], last: tuple[type, ...]
) -> object:
    """In the thread."""
    items = call()
    try:
        while True:
            try:
                item = next(items)
            except StopIteration as end:
                return end.value
            if isinstance(item, last):
                return item
            anyio.from_thread.run(out.send, item)
    finally:
        items.close()


def _limiter(kind: str) -> anyio.CapacityLimiter:
    try:
        limiters = _limiters.get()
    except LookupError:
        _limiters.set(limiters := {})
    return limiters.setdefault(kind, anyio.CapacityLimiter(THREADS_COUNT))
