"""The JSON bodies in which a server describes itself: health, sessions, models, profiles, tools (PROTOCOL §13).

The OpenAPI document and the TypeScript types are generated from these structs.
"""

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from threadcast_protocol.wire.messages import JsonObject

__all__ = [
    "Capabilities",
    "ChatMode",
    "ChatModes",
    "ChatStarter",
    "Health",
    "McpFailure",
    "McpPrompt",
    "McpPromptArgument",
    "McpPrompts",
    "McpResource",
    "McpResources",
    "ModeUi",
    "ModelCapabilities",
    "PayloadTypeInfo",
    "ProviderInfo",
    "Providers",
    "Session",
    "ThreadDefaults",
    "ToolInfo",
]


class Health(msgspec.Struct, frozen=True, omit_defaults=True):
    """The health of a process. `ready` means that the process accepts commands.

    `detail` is the reason why the process is not ready, `store` the state of the store. `primary` is the store's
    address behind Sentinel. For a Cluster, `nodes` are its primaries, and `away` has a sentence for each primary that
    accepts no writes at present; `store` is then `partly`. `workers` is `late` while chats wait too long for a worker;
    `detail` then says how many chats wait and how long.
    """

    status: Literal["ok", "ready", "starting", "draining", "unavailable"]
    store: str | None = None
    detail: str | None = None
    primary: str | None = None
    nodes: Sequence[str] = ()
    away: Sequence[str] = ()
    workers: str | None = None


class Session(msgspec.Struct, frozen=True):
    """The identity of the caller. `has_token` means that the server identifies callers by tokens; without tokens every
    caller is `local`."""

    principal: str
    permissions: Sequence[str]
    roles: Sequence[str]
    has_token: bool


class ModelCapabilities(msgspec.Struct, frozen=True, kw_only=True):
    """A model that chats may use. `n_ctx` is the size of its context window in tokens."""

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
    """The sampling parameters of PROTOCOL §16 that are sent to this model."""
    enabled: bool
    type: Literal["chat"]


class PayloadTypeInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A type of payload that a profile can show besides text. `schema` is the JSON Schema of the payload's data. An
    empty list of `scopes` means all scopes."""

    name: str
    description: str
    schema: JsonObject
    scopes: list[list[str]]


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """The capabilities of this server: the complete lists of commands, events and error codes, and the limits with
    their units."""

    chat_default_model: str
    chat_models: dict[str, ModelCapabilities]
    completion_models: JsonObject
    metadata: JsonObject | None
    samplers: dict[str, list[str]]
    """The sampling parameters that models of a provider accept, by the provider's name."""
    profiles: list[str]
    mode_aliases: dict[str, str]
    """Alternative names of profiles, with the profile for each name."""
    scopes: dict[str, list[list[str]]]
    payload_types: dict[str, list[PayloadTypeInfo]]
    commands: list[str]
    events: list[str]
    codes: list[str]
    frame_origins: Sequence[str]
    """Origins whose pages may embed the chat page in a frame and pass context to it; "self" means pages of this
    server."""
    scripted_providers: list[str]
    """Providers whose answers are not written by a model: the demonstration, and scripts."""
    limits: dict[str, float]


class ToolInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that can be offered to models in this caller's chats. `policy` is auto, ask, preview, client or deny."""

    name: str
    description: str
    input_schema: JsonObject
    source: Annotated[str, Meta(extra_json_schema={"enum": ["python", "mcp", "http", "client", "agent"]})]
    policy: Literal["auto", "ask", "preview", "client", "deny"]
    scopes: list[list[str]]
    """The scopes that the tool declares for itself; an empty list means all scopes."""


class McpFailure(msgspec.Struct, frozen=True):
    """An MCP server that did not answer, and the reason."""

    server: str
    error: str


class McpResource(msgspec.Struct, frozen=True):
    """A resource of an MCP server. A message attaches it as `{type: "mcp_resource", server, uri}`."""

    server: str
    uri: str
    name: str
    description: str
    mime_type: str


class McpResources(msgspec.Struct, frozen=True):
    """The resources of the configured MCP servers that messages can attach."""

    resources: list[McpResource]
    errors: list[McpFailure]


class McpPromptArgument(msgspec.Struct, frozen=True):
    """An argument of a prompt."""

    name: str
    description: str
    required: bool


class McpPrompt(msgspec.Struct, frozen=True):
    """A prompt of an MCP server. A message attaches it as `{type: "mcp_prompt", server, name, args}`."""

    server: str
    name: str
    description: str
    arguments: list[McpPromptArgument]


class McpPrompts(msgspec.Struct, frozen=True):
    """The prompts of the configured MCP servers."""

    prompts: list[McpPrompt]
    errors: list[McpFailure]


class ThreadDefaults(msgspec.Struct, frozen=True, kw_only=True):
    """The default parameters of a new chat, under the names that foreign GUIs request."""

    include_project_info: bool
    checkpoints_enabled: bool
    auto_approve_editing_tools: bool
    auto_approve_dangerous_commands: bool


class ModeUi(msgspec.Struct, frozen=True):
    """The position of a profile in a GUI's list."""

    order: int
    tags: list[str]


class ChatStarter(msgspec.Struct, frozen=True, kw_only=True):
    """A suggested first message. `model` is the model for this message; "" means the chat's model. `context` is set as
    the chat's parameter of this name before the message is sent; {} sets nothing."""

    title: str
    text: str
    model: str
    context: JsonObject


class ChatMode(msgspec.Struct, frozen=True, kw_only=True):
    """A profile. Chats select the profile by setting `mode` to its `id` or to one of its `aliases`. Chats show
    `greeting` and `starters` before the first message. `greeting` is "" if there is none; `starters` is null if they
    are not configured. `model` is the profile's own model, "" if it has none; `agents/NAME` is an operator's agent,
    which answers even if a chat names a model. `allows_autonomous`: the parameter `autonomous_no_confirm` has an effect
    (PROTOCOL §11)."""

    id: str
    aliases: Sequence[str]
    title: str
    description: str
    greeting: str
    starters: list[ChatStarter] | None
    model: str
    tools_count: int
    thread_defaults: ThreadDefaults
    ui: ModeUi
    allows_autonomous: bool = False


class ChatModes(msgspec.Struct, frozen=True):
    """The profiles that a chat can select as its `mode`."""

    modes: list[ChatMode]
    errors: list[str]


class ProviderInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A provider of models."""

    name: str
    display_name: str
    enabled: bool
    readonly: bool
    has_credentials: bool
    status: str
    model_count: int


class Providers(msgspec.Struct, frozen=True):
    """The configured providers."""

    providers: list[ProviderInfo]
