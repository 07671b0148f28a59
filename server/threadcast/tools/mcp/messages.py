"""Reads the messages of MCP servers. Messages that the SDK would refuse for a small fault in their text are repaired,
since a refused answer would be lost. Importing this module imports the SDK.
"""

import anyio.to_thread
import msgspec
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter
from pydantic import ValidationError

from threadcast_protocol.wire.bodies import is_too_deep
from threadcast_protocol.wire.mending import mend, read_mended

__all__ = ["mended_json", "read_message"]

MENDED_AT_ONCE_MAX_BYTES = 262_144
"""Maximum bytes of a message that is repaired on the event loop, which takes at most 20 ms. Longer messages are
repaired in a thread."""


async def read_message(data: bytes) -> SessionMessage | None:
    """Return the message in `data`, repaired if necessary; None if it is not a message."""
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(data, by_name=False))
    except ValidationError:
        mended = await mended_json(data)
    try:
        return None if mended is None else SessionMessage(jsonrpc_message_adapter.validate_json(mended, by_name=False))
    except ValidationError:
        return None


async def mended_json(data: bytes) -> bytes | None:
    """Return the repaired JSON of an object; None when it cannot be repaired."""
    if not data.lstrip().startswith(b"{"):
        return None
    if len(data) <= MENDED_AT_ONCE_MAX_BYTES:
        return _mended(data)
    return await anyio.to_thread.run_sync(_mended, data)


def _mended(data: bytes) -> bytes | None:
    try:
        return None if is_too_deep(data) else msgspec.json.encode(mend(read_mended(data)))
    except ValueError:
        return None
