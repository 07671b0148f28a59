"""Replaces references to blobs by their data in an event stream (`&blobs=inline`), for clients that cannot fetch blobs.

`InliningSend` wraps the server's `send` and changes whole blocks just before they are sent. So readers still share the
original blocks, and the size limit of a slow reader's queue counts the references and not their data (PROTOCOL §10).
Blobs are read with the rights of the reader.
"""

import functools
import re

import msgspec
from starlette.types import Message, Send

from threadcast.api.blobs import inline_blobs
from threadcast.store.ports import Blobs

__all__ = ["InliningSend"]

_LINES = re.compile(rb"(?:(?::|retry:)[^\n]*\n)*")
"""Matches heartbeats and `retry` lines, which may precede a block."""

_BLOCK = re.compile(rb"data: (\{.*\})(\n.*)?", re.DOTALL)
_END = b"\n\n"


class _ChatOf(msgspec.Struct):
    chat_id: str = ""


class InliningSend:
    """An ASGI `send` that inlines blobs. `owner` is the id of the principal that reads the stream."""

    def __init__(self, send: Send, store: Blobs, owner: str) -> None:
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
            return  # this is the middle of a long block: wait for its end
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
        chat_id = msgspec.json.decode(found[1], type=_ChatOf).chat_id
        fetch = functools.partial(self._store.get_blob, chat_id, self._owner)
        return lines + b"data: " + await inline_blobs(found[1], fetch) + (found[2] or b"")


def _lines_before(block: bytes) -> bytes:
    found = _LINES.match(block)
    return found[0] if found is not None else b""
