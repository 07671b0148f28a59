"""The public events of a chat (PROTOCOL §5).

An event is flat JSON with its `type` first. Every event in the log has a position and is sent to every reader. Only
`Snapshot` is never in a log: relays create snapshots. `reducer.py` folds events into a state; `sse.py` encodes them as
SSE.
"""

from typing import TypeAlias

import msgspec

from threadcast_protocol.wire.deltas import DeltaOp
from threadcast_protocol.wire.event_parts import (
    ContextUse,
    IdeCall,
    PauseReason,
    Question,
    QueuedItem,
    ToolChange,
    ToolDefinition,
)
from threadcast_protocol.wire.messages import JsonObject, Message, Usage
from threadcast_protocol.wire.pass_through import (
    BrowserClosed,
    BrowserContextOversize,
    BrowserFrame,
    BrowserStatus,
    BrowserTimeline,
    BrowserToolbarAction,
    PassThrough,
)
from threadcast_protocol.wire.thread import Thread, ThreadChanges

__all__ = [
    "AT_REST",
    "FINAL_TOOL_STATUSES",
    "Ack",
    "AgentData",
    "AgentStep",
    "BackgroundAgentUpdated",
    "BranchSelected",
    "BrowserClosed",
    "BrowserContextOversize",
    "BrowserFrame",
    "BrowserStatus",
    "BrowserTimeline",
    "BrowserToolbarAction",
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
    "Question",
    "QueueUpdated",
    "QueuedItem",
    "Runtime",
    "RuntimeUpdated",
    "Snapshot",
    "StreamDelta",
    "StreamFinished",
    "StreamStarted",
    "SubchatUpdate",
    "ThreadUpdated",
    "ToolChange",
    "ToolDefinition",
    "ToolStatus",
]

AT_REST = frozenset({"idle", "completed", "waiting_user_input", "error"})
"""States of a chat without an open run (DESIGN §4.4)."""

FINAL_TOOL_STATUSES = frozenset({"done", "error", "denied", "aborted", "outcome_unknown"})


class _Event(msgspec.Struct, frozen=True, tag_field="type", omit_defaults=True):
    """The base of all events. The JSON of an event begins with its `type`."""


class Ack(_Event, frozen=True, tag="ack"):
    """The answer to the command `client_request_id`. `by` names the user who sent the command."""

    client_request_id: str
    accepted: bool
    result: JsonObject
    by: str | None = None


class QueueUpdated(_Event, frozen=True, tag="queue_updated"):
    """The waiting commands after a change of the queue."""

    queue_size: int
    queued_items: list[QueuedItem]


class RuntimeUpdated(_Event, frozen=True, tag="runtime_updated", kw_only=True):
    """The complete state of the run. A field that is absent here is unset, even if an earlier event has set it.

    `state` is defined in PROTOCOL §7. After the end of a run, `outcome` is complete, error, aborted, limit or
    interrupted. `waits_for` is the reason why an open run does not continue at present: "runs_at_once" means that the
    caller already has the maximum number of concurrent runs.
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
    waits_for: str | None = None


class ThreadUpdated(ThreadChanges, frozen=True, tag_field="type", tag="thread_updated"):
    """The changed parameters with their new values, as flat keys. null means that the parameter was cleared."""


class MessageAdded(_Event, frozen=True, tag="message_added"):
    """A message at `index` of the active path: appended, inserted, or the final version of a streamed message."""

    message: Message
    index: int


class MessageUpdated(_Event, frozen=True, tag="message_updated"):
    """A new version of the message `message_id`."""

    message_id: str
    message: Message


class MessageRemoved(_Event, frozen=True, tag="message_removed"):
    """The message `message_id` and all messages below it were deleted."""

    message_id: str


class MessagesTruncated(_Event, frozen=True, tag="messages_truncated"):
    """The active path was cut to `from_index` messages. The messages after the cut remain in the tree."""

    from_index: int


class BranchSelected(_Event, frozen=True, tag="branch_selected"):
    """The active path now ends at `leaf_id`. Readers get a snapshot instead of this event (PROTOCOL §5)."""

    leaf_id: str


class StreamStarted(_Event, frozen=True, tag="stream_started", kw_only=True):
    """A model begins to write the message `message_id`. With `append` it continues an existing message."""

    message_id: str
    run_id: str | None = None
    round: int | None = None
    model: str | None = None
    append: bool = False
    parent_id: str | None = None
    created_at: int | None = None


class StreamDelta(_Event, frozen=True, tag="stream_delta"):
    """Changes of the message that a model is writing: at most 128 operations and 64 KiB of text (PROTOCOL §6)."""

    message_id: str
    ops: list[DeltaOp]


class StreamFinished(_Event, frozen=True, tag="stream_finished", kw_only=True):
    """The model has finished writing the message `message_id`."""

    message_id: str
    finish_reason: str
    usage: Usage | None = None
    timings: JsonObject | None = None


class PauseRequired(_Event, frozen=True, tag="pause_required"):
    """The open run waits for a decision about each of these `reasons`, which replace all earlier reasons."""

    reasons: list[PauseReason]


class PauseCleared(_Event, frozen=True, tag="pause_cleared"):
    """The open run no longer waits for a decision."""


class IdeToolRequired(_Event, frozen=True, tag="ide_tool_required", kw_only=True):
    """A client must carry out this tool call before `deadline_at` (Unix milliseconds)."""

    tool_call_id: str
    tool_name: str
    args: JsonObject
    deadline_at: int | None = None


class SubchatUpdate(_Event, frozen=True, tag="subchat_update", kw_only=True):
    """The tool call `tool_call_id` has started the chat `subchat_id`."""

    tool_call_id: str
    subchat_id: str
    attached_files: list[str] = []


class BackgroundAgentUpdated(_Event, frozen=True, tag="background_agent_updated"):
    """The present state of a background agent. Events with the same `id` replace each other."""

    agent: JsonObject


class AgentData(_Event, frozen=True, tag="agent_data"):
    """Data that an operator's agent sends to clients while it writes the message `message_id`. `data_type` is the
    agent's own word for its kind. Snapshots do not contain this data, and after a crash an agent may send the data
    again."""

    message_id: str
    data_type: str
    data: JsonObject


class AgentStep(_Event, frozen=True, tag="agent_step", kw_only=True):
    """A step of an operator's durable agent that begins, waits or ends. Events with the same `step_id` replace each
    other; a snapshot has the newest 100 steps of the last durable run.

    `kind` is step, chat, ask or sleep. `name` is the name of the step, the title of the sub-chat or the beginning of
    the question. `status` is running, waiting, done, failed, unknown or cancelled. `step_id` is the place of the step
    in the agent's function: "3.0.1" is the step 1 in the branch 0 of the gather 3. `started_at` and `until`, when a
    sleep ends, are Unix milliseconds.
    """

    run_id: str
    step_id: str
    kind: str
    name: str
    status: str
    started_at: int
    elapsed_ms: int | None = None
    until: int | None = None
    subchat_id: str | None = None
    error: str | None = None


class ProcessCompleted(_Event, frozen=True, tag="process_completed", kw_only=True):
    """A process that a tool had started has ended. `exit_code` is null if the process was lost."""

    process_id: str
    status: str
    exit_code: int | None
    short_description: str
    mode: str


class ToolStatus(_Event, frozen=True, tag="tool_status", kw_only=True):
    """The status of a tool call. `index` counts the calls of the run from 0; `progress` is a number from 0 to 1.

    `status` is queued, awaiting_decision, running, progress, done, error, denied, aborted or outcome_unknown.
    `claimed_by` names the client that has claimed the call of a client tool; the claim ends at `claim_expires_at` (Unix
    milliseconds, PROTOCOL §12).
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
    """Structured data beside the text of a message. `source` is tool, llm or preview. `unregistered` means that the
    server's configuration does not declare this payload type.

    Three fields belong to previews only. `approval` is pending, rejected, accepted, committed, commit_failed or
    outcome_unknown; `by` names the user who decided; `input_hash` binds a decision to the data that was shown (PROTOCOL
    §11).
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
    """A new payload of a message."""


class PayloadUpdated(_Payload, frozen=True, tag="payload_updated"):
    """A new version of the payload `payload_id`."""


class ErrorHappened(_Event, frozen=True, tag="error", kw_only=True):
    """An error during a run. `message` is a fixed sentence for users (ERR-2). For a failed model call, `details` has
    `reason`, `status`, `retry_at` and `model` (PROTOCOL §8), and `task` is "title" if the call was for a title."""

    code: str
    message: str
    fatal: bool
    run_id: str | None = None
    details: JsonObject | None = None


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
    | AgentData
    | AgentStep
    | ProcessCompleted
    | ToolStatus
    | PayloadAdded
    | PayloadUpdated
    | ErrorHappened
    | PassThrough
)
"""All events that a log may contain; fences are no events."""


class Runtime(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The present activity of the chat (PROTOCOL §8). `tools` has the latest `tool_status` of each open tool call;
    `agent_steps` has the latest `agent_step` of each step of the last durable run, also when that run has ended."""

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
    waits_for: str | None = None
    agent_steps: list[AgentStep] = []


class Snapshot(_Event, frozen=True, tag="snapshot", kw_only=True):
    """The data from which a client starts (PROTOCOL §5). `messages` are those of the active path, root first."""

    thread: Thread
    runtime: Runtime
    messages: list[Message]
    background_agents: list[JsonObject]
    payloads: list[PayloadAdded] = []
    recent_acks: list[Ack] = []
