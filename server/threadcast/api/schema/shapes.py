"""Describes events, commands and the lines of exports in JSON Schema 2020-12, from the structs that decode them.

Some rules that the structs cannot express are added here. An event on the wire has `chat_id` and `seq` beside its
fields (`sse.py` splices them in). The structs do not decode `content` and `patch`, because separate checks have better
error messages; the schemas here describe the values that pass those checks. All objects may have further keys, which
decoding ignores.
"""

from collections.abc import Sequence

import msgspec

from threadcast.api.schema.content import content_components
from threadcast.chat.exports import EXPORT_FORMAT
from threadcast.chat.message_checks import APPROVALS, PAYLOAD_SOURCES, ROLE, TIME_MAX_MS
from threadcast.chat.restores import NOTES, RESTORED_MAX_COUNT, TAKEN
from threadcast_protocol.wire.commands import Command
from threadcast_protocol.wire.content import CONTEXT_FILES_MAX_COUNT
from threadcast_protocol.wire.events import Event, Snapshot
from threadcast_protocol.wire.http import ChatId
from threadcast_protocol.wire.ids import ID_OR_EMPTY_PATTERN, ID_PATTERN
from threadcast_protocol.wire.messages import JsonObject, Message, Part
from threadcast_protocol.wire.thread import ThreadPatch
from threadcast_protocol.wire.transient import ChatRemoved, Presence, Typing

__all__ = [
    "TRANSIENTS",
    "command_components",
    "commands_schema",
    "event_components",
    "events_schema",
    "export_components",
    "one_shot_components",
    "transient_event",
    "wire_event",
]

TRANSIENTS = (Presence, Typing, ChatRemoved)

_ROLE = {"pattern": f"^{ROLE.pattern}$(?!\\n)"}
_TOOL_NAMES_CALL: JsonObject = {
    "if": {"required": ["role"], "properties": {"role": {"const": "tool"}}},
    "then": {"required": ["tool_call_id"], "properties": {"tool_call_id": {"type": "string", "minLength": 1}}},
}
"""The JSON Schema rule that a message whose role is `tool` must have a `tool_call_id`."""

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def event_components(ref_template: str, also: Sequence[object] = ()) -> tuple[JsonObject, JsonObject]:
    """Return the schema of any event or snapshot without `chat_id` and `seq`, and the schemas to which it refers."""
    (event, *_), components = msgspec.json.schema_components(
        [Event | Snapshot, *also], schema_hook=_untyped, ref_template=ref_template
    )
    return event, components


def wire_event(event: JsonObject) -> JsonObject:
    """Return the schema of an event as it is in a `data:` line of the native stream."""
    return {
        "title": "WireEvent",
        "description": "One `data:` line of the native stream. Clients skip types that they do not know.",
        "type": "object",
        "required": ["chat_id", "seq", "type"],
        "properties": {
            "chat_id": {"type": "string", "pattern": ID_PATTERN},
            "seq": {
                "type": "string",
                "pattern": "^(0|[1-9][0-9]*)$",
                "description": "Events since the snapshot that this client holds; a snapshot has 0.",
            },
        },
        **event,
    }


def transient_event(ref_template: str) -> JsonObject:
    """Return the schema of a `data:` line of the native stream that is not in the log. `event_components` has its
    parts."""
    return {
        "title": "TransientEvent",
        "description": "A `data:` line without `seq` and `id`. It is not in the log, and later readers do not need it.",
        "type": "object",
        "required": ["chat_id", "type"],
        "properties": {"chat_id": {"type": "string", "pattern": ID_PATTERN}},
        "anyOf": [{"$ref": ref_template.format(name=frame.__name__)} for frame in TRANSIENTS],
    }


def events_schema() -> JsonObject:
    event, definitions = event_components("#/$defs/{name}")
    return {"$schema": DIALECT, **wire_event(event), "$defs": definitions}


def command_components(ref_template: str) -> tuple[JsonObject, JsonObject]:
    """Return the schema of any client command, and the schemas to which it refers."""
    (command, patch, part, _), components = msgspec.json.schema_components(
        [Command, ThreadPatch, Part, Message], schema_hook=_untyped, ref_template=ref_template
    )

    def ref(name: str) -> JsonObject:
        return {"$ref": ref_template.format(name=name)}

    components |= content_components(ref_template)
    components["RestoredMessage"] = _restored(components.pop("Message")["properties"], part, ref("ContentPart"))
    for name in ("UserMessage", "RetryFromIndex"):
        components[name]["properties"]["content"] = ref("Content")
    for name in ("UpdateMessage", "EditQueued"):  # absent: it stays
        components[name]["properties"]["content"] = {"anyOf": [ref("Content"), {"type": "null"}], "default": None}
    for name in ("UserMessage", "RetryFromIndex", "UpdateMessage", "EditQueued"):
        attachments = components[name]["properties"]["attachments"]
        for kind in (attachments, *attachments.get("anyOf", ())):
            if kind.get("type") == "array":
                kind["items"] = ref("Attachment")
    components["UpdateMessage"]["allOf"] = [{"anyOf": [_has("content"), _has("attachments")]}]
    files = components["UserMessage"]["properties"]["context_files"]
    files |= {"items": ref("ContextFile"), "maxItems": CONTEXT_FILES_MAX_COUNT}
    components["DeclaredTool"]["properties"]["input_schema"]["allOf"] = [{"properties": {"type": {"const": "object"}}}]
    restored = components["RestoreMessages"]["properties"]["messages"]
    restored |= {"items": ref("RestoredMessage"), "maxItems": RESTORED_MAX_COUNT}
    for kind in components["ThreadPatch"]["properties"].values():
        if {"type": "null"} in kind.get("anyOf", ()):
            kind["anyOf"].append({"const": ""})  # `read_patch` treats the empty string as null
    described = 'Known keys within their bounds; null or "" clears an optional one. Unknown keys are ignored.'
    components["SetParams"]["properties"]["patch"] = {"description": described, **patch}
    components["UserMessage"]["properties"]["params"] = {
        "description": "Parameters of the run that this message begins, as `set_params` takes them.",
        "default": {},
        **patch,
    }
    return command, components


def _has(key: str) -> JsonObject:
    return {"required": [key], "properties": {key: {"not": {"type": "null"}}}}


def _restored(known: JsonObject, part: JsonObject, checked_part: JsonObject) -> JsonObject:
    """Return the schema of a message of `restore_messages`, as `chat/restores.py` reads it: null means absent, and
    ignored keys may have any value. `known` are the properties of a message."""
    taken: JsonObject = {key: {"anyOf": [known[key], {"type": "null"}]} for key in sorted(TAKEN | NOTES)}
    call: JsonObject = {
        "type": "object",
        "required": ["function"],
        "properties": {"function": {"$ref": known["tool_calls"]["items"]["$ref"].replace("ToolCall", "FunctionCall")}},
    }
    taken["tool_calls"] = {"anyOf": [{"type": "array", "items": call}, {"type": "null"}]}
    parts = {"type": "array", "items": {"allOf": [part, checked_part]}}
    taken["content"] = {"anyOf": [{"type": "string"}, parts, {"type": "null"}]}
    taken["message_id"] = {"anyOf": [{"type": "string", "pattern": ID_OR_EMPTY_PATTERN}, {"type": "null"}]}
    taken["role"] = {"type": "string", **_ROLE}
    return {
        "title": "RestoredMessage",
        "description": "A message that a client sends back. Keys that are not listed here are ignored.",
        "type": "object",
        "required": ["role"],
        "properties": taken,
        "allOf": [_TOOL_NAMES_CALL],
    }


def one_shot_components(components: JsonObject) -> None:
    """Add to the requests of the one-shot endpoints the rules that are checked after decoding."""
    request = components["CompletionsRequest"]["properties"]
    patch = components["ThreadPatch"]["properties"]
    for key in sorted(patch.keys() & request.keys() - {"model", "mode", "metadata", "stop"}):
        request[key] = patch[key] | {"default": None}
    request["max_completion_tokens"] = request["max_tokens"]
    word = next(kind["items"] for kind in patch["stop"]["anyOf"] if kind.get("type") == "array")
    lists = [kind for kind in patch["stop"]["anyOf"] if "const" not in kind]
    request["stop"] = {"anyOf": [*lists, word], "default": None}
    content = components["RetryFromIndex"]["properties"]["content"]
    is_user = {"role": {"const": "user"}, "content": content}
    request["messages"]["contains"] = {"type": "object", "required": ["role", "content"], "properties": is_user}


def export_components(components: JsonObject) -> None:
    """Add to the lines of an export the rules that an import checks after decoding."""
    time = {"minimum": 0, "maximum": TIME_MAX_MS}
    header, line = components["ExportHeader"]["properties"], components["MessageLine"]["properties"]
    header["chat_id"] = msgspec.json.schema(ChatId)
    header["format"]["maximum"] = EXPORT_FORMAT
    for name in ("message_count", "payload_count", "agent_count", "blob_count"):
        header[name]["minimum"] = 0
    header["thread"] = {"allOf": [header["thread"], {"properties": {"created_at": time, "last_active": time}}]}
    payload = components["PayloadAdded"]
    required = [name for name in payload["required"] if name != "type"]  # a line takes a payload without its tag
    properties = payload["properties"] | {
        "payload_id": {"type": "string", "pattern": ID_PATTERN},
        "source": {"enum": sorted(PAYLOAD_SOURCES)},
        "approval": {"enum": [*sorted(APPROVALS), None], "default": None},
    }
    components["PayloadLine"]["properties"]["payload"] = payload | {"required": required, "properties": properties}
    message = {"message_id": {"pattern": ID_PATTERN}, "role": _ROLE, "created_at": time}
    line["message"] = {"allOf": [line["message"], {"properties": message}, _TOOL_NAMES_CALL]}


def _untyped(kind: type) -> JsonObject:
    """Return the schema of the type `object`, which stands for any JSON value. The functions above replace it where a
    better schema exists."""
    if kind is not object:
        raise NotImplementedError(f"{kind} has no schema")
    return {"description": "Any JSON."}


def commands_schema() -> JsonObject:
    command, definitions = command_components("#/$defs/{name}")
    return {
        "$schema": DIALECT,
        "title": "Command",
        "description": "The body of POST /v1/chats/{chat_id}/commands. Unknown keys are ignored.",
        **command,
        "$defs": definitions,
    }
