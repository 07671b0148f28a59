"""`threadcast tail`: what a chat's stream carries, for eyes and pipes; over the public HTTP API alone.

One event a line, resuming by itself; or, with `raw`, the bytes of one connection exactly as they come.
"""

import asyncio
import os
import signal
import sys
from functools import partial
from typing import BinaryIO

from threadcast import Client
from threadcast.errors import Refused, Unreachable, Unreadable
from threadcast.reading import Arrival
from threadcast.stream import Lost, StreamItem

__all__ = ["tail"]


def tail(url: str, token: str | None, chat_id: str, *, last_event_id: str | None, is_raw: bool) -> int:
    """Until somebody stops it; the exit code."""

    async def follow() -> None:
        # At once, whatever is being waited for: each line was flushed, and there is nothing to put away.
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, os._exit, 130)
        async with Client(url, token) as client:
            if is_raw:
                await _copy(client, chat_id, last_event_id or "", sys.stdout.buffer)
            else:
                show = partial(_show, client.base_url, sys.stdout.buffer)
                await client.follow(chat_id, show, last_event_id=last_event_id or "")

    try:
        asyncio.run(follow())
    except (Refused, Unreachable, Unreadable) as wrong:
        print(f"threadcast tail: {wrong}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _show(url: str, out: BinaryIO, item: StreamItem) -> None:
    match item:
        case Arrival(seq=int()):
            out.write(item.data.encode() + b"\n")
            out.flush()
        case Lost():
            print(f"threadcast tail: {url}: {item.reason}; trying again", file=sys.stderr, flush=True)


async def _copy(client: Client, chat_id: str, last_event_id: str, out: BinaryIO) -> None:
    async with client.stream_bytes(chat_id, last_event_id) as chunks:
        async for chunk in chunks:
            out.write(chunk)
            out.flush()
