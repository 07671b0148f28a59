"""Reads and writes the stored form of a checkpoint: a line `<head string> <version>`, then the compressed state.

`log.py` and `dispatch.py` call this module with the state as bytes. The line is not compressed, because the scripts
read the checkpoint's position from it. A large state is compressed in a thread, because compression would block the
event loop.

A compressed state above WHOLE_MAX_BYTES is stored in slices (`slices.py`). The line of such a checkpoint has the
version SLICED_VERSION. An empty compressed frame and a line `<version> <bytes>` follow. To a process of an older
version, the checkpoint seems to have a newer format, so this process hands the chat over.
"""

import asyncio
from typing import NamedTuple

from threadcast.store.bounds import WHOLE_MAX_BYTES
from threadcast.store.compression import compressed, decompressed, decompressed_size
from threadcast_protocol.wire.errors import Internal

__all__ = ["Composed", "Sliced", "compose", "sliced", "split"]

THREAD_ABOVE_BYTES = 256 * 1_024
"""A state above this size is compressed in a thread. Compressing a state of this size takes 2.5 ms. For a smaller
state, a thread costs more than it saves."""

SLICED_VERSION = 1_000_000
"""The version in the line of a checkpoint in slices. It is larger than every format version (`chat/entries.py`)."""


class Composed(NamedTuple):
    """The stored form of a checkpoint. `snap` is the value of the key `snap`. `slices` is the compressed state if it is
    stored in slices under another key, else b""."""

    snap: bytes
    slices: bytes


class Sliced(NamedTuple):
    """The description of a checkpoint in slices: the first line of its `snap`, the version of its state, and the size
    of its compressed state."""

    line: str
    version: int
    size_bytes: int


async def compose(head: str, version: int, state: bytes) -> Composed:
    """Return the stored form of a checkpoint. The same arguments give the same bytes, so that a repeated append is
    recognised as a repeat."""
    large = len(state) > THREAD_ABOVE_BYTES
    data = await asyncio.to_thread(compressed, state) if large else compressed(state)
    if len(data) <= WHOLE_MAX_BYTES:
        return Composed(f"{head} {version}\n".encode() + data, b"")
    return Composed(f"{head} {SLICED_VERSION}\n".encode() + compressed(b"") + f"\n{version} {len(data)}".encode(), data)


def sliced(snap: bytes) -> Sliced | None:
    """Return the description of the slices in `snap`, or None if the checkpoint is not in slices. Raises Internal if
    the description cannot be read."""
    line, _, data = snap.partition(b"\n")
    if not line.endswith(b" %d" % SLICED_VERSION):
        return None
    try:
        version, size_bytes = map(int, data.rpartition(b"\n")[2].split())
    except ValueError as wrong:
        raise Internal(f"a stored checkpoint does not tell its slices: {wrong}") from None
    return Sliced(line.decode("ascii", "replace"), version, size_bytes)


async def split(stored: bytes) -> tuple[str, int, bytes] | None:
    """Return head string, version and state of a checkpoint that is not in slices. Returns None if `stored` is empty.

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
