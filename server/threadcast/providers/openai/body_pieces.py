"""Encodes a request body without copying those of its messages that are encoded already.

In a long chat, all but the last messages are kept as JSON from turn to turn (`providers/unchanged.py`). Copying 4 MB of
encoded messages into one body takes up to 4 ms, mostly to allocate memory, and all chats of the worker wait for this
copy.
"""

from collections.abc import AsyncIterator
from itertools import groupby

import msgspec

from threadcast_protocol.framing.codec import encode
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["BodyPieces", "encoded_body"]


class BodyPieces:
    """The pieces of a request body, over which httpx2 iterates. The class has the methods of a file that can be read
    again, because the SDK repeats a failed request only with such a body or with bytes."""

    def __init__(self, pieces: list[bytes | memoryview]) -> None:
        self.pieces = pieces
        self.size_bytes = sum(map(len, pieces))

    async def __aiter__(self) -> AsyncIterator[bytes | memoryview]:
        for piece in self.pieces:
            yield piece

    def read(self) -> bytes:
        return b"".join(self.pieces)

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return 0

    def seek(self, position: int) -> None:
        """Do nothing: each iteration begins at the first piece."""


def encoded_body(body: JsonObject) -> bytes | BodyPieces:
    """Return `body` as JSON; in pieces if some of its messages are encoded already (`msgspec.Raw`)."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not any(isinstance(each, msgspec.Raw) for each in messages):
        return encode(body)
    pieces: list[bytes | memoryview] = [b'{"messages":[']
    for kind, group in groupby(messages, type):
        if kind is msgspec.Raw:
            pieces += [part for each in group for part in (memoryview(each), b",")]
        else:
            pieces += [encode(list(group))[1:-1], b","]
    others = {key: value for key, value in body.items() if key != "messages"}
    pieces[-1] = b"]," + encode(others)[1:]
    return BodyPieces(pieces)
