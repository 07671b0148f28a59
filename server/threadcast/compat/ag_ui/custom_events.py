"""Events beside the conversation: activities, payloads, and data of the operator's agents. Pure."""

from typing import Any

from threadcast.compat.ag_ui.open_answer import event
from threadcast.compat.base import OutFrame
from threadcast_protocol.wire.events import AgentData, AgentStep, PayloadAdded, PayloadUpdated, ToolStatus
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["activity_of", "agent_event", "payload_event"]

_OPERATIONS = frozenset({"add", "remove", "replace", "move", "copy", "test"})


def activity_of(told: ToolStatus | AgentStep) -> list[OutFrame]:
    """Return the progress of a call, or a step of a durable agent, as an activity that replaces its older version."""
    if isinstance(told, AgentStep):
        content: JsonObject = {"kind": told.kind, "name": told.name, "status": told.status}
        return [_activity(f"step-{told.run_id}-{told.step_id}", "threadcast.agent_step", content)]
    if told.status != "progress":
        return []
    fields = {"stage": told.stage, "message": told.message, "progress": told.progress}
    content = {"toolCallId": told.tool_call_id, **{key: value for key, value in fields.items() if value is not None}}
    return [_activity(f"{told.tool_call_id}-progress", "threadcast.tool_progress", content)]


def payload_event(payload: PayloadAdded | PayloadUpdated) -> OutFrame:
    """Return a payload with the fields that pages need to show it and to decide a preview."""
    told: JsonObject = {
        "payload_id": payload.payload_id,
        "payload_type": payload.payload_type,
        "message_id": payload.message_id,
        "data": payload.data,
        "summary": payload.summary,
        "source": payload.source,
    }
    if payload.approval is not None:
        told |= {"approval": payload.approval, "input_hash": payload.input_hash}
    return event("CUSTOM", name="threadcast.payload", value=told)


def agent_event(told: AgentData) -> list[OutFrame]:
    """Return the event for an agent's data. An agent behind AG-UI sends events of this protocol, and such an event is
    passed on unchanged."""
    data = told.data
    match told.data_type:
        case "ag_ui_activity":
            return _passed_activity(data)
        case "ag_ui_custom" if isinstance(name := data.get("name"), str):
            return [event("CUSTOM", name=name, value=data.get("value"))]
        case "ag_ui_raw":
            source = data.get("source")
            more = {"source": source} if isinstance(source, str) else {}
            return [event("RAW", event=data.get("event"), **more)]
        case _:
            value = {"message_id": told.message_id, "data_type": told.data_type, "data": data}
            return [event("CUSTOM", name="threadcast.agent_data", value=value)]


def _passed_activity(data: JsonObject) -> list[OutFrame]:
    key, kind, content, patch = (data.get(name) for name in ("id", "activity_type", "content", "patch"))
    if not (isinstance(key, str) and isinstance(kind, str)):
        return []
    if isinstance(content, dict):
        return [_activity(key, kind, content)]
    if isinstance(patch, list) and all(map(_is_operation, patch)):
        return [event("ACTIVITY_DELTA", messageId=key, activityType=kind, patch=patch)]
    return []


def _is_operation(each: Any) -> bool:  # Any: JSON
    return isinstance(each, dict) and each.get("op") in _OPERATIONS and isinstance(each.get("path"), str)


def _activity(key: str, kind: str, content: JsonObject) -> OutFrame:
    return event("ACTIVITY_SNAPSHOT", messageId=key, activityType=kind, content=content, replace=True)
