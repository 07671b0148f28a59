"""What has happened: the closed list of public events (PROTOCOL §5).

An event is flat JSON with its `type` first. Every event here has a position once it stands in the log, and an event
that has a position is never withheld from anyone. `Snapshot` is the one exception: relays make it, no log holds it.
How events fold into a state is `reducer.py`'s business; how they look as SSE is `sse.py`'s.
"""

from typing import TypeAlias

import msgspec

from protocol.deltas import DeltaOp
from protocol.messages import JsonObject, Message, Usage
from protocol.thread import Thread, ThreadChanges

__all__ = [
    "AT_REST",
    "FINAL_TOOL_STATUSES",
    "Ack",
    "BackgroundAgentUpdated",
    "BranchSelected",
    "ContextUse",
    "ErrorHappened",
    "Event",
    "IdeCall",
    "IdeToolRequired",
    "MessageAdded",
    "MessageRemoved",
    "MessageUpdated",
    "MessagesTruncated",
    "PassThrough",
    "PauseCleared",
    "PauseReason",
    "PauseRequired",
    "PayloadAdded",
    "PayloadUpdated",
    "ProcessCompleted",
    "QueueUpdated",
    "QueuedItem",
    "Relayed",
    "Runtime",
    "RuntimeUpdated",
    "Snapshot",
    "StreamDelta",
    "StreamFinished",
    "StreamStarted",
    "SubchatUpdate",
    "ThreadUpdated",
    "ToolStatus",
]

AT_REST = frozenset({"idle", "completed", "waiting_user_input", "error"})
"""States in which no run is open (DESIGN §4.4)."""

FINAL_TOOL_STATUSES = frozenset({"done", "error", "denied", "aborted", "outcome_unknown"})


class QueuedItem(msgspec.Struct, frozen=True):
    """A waiting command as people see it. `preview` ≤ 120 characters, `content` ≤ 8192 (PROTOCOL §8)."""

    client_request_id: str
    priority: bool
    command_type: str
    preview: str
    content: str


class PauseReason(msgspec.Struct, frozen=True, kw_only=True):
    """Why a run waits for a person. `input_hash` binds the decision to the arguments that were shown."""

    type: str
    tool_name: str
    tool_call_id: str
    command: str = ""
    rule: str = ""
    integr_config_path: str | None = None
    input: JsonObject = {}
    input_hash: str = ""


class ContextUse(msgspec.Struct, frozen=True):
    """Tokens of the model's window: used by the last call, and in all."""

    used: int
    total: int | None = None


class IdeCall(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A call that waits for a client to carry it out. Times are Unix milliseconds."""

    tool_call_id: str
    tool_name: str
    args: JsonObject
    deadline_at: int | None = None
    claimed_by: str | None = None
    claim_expires_at: int | None = None


class _Event(msgspec.Struct, frozen=True, tag_field="type", omit_defaults=True):
    pass


class Ack(_Event, frozen=True, tag="ack"):
    client_request_id: str
    accepted: bool
    result: JsonObject
    by: str | None = None


class QueueUpdated(_Event, frozen=True, tag="queue_updated"):
    queue_size: int
    queued_items: list[QueuedItem]


class RuntimeUpdated(_Event, frozen=True, tag="runtime_updated", kw_only=True):
    """The whole of what is said about the run: a field that is absent no longer holds.

    `state` is one of PROTOCOL §7. At rest it carries `outcome`: complete, error, aborted, limit or interrupted.
    """

    state: str
    is_compressing: bool = msgspec.field(default_factory=bool)
    error: str | None = None
    run_id: str | None = None
    round: int | None = None
    status_text: str | None = None
    active_tool: str | None = None
    outcome: str | None = None
    context: ContextUse | None = None
    tools_used: list[str] = []


class ThreadUpdated(ThreadChanges, frozen=True, tag_field="type", tag="thread_updated"):
    """The changed parameters, flat, as they now are. null: cleared."""


class MessageAdded(_Event, frozen=True, tag="message_added"):
    """A message at `index` of the active path: appended, inserted, or the final word on a streamed one."""

    message: Message
    index: int


class MessageUpdated(_Event, frozen=True, tag="message_updated"):
    message_id: str
    message: Message


class MessageRemoved(_Event, frozen=True, tag="message_removed"):
    message_id: str


class MessagesTruncated(_Event, frozen=True, tag="messages_truncated"):
    """The active path was cut to `from_index` messages; the cut ones stay in the tree."""

    from_index: int


class BranchSelected(_Event, frozen=True, tag="branch_selected"):
    """The active path now ends at `leaf_id`. Readers get a snapshot instead (PROTOCOL §5)."""

    leaf_id: str


class StreamStarted(_Event, frozen=True, tag="stream_started", kw_only=True):
    message_id: str
    run_id: str | None = None
    round: int | None = None
    model: str | None = None
    append: bool = False
    parent_id: str | None = None
    created_at: int | None = None


class StreamDelta(_Event, frozen=True, tag="stream_delta"):
    """At most 128 operations and 64 KiB of text (PROTOCOL §6)."""

    message_id: str
    ops: list[DeltaOp]


class StreamFinished(_Event, frozen=True, tag="stream_finished", kw_only=True):
    message_id: str
    finish_reason: str
    usage: Usage | None = None
    timings: JsonObject | None = None


class PauseRequired(_Event, frozen=True, tag="pause_required"):
    reasons: list[PauseReason]


class PauseCleared(_Event, frozen=True, tag="pause_cleared"):
    pass


class IdeToolRequired(_Event, frozen=True, tag="ide_tool_required", kw_only=True):
    tool_call_id: str
    tool_name: str
    args: JsonObject
    deadline_at: int | None = None


class SubchatUpdate(_Event, frozen=True, tag="subchat_update", kw_only=True):
    tool_call_id: str
    subchat_id: str
    attached_files: list[str] = []


class BackgroundAgentUpdated(_Event, frozen=True, tag="background_agent_updated"):
    agent: JsonObject


class ProcessCompleted(_Event, frozen=True, tag="process_completed", kw_only=True):
    process_id: str
    status: str
    exit_code: int | None
    short_description: str
    mode: str


class ToolStatus(_Event, frozen=True, tag="tool_status", kw_only=True):
    """Where a tool call stands. `index` counts calls within the run from 0; `progress` is 0..1.

    `status`: queued, awaiting_decision, running, progress, done, error, denied, aborted, outcome_unknown. A client that
    claims a client tool is named by `claimed_by`, until `claim_expires_at` (Unix milliseconds, PROTOCOL §12).
    """

    tool_call_id: str
    name: str
    message_id: str
    index: int
    status: str
    label: str | None = None
    input: JsonObject | None = None
    stage: str | None = None
    message: str | None = None
    progress: float | None = None
    data: JsonObject | None = None
    elapsed_ms: int | None = None
    claimed_by: str | None = None
    claim_expires_at: int | None = None


class _Payload(_Event, frozen=True, kw_only=True):
    """Structured data beside the text. `source` is tool, llm or preview. `unregistered`: nobody declared the type.

    Of a preview: `approval` is pending, rejected, accepted, committed, commit_failed or outcome_unknown; `by` who
    decided; `input_hash` binds a decision to the data that was shown (PROTOCOL §11).
    """

    payload_id: str
    payload_type: str
    data: JsonObject
    summary: str
    source: str
    message_id: str
    tool_call_id: str | None = None
    approval: str | None = None
    by: str | None = None
    input_hash: str | None = None
    unregistered: bool = False


class PayloadAdded(_Payload, frozen=True, tag="payload_added"):
    pass


class PayloadUpdated(_Payload, frozen=True, tag="payload_updated"):
    pass


class ErrorHappened(_Event, frozen=True, tag="error", kw_only=True):
    """`message` is a fixed sentence, fit for clients (ERR-2). For a failed model call `details` has the other fields of
    the failure: `reason`, `status`, `retry_at`, `model` (PROTOCOL §8)."""

    code: str
    message: str
    fatal: bool
    run_id: str | None = None
    details: JsonObject | None = None


class _PassThrough(_Event, frozen=True):
    """Passed from a tool to clients as it is, whatever its fields; it folds into nothing (EVT-19)."""


class BrowserFrame(_PassThrough, frozen=True, tag="browser_frame"):
    pass


class BrowserStatus(_PassThrough, frozen=True, tag="browser_status"):
    pass


class BrowserClosed(_PassThrough, frozen=True, tag="browser_closed"):
    pass


class BrowserTimeline(_PassThrough, frozen=True, tag="browser_timeline"):
    pass


class BrowserContextOversize(_PassThrough, frozen=True, tag="browser_context_oversize"):
    pass


class BrowserToolbarAction(_PassThrough, frozen=True, tag="browser_toolbar_action"):
    pass


PassThrough: TypeAlias = (
    BrowserFrame | BrowserStatus | BrowserClosed | BrowserTimeline | BrowserContextOversize | BrowserToolbarAction
)


class Relayed:
    """A pass-through event with all its fields, on its way from a tool into the log. Read back it is one of
    `PassThrough`, which leaves the fields to those who know them."""

    __slots__ = ("body",)

    def __init__(self, kind: str, fields: JsonObject) -> None:
        self.body: JsonObject = {"type": kind, **{key: value for key, value in fields.items() if key != "type"}}


Event: TypeAlias = (
    Ack
    | QueueUpdated
    | RuntimeUpdated
    | ThreadUpdated
    | MessageAdded
    | MessageUpdated
    | MessageRemoved
    | MessagesTruncated
    | BranchSelected
    | StreamStarted
    | StreamDelta
    | StreamFinished
    | PauseRequired
    | PauseCleared
    | IdeToolRequired
    | SubchatUpdate
    | BackgroundAgentUpdated
    | ProcessCompleted
    | ToolStatus
    | PayloadAdded
    | PayloadUpdated
    | ErrorHappened
    | PassThrough
)
"""Everything that a log may hold, besides fences."""


class Runtime(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is going on now (PROTOCOL §8). `tools` holds the latest `tool_status` of each open call."""

    state: str
    paused: bool
    error: str | None
    queue_size: int
    queued_items: list[QueuedItem]
    pause_reasons: list[PauseReason]
    is_compressing: bool
    run_id: str | None = None
    round: int | None = None
    status_text: str | None = None
    active_tool: str | None = None
    outcome: str | None = None
    context: ContextUse | None = None
    tools_used: list[str] = []
    tools: list[ToolStatus] = []
    ide_calls: list[IdeCall] = []


class Snapshot(_Event, frozen=True, tag="snapshot", kw_only=True):
    """All that a client needs to start from here (PROTOCOL §5). `messages` is the active path."""

    thread: Thread
    runtime: Runtime
    messages: list[Message]
    background_agents: list[JsonObject]
    payloads: list[PayloadAdded] = []
    recent_acks: list[Ack] = []
