"""Reads and writes the stored form of a checkpoint: a line `<head string> <version>`, then the compressed state.

`log.py` calls it with the state as bytes. The line is not compressed, because the scripts read the checkpoint's
position from it. Setting a checkpoint blocks Redis by 1 ms per MB (DISPATCH §8), so the state is compressed. A large
state is compressed in a thread, so that it does not block the event loop instead.
"""

import asyncio

from threadcast.store.compression import compressed, decompressed, decompressed_size
from threadcast_protocol.wire.errors import Internal

__all__ = ["compose", "split"]

THREAD_ABOVE_BYTES = 256 * 1_024
"""A larger state is compressed in a thread. Compressing this size takes 2.5 ms; for less, a thread costs more than it
saves."""


async def compose(head: str, version: int, state: bytes) -> bytes:
    """Return the stored form: the same bytes for the same arguments, so that a repeated append is recognised as a
    repeat."""
    large = len(state) > THREAD_ABOVE_BYTES
    return f"{head} {version}\n".encode() + (await asyncio.to_thread(compressed, state) if large else compressed(state))


async def split(stored: bytes) -> tuple[str, int, bytes] | None:
    """Return head string, version and state, None for an empty string.

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
