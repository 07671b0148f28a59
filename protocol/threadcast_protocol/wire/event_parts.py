"""The objects inside events and snapshots: waiting commands, questions, and the calls of clients (PROTOCOL §5, §7).

Import them from `wire/events.py`, which exports them beside the events.
"""

import msgspec
from msgspec import UNSET, UnsetType

from threadcast_protocol.wire.messages import JsonObject

__all__ = ["ContextUse", "IdeCall", "PauseReason", "Question", "QueuedItem", "ToolChange", "ToolDefinition"]


class QueuedItem(msgspec.Struct, frozen=True):
    """A waiting command for display: a `preview` of at most 120 characters, and at most 8,192 of its `content`."""

    client_request_id: str
    priority: bool
    command_type: str
    preview: str
    content: str


class ToolDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """A tool as models and people read it: its description, and the JSON Schema of its arguments."""

    description: str
    input_schema: JsonObject


class ToolChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a tool differs from the tool that a permission was given for (PROTOCOL §11). `kind` is `changed`, `new` or
    `unrecorded`. `before` is the definition that was approved; it is absent if the server does not have it. `now` is
    absent if the present definition is too long."""

    kind: str
    before: ToolDefinition | None = None
    now: ToolDefinition | None = None


class Question(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A question to a person (PROTOCOL §11). `options` are the allowed answers, `schema` is the JSON Schema of the
    answer; a question has at most one of both. Without both, the answer is any text."""

    text: str
    options: list[str] = []
    schema: JsonObject | None = None


class PauseReason(msgspec.Struct, frozen=True, kw_only=True):
    """A reason why a run waits for a person. `input_hash` binds the decision to the arguments that were shown, and to
    the tool's definition. With `hides_input`, `input` is empty on the stream; `GET /v1/chats/{chat_id}/questions`
    returns the arguments. `change` is present if the tool was always allowed, but differs from the tool that was
    allowed. With `once`, the next call of the tool asks again, even if the decision has `remember`. `approver` is
    `another` if only a caller other than the requester may accept. With the type `question`, `question` is the question
    to a person, and `tool_call_id` is the question's id; `tool_name` is the tool that asks, or empty."""

    type: str
    tool_name: str
    tool_call_id: str
    command: str = ""
    rule: str = ""
    integr_config_path: str | None = None
    input: JsonObject = {}
    input_hash: str = ""
    hides_input: bool | UnsetType = UNSET  # this field and `once` are set only if true
    change: ToolChange | UnsetType = UNSET
    once: bool | UnsetType = UNSET
    approver: str | UnsetType = UNSET
    question: Question | UnsetType = UNSET


class ContextUse(msgspec.Struct, frozen=True):
    """Token counts of the model's context window: `used` by the last call, and the `total` size."""

    used: int
    total: int | None = None


class IdeCall(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A tool call that a client must carry out. Times are Unix milliseconds."""

    tool_call_id: str
    tool_name: str
    args: JsonObject
    deadline_at: int | None = None
    claimed_by: str | None = None
    claim_expires_at: int | None = None
