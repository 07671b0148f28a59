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

_LINES = re.compile(rb"(?:(?::|retry:)[^\n]*\n)*")
"""Heartbeats and `retry`, which stand before blocks and end none."""

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
        before = self._pieces[-1][-1:] if self._pieces else None
        self._pieces.append(body)
        if not is_last and before is not None and _END not in before + body:
            return  # in the middle of a long block
        *blocks, rest = b"".join(self._pieces).split(_END)
        lines = rest if is_last else _lines_before(rest)
        self._pieces = [rest[len(lines) :]] if len(lines) < len(rest) else []
        ready = b"".join([await self._inlined(block) + _END for block in blocks]) + lines
        if ready or is_last:
            await self._send({**message, "body": ready})

    async def _inlined(self, block: bytes) -> bytes:
        lines = _lines_before(block)
        found = _BLOCK.fullmatch(block, len(lines))
        if found is None:
            return block
        chat_id = msgspec.json.decode(found[1], type=_Place).chat_id
        fetch = functools.partial(self._store.get_blob, chat_id, self._owner)
        return lines + b"data: " + await inline_blobs(found[1], fetch) + (found[2] or b"")


def _lines_before(block: bytes) -> bytes:
    found = _LINES.match(block)
    return found[0] if found is not None else b""
