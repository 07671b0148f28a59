"""The built-in tool by which a model reads a payload that the user has been shown (PAY-7).

Payload data enters a model's request only through this tool (PAY-8). The tool reads the payloads of the chat's active
path from the call's context. The tool is offered whenever there are payloads, independent of a profile's list of tools;
the operator's settings and `tools_disabled` can disable it.
"""

from typing import Annotated

import msgspec

from threadcast.tools.context import ToolContext
from threadcast.tools.python import tool
from threadcast_protocol.wire.errors import ToolFailed

__all__ = ["GET_PAYLOAD", "get_payload"]

GET_PAYLOAD = "get_payload"

NAMED_MAX_COUNT = 20
"""Number of the newest ids that the error for an unknown id lists, which is enough to find the intended payload."""


@tool(name=GET_PAYLOAD, retry="safe")
async def get_payload(payload_id: Annotated[str, "the id, as the list of payloads has it"], ctx: ToolContext) -> str:
    """Read the data of something that the user has been shown, as JSON."""
    payload = ctx.payloads.get(payload_id)
    if payload is None:
        known = ", ".join([*ctx.payloads][-NAMED_MAX_COUNT:]) or "none"
        raise ToolFailed(f"There is no payload {payload_id!r} in this chat. Known ids: {known}.")
    return msgspec.json.encode(payload.data).decode()
