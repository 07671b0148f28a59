"""`threadcast` with one thing otherwise, for `bench.choices`: another event loop, other send buffers.

`python -m bench.altered {"loop":"asyncio","send_buffer_bytes":16384} web --port 0`. What nobody needs to set is no
setting of the product; here it is changed in the process before the product begins.
"""

import sys
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import msgspec

from server import sockets
from server.cli import main

__all__ = ["Altered"]


class Altered(msgspec.Struct, frozen=True, omit_defaults=True):
    """None: as the product has it."""

    loop: str | None = None
    """asyncio: the one of the standard library."""

    send_buffer_bytes: int | None = None


def _alter(altered: Altered) -> None:
    if altered.loop == "asyncio":
        run = anyio.run

        def run_plain(main_: Callable[..., Awaitable[None]], *arguments: object, **_: Any) -> None:  # Any: anyio's own
            run(main_, *arguments)

        anyio.run = run_plain  # type: ignore[assignment] # the product gives no other options than the one left out
    if altered.send_buffer_bytes is not None:
        sockets.SEND_BUFFER_BYTES = altered.send_buffer_bytes


if __name__ == "__main__":
    _alter(msgspec.json.decode(sys.argv[1], type=Altered))
    sys.exit(main(sys.argv[2:]))
