"""Threadcast is a chat server for LLM agents. This package exports the names that its users need in their own code.

    from threadcast import Client, ToolContext, tool

Operators' files (`threadcast serve --app my_tools.py`) import the names for agents, tools, payload types and prompt
sections. Programs that talk to a server import `Client` and its errors. Ready-made tools are in
`threadcast.tools.agents`, `threadcast.tools.process_tools` and `threadcast.tools.workflow`. Each name is imported when
it is first used, so `import threadcast` loads nothing else.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from threadcast.companions import companion
    from threadcast.custom_agents.agent import agent
    from threadcast.custom_agents.context import AgentContext
    from threadcast.custom_agents.errors import CallDenied, CallFailed, OutcomeUnknown, Rejected, StepFailed
    from threadcast.custom_agents.pieces import Call, Citation, Data, Keep, Reasoning, Text, Usage
    from threadcast.custom_agents.rounds import Round, RoundMessage
    from threadcast.profiles.payload_types import PayloadType, payload_type
    from threadcast.profiles.prompt import PromptContext, section
    from threadcast.profiles.welcome import Starter, Welcome
    from threadcast.tools.base import Payload, ToolResult
    from threadcast.tools.context import ClientEvent, Progress, ToolContext
    from threadcast.tools.preview import Preview
    from threadcast.tools.python import tool
    from threadcast.tools.questions import NotAnswered
    from threadcast.tools.resolvers import resolver
    from threadcast.tools.traits import Binding, Traits, schema_of
    from threadcast_client import (
        Answer,
        AnswerFailed,
        Chat,
        ChatLeft,
        Chats,
        Client,
        Connection,
        FileOutbox,
        MemoryOutbox,
        Outbox,
        OutboxFull,
        RawEvent,
        Refused,
        RetryPolicy,
        Sent,
        ThreadcastError,
        ToolAnswer,
        Unauthorized,
        Unreachable,
        Unreadable,
        new_request_id,
    )
    from threadcast_protocol.wire.errors import ToolFailed
    from threadcast_protocol.wire.messages import JsonObject

_MODULES = {
    "threadcast.profiles.payload_types": ("PayloadType", "payload_type"),
    "threadcast.profiles.prompt": ("PromptContext", "section"),
    "threadcast.profiles.welcome": ("Starter", "Welcome"),
    "threadcast.companions": ("companion",),
    "threadcast.custom_agents.agent": ("agent",),
    "threadcast.custom_agents.context": ("AgentContext",),
    "threadcast.custom_agents.errors": ("CallDenied", "CallFailed", "OutcomeUnknown", "Rejected", "StepFailed"),
    "threadcast.custom_agents.pieces": ("Call", "Citation", "Data", "Keep", "Reasoning", "Text", "Usage"),
    "threadcast.custom_agents.rounds": ("Round", "RoundMessage"),
    "threadcast.tools.base": ("Payload", "ToolResult"),
    "threadcast.tools.context": ("ClientEvent", "Progress", "ToolContext"),
    "threadcast.tools.preview": ("Preview",),
    "threadcast.tools.python": ("tool",),
    "threadcast.tools.questions": ("NotAnswered",),
    "threadcast.tools.resolvers": ("resolver",),
    "threadcast.tools.traits": ("Binding", "Traits", "schema_of"),
    "threadcast_protocol.wire.errors": ("ToolFailed",),
    "threadcast_protocol.wire.messages": ("JsonObject",),
    "threadcast_client": (
        "Answer",
        "AnswerFailed",
        "Chat",
        "ChatLeft",
        "Chats",
        "Client",
        "Connection",
        "FileOutbox",
        "MemoryOutbox",
        "Outbox",
        "OutboxFull",
        "RetryPolicy",
        "RawEvent",
        "Refused",
        "Sent",
        "ThreadcastError",
        "ToolAnswer",
        "Unauthorized",
        "Unreachable",
        "Unreadable",
        "new_request_id",
    ),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "AgentContext",
    "Answer",
    "AnswerFailed",
    "Binding",
    "Call",
    "CallDenied",
    "CallFailed",
    "Chat",
    "ChatLeft",
    "Chats",
    "Citation",
    "Client",
    "ClientEvent",
    "Connection",
    "Data",
    "FileOutbox",
    "JsonObject",
    "Keep",
    "MemoryOutbox",
    "NotAnswered",
    "Outbox",
    "OutboxFull",
    "OutcomeUnknown",
    "Payload",
    "PayloadType",
    "Preview",
    "Progress",
    "PromptContext",
    "RawEvent",
    "Reasoning",
    "Refused",
    "Rejected",
    "RetryPolicy",
    "Round",
    "RoundMessage",
    "Sent",
    "Starter",
    "StepFailed",
    "Text",
    "ThreadcastError",
    "ToolAnswer",
    "ToolContext",
    "ToolFailed",
    "ToolResult",
    "Traits",
    "Unauthorized",
    "Unreachable",
    "Unreadable",
    "Usage",
    "Welcome",
    "agent",
    "companion",
    "new_request_id",
    "payload_type",
    "resolver",
    "schema_of",
    "section",
    "tool",
]


def __getattr__(name: str) -> object:
    """Import a public name when it is first used (PEP 562)."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'threadcast' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULE_OF[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
