"""Arguments that clients do not see (EVT-8): of a tool that is flagged `hide_input` they get name and id.

Pure. What the model wrote is a private fact of the chat; the public call says `{}` from its first fragment on, in the
stream and for ever after. The one rule: whoever wants to know what a call means asks `written_arguments`, never the
message. Called where an answer is streamed and closed, and by all that reads calls for the model or for a tool.
"""

from typing import Protocol

from msgspec.structs import replace

from protocol.messages import ToolCall
from protocol.state import ChatState
from server.tools.base import Tool

__all__ = ["HIDDEN", "hidden_call", "hides", "true_call", "written_arguments"]

HIDDEN = "{}"
"""An object, as clients and other programs that read a chat's messages expect it."""


class KnownTools(Protocol):
    def get(self, name: str) -> Tool | None: ...

    def commit_tool(self, name: str) -> Tool | None: ...


def hides(tools: KnownTools, name: str) -> bool:
    """Is this the name of a tool whose arguments clients do not see? Also of one that this chat is not offered: a
    model may call it all the same."""
    tool = tools.get(name) or tools.commit_tool(name)
    return tool is not None and tool.hide_input


def hidden_call(call: ToolCall) -> ToolCall:
    """The call as clients see it."""
    return replace(call, function=replace(call.function, arguments=HIDDEN))


def true_call(state: ChatState, call: ToolCall) -> ToolCall:
    """The call as the model wrote it."""
    written = state.private.hidden_arguments.get(call.id)
    return call if written is None else replace(call, function=replace(call.function, arguments=written))


def written_arguments(state: ChatState, call: ToolCall) -> str:
    """The text that the model wrote as the arguments of `call`."""
    return state.private.hidden_arguments.get(call.id, call.function.arguments)
