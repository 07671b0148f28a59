"""A chat's thread: its parameters and properties as one flat object on the wire (PROTOCOL §8, §16).

Three structs have the same keys. `Thread` has the present values. `ThreadChanges` has the changed keys of a
`thread_updated` event (absent: unchanged, null: cleared). `ThreadPatch` has the keys that a client may set with
`set_params`, with the bounds of PROTOCOL §16; `read_patch` converts an untrusted object into changes or refuses it as a
whole.
"""

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Annotated, Any, Literal, TypeAlias, get_args

import msgspec
from msgspec import UNSET, Meta, UnsetType

from threadcast_protocol.wire.errors import BadRequest, explain
from threadcast_protocol.wire.ids import Id, Name
from threadcast_protocol.wire.messages import JsonObject, Usage

__all__ = [
    "ALWAYS_PRESENT",
    "OBJECT_MAX_BYTES",
    "Thread",
    "ThreadChanges",
    "ThreadPatch",
    "apply_changes",
    "differences",
    "is_too_large",
    "read_patch",
]

Effort: TypeAlias = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
OnLimit: TypeAlias = Literal["stop", "summarize", "ask"]
OnAbort: TypeAlias = Literal["keep", "discard"]
OnClientTimeout: TypeAlias = Literal["continue", "stop"]
OnDeny: TypeAlias = Literal["continue", "stop"]
OnOwnerLoss: TypeAlias = Literal["auto", "continue", "restart", "stop"]
Reasoning: TypeAlias = Literal["stream", "log", "off"]
HistoryTools: TypeAlias = Literal["full", "none"]

Temperature: TypeAlias = Annotated[float, Meta(ge=0, le=2)]
Penalty: TypeAlias = Annotated[float, Meta(ge=-2, le=2)]
Title: TypeAlias = Annotated[str, Meta(max_length=200)]
Instructions: TypeAlias = Annotated[str, Meta(max_length=32_768)]
TokenCap: TypeAlias = Annotated[int, Meta(ge=1_000)]
Scope: TypeAlias = Annotated[list[Name], Meta(max_length=3)]
Names: TypeAlias = Annotated[list[Name], Meta(max_length=1_000)]
"""Names of tools or of their servers. Every snapshot contains the names, so their number has a stricter limit than the
size of a request's body."""

TopK: TypeAlias = Annotated[int, Meta(ge=0, le=100_000)]
Seed: TypeAlias = Annotated[int, Meta(ge=0, le=2_147_483_647)]
"""A seed in the range that all providers accept. Gemini's API reads a signed 32-bit integer."""

StopWords: TypeAlias = Annotated[list[Annotated[str, Meta(min_length=1, max_length=256)]], Meta(max_length=4)]
"""At most 4 stop words, the limit of OpenAI's API. Gemini's API accepts 5, other APIs accept more."""

OBJECT_MAX_BYTES = 65_536
"""The maximum bytes of `context`, and of `metadata`, as JSON (PROTOCOL §16)."""


class Thread(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The parameters and properties of a chat. Times are Unix milliseconds. Fields with a default factory are always
    encoded, other fields only when they are set."""

    id: str
    title: str = msgspec.field(default_factory=lambda: "New Chat")
    model: str = msgspec.field(default_factory=str)
    mode: str = msgspec.field(default_factory=lambda: "agent")
    tool_use: str = msgspec.field(default_factory=lambda: "agent")
    context_tokens_cap: int | None = msgspec.field(default_factory=lambda: None)
    include_project_info: bool = msgspec.field(default_factory=lambda: True)
    checkpoints_enabled: bool = msgspec.field(default_factory=lambda: True)
    is_title_generated: bool = msgspec.field(default_factory=bool)
    auto_approve_editing_tools: bool = msgspec.field(default_factory=bool)
    auto_approve_dangerous_commands: bool = msgspec.field(default_factory=bool)
    autonomous_no_confirm: bool = msgspec.field(default_factory=bool)
    boost_reasoning: bool | None = None
    reasoning_effort: str | None = None
    thinking_budget: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    max_tokens: int | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    seed: int | None = None
    stop: list[str] | None = None
    max_history_tokens: int | None = None
    max_history_messages: int | None = None
    history_tools: str | None = None
    parallel_tool_calls: bool | None = None
    merge_queued: bool | None = None
    max_rounds: int | None = None
    on_limit: str | None = None
    on_abort: str | None = None
    on_client_timeout: str | None = None
    on_deny: str | None = None
    on_owner_loss: str | None = None
    reasoning: str | None = None
    temporary: bool | None = None
    custom_instructions: str | None = None
    scope: list[str] | None = None
    tools_disabled: list[str] | None = None
    mcp_servers: list[str] | None = None
    context: JsonObject | None = None
    metadata: JsonObject | None = None
    parent_id: str | None = None
    link_type: str | None = None
    root_chat_id: str | None = None
    owner: str | None = None
    usage: Usage | None = None
    created_at: int | None = None
    last_active: int | None = None
    leaf_id: str | None = None
    forked_from: JsonObject | None = None
    compaction: JsonObject | None = None


class ThreadPatch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The parameters that `set_params` may change, with their bounds (PROTOCOL §16)."""

    title: Title | UnsetType = UNSET
    model: Name | UnsetType = UNSET
    mode: Name | UnsetType = UNSET
    tool_use: Name | UnsetType = UNSET
    context_tokens_cap: TokenCap | None | UnsetType = UNSET
    include_project_info: bool | UnsetType = UNSET
    checkpoints_enabled: bool | UnsetType = UNSET
    is_title_generated: bool | UnsetType = UNSET
    auto_approve_editing_tools: bool | UnsetType = UNSET
    auto_approve_dangerous_commands: bool | UnsetType = UNSET
    autonomous_no_confirm: bool | UnsetType = UNSET
    boost_reasoning: bool | None | UnsetType = UNSET
    reasoning_effort: Effort | None | UnsetType = UNSET
    thinking_budget: Annotated[int, Meta(ge=0, le=1_000_000)] | None | UnsetType = UNSET
    temperature: Temperature | None | UnsetType = UNSET
    top_p: Annotated[float, Meta(ge=0, le=1)] | None | UnsetType = UNSET
    frequency_penalty: Penalty | None | UnsetType = UNSET
    presence_penalty: Penalty | None | UnsetType = UNSET
    max_tokens: Annotated[int, Meta(ge=1, le=1_000_000)] | None | UnsetType = UNSET
    top_k: TopK | None | UnsetType = UNSET
    min_p: Annotated[float, Meta(ge=0, le=1)] | None | UnsetType = UNSET
    repetition_penalty: Annotated[float, Meta(gt=0, le=2)] | None | UnsetType = UNSET
    seed: Seed | None | UnsetType = UNSET
    stop: StopWords | None | UnsetType = UNSET
    max_history_tokens: TokenCap | None | UnsetType = UNSET
    max_history_messages: Annotated[int, Meta(ge=0, le=10_000)] | None | UnsetType = UNSET
    history_tools: HistoryTools | None | UnsetType = UNSET
    parallel_tool_calls: bool | None | UnsetType = UNSET
    merge_queued: bool | None | UnsetType = UNSET
    max_rounds: Annotated[int, Meta(ge=1, le=100)] | None | UnsetType = UNSET
    on_limit: OnLimit | None | UnsetType = UNSET
    on_abort: OnAbort | None | UnsetType = UNSET
    on_client_timeout: OnClientTimeout | None | UnsetType = UNSET
    on_deny: OnDeny | None | UnsetType = UNSET
    on_owner_loss: OnOwnerLoss | None | UnsetType = UNSET
    reasoning: Reasoning | None | UnsetType = UNSET
    temporary: bool | None | UnsetType = UNSET
    custom_instructions: Instructions | None | UnsetType = UNSET
    scope: Scope | None | UnsetType = UNSET
    tools_disabled: Names | None | UnsetType = UNSET
    mcp_servers: Names | None | UnsetType = UNSET
    context: JsonObject | None | UnsetType = UNSET
    metadata: JsonObject | None | UnsetType = UNSET
    parent_id: Id | None | UnsetType = UNSET
    link_type: Id | None | UnsetType = UNSET
    root_chat_id: Id | None | UnsetType = UNSET


class ThreadChanges(ThreadPatch, frozen=True, kw_only=True, omit_defaults=True):
    """The changed keys of a thread with their new values: keys that a patch may change, and keys that only the server
    changes.

    Old logs contain values within earlier bounds, so the bounds of `ThreadPatch` may be widened, never narrowed.
    """

    owner: str | UnsetType = UNSET
    usage: Usage | UnsetType = UNSET
    created_at: int | UnsetType = UNSET
    last_active: int | UnsetType = UNSET
    leaf_id: str | None | UnsetType = UNSET
    forked_from: JsonObject | None | UnsetType = UNSET
    compaction: JsonObject | None | UnsetType = UNSET


ALWAYS_PRESENT = frozenset(
    {
        "title",
        "model",
        "mode",
        "tool_use",
        "include_project_info",
        "checkpoints_enabled",
        "is_title_generated",
        "auto_approve_editing_tools",
        "auto_approve_dangerous_commands",
        "autonomous_no_confirm",
    }
)
_OBJECTS = ("context", "metadata")


def read_patch(patch: object) -> JsonObject:
    """Check a client's `patch` against PROTOCOL §16, and return its known keys with their new values.

    Unknown keys are left out. null and "" clear an optional key; its value is then None.

    Raises:
        BadRequest: `patch` is not an object, or a known key has the wrong type or is out of bounds. `path` points at
            the key.
    """
    if not isinstance(patch, Mapping):
        raise BadRequest("patch must be an object of parameters", path="/patch")
    cleaned: JsonObject = {}
    for key, value in patch.items():
        if key not in ThreadPatch.__struct_fields__:
            continue
        clears = value is None or value == ""
        cleaned[key] = None if clears and key not in ALWAYS_PRESENT else value
    try:
        checked = msgspec.convert(cleaned, ThreadPatch)
    except msgspec.ValidationError as wrong:
        text, path = explain(wrong)
        key = path.strip("/")
        if text.startswith("Invalid enum value"):
            text += f"; it is one of {', '.join(_choices(key))}"
        raise BadRequest(f"{key or 'patch'}: {text}", path=f"/patch{path}") from None
    for key in _OBJECTS:
        if is_too_large(cleaned.get(key)):
            raise BadRequest(f"{key} must be at most {OBJECT_MAX_BYTES} bytes of JSON", path=f"/patch/{key}")
    return {key: getattr(checked, key) for key in cleaned}


def is_too_large(value: object, max_bytes: int = OBJECT_MAX_BYTES) -> bool:
    """Return whether decoded JSON takes more than `max_bytes` when it is encoded. The lengths of its texts are added up
    first, because encoding a text of 16 MB only to refuse it takes 60 ms."""
    least_bytes, waiting = 0, [value]
    while waiting and least_bytes <= max_bytes:
        each = waiting.pop()
        least_bytes += len(each) if isinstance(each, str) else 1
        if isinstance(each, dict):
            least_bytes += sum(map(len, each))
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each
    return least_bytes > max_bytes or len(msgspec.json.encode(value)) > max_bytes


def _choices(key: str) -> list[str]:
    """Return the allowed values of `key`, if there is a closed list of them."""
    field = next((field for field in msgspec.structs.fields(ThreadPatch) if field.name == key), None)
    kinds = get_args(field.type) if field is not None else ()
    return [word for kind in kinds for word in get_args(kind) if isinstance(word, str)]


_values_of = attrgetter(*ThreadChanges.__struct_fields__)


def apply_changes(thread: Thread, changes: ThreadChanges) -> Thread:
    """Return `thread` with these changes. Absent keys keep their values."""
    changed: dict[str, Any] = {  # Any: each value has its field's type, checked when the changes were made
        key: value
        for key, value in zip(ThreadChanges.__struct_fields__, _values_of(changes), strict=True)
        if value is not UNSET
    }
    return msgspec.structs.replace(thread, **changed)


def differences(thread: Thread, other: Thread, keys: Sequence[str] = ThreadChanges.__struct_fields__) -> JsonObject:
    """Return each key of `keys` whose value differs between the two threads, with the value in `thread`."""
    return {key: value for key in keys if (value := getattr(thread, key)) != getattr(other, key)}
