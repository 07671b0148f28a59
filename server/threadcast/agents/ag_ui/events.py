"""Reads the events of an AG-UI stream, tolerantly: unknown types and fields are skipped, and so are events whose
fields have another type than the specification says (ag-ui.com/spec/1.0). Pure.

The deprecated THINKING_* events of older producers are read as the REASONING_* events that replaced them.
"""

from typing import Any, TypeAlias

import msgspec

from threadcast_protocol.wire.decoders import decode_any, decoder
from threadcast_protocol.wire.messages import JsonObject

__all__ = [
    "Activity",
    "Ended",
    "Event",
    "Failed",
    "Interrupt",
    "Other",
    "Reasoning",
    "Snapshot",
    "StateChange",
    "Status",
    "Text",
    "ToolArgs",
    "ToolEnd",
    "ToolResult",
    "ToolStart",
    "Usage",
    "event_of",
]


class Text(msgspec.Struct, frozen=True):
    """Text of the message `message_id`; '' means the open message. `role` is `user` for the echo of a user's
    message."""

    message_id: str
    delta: str
    role: str = "assistant"


class Reasoning(msgspec.Struct, frozen=True):
    """Reasoning. `encrypted` is instead a value that must be sent back to the agent with the message or call
    `message_id`."""

    message_id: str
    delta: str
    encrypted: str = ""


class ToolStart(msgspec.Struct, frozen=True):
    call_id: str
    name: str
    parent_id: str = ""


class ToolArgs(msgspec.Struct, frozen=True):
    """A piece of a call's arguments. If the piece has a `name`, it also begins the call."""

    call_id: str
    delta: str
    name: str = ""
    parent_id: str = ""


class ToolEnd(msgspec.Struct, frozen=True):
    call_id: str


class ToolResult(msgspec.Struct, frozen=True):
    call_id: str
    content: str


class StateChange(msgspec.Struct, frozen=True):
    """A new state, or a change of the state as a JSON Patch (RFC 6902)."""

    snapshot: Any = None  # Any: JSON
    delta: list[JsonObject] | None = None


class Snapshot(msgspec.Struct, frozen=True):
    """All messages that the agent has, in the agent's own form."""

    messages: list[JsonObject]


class Activity(msgspec.Struct, frozen=True):
    """Progress that is not part of the conversation, as the agent sent it."""

    data: JsonObject


class Other(msgspec.Struct, frozen=True):
    """An event of the application: `kind` is custom or raw."""

    kind: str
    data: JsonObject


class Status(msgspec.Struct, frozen=True):
    """A step or a subagent begins; with an empty `text`, it ends."""

    text: str


class Interrupt(msgspec.Struct, frozen=True, rename="camel"):
    """The input from outside that a run needs before it can continue."""

    id: str
    reason: str = ""
    message: str | None = None
    tool_call_id: str | None = None
    response_schema: JsonObject | None = None


class Usage(msgspec.Struct, frozen=True, rename="camel"):
    """Tokens of one provider and model."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None


class Ended(msgspec.Struct, frozen=True):
    """The run has completed, or waits for `interrupts`."""

    interrupts: list[Interrupt] = []
    usage: list[Usage] = []


class Failed(msgspec.Struct, frozen=True):
    message: str
    code: str = ""


Event: TypeAlias = (
    Text
    | Reasoning
    | ToolStart
    | ToolArgs
    | ToolEnd
    | ToolResult
    | StateChange
    | Snapshot
    | Activity
    | Other
    | Status
    | Ended
    | Failed
)


class _Wire(msgspec.Struct, rename="camel"):
    """The fields of all events that are read."""

    type: str
    message_id: str | None = None
    tool_call_id: str | None = None
    tool_call_name: str | None = None
    parent_message_id: str | None = None
    role: str | None = None
    delta: Any = None
    content: Any = None
    snapshot: Any = None
    messages: list[JsonObject] | None = None
    step_name: str | None = None
    name: str | None = None
    value: Any = None
    event: Any = None
    source: str | None = None
    activity_type: str | None = None
    patch: list[JsonObject] | None = None
    entity_id: str | None = None
    encrypted_value: str | None = None
    message: str | None = None
    code: str | None = None
    outcome: Any = None
    usage: Any = None


_DECODER: msgspec.json.Decoder[_Wire] = decoder(_Wire)


def event_of(data: bytes) -> Event | None:
    """Return the event, or None if the event has no meaning here.

    Raises:
        ValueError: the data is not a JSON object with a type.
    """
    try:
        wire = _DECODER.decode(data)
    except msgspec.ValidationError:
        found = decode_any(data)
        if isinstance(found, dict) and isinstance(found.get("type"), str):
            return None  # a field has another type than the specification says
        raise ValueError("an event is no JSON object with a type") from None
    return _read(wire)


def _read(wire: _Wire) -> Event | None:
    text = wire.delta if isinstance(wire.delta, str) else ""
    match wire.type:
        case "TEXT_MESSAGE_START" | "TEXT_MESSAGE_CONTENT" | "TEXT_MESSAGE_CHUNK":
            return Text(wire.message_id or "", text, wire.role or "")
        case (
            "REASONING_MESSAGE_CONTENT"
            | "REASONING_MESSAGE_CHUNK"
            | "THINKING_TEXT_MESSAGE_CONTENT"
            | "REASONING_MESSAGE_START"
        ):
            return Reasoning(wire.message_id or "", text)
        case "REASONING_ENCRYPTED_VALUE":
            return Reasoning(wire.entity_id or "", "", wire.encrypted_value or "")
        case "TOOL_CALL_START":
            return ToolStart(wire.tool_call_id or "", wire.tool_call_name or "", wire.parent_message_id or "")
        case "TOOL_CALL_ARGS" | "TOOL_CALL_CHUNK":
            return ToolArgs(wire.tool_call_id or "", text, wire.tool_call_name or "", wire.parent_message_id or "")
        case "TOOL_CALL_END":
            return ToolEnd(wire.tool_call_id or "")
        case "TOOL_CALL_RESULT":
            return ToolResult(wire.tool_call_id or "", _content(wire.content))
        case "STATE_SNAPSHOT":
            return StateChange(snapshot=wire.snapshot)
        case "STATE_DELTA":
            is_patch = isinstance(wire.delta, list) and all(isinstance(each, dict) for each in wire.delta)
            return StateChange(delta=wire.delta) if is_patch else None
        case "MESSAGES_SNAPSHOT":
            return Snapshot(wire.messages or [])
        case "ACTIVITY_SNAPSHOT":
            content = {"content": wire.content}
            return Activity({"id": wire.message_id, "activity_type": wire.activity_type, **content})
        case "ACTIVITY_DELTA":
            return Activity({"id": wire.message_id, "activity_type": wire.activity_type, "patch": wire.patch or []})
        case "CUSTOM":
            return Other("custom", {"name": wire.name or "", "value": wire.value})
        case "RAW":
            return Other("raw", {"event": wire.event, "source": wire.source})
        case "STEP_STARTED":
            return Status(wire.step_name or "")
        case "SUBAGENT_STARTED":
            return Status(wire.name or "")
        case "STEP_FINISHED" | "SUBAGENT_FINISHED" | "SUBAGENT_ERROR":
            return Status("")
        case "RUN_FINISHED":
            return Ended(_interrupts(wire.outcome), _converted(wire.usage, list[Usage]) or [])
        case "RUN_ERROR":
            return Failed(wire.message or "", wire.code or "")
    return None


def _interrupts(outcome: object) -> list[Interrupt]:
    """Return the interrupts that a finished run waits for; [] unless the outcome of the run is `interrupt`."""
    if not isinstance(outcome, dict) or outcome.get("type") != "interrupt":
        return []
    return _converted(outcome.get("interrupts"), list[Interrupt]) or []


def _content(content: object) -> str:
    """Return the text of a tool's result, with a word in place of each part that is not text."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    words = [
        str(part.get("text", "")) if part.get("type") == "text" else f"[{part.get('type', 'part')}]"
        for part in parts
        if isinstance(part, dict)
    ]
    return "\n".join(words)


def _converted(value: object, wanted: Any) -> Any:  # Any: a type, and a value of it
    try:
        return msgspec.convert(value, wanted)
    except msgspec.ValidationError:
        return None
