"""Starts `threadcast` with another event loop or other send buffers (`bench.choices`), or with a record of how long the
event loop computes at a stretch (`bench.bombs`).

`python -m bench.altered {"loop":"asyncio","send_buffer_bytes":16384} web --port 0`. The product has no settings for
these, because no operator needs them. This program changes them before the start.
"""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import msgspec

from threadcast.cli import main
from threadcast.http import sockets

__all__ = ["Altered"]


class Altered(msgspec.Struct, frozen=True, omit_defaults=True):
    """The changes to make. A field with None keeps the product's own value."""

    loop: str | None = None
    """The event loop; "asyncio" is the loop of the standard library."""

    send_buffer_bytes: int | None = None

    stretches: str | None = None
    """A file that gets a line for each stretch above `STRETCH_MIN_SECONDS`: its CPU seconds. Needs asyncio's loop."""


STRETCH_MIN_SECONDS = 0.005


def _alter(altered: Altered) -> None:
    if altered.loop == "asyncio":
        run = anyio.run

        def run_plain(main_: Callable[..., Awaitable[None]], *arguments: object, **_: Any) -> None:  # Any: anyio's own
            run(main_, *arguments)

        anyio.run = run_plain  # type: ignore[assignment] # the product gives no other options than the one left out
    if altered.stretches is not None:
        _record_stretches(Path(altered.stretches))
    if altered.send_buffer_bytes is not None:
        sockets.SEND_BUFFER_BYTES = altered.send_buffer_bytes


def _record_stretches(path: Path) -> None:
    """Record the CPU time of each callback of the event loop, because the loop does nothing else during a callback."""
    run = asyncio.Handle._run  # asyncio has no public way to see a callback run
    file = path.open("a", buffering=1)

    def timed(handle: asyncio.Handle) -> None:
        began = time.thread_time()
        run(handle)
        spent = time.thread_time() - began
        if spent > STRETCH_MIN_SECONDS:
            file.write(f"{spent}\n")

    asyncio.Handle._run = timed  # type: ignore[method-assign,assignment] # typeshed takes it for a bound method


if __name__ == "__main__":
    _alter(msgspec.json.decode(sys.argv[1], type=Altered))
    sys.exit(main(sys.argv[2:]))
