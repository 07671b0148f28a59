"""The bodies of HTTP answers, as structs that describe them in the OpenAPI document.

`shapes.py` describes events, `requests.py` one-shot requests. The server does not build its answers from these structs.
"""

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from protocol.errors import CODES
from protocol.events import Runtime, Snapshot
from protocol.ids import ID_PATTERN
from protocol.messages import JsonObject, Message
from protocol.places import CHATS_MAX
from protocol.thread import Thread

__all__ = [
    "Addition",
    "Approvals",
    "BlobStored",
    "Capabilities",
    "ChatList",
    "ChatModes",
    "ChatSnapshot",
    "ChatSummary",
    "ChatTree",
    "FailedImport",
    "Failure",
    "FeedItem",
    "Health",
    "ImportReport",
    "McpPrompts",
    "McpResources",
    "ModelCapabilities",
    "ParamValue",
    "Params",
    "Providers",
    "Receipt",
    "Session",
    "SidebarEvent",
    "SidebarFrame",
    "Status",
    "StreamChange",
    "ToolInfo",
    "Trajectory",
    "TrajectoryChat",
    "TrajectoryList",
    "TypingNotice",
]

Id: TypeAlias = Annotated[str, Meta(pattern=ID_PATTERN)]
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


class BlobStored(msgspec.Struct, frozen=True):
    """An upload: `url` is what a command refers to it by, or `hash` where a part asks for `blob`."""

    url: str
    hash: str
    mime: str
    bytes: int


class Status(msgspec.Struct, frozen=True):
    status: Literal["cancelled", "deleted", "applied"]


class Addition(msgspec.Struct, frozen=True, omit_defaults=True):
    """A chat for a running stream. `from`: an SSE id of that chat, or of a stream that carried it, to go on after."""

    chat_id: Id
    place: str | None = msgspec.field(name="from", default=None)


class StreamChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """What becomes of a running stream; removed before added."""

    add: Annotated[list[Addition], Meta(max_length=CHATS_MAX)] = []
    remove: Annotated[list[Id], Meta(max_length=CHATS_MAX)] = []


class TypingNotice(msgspec.Struct, frozen=True, omit_defaults=True):
    """`stream_id`: the named stream of whoever types, which is not told."""

    typing: bool
    stream_id: Id | None = None


class ParamValue(msgspec.Struct, frozen=True):
    value: Any  # Any: each key has its own type
    layer: Literal["server", "profile", "thread", "command"]


class Params(msgspec.Struct, frozen=True):
    """By the keys of `set_params`."""

    params: dict[str, ParamValue]


class Approvals(msgspec.Struct, frozen=True):
    """Tools whose calls a chat does not ask about any more; `mcp__SERVER__*` is all of a server's (PROTOCOL §11)."""

    tools: list[str]


class Health(msgspec.Struct, frozen=True, omit_defaults=True):
    """Ready means that commands can be taken; `detail` says why not, `store` what the store says. `primary` is the
    store's address behind Sentinel; of a Cluster, `nodes` are its primaries and `away` a sentence for each of them that
    takes no writes just now (`store` is `partly` then)."""

    status: Literal["ok", "ready", "starting", "draining", "unavailable"]
    store: str | None = None
    detail: str | None = None
    primary: str | None = None
    nodes: list[str] = []
    away: list[str] = []


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


class FeedItem(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One `data:` line of the feed. `seq` counts from the snapshot, which has 0."""

    seq: str
    type: Literal["feed_snapshot", "chat_updated", "chat_removed"]
    chats: list[ChatSummary] | UnsetType = UNSET
    has_more: bool | UnsetType = UNSET
    chat: ChatSummary | UnsetType = UNSET
    chat_id: str | UnsetType = UNSET


class FailedImport(msgspec.Struct, frozen=True):
    id: str
    code: str
    error: str


class ImportReport(msgspec.Struct, frozen=True, kw_only=True):
    """What became of each chat of an import, by id, in the order of the body. `skipped`: it was there and was not
    touched; `accepted`: it will take effect, but had not when the answer was due."""

    imported: list[str]
    skipped: list[str]
    accepted: list[str]
    failed: list[FailedImport]


class ChatTree(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="tree"):
    """The whole tree at `position`: every message after its parent, siblings as they are; the active path ends at
    `leaf_id`."""

    chat_id: str
    position: int
    id: str
    thread: Thread
    runtime: Runtime
    leaf_id: str | None
    messages: list[Message]


class Trajectory(msgspec.Struct, frozen=True, kw_only=True):
    """A chat as a foreign GUI lists it. Times are ISO 8601."""

    id: str
    title: str
    created_at: str
    updated_at: str
    model: str
    mode: str
    message_count: int
    session_state: str
    root_chat_id: str | None
    total_lines_added: int
    total_lines_removed: int
    tasks_total: int
    tasks_done: int
    tasks_failed: int


class TrajectoryChat(Thread, frozen=True, kw_only=True, omit_defaults=True):
    """A chat as a foreign GUI reads it: its parameters and its active path. These two times are ISO 8601."""

    created_at: str  # type: ignore[assignment]  # a number everywhere else; that GUI wants a text
    updated_at: str
    messages: list[Message]


class TrajectoryList(msgspec.Struct, frozen=True, kw_only=True):
    items: list[Trajectory]
    next_cursor: str | None
    has_more: bool
    total_count: int


class SidebarEvent(msgspec.Struct, frozen=True, kw_only=True):
    """The whole of one section: workspace, chats, tasks or buddy."""

    type: Literal["section_snapshot"]
    section: Literal["workspace", "chats", "tasks", "buddy"]
    status: Literal["ready"]
    snapshot: JsonObject


class SidebarFrame(msgspec.Struct, frozen=True, kw_only=True):
    """One `data:` line of the foreign sidebar; `seq` counts from 0."""

    protocol_version: int
    seq: int
    subscription_id: str
    event: SidebarEvent


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
    samplers: list[str]
    """The parameters of PROTOCOL §16 that this model is sent."""
    enabled: bool
    type: Literal["chat"]


class PayloadTypeInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a profile can show besides text. `schema` is JSON Schema of a payload's data; `scopes` none: everywhere."""

    name: str
    description: str
    schema: JsonObject
    scopes: list[list[str]]


class Session(msgspec.Struct, frozen=True):
    """Who is calling. `has_token`: the server knows its callers by tokens; without them everyone is `local`."""

    principal: str
    permissions: list[str]
    roles: list[str]
    has_token: bool


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What this server can do: the closed lists of commands, events and codes, and limits with their units."""

    chat_default_model: str
    chat_models: dict[str, ModelCapabilities]
    completion_models: JsonObject
    metadata: JsonObject | None
    samplers: dict[str, list[str]]
    """The samplers of any model of a provider, by the provider's name."""
    profiles: list[str]
    mode_aliases: dict[str, str]
    """Other names of profiles, and the profile that each means."""
    scopes: dict[str, list[list[str]]]
    payload_types: dict[str, list[PayloadTypeInfo]]
    commands: list[str]
    events: list[str]
    codes: list[str]
    frame_origins: list[str]
    """Origins whose pages may frame the page and hand it context; "self": pages of this server."""
    scripted_providers: list[str]
    """Providers whose answers no model writes: the demonstration, and scripts."""
    limits: dict[str, float]


class ToolInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that this caller's models may be offered. `policy`: auto, ask, preview, client or deny."""

    name: str
    description: str
    input_schema: JsonObject
    source: Literal["python", "mcp", "http", "client"]
    policy: Literal["auto", "ask", "preview", "client", "deny"]
    scopes: list[list[str]]
    """Where it is offered, by its own word; none: everywhere."""


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


class ChatStarter(msgspec.Struct, frozen=True, kw_only=True):
    """A message to begin a chat with. `model` answers this message ("": the chat's model); `context` becomes the
    chat's parameter of this name before the message is sent ({}: none)."""

    title: str
    text: str
    model: str
    context: JsonObject


class ChatMode(msgspec.Struct, frozen=True, kw_only=True):
    """A profile. The thread's `mode` is its `id`; `aliases` are other names of the profile. Chats show
    `greeting` ("": none) and `starters` (null: not configured) before the first message."""

    id: str
    aliases: list[str]
    title: str
    description: str
    greeting: str
    starters: list[ChatStarter] | None
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
