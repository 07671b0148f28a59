"""The built-in tool by which a model reads a payload that the user has been shown (PAY-7).

It is the one way a payload's data enters a model's request (PAY-8). It knows no chat: what it may read comes with the
call, and is what stands on the chat's active path. Offered where there is something to read, whatever a profile's list
of tools says; the operator's table and `tools_disabled` can take it away as any other.
"""

from typing import Annotated

import msgspec

from protocol.errors import ToolFailed
from server.tools.base import ToolContext
from server.tools.python import tool

__all__ = ["GET_PAYLOAD", "get_payload"]

GET_PAYLOAD = "get_payload"

NAMED_MAX_COUNT = 20
"""Ids in the sentence about an unknown one, the newest: enough to find the one that was meant."""


@tool(name=GET_PAYLOAD, retry="safe")
async def get_payload(payload_id: Annotated[str, "the id, as the list of payloads has it"], ctx: ToolContext) -> str:
    """Read the data of something that the user has been shown, as JSON."""
    payload = ctx.payloads.get(payload_id)
    if payload is None:
        known = ", ".join([*ctx.payloads][-NAMED_MAX_COUNT:]) or "none"
        raise ToolFailed(f"There is no payload {payload_id!r} in this chat. Known ids: {known}.")
    return msgspec.json.encode(payload.data).decode()
