"""The interface of tools: their description, their context and their results.

The operator sets policy, timeout and retry class; a model cannot change them. A tool runs under `tools/runner.py`,
which turns every failure into a `ToolResult` that the model sees; a tool fails with a message of its own by raising
`threadcast_protocol.wire.errors.ToolFailed`.
"""

from collections.abc import AsyncIterator
from typing import Literal, Protocol, TypeAlias

import msgspec

from threadcast.settings.limits import DEFAULT_LIMITS
from threadcast.tools.context import Report, ToolContext
from threadcast.tools.preview import Preview
from threadcast.tools.traits import Traits
from threadcast_protocol.wire.bodies import read_object
from threadcast_protocol.wire.messages import JsonObject

__all__ = [
    "DEFAULT_TIMEOUT_SECONDS",
    "MEMORY_MAX_BYTES",
    "Payload",
    "Policy",
    "Retry",
    "Tool",
    "ToolOutput",
    "ToolResult",
    "read_arguments",
]

Policy: TypeAlias = Literal["auto", "ask", "deny", "preview", "client"]

Retry: TypeAlias = Literal["once", "idempotent", "safe"]
"""Whether a call may run again after its worker died during the call: a call of a `once` tool runs again only if a
person decides so, a call of an `idempotent` tool runs again with the same key, and a call of a `safe` tool always runs
again, since the tool has no effects (DESIGN §7)."""

DEFAULT_TIMEOUT_SECONDS = DEFAULT_LIMITS.tool_timeout_seconds
"""The timeout of a tool without a timeout of its own (LOOP-15). The operator can change it with
`limits.tool_timeout_seconds`."""

MEMORY_MAX_BYTES = 65_536
"""Maximum bytes of the tools' memory of a chat, as JSON. The memory is loaded whenever a worker takes the chat."""


class Payload(msgspec.Struct, frozen=True):
    """Structured data for clients; the model sees only the tool's text (PAY-8). Without a `summary`, the summariser of
    the payload type makes the summary."""

    type: str
    data: JsonObject
    summary: str = ""


class ToolResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`content` goes to the model, `payloads` to clients only. `metadata_patch` is merged into the thread's metadata
    (LOOP-12). `end_run` ends the run after this round, with the given state. A `preview` replaces the other parts: the
    model reads a fixed sentence in place of `content`, and `payloads` are left out. `is_json`: `content` is the JSON
    text of a value that the tool returned, which durable agents receive.

    `memory_patch` is merged into the tools' private memory of this chat (`ToolContext.memory`), whose keys expire after
    `memory_ttl_seconds` (None: never). In the patch, a value of None deletes its key.
    """

    content: str
    failed: bool = False
    is_json: bool = False
    payloads: list[Payload] = []
    preview: Preview | None = None
    metadata_patch: JsonObject = {}
    end_run: Literal["completed", "waiting_user_input"] | None = None
    memory_patch: JsonObject = {}
    memory_ttl_seconds: float | None = None


ToolOutput: TypeAlias = Report | ToolResult


class Tool(Protocol):
    """The interface of one tool: its description, its settings, and `run`."""

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
        """The category; the thread's auto_approve_* keys approve all calls of 'editing' or 'dangerous' tools."""

    @property
    def source(self) -> str:
        """The source of the tool: python, mcp, http, client or agent."""

    @property
    def hide_input(self) -> bool: ...

    @property
    def label_arg(self) -> str | None: ...

    @property
    def traits(self) -> Traits: ...

    def run(self, arguments: JsonObject, context: ToolContext) -> AsyncIterator[ToolOutput]:
        """Yield any number of `Progress` and `ClientEvent`, then one `ToolResult`.

        Raises: ToolFailed: the call failed, or the arguments do not match the schema; the message is a sentence for the
        model.
        """


def read_arguments(text: str) -> JsonObject | None:
    """Return the arguments of a call, or None for a text that is not a JSON object. An empty text means no arguments
    (LOOP-7)."""
    return read_object(text)
