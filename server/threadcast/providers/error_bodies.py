"""Limits the body and the `Retry-After` of every response without success, and refuses redirects to other origins.

The SDKs read the body of an error as a whole, whatever its size, and compute with any date in `Retry-After`, even an
absurd date. `guard_errors` is a response hook for httpx2's clients: it runs before the body is read, both on our
transport and on httpx2's, which is used behind a proxy. Import this module only with an SDK, which installs httpx2.
"""

import zlib
from collections.abc import AsyncGenerator

import httpx2

from threadcast.base.redirects import keep_origin
from threadcast.providers.failures import retry_after

__all__ = ["ERROR_BODY_MAX_BYTES", "guard_errors"]

ERROR_BODY_MAX_BYTES = 64 * 1024
"""Maximum bytes of an error's body, both compressed and decompressed. Known errors have 200 bytes to 4 kB; the page of
a proxy has up to 20 kB."""

_ZLIB_OR_GZIP = 47
"""The value of zlib's `wbits` that accepts both headers: https://docs.python.org/3/library/zlib.html#zlib.decompress"""


async def guard_errors(response: httpx2.Response) -> None:
    """Cut a response without success after `ERROR_BODY_MAX_BYTES` and close its connection. Remove an unusable
    `Retry-After`. A redirect to another origin is not followed, since the key and the conversation would go there."""
    if response.is_success:
        return
    keep_origin(response)
    packings = [each.strip().lower() for each in response.headers.get("content-encoding", "").split(",")]
    packings = [each for each in packings if each not in ("", "identity")]
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    response.stream = _Start(response.stream, packings)
    for name in ("content-encoding", "content-length"):  # the caller reads the decompressed body, which may be cut
        response.headers.pop(name, None)
    if retry_after(response.headers) is None:
        for name in ("retry-after", "retry-after-ms"):
            response.headers.pop(name, None)


class _Start(httpx2.AsyncByteStream):
    """The decompressed start of `inner`. A small compressed body may grow to gigabytes, so it is decompressed here
    within the limit; a body compressed otherwise than with gzip or deflate counts as empty."""

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
