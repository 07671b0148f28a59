"""The seam to tools: what a tool is, what it is given, what it gives back.

Policy, timeout and retry class are the operator's table, never the model's word. A tool runs under
`tools/runner.py`, which turns every failure into a `ToolResult` that the model sees; a tool that wants to fail with a
sentence raises `protocol.errors.ToolFailed`.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Literal, Protocol, TypeAlias

import msgspec

from protocol.bodies import read_object
from protocol.events import PayloadAdded
from protocol.messages import JsonObject
from protocol.principal import Principal
from server.tools.chats import NO_CHATS, ChatsPort
from server.tools.preview import Preview
from server.tools.processes import NO_PROCESSES, ProcessesPort
from server.tools.traits import Scope, Traits

__all__ = [
    "DEFAULT_TIMEOUT_SECONDS",
    "MEMORY_MAX_BYTES",
    "PASSED_ON",
    "ClientEvent",
    "Payload",
    "Policy",
    "Progress",
    "Report",
    "Retry",
    "Tool",
    "ToolContext",
    "ToolOutput",
    "ToolResult",
    "no_authorization",
    "read_arguments",
]

Policy: TypeAlias = Literal["auto", "ask", "deny", "preview", "client"]

Retry: TypeAlias = Literal["once", "idempotent", "safe"]
"""May it run again after its worker died in the middle? once: only by a person's decision; idempotent: yes, it is
given the same key; safe: it has no effects (DESIGN §7)."""

DEFAULT_TIMEOUT_SECONDS = 30.0
"""LOOP-15."""

MEMORY_MAX_BYTES = 65_536
"""What all tools together remember in a chat, as JSON; it is loaded with every start of the chat's owner."""


class Progress(msgspec.Struct, frozen=True, omit_defaults=True):
    """A sign of life. `fraction` is clamped to 0..1."""

    stage: str | None = None
    message: str | None = None
    fraction: float | None = None
    data: JsonObject | None = None


class ClientEvent(msgspec.Struct, frozen=True):
    """An event for those who watch, passed on as it is (EVT-19): `type` is one of PASSED_ON, the rest its fields."""

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


class Payload(msgspec.Struct, frozen=True):
    """Structured data for clients; the model sees nothing of it but what the tool's text says (PAY-8). Without a
    `summary` the type's own summariser makes one."""

    type: str
    data: JsonObject
    summary: str = ""


class ToolResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`content` goes to the model, `payloads` to clients only. `metadata_patch` is merged into the thread's metadata
    (LOOP-12). `end_run` ends the run after this round, resting in that state. A `preview` is shown alone: the model
    reads a fixed sentence in place of `content`, and `payloads` are left out.

    `memory_patch` is merged into what tools remember in this chat, `ToolContext.memory`: private, and forgotten after
    `memory_ttl_seconds` (None: never). A value of None forgets its key at once.
    """

    content: str
    failed: bool = False
    payloads: list[Payload] = []
    preview: Preview | None = None
    metadata_patch: JsonObject = {}
    end_run: Literal["completed", "waiting_user_input"] | None = None
    memory_patch: JsonObject = {}
    memory_ttl_seconds: float | None = None


Report: TypeAlias = Progress | ClientEvent

ToolOutput: TypeAlias = Report | ToolResult


async def no_authorization() -> str | None:
    """Nothing is forwarded to a tool that did not say that it wants it."""
    return None


class ToolContext(msgspec.Struct, frozen=True, kw_only=True):
    """What an executor gets besides its input (TOOL-2).

    `idempotency_key` is the same when the call is run again after a crash. `data_dir` is the only place a tool may
    write to. `report` publishes progress, or an event for clients, at once and from any thread. `scope` is the place
    in the profile that the chat is in, `interaction` how the user spoke when not by typing (CMD-18), `payloads` what
    they have been shown on the active path, by id. `chats` runs chats of the call's own, `processes` what goes on after
    it; both in the loop's thread only. `memory` is what tools of this chat remember by
    `ToolResult.memory_patch`, as it was when the call began.

    `authorization` asks for the value of the caller's `Authorization` header, for tools with the trait `forward_auth`;
    None: it is no longer held, or was never sent. Such a tool sends it where it is meant for, and shows it to nobody.
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
    memory: JsonObject = {}
    authorization: Callable[[], Awaitable[str | None]] = no_authorization


class Tool(Protocol):
    """One tool. All but `run` is data."""

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def input_schema(self) -> JsonObject:
        """JSON Schema (2020-12) of an object."""

    @property
    def policy(self) -> Policy: ...

    @property
    def retry(self) -> Retry: ...

    @property
    def timeout_seconds(self) -> float: ...

    @property
    def category(self) -> str:
        """'editing' and 'dangerous' can be approved wholesale by the thread's auto_approve_* keys."""

    @property
    def source(self) -> str:
        """python, mcp, http or client."""

    @property
    def hide_input(self) -> bool: ...

    @property
    def label_arg(self) -> str | None: ...

    @property
    def traits(self) -> Traits: ...

    def run(self, arguments: JsonObject, context: ToolContext) -> AsyncIterator[ToolOutput]:
        """Any number of `Progress` and `ClientEvent`, then one `ToolResult`.

        Raises:
            ToolFailed: with a sentence for the model, also when the arguments do not fit the schema.
        """


def read_arguments(text: str) -> JsonObject | None:
    """The arguments of a call, or None when they are not a JSON object. Nothing at all means none (LOOP-7)."""
    return read_object(text)
