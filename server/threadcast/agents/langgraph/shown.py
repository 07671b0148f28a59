"""Shows calls that no message of a model has shown. Each call gets its own message, so that people see the call and the
policies apply."""

import hashlib
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

from threadcast.custom_agents.pieces import Call
from threadcast.custom_agents.seam import Seam, ShownCall
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["arguments_of", "digest", "show_call"]


async def show_call(seam: Seam, key: str, name: str, arguments: JsonObject) -> ShownCall:
    """Show a call in its own message. `key` is the key for `Seam.message`, and `name` is the tool's name in the
    chat."""

    async def pieces() -> AsyncIterator[object]:
        yield Call(name, arguments)

    shown = await seam.message(key[-200:], pieces)
    return shown.calls[0]


def arguments_of(call: ShownCall) -> object:
    """Return the arguments of a shown call; None for a text that is not JSON."""
    try:
        return json.loads(call.arguments or "{}")
    except ValueError:
        return None


def digest(call: Mapping[str, Any]) -> str:
    """Return a short digest of the name and the arguments of a call."""
    told = json.dumps([call["name"], call["args"]], sort_keys=True, default=str)
    return hashlib.sha256(told.encode()).hexdigest()[:16]
