"""Defines the context of a tool call, and the reports that a running tool may send."""

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

import msgspec

from threadcast.chat.scopes import Scope
from threadcast.tools.chats import NO_CHATS, ChatsPort
from threadcast.tools.processes import NO_PROCESSES, ProcessesPort
from threadcast.tools.questions import AskPort, no_questions
from threadcast_protocol.wire.events import PayloadAdded
from threadcast_protocol.wire.messages import JsonObject
from threadcast_protocol.wire.principal import Principal

__all__ = ["PASSED_ON", "ClientEvent", "Progress", "Report", "ToolContext", "no_authorization"]


class Progress(msgspec.Struct, frozen=True, omit_defaults=True):
    """A progress report. `fraction` is clamped to 0..1."""

    stage: str | None = None
    message: str | None = None
    fraction: float | None = None
    data: JsonObject | None = None


class ClientEvent(msgspec.Struct, frozen=True):
    """An event for clients, passed on unchanged (EVT-19). `type` is one of PASSED_ON, and `fields` are the other
    fields."""

    type: str
    fields: JsonObject = {}


PASSED_ON = frozenset(
    {
        "background_agent_updated",
        "browser_closed",
        "browser_context_oversize",
        "browser_frame",
        "browser_status",
        "browser_timeline",
        "browser_toolbar_action",
        "process_completed",
        "subchat_update",
    }
)
"""Types of events that a tool may emit (PROTOCOL §5)."""


Report: TypeAlias = Progress | ClientEvent


async def no_authorization() -> str | None:
    """Return None: only tools with the trait `forward_auth` get the credential."""
    return None


class ToolContext(msgspec.Struct, frozen=True, kw_only=True):
    """The context of a tool call, besides the arguments (TOOL-2).

    `idempotency_key` stays the same when the call runs again after a crash. `data_dir` is the only directory that a
    tool may write to. `report` publishes progress or an event for clients at once, and may be called from any thread.
    `scope` is the chat's place in the profile. `interaction` describes a message that was not typed, such as a spoken
    message (CMD-18). `payloads` maps ids to the payloads that the user has been shown on the active path. `chats` runs
    child chats of the call, `processes` runs processes that outlive the call, and `ask` asks people a question and
    waits for the answer; use these three only in the loop's thread. `memory` is the private memory of this chat's tools
    at the beginning of the call (`ToolResult.memory_patch`).

    `authorization` returns the credential that the caller sends for tools with the trait `forward_auth` (PROTOCOL §1),
    or None if the server no longer holds a value or never received one. The credential is never a token of this server.
    A tool must send the credential only to the service for which it is meant, and never show it.
    """

    chat_id: str
    run_id: str
    tool_call_id: str
    idempotency_key: str
    principal: Principal
    metadata: JsonObject
    context: JsonObject
    data_dir: str
    report: Callable[[Report], None]
    is_cancelled: Callable[[], bool]
    scope: Scope = ()
    interaction: JsonObject | None = None
    payloads: Mapping[str, PayloadAdded] = MappingProxyType({})
    chats: ChatsPort = NO_CHATS
    processes: ProcessesPort = NO_PROCESSES
    ask: AskPort = no_questions
    memory: JsonObject = {}
    authorization: Callable[[], Awaitable[str | None]] = no_authorization
