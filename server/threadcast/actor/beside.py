"""Runs endless functions beside the loop of an actor, in a task group that ends with the loop."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup

from threadcast.store.ports import Fenced, Lost

__all__ = ["running_beside"]


@asynccontextmanager
async def running_beside(
    endless: Sequence[Callable[[], Awaitable[None]]], on_fenced: Callable[[], None], on_lost: Callable[[], None]
) -> AsyncIterator[TaskGroup]:
    """Yield a task group that runs the functions `endless` beside the block, and cancel all its tasks after the block.

    A function that raises Fenced or Lost ends, and `on_fenced` or `on_lost` is called.

    Raises:
        Fenced, Lost: the block raised the error. No exception group surrounds it.
    """

    async def run(work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except Fenced:
            on_fenced()
        except Lost:
            on_lost()

    over: Fenced | Lost | None = None
    async with anyio.create_task_group() as tasks:
        for work in endless:
            tasks.start_soon(run, work)
        try:
            yield tasks
        except (Fenced, Lost) as reason:
            over = reason
        finally:
            tasks.cancel_scope.cancel()
    if over is not None:
        raise over
