"""Reads the body of a streamed answer before Google's SDK sees it.

The SDK refuses a whole answer for a fault in a field that nobody reads. So each event becomes a `Chunk` of ours, and
the SDK, which drives the connection, is given an empty event in its place. Import it only where the SDK is wanted.
"""

from collections import deque
from collections.abc import AsyncIterator

import httpx2
import msgspec

from server.providers.google.answer import Chunk, read_chunk
from server.providers.sse_split import SseSplitter
from server.providers.tolerant import Mender

__all__ = ["RawChunks"]


class RawChunks(httpx2.AsyncByteStream):
    """Put it in the place of a response's stream, which must not be compressed. `chunks` has what the SDK's next empty
    event stands for; `mender` is told of faults."""

    def __init__(self, inner: httpx2.AsyncByteStream, mender: Mender) -> None:
        self.chunks: deque[Chunk] = deque()
        self._inner = inner
        self._mender = mender

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the SDK's empty events. Raises the errors of `read_chunk`, and EventTooLarge."""
        splitter = SseSplitter()
        async for piece in self._inner:
            for data in splitter.feed(piece):
                chunk = read_chunk(data, self._mender)
                if chunk.error is not None:  # the SDK makes its own exception of it
                    yield b"data: " + msgspec.json.encode({"error": chunk.error}) + b"\n\n"
                    continue
                self.chunks.append(chunk)
                yield b"data: {}\n\n"

    async def aclose(self) -> None:
        await self._inner.aclose()
