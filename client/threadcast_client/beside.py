"""Tasks that run beside a block and end with it."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup

__all__ = ["beside"]


@asynccontextmanager
async def beside(start: Callable[[TaskGroup], object]) -> AsyncIterator[None]:
    """Run tasks beside a block, and cancel them at its end. An error of the block is raised unwrapped."""
    wrong: Exception | None = None
    async with anyio.create_task_group() as tasks:
        start(tasks)
        try:
            yield
        except Exception as trouble:  # the error is raised again below, because the task group would wrap it
            wrong = trouble
        tasks.cancel_scope.cancel()
    if wrong is not None:
        raise wrong
