"""`threadcast tail`: what a chat's stream carries, for eyes and pipes; over the public HTTP API alone.

One event a line, resuming by itself; or, with `raw`, the bytes of one connection exactly as they come.
"""

import asyncio
import os
import signal
import sys
from contextlib import aclosing
from functools import partial
from typing import BinaryIO

import msgspec

from server.client import Client, Connection, RequestRefused, Unreachable

__all__ = ["tail"]


def tail(url: str, token: str | None, chat_id: str, *, last_event_id: str | None, is_raw: bool) -> int:
    """Until somebody stops it; the exit code."""

    async def follow() -> None:
        # At once, whatever is being waited for: each line was flushed, and there is nothing to put away.
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, os._exit, 130)
        async with Client(url, token) as client:
            if is_raw:
                await _copy(client, chat_id, last_event_id, sys.stdout.buffer)
            else:
                await _print(client, chat_id, last_event_id, sys.stdout.buffer)

    try:
        asyncio.run(follow())
    except (RequestRefused, Unreachable) as wrong:
        print(f"threadcast tail: {wrong}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


async def _print(client: Client, chat_id: str, last_event_id: str | None, out: BinaryIO) -> None:
    async with aclosing(client.subscribe(chat_id, last_event_id, on_change=partial(_say, client.base_url))) as events:
        async for event, _ in events:
            out.write(msgspec.json.encode(event) + b"\n")
            out.flush()


async def _copy(client: Client, chat_id: str, last_event_id: str | None, out: BinaryIO) -> None:
    async with aclosing(client.stream_bytes(chat_id, last_event_id)) as chunks:
        async for chunk in chunks:
            out.write(chunk)
            out.flush()


def _say(url: str, connection: Connection) -> None:
    if not connection.is_open:
        print(f"threadcast tail: {url}: {connection.reason}; trying again", file=sys.stderr, flush=True)
