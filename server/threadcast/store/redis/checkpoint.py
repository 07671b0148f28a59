"""Reads and writes the stored form of a checkpoint: a line `<head string> <version>`, then the compressed state.

`log.py` and `dispatch.py` call it with the state as bytes. The line is not compressed, because the scripts read the
checkpoint's position from it. A large state is compressed in a thread, so that it does not block the event loop.

A compressed state above WHOLE_MAX_BYTES is stored in slices (`slices.py`). Its line has the version SLICED_VERSION, and
the frame after it is empty and followed by a line `<version> <bytes>`. A process of an older version takes such a
checkpoint for a checkpoint of a newer format, and hands the chat over.
"""

import asyncio
from typing import NamedTuple

from threadcast.store.bounds import WHOLE_MAX_BYTES
from threadcast.store.compression import compressed, decompressed, decompressed_size
from threadcast_protocol.wire.errors import Internal

__all__ = ["Composed", "Sliced", "compose", "sliced", "split"]

THREAD_ABOVE_BYTES = 256 * 1_024
"""A larger state is compressed in a thread. Compressing a state of this size takes 2.5 ms; for a smaller state, a
thread costs more than it saves."""

SLICED_VERSION = 1_000_000
"""The version in the line of a checkpoint in slices; it is larger than every format version (`chat/entries.py`)."""


class Composed(NamedTuple):
    """The stored form: the value of the key `snap`, and the compressed state if that is stored in slices under another
    key."""

    snap: bytes
    slices: bytes


class Sliced(NamedTuple):
    """The line of a checkpoint in slices: `size_bytes` is the size of its compressed state. `line` begins its
    `snap`."""

    line: str
    version: int
    size_bytes: int


async def compose(head: str, version: int, state: bytes) -> Composed:
    """Return the stored form: the same bytes for the same arguments, so that a repeated append is recognised as a
    repeat."""
    large = len(state) > THREAD_ABOVE_BYTES
    data = await asyncio.to_thread(compressed, state) if large else compressed(state)
    if len(data) <= WHOLE_MAX_BYTES:
        return Composed(f"{head} {version}\n".encode() + data, b"")
    return Composed(f"{head} {SLICED_VERSION}\n".encode() + compressed(b"") + f"\n{version} {len(data)}".encode(), data)


def sliced(snap: bytes) -> Sliced | None:
    """Return the description of the slices in `snap`; None if the checkpoint has no slices. Raises Internal if the
    description cannot be read."""
    line, _, data = snap.partition(b"\n")
    if not line.endswith(b" %d" % SLICED_VERSION):
        return None
    try:
        version, size_bytes = map(int, data.rpartition(b"\n")[2].split())
    except ValueError as wrong:
        raise Internal(f"a stored checkpoint does not tell its slices: {wrong}") from None
    return Sliced(line.decode("ascii", "replace"), version, size_bytes)


async def split(stored: bytes) -> tuple[str, int, bytes] | None:
    """Return head string, version and state of a checkpoint that is not in slices, None for an empty string.

    Raises:
        Internal: the bytes are not a checkpoint.
    """
    if not stored:
        return None
    line, newline, data = stored.partition(b"\n")
    head, _, version = line.decode("ascii", "replace").rpartition(" ")
    try:
        large = decompressed_size(data) > THREAD_ABOVE_BYTES
        return head, int(version), await asyncio.to_thread(decompressed, data) if large else decompressed(data)
    except (ValueError, MemoryError) as wrong:
        raise Internal(
            f"a stored checkpoint cannot be read: {wrong}" if newline else "a checkpoint has no head"
        ) from None
