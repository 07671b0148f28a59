"""`threadcast tail`: prints a chat's events as they arrive. It uses only the public HTTP API.

Each event is one line, and a lost connection is resumed. Characters that control a terminal are written as JSON
escapes, so a program that decodes a line gets the same value. With `is_raw` the bytes of one connection are printed
unchanged.
"""

import asyncio
import os
import signal
import sys
from functools import partial
from typing import BinaryIO

from threadcast.base.redaction import is_invisible
from threadcast_client import Client
from threadcast_client.errors import Refused, Unreachable, Unreadable
from threadcast_client.reading import Arrival
from threadcast_client.stream import Lost, StreamItem

__all__ = ["tail"]


def tail(url: str, token: str | None, chat_id: str, *, last_event_id: str | None, is_raw: bool) -> int:
    """Print events until the user stops the command. Returns the exit code."""

    async def follow() -> None:
        # Ctrl-C ends the process at once: every line was flushed, so there is nothing to clean up.
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
            out.write(_without_controls(item.data).encode() + b"\n")
            out.flush()
        case Lost():
            print(f"threadcast tail: {url}: {item.reason}; trying again", file=sys.stderr, flush=True)


def _without_controls(line: str) -> str:
    """Return a line of JSON with escapes for control characters and other invisible characters, such as marks that
    change the direction of text. JSON itself requires escapes only for control characters below U+0020 (RFC 8259
    §7)."""
    if line.isascii() and line.isprintable():
        return line
    return "".join(_escaped(each) if is_invisible(each) else each for each in line)


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


async def _copy(client: Client, chat_id: str, last_event_id: str, out: BinaryIO) -> None:
    async with client.stream_bytes(chat_id, last_event_id) as chunks:
        async for chunk in chunks:
            out.write(chunk)
            out.flush()
