"""`&blobs=inline`: a stream whose references to blobs become data on their way out, for clients that cannot fetch.

It stands between a connection and the server's `send`, and works on whole blocks: what is shared by all readers stays
shared, and the bound of a slow reader's queue counts references, not megabytes (PROTOCOL §10). Each chat's blobs are
read as its reader's own.
"""

import functools
import re

import msgspec
from starlette.types import Message, Send

from server.api.blobs import inline_blobs
from server.store.port import Store

__all__ = ["InliningSend"]

_BLOCK = re.compile(rb"data: (\{.*\})(\n.*)?", re.DOTALL)
_END = b"\n\n"


class _Place(msgspec.Struct):
    chat_id: str = ""


class InliningSend:
    """An ASGI `send`. `owner` is who reads."""

    def __init__(self, send: Send, store: Store, owner: str) -> None:
        self._send = send
        self._store = store
        self._owner = owner
        self._pieces: list[bytes] = []

    async def __call__(self, message: Message) -> None:
        if message["type"] != "http.response.body":
            await self._send(message)
            return
        body = message.get("body", b"")
        is_last = not message.get("more_body", False)
        before = self._pieces[-1][-1:] if self._pieces else b""
        self._pieces.append(body)
        if not is_last and _END not in before + body:
            return  # in the middle of a long block
        *blocks, rest = b"".join(self._pieces).split(_END)
        self._pieces = [rest] if rest and not is_last else []
        ready = [await self._inlined(block) + _END for block in blocks]
        await self._send({**message, "body": b"".join(ready) + (rest if is_last else b"")})

    async def _inlined(self, block: bytes) -> bytes:
        found = _BLOCK.fullmatch(block)
        if found is None:
            return block
        chat_id = msgspec.json.decode(found[1], type=_Place).chat_id
        fetch = functools.partial(self._store.get_blob, chat_id, self._owner)
        return b"data: " + await inline_blobs(found[1], fetch) + (found[2] or b"")
