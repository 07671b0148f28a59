"""Reads the body of a streamed answer before Google's SDK sees it.

The SDK refuses a whole answer for an error in an unused field. Therefore each event is decoded into our `Chunk`, and
the SDK, which drives the connection, reads an empty event in its place. Import this module only with the SDK.
"""

from collections import deque
from collections.abc import AsyncIterator

import httpx2
import msgspec

from threadcast.providers.google.answer import Chunk, read_chunk
from threadcast.providers.sse_split import SseSplitter
from threadcast.providers.tolerant import Mender

__all__ = ["RawChunks"]


class RawChunks(httpx2.AsyncByteStream):
    """Replaces the stream of a response, which must not be compressed. `chunks` are the decoded chunks for the SDK's
    next empty event; faults are reported to `mender`."""

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
                if chunk.error is not None:  # the SDK raises its own exception for an error
                    yield b"data: " + msgspec.json.encode({"error": chunk.error}) + b"\n\n"
                    continue
                self.chunks.append(chunk)
                yield b"data: {}\n\n"

    async def aclose(self) -> None:
        await self._inner.aclose()
