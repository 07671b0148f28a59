"""Writes a request's body to a temporary file, for bodies that are too large for memory.

The file has no name, so the system deletes the file when it is closed, even if the process is killed
(`tempfile.TemporaryFile`). It is created in the directory for temporary files, which `TMPDIR` names.
"""

import os
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import IO

import anyio
import anyio.to_thread
from starlette.requests import ClientDisconnect, Request

from threadcast.api.edge import edge_of, hand_body
from threadcast.base.json_bounds import JsonBounds
from threadcast.base.large_reads import large_read
from threadcast.chat.import_files import EMPTY_LINES_MAX, LINE_MAX_BYTES, LineSpan
from threadcast.settings.limits import DEFAULT_LIMITS
from threadcast_protocol.wire.errors import BadRequest, TooLarge, Unavailable

__all__ = ["Spool", "spooled"]

PIECE_BYTES = 1_048_576
"""The size of one read from the file."""

LARGE_LINE_BYTES = 1_048_576
"""Bytes from which on lines are read one at a time in the process (`large_read`), because a line of up to 22 MiB and
its decoded content are in memory together."""

WRITE_BYTES = 131_072
"""The size of one write to the file: at most this many bytes of each arriving body are in memory."""

_writers = anyio.CapacityLimiter(4)
"""Number of threads that write the bodies of all requests. With more threads, each thread and the event loop would wait
longer for the interpreter's lock."""


class Spool:
    """Reads lines of the file (`threadcast.chat.import_files.Lines`). Every read names its offset, so threads may share
    the file."""

    def __init__(
        self,
        file: IO[bytes],
        values_max: int = DEFAULT_LIMITS.body_max_values,
        is_left: Callable[[], bool] = bool,
    ) -> None:
        """`values_max`: the maximum number of values in the JSON of one line. Decoding a line stops all other threads,
        including the event loop's: 33 MB of empty lists took 17 s."""
        self._file = file
        self._values_max = values_max
        self._is_left = is_left

    def until(self, is_left: Callable[[], bool]) -> "Spool":
        """Return a spool of the same file, for a reader in a thread, which cannot be cancelled. `spans` calls `is_left`
        before each piece of 1 MiB, and raises ClientDisconnect once it returns true."""
        return Spool(self._file, self._values_max, is_left)

    def read(self, offset: int, length: int) -> bytes:
        file = self._file.fileno()
        data = os.pread(file, length, offset)
        while 0 < len(data) < length and (more := os.pread(file, length - len(data), offset + len(data))):
            data += more
        return data

    @contextmanager
    def line(self, span: LineSpan, raw: bytes | None = None) -> Iterator[bytes]:
        if raw is not None:
            yield raw
        elif span.length <= LARGE_LINE_BYTES:
            yield self.read(span.offset, span.length)
        else:
            with large_read():
                yield self.read(span.offset, span.length)

    def spans(self, start: int = 0, end: int | None = None) -> Iterator[tuple[LineSpan, bytes | None]]:
        """Yield lines, see `threadcast.chat.import_files.Lines`. Refuses a line that is too long, or has too many
        values, before the whole line is read."""
        offset, number, empty, length, is_blank = start, 0, 0, 0, True
        bounds: JsonBounds | None = None
        stop = os.fstat(self._file.fileno()).st_size if end is None else end
        while offset < stop and (piece := self.read(offset, min(PIECE_BYTES, stop - offset))):
            if self._is_left():
                raise ClientDisconnect
            at = 0
            while at < len(piece):
                line_end = piece.find(b"\n", at)
                upto = len(piece) if line_end < 0 else line_end
                part = piece[at:upto]
                length += len(part)
                is_blank = is_blank and not part.strip()
                first = offset + upto - length
                if length > LINE_MAX_BYTES:
                    raise TooLarge(f"line {number + 1} is longer than {LINE_MAX_BYTES} bytes", path=f"/{number + 1}")
                if length > self._values_max:  # a shorter line cannot exceed the maximum of values
                    if bounds is None:
                        bounds = JsonBounds(self._values_max, f"line {number + 1}", f"/{number + 1}")
                        part = self.read(first, length)
                    self._bound(bounds, part, first, length)
                at = upto + 1
                if line_end >= 0:
                    number += 1
                    if not is_blank:
                        span = LineSpan(first, length, number)
                        yield span, part if length == len(part) and length <= LARGE_LINE_BYTES else None
                    elif (empty := empty + 1) > EMPTY_LINES_MAX:
                        raise BadRequest(
                            f"line {number}: a body may hold {EMPTY_LINES_MAX} empty lines", path=f"/{number}"
                        )
                    length, bounds, is_blank = 0, None, True
            offset += len(piece)
        if not is_blank:
            yield LineSpan(offset - length, length, number + 1), None

    def _bound(self, bounds: JsonBounds, part: bytes, first: int, length: int) -> None:
        """Count the values of the part of a line that has been read; `part` is its newest piece. Raises TooLarge."""
        if not bounds.is_within(part):
            with large_read():
                for _ in bounds.check_slices(lambda start, size: self.read(first + start, size), length):
                    pass


@asynccontextmanager
async def spooled(request: Request, max_bytes: int) -> AsyncIterator[Spool]:
    """Write the whole body to a file, which exists until the block ends.

    Raises:
        TooLarge, BodyTooSlow: see `hand_body`.
        Unavailable: the disk is full.
    """
    file = await anyio.to_thread.run_sync(tempfile.TemporaryFile)
    try:
        pending = bytearray()

        async def take(chunk: bytes) -> None:
            nonlocal pending
            pending += chunk
            if len(pending) >= WRITE_BYTES:
                full, pending = pending, bytearray()
                await anyio.to_thread.run_sync(file.write, full, limiter=_writers)

        try:
            await hand_body(request, max_bytes, take, edge_of(request).imports)
            await anyio.to_thread.run_sync(file.write, pending, limiter=_writers)
            await anyio.to_thread.run_sync(file.flush)
        except OSError as full:
            raise Unavailable(f"the server has no room for this body: {full.strerror}") from None
        yield Spool(file, edge_of(request).limits.body_max_values)
    finally:
        with anyio.CancelScope(shield=True):  # closed in a thread, because freeing 1 GiB takes the kernel a second
            await anyio.to_thread.run_sync(file.close)
