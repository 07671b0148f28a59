"""What the HTTP side answers, as structs that exist to be described: the shapes behind the OpenAPI document.

Streams carry events, described in `shapes.py`; these are all other bodies. Whoever builds an answer need not use them,
but a test of the edge may decode its answers with them.
"""

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from protocol.errors import CODES
from protocol.events import Snapshot
from protocol.messages import JsonObject

__all__ = [
    "Capabilities",
    "ChatList",
    "ChatModes",
    "ChatSnapshot",
    "ChatSummary",
    "Failure",
    "Health",
    "McpPrompts",
    "McpResources",
    "ModelCapabilities",
    "Providers",
    "Receipt",
    "Status",
    "ToolInfo",
]

Code: TypeAlias = Annotated[str, Meta(extra_json_schema={"enum": sorted(CODES)})]


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """Every error of every endpoint. `path` is a JSON Pointer into the body; `status` and `error` repeat the code and
    the sentence where older clients look for them."""

    detail: str
    code: Code
    path: str | None = None
    status: str | None = None
    error: str | None = None


class Receipt(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of a posted command. `accepted` and `result` are those of its final ack, when it was waited for;
    the status is then applied, aborted or refused."""

    status: Literal["accepted", "duplicate", "aborted", "applied", "refused"]
    accepted: bool | None = None
    result: JsonObject | None = None


class Status(msgspec.Struct, frozen=True):
    status: Literal["cancelled", "deleted"]


class Health(msgspec.Struct, frozen=True, omit_defaults=True):
    """Ready means that commands can be taken; `store` says in words why not."""

    status: Literal["ok", "ready", "unavailable"]
    store: str | None = None


class ChatSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One chat of a list. Times are Unix milliseconds."""

    id: str
    title: str
    state: str
    model: str
    mode: str
    message_count: int
    queue_size: int
    created_at: int
    last_active: int


class ChatList(msgspec.Struct, frozen=True):
    """Newest `last_active` first. `next_cursor` is null on the last page."""

    items: list[ChatSummary]
    has_more: bool
    next_cursor: str | None


class ChatSnapshot(Snapshot, frozen=True, kw_only=True, tag_field="type", tag="snapshot"):
    """The chat as it stands at `position`; with `id` a subscription goes on from there (`?from=`)."""

    chat_id: str
    position: int
    id: str


class ModelCapabilities(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str
    n_ctx: int
    tokenizer: str
    supports_tools: bool
    supports_multimodality: bool
    supports_clicks: bool
    supports_agent: bool
    default_temperature: float | None
    enabled: bool
    type: Literal["chat"]


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What this server can do: the closed lists of commands, events and codes, and limits with their units."""

    chat_default_model: str
    chat_models: dict[str, ModelCapabilities]
    completion_models: JsonObject
    metadata: JsonObject | None
    profiles: list[str]
    commands: list[str]
    events: list[str]
    codes: list[str]
    limits: dict[str, int]


class ToolInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that this caller's models may be offered. `policy`: auto, ask, preview, client or deny."""

    name: str
    description: str
    input_schema: JsonObject
    source: Literal["python", "mcp", "http", "client"]
    policy: Literal["auto", "ask", "preview", "client", "deny"]


class McpFailure(msgspec.Struct, frozen=True):
    """An MCP server that could not be asked, and why."""

    server: str
    error: str


class McpResource(msgspec.Struct, frozen=True):
    """Can be attached as `{type: "mcp_resource", server, uri}`."""

    server: str
    uri: str
    name: str
    description: str
    mime_type: str


class McpResources(msgspec.Struct, frozen=True):
    resources: list[McpResource]
    errors: list[McpFailure]


class McpPromptArgument(msgspec.Struct, frozen=True):
    name: str
    description: str
    required: bool


class McpPrompt(msgspec.Struct, frozen=True):
    """Can be attached as `{type: "mcp_prompt", server, name, args}`."""

    server: str
    name: str
    description: str
    arguments: list[McpPromptArgument]


class McpPrompts(msgspec.Struct, frozen=True):
    prompts: list[McpPrompt]
    errors: list[McpFailure]


class ThreadDefaults(msgspec.Struct, frozen=True, kw_only=True):
    include_project_info: bool
    checkpoints_enabled: bool
    auto_approve_editing_tools: bool
    auto_approve_dangerous_commands: bool


class ModeUi(msgspec.Struct, frozen=True):
    order: int
    tags: list[str]


class ChatMode(msgspec.Struct, frozen=True, kw_only=True):
    """A profile; `id` is what the thread's `mode` names."""

    id: str
    title: str
    description: str
    tools_count: int
    thread_defaults: ThreadDefaults
    ui: ModeUi


class ChatModes(msgspec.Struct, frozen=True):
    modes: list[ChatMode]
    errors: list[str]


class ProviderInfo(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    display_name: str
    enabled: bool
    readonly: bool
    has_credentials: bool
    status: str
    model_count: int


class Providers(msgspec.Struct, frozen=True):
    providers: list[ProviderInfo]
