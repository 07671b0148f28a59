"""Writes a request's body to a file, for bodies that are too large for memory.

The file has no name and is gone when it is closed, also after a kill (`tempfile.TemporaryFile`). It lies in the
directory for temporary files, which `TMPDIR` names.
"""

import os
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import IO

import anyio
import anyio.to_thread
from starlette.requests import ClientDisconnect, Request

from protocol.errors import BadRequest, Unavailable
from protocol.import_files import EMPTY_LINES_MAX, LINE_MAX_BYTES, Place
from server.api.edge import hand_body

__all__ = ["Spool", "spooled"]

PIECE_BYTES = 1_048_576
"""The size of one write to the file, and of one read."""


class Spool:
    """The lines of a file (`protocol.import_files.Lines`). Each read names its place, so threads may share it."""

    def __init__(self, file: IO[bytes], is_left: Callable[[], bool] = bool) -> None:
        self._file = file
        self._is_left = is_left

    def until(self, is_left: Callable[[], bool]) -> "Spool":
        """The same file for a reader in a thread, which cannot be cancelled. `is_left` is asked before each piece of
        1 MiB; once it is true, `places` raises ClientDisconnect."""
        return Spool(self._file, is_left)

    def read(self, offset: int, length: int) -> bytes:
        data = bytearray()
        while len(data) < length and (piece := os.pread(self._file.fileno(), length - len(data), offset + len(data))):
            data += piece
        return bytes(data)

    def places(self, start: int = 0, end: int | None = None) -> Iterator[tuple[Place, bytes]]:
        offset, number, empty, line, length = start, 0, 0, bytearray(), 0
        stop = os.fstat(self._file.fileno()).st_size if end is None else end
        while offset < stop and (piece := self.read(offset, min(PIECE_BYTES, stop - offset))):
            if self._is_left():
                raise ClientDisconnect
            at = 0
            while at < len(piece):
                line_end = piece.find(b"\n", at)
                upto = len(piece) if line_end < 0 else line_end
                line += piece[at : min(upto, at + max(0, LINE_MAX_BYTES + 1 - len(line)))]
                length += upto - at
                at = upto + 1
                if line_end >= 0:
                    number += 1
                    if line.strip():
                        yield Place(offset + upto - length, length, number), bytes(line)
                    elif (empty := empty + 1) > EMPTY_LINES_MAX:
                        raise BadRequest(
                            f"line {number}: a body may hold {EMPTY_LINES_MAX} empty lines", path=f"/{number}"
                        )
                    line.clear()
                    length = 0
            offset += len(piece)
        if line.strip():
            yield Place(offset - length, length, number + 1), bytes(line)


@asynccontextmanager
async def spooled(request: Request, max_bytes: int) -> AsyncIterator[Spool]:
    """Spool the whole body to a file, which exists until the block ends.

    Raises:
        TooLarge, BodyTooSlow: as `hand_body`.
        Unavailable: the disk has no room for it.
    """
    file = await anyio.to_thread.run_sync(tempfile.TemporaryFile)
    try:
        pending = bytearray()

        async def take(chunk: bytes) -> None:
            pending.extend(chunk)
            if len(pending) >= PIECE_BYTES:
                await anyio.to_thread.run_sync(file.write, bytes(pending))
                pending.clear()

        try:
            await hand_body(request, max_bytes, take)
            await anyio.to_thread.run_sync(file.write, bytes(pending))
            await anyio.to_thread.run_sync(file.flush)
        except OSError as full:
            raise Unavailable(f"the server has no room for this body: {full.strerror}") from None
        yield Spool(file)
    finally:
        with anyio.CancelScope(shield=True):  # in a thread: freeing 1 GiB takes the kernel a second
            await anyio.to_thread.run_sync(file.close)
