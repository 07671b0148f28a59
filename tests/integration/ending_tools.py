"""Tools for tests (`--app`) that would end their server, keep it from ending, or leave a child process behind."""

import asyncio
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator

from threadcast.tools.python import tool

__all__ = [
    "blocks_the_loop",
    "exits_in_a_task",
    "forks",
    "hangs_in_a_child",
    "hangs_in_a_thread",
    "hangs_in_the_executor",
    "interrupts",
    "panics",
    "panics_in_a_generator",
    "panics_in_a_thread",
    "swallows_every_cancellation",
    "terminates_a_child",
]

FOR_EVER_SECONDS = 600.0


class PanicException(BaseException):
    """Stands for `pyo3_runtime.PanicException`, which a Rust extension raises when it panics."""


@tool()
async def interrupts() -> str:
    """Raises KeyboardInterrupt on the event loop, as Ctrl-C does in a program without signal handlers."""
    raise KeyboardInterrupt


@tool()
async def panics() -> str:
    """Panics on the event loop."""
    raise PanicException("called `Option::unwrap()` on a `None` value")


@tool()
def panics_in_a_thread() -> str:
    """Panics in a thread."""
    raise PanicException("index out of bounds")


@tool()
def panics_in_a_generator() -> Iterator[str]:
    """Panics in a thread, after it has yielded progress."""
    yield "on it"
    raise PanicException("index out of bounds")


@tool()
async def exits_in_a_task() -> str:
    """Starts a task that exits, which makes asyncio end the loop."""

    async def exits() -> None:
        sys.exit(0)

    await asyncio.gather(asyncio.create_task(exits()))
    return ""


@tool()
def hangs_in_a_thread() -> str:
    """Does not end."""
    time.sleep(FOR_EVER_SECONDS)
    return ""


@tool()
async def hangs_in_the_executor() -> str:
    """Blocks the event loop's executor for ever."""
    await asyncio.to_thread(time.sleep, FOR_EVER_SECONDS)
    return ""


@tool()
async def swallows_every_cancellation() -> str:
    """Ignores every cancellation and does not end."""
    while True:
        try:
            await asyncio.sleep(FOR_EVER_SECONDS)
        except asyncio.CancelledError:
            continue


@tool()
async def blocks_the_loop() -> str:
    """Blocks the event loop."""
    time.sleep(FOR_EVER_SECONDS)  # noqa: ASYNC251 - the fault that is tested
    return ""


@tool()
def hangs_in_a_child() -> str:
    """Starts a child process that outlives the call. At its exit, Python would wait for that child."""
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(FOR_EVER_SECONDS,))
    child.start()
    return str(child.pid)


@tool()
def forks() -> str:
    """Leaves a child process that the server does not know of. Returns the child's process id once the child runs its
    own code, after the hooks of `base/forks.py`."""
    has_begun, begins = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(begins, b"x")
        time.sleep(FOR_EVER_SECONDS)
        os._exit(0)
    os.close(begins)
    os.read(has_begun, 1)
    os.close(has_begun)
    return str(pid)


@tool()
def terminates_a_child() -> str:
    """Forks a child and ends it with SIGTERM, as a pool does with its workers."""
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(FOR_EVER_SECONDS,))
    child.start()
    child.terminate()
    child.join(20)
    return f"it ended with {child.exitcode}"
