"""Companions are functions of the operator's file that run in the process of `threadcast serve` while it serves.

    from threadcast import companion
    from threadcast import Client

    @companion()
    async def editor(url: str) -> None:
        async with Client(url) as client, client.chat("desk") as chat:
            ...

A companion replaces a program that a demonstration or a small installation would otherwise start in another terminal,
such as a plugin that carries out client tools or a service that tools call. `url` is the server's address on this
machine. Separate web and worker processes run no companions, because each process would run all companions again.
"""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeAlias

import anyio
import msgspec
import structlog

from threadcast.base.boundary import pass_on

__all__ = ["Companion", "companion", "running"]

Run: TypeAlias = Callable[[str], Awaitable[None]]

_log = structlog.get_logger()


class Companion(msgspec.Struct, frozen=True):
    """A function that runs beside the server. `run` receives the server's address, such as "http://127.0.0.1:8000", and
    is cancelled when the server stops."""

    name: str
    run: Run


def companion() -> Callable[[Run], Companion]:
    """Make a companion of an `async def` function with one argument, the server's address.

    The function begins when the server accepts commands. When the function raises an error, the server logs
    `companion.failed` and continues without the companion. The function must end when it is cancelled, because the
    server waits for the function's end before it stops.

    Raises:
        TypeError: the function is not an `async def`.
    """

    def register(run: Run) -> Companion:
        if not inspect.iscoroutinefunction(run):
            raise TypeError(
                f"companion {getattr(run, '__name__', run)}: write it as async def, with the url as argument"
            )
        return Companion(run.__name__, run)

    return register


@asynccontextmanager
async def running(companions: Sequence[Companion], url: str) -> AsyncIterator[None]:
    """Run the companions while the block runs, and cancel them at its end."""
    async with anyio.create_task_group() as tasks:
        for each in companions:
            tasks.start_soon(_guarded, each, url)
        try:
            yield
        finally:
            tasks.cancel_scope.cancel()


async def _guarded(companion: Companion, url: str) -> None:
    try:
        await companion.run(url)
    except BaseException as wrong:  # boundary: the operator's code may raise anything
        pass_on(wrong)
        _log.warning("companion.failed", companion=companion.name, error=f"{type(wrong).__name__}: {wrong}")
