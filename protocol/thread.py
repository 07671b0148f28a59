"""A chat's thread: its parameters and facts, flat, as they stand on the wire (PROTOCOL §8, §16).

Three shapes of one list of keys. `Thread` is what holds now. `ThreadChanges` is a part of it: what `thread_updated`
says (absent: unchanged, null: cleared). `ThreadPatch` is what a client may ask for with `set_params`, with the
bounds of PROTOCOL §16; `read_patch` turns a foreign object into changes or a refusal, and nothing of a refused patch
applies.
"""

from collections.abc import Mapping
from operator import attrgetter
from typing import Annotated, Any, Literal, TypeAlias, get_args

import msgspec
from msgspec import UNSET, Meta, UnsetType

from protocol.errors import BadRequest, explain
from protocol.ids import Id, Name
from protocol.messages import JsonObject, Usage

__all__ = [
    "ALWAYS_PRESENT",
    "OBJECT_MAX_BYTES",
    "Thread",
    "ThreadChanges",
    "ThreadPatch",
    "apply_changes",
    "read_patch",
]

Effort: TypeAlias = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
OnLimit: TypeAlias = Literal["stop", "summarize", "ask"]
OnAbort: TypeAlias = Literal["keep", "discard"]
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
"""Of tools or of their servers. They stand in every snapshot, so they must not grow as large as a body may be."""

TopK: TypeAlias = Annotated[int, Meta(ge=0, le=100_000)]
Seed: TypeAlias = Annotated[int, Meta(ge=0, le=2_147_483_647)]
"""The range that all providers take: Gemini's API reads 32 bits with a sign."""

StopWords: TypeAlias = Annotated[list[Annotated[str, Meta(min_length=1, max_length=256)]], Meta(max_length=4)]
"""OpenAI's API takes 4 at most; Gemini's takes 5, the others more."""

OBJECT_MAX_BYTES = 65_536
"""`context` and `metadata`, as JSON (PROTOCOL §16)."""


class Thread(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Times are Unix milliseconds. Fields made by a factory are always on the wire, the others only when set."""

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
    on_deny: str | None = None
    on_owner_loss: str | None = None
    reasoning: str | None = None
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
    """What `set_params` may change, with its bounds (PROTOCOL §16)."""

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
    on_deny: OnDeny | None | UnsetType = UNSET
    on_owner_loss: OnOwnerLoss | None | UnsetType = UNSET
    reasoning: Reasoning | None | UnsetType = UNSET
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
    """The changed keys of a thread as they now are: what a patch may change, and what only the server changes.

    It is read back from old logs, so a bound above may be widened, never narrowed.
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
    """Check a foreign `patch` against PROTOCOL §16 and return the known keys with the values that will hold.

    Unknown keys are left out. null and "" clear an optional key (the value is then None).

    Raises:
        BadRequest: not an object, or a known key of wrong type or out of bounds; `path` points at the key.
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
        if len(msgspec.json.encode(cleaned.get(key))) > OBJECT_MAX_BYTES:
            raise BadRequest(f"{key} must be at most {OBJECT_MAX_BYTES} bytes of JSON", path=f"/patch/{key}")
    return {key: getattr(checked, key) for key in cleaned}


def _choices(key: str) -> list[str]:
    """The words that a key may have, where they are counted."""
    field = next((field for field in msgspec.structs.fields(ThreadPatch) if field.name == key), None)
    kinds = get_args(field.type) if field is not None else ()
    return [word for kind in kinds for word in get_args(kind) if isinstance(word, str)]


_values_of = attrgetter(*ThreadChanges.__struct_fields__)


def apply_changes(thread: Thread, changes: ThreadChanges) -> Thread:
    """The thread with these changes; absent keys stay."""
    changed: dict[str, Any] = {  # Any: each value has its field's type, checked when the changes were made
        key: value
        for key, value in zip(ThreadChanges.__struct_fields__, _values_of(changes), strict=True)
        if value is not UNSET
    }
    return msgspec.structs.replace(thread, **changed)
