"""Hides the arguments of tools with `hide_input` from clients, which see only name and id (EVT-8).

Pure. The written arguments are a private fact of the chat; the public call has `{}` from its first fragment on. Code
that needs the arguments calls `written_arguments` and never reads the message. The functions are used when an answer is
streamed and finished, and by all code that reads calls for the model or for a tool.
"""

from typing import Protocol

from msgspec.structs import replace

from threadcast.chat.owner_state import OwnerState
from threadcast.tools.base import Tool
from threadcast_protocol.wire.messages import ToolCall

__all__ = ["HIDDEN", "hidden_call", "hides", "true_call", "written_arguments"]

HIDDEN = "{}"
"""The public arguments of such a call: an object, because clients and other readers of messages expect an object."""


class KnownTools(Protocol):
    def get(self, name: str) -> Tool | None: ...

    def commit_tool(self, name: str) -> Tool | None: ...


def hides(tools: KnownTools, name: str) -> bool:
    """Return whether clients must not see the arguments of this tool. Also works for tools that this chat is not
    offered, because a model may call such tools nevertheless."""
    tool = tools.get(name) or tools.commit_tool(name)
    return tool is not None and tool.hide_input


def hidden_call(call: ToolCall) -> ToolCall:
    """Return the call as clients see it."""
    return replace(call, function=replace(call.function, arguments=HIDDEN))


def true_call(state: OwnerState, call: ToolCall) -> ToolCall:
    """Return the call as the model wrote it."""
    written = state.private.hidden_arguments.get(call.id)
    return call if written is None else replace(call, function=replace(call.function, arguments=written))


def written_arguments(state: OwnerState, call: ToolCall) -> str:
    """Return the text that the model wrote as the arguments of `call`."""
    return state.private.hidden_arguments.get(call.id, call.function.arguments)
