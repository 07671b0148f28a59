"""The form of a stored checkpoint: a line `<head string> <version>`, then the compressed state.

It does not know what a state is: bytes in, the same bytes out. `log.py` calls it. The line stays readable, because the
scripts find the checkpoint's place in it. Setting a checkpoint blocks Redis by 1 ms per MB (DISPATCH §8), so the state
is compressed; large ones in a thread, so that the event loop is not blocked instead.
"""

import asyncio

import zstandard

from protocol.errors import Internal

__all__ = ["compose", "split"]

LEVEL = 3
"""1.05 MB of chat-like JSON, CPU ms to compress / decompress and ratio, one run: zstd level 1 4.1 / 1.4, 2.3; level 3
10.1 / 2.0, 2.8; level 6 25.7 / 2.1, 2.9; zlib level 1 17.6 / 5.6, 2.0; level 6 50.0 / 4.2, 2.3."""

THREAD_ABOVE_BYTES = 256 * 1_024
"""2.5 ms to compress; below it a thread costs more than it frees."""


def _compress(state: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=LEVEL).compress(state)  # its frame holds the size, which `split` relies on


def _decompress(data: bytes) -> bytes:
    return zstandard.ZstdDecompressor().decompress(data)


async def compose(head: str, version: int, state: bytes) -> bytes:
    """The same bytes for the same arguments, so that a repeated append stays a repeat."""
    large = len(state) > THREAD_ABOVE_BYTES
    return f"{head} {version}\n".encode() + (await asyncio.to_thread(_compress, state) if large else _compress(state))


async def split(stored: bytes) -> tuple[str, int, bytes] | None:
    """Head string, version and state; None for an empty string.

    Raises:
        Internal: this is no checkpoint.
    """
    if not stored:
        return None
    line, newline, data = stored.partition(b"\n")
    head, _, version = line.decode("ascii", "replace").rpartition(" ")
    try:
        large = zstandard.frame_content_size(data) > THREAD_ABOVE_BYTES
        return head, int(version), await asyncio.to_thread(_decompress, data) if large else _decompress(data)
    except (ValueError, MemoryError, zstandard.ZstdError) as wrong:
        raise Internal(
            f"a stored checkpoint cannot be read: {wrong}" if newline else "a checkpoint has no head"
        ) from None
