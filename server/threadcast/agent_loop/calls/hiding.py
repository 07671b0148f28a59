"""Hides the arguments of calls of tools with `hide_input`. Clients see only the name and id of such a call (EVT-8).

The functions are pure. The arguments that the model wrote are stored as a private fact of the chat. The public call has
the arguments `{}` from its first fragment on. Code that needs the arguments must call `written_arguments` and must not
read them from the message. The functions are used when an answer is streamed and finished, and by all code that reads
calls for the model or for a tool.
"""

from typing import Protocol

from msgspec.structs import replace

from threadcast.chat.owner_state import OwnerState
from threadcast.tools.base import Tool
from threadcast_protocol.wire.messages import ToolCall

__all__ = ["HIDDEN", "hidden_call", "hides", "true_call", "written_arguments"]

HIDDEN = "{}"
"""The public arguments of a call whose arguments are hidden. The value is a JSON object, because clients and other
readers of messages expect an object."""


class KnownTools(Protocol):
    def get(self, name: str) -> Tool | None: ...

    def commit_tool(self, name: str) -> Tool | None: ...


def hides(tools: KnownTools, name: str) -> bool:
    """Return whether the arguments of the tool `name` are hidden from clients. The function also finds tools that are
    not offered in this chat, because a model may call such tools nevertheless."""
    tool = tools.get(name) or tools.commit_tool(name)
    return tool is not None and tool.hide_input


def hidden_call(call: ToolCall) -> ToolCall:
    """Return `call` as clients see it, without its arguments."""
    return replace(call, function=replace(call.function, arguments=HIDDEN))


def true_call(state: OwnerState, call: ToolCall) -> ToolCall:
    """Return `call` with the arguments that the model wrote."""
    written = state.private.hidden_arguments.get(call.id)
    return call if written is None else replace(call, function=replace(call.function, arguments=written))


def written_arguments(state: OwnerState, call: ToolCall) -> str:
    """Return the text that the model wrote as the arguments of `call`."""
    return state.private.hidden_arguments.get(call.id, call.function.arguments)
