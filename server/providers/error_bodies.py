"""Bounds what a provider says beside an answer: the body and the wait of every response that is no success.

The SDKs read the body of an error as a whole, whatever its size, and do arithmetic with any date in `Retry-After`.
`guard_errors` is a response hook for httpx2's clients: it runs before anybody reads, on our transport and on httpx2's
own behind a proxy. Import it only where an SDK is wanted: httpx2 comes with them.
"""

import zlib
from collections.abc import AsyncGenerator

import httpx2

from server.providers.failures import retry_after

__all__ = ["ERROR_BODY_MAX_BYTES", "guard_errors"]

ERROR_BODY_MAX_BYTES = 64 * 1024
"""Of an error's body, as it comes and unpacked. The errors that we know have 200 bytes to 4 kB; the page of a proxy has
up to 20 kB."""

_ZLIB_OR_GZIP = 47
"""`wbits` of zlib for either header: https://docs.python.org/3/library/zlib.html#zlib.decompress"""


async def guard_errors(response: httpx2.Response) -> None:
    """Let a response without success end after `ERROR_BODY_MAX_BYTES`; its connection is closed then. Leave out a
    `Retry-After` that says nothing usable."""
    if response.is_success:
        return
    packings = [each.strip().lower() for each in response.headers.get("content-encoding", "").split(",")]
    packings = [each for each in packings if each not in ("", "identity")]
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    response.stream = _Start(response.stream, packings)
    for name in ("content-encoding", "content-length"):  # what is read is unpacked, and may be shorter
        response.headers.pop(name, None)
    if retry_after(response.headers) is None:
        for name in ("retry-after", "retry-after-ms"):
            response.headers.pop(name, None)


class _Start(httpx2.AsyncByteStream):
    """The unpacked start of `inner`. A small packed body may become gigabytes, so it is unpacked here, within the
    bound; a body that is packed in another way than gzip or deflate counts as empty."""

    def __init__(self, inner: httpx2.AsyncByteStream, packings: list[str]) -> None:
        self._inner = inner
        self._is_plain = not packings
        self._is_readable = packings in ([], ["gzip"], ["x-gzip"], ["deflate"])

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        left = packed_left = ERROR_BODY_MAX_BYTES if self._is_readable else 0
        unpacker = zlib.decompressobj(_ZLIB_OR_GZIP)
        pieces = aiter(self._inner)
        try:
            while left > 0 and packed_left > 0 and (piece := await anext(pieces, b"")):
                try:
                    said = piece[:left] if self._is_plain else unpacker.decompress(piece, left)
                except zlib.error:
                    return
                left -= len(said)
                packed_left -= len(piece)
                if said:
                    yield said
        finally:
            if isinstance(pieces, AsyncGenerator):
                await pieces.aclose()

    async def aclose(self) -> None:
        await self._inner.aclose()
