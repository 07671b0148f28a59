"""Events and commands as JSON Schema 2020-12, from the structs that decode them.

Two things the structs cannot say are added here. An event on the wire has `chat_id` and `seq` beside its fields
(`sse.py` splices them in). And `content` and `patch`, which the structs take as they come because their checks have
words of their own, are described by what passes those checks. Everything stays open to further keys, as decoding does.
"""

from collections.abc import Sequence

import msgspec

from protocol.commands import Command
from protocol.events import Event, Snapshot
from protocol.ids import ID_PATTERN
from protocol.messages import JsonObject, Part
from protocol.thread import ThreadPatch
from protocol.transient import ChatRemoved, Presence, Typing

__all__ = [
    "TRANSIENTS",
    "command_components",
    "commands_schema",
    "event_components",
    "events_schema",
    "transient_event",
    "wire_event",
]

TRANSIENTS = (Presence, Typing, ChatRemoved)

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def event_components(ref_template: str, also: Sequence[object] = ()) -> tuple[JsonObject, JsonObject]:
    """The schema of any event or snapshot without `chat_id` and `seq`, and all that it refers to."""
    (event, *_), components = msgspec.json.schema_components([Event | Snapshot, *also], ref_template=ref_template)
    return event, components


def wire_event(event: JsonObject) -> JsonObject:
    """`event` as it looks in a `data:` line of the native stream."""
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
    """A `data:` line of the native stream that stands in no log; its parts are among those of `event_components`."""
    return {
        "title": "TransientEvent",
        "description": "A `data:` line without `seq` and `id`: it is in no log, and who comes later does not miss it.",
        "type": "object",
        "required": ["chat_id", "type"],
        "properties": {"chat_id": {"type": "string", "pattern": ID_PATTERN}},
        "anyOf": [{"$ref": ref_template.format(name=frame.__name__)} for frame in TRANSIENTS],
    }


def events_schema() -> JsonObject:
    event, definitions = event_components("#/$defs/{name}")
    return {"$schema": DIALECT, **wire_event(event), "$defs": definitions}


def command_components(ref_template: str) -> tuple[JsonObject, JsonObject]:
    """The schema of any client command, and all that it refers to."""
    (command, patch, part), components = msgspec.json.schema_components(
        [Command, ThreadPatch, Part], schema_hook=_untyped, ref_template=ref_template
    )
    components["Content"] = {
        "title": "Content",
        "description": "Text, or parts. Parts of the older form {m_type, m_content} are read too.",
        "anyOf": [
            {"type": "string"},
            {"type": "array", "items": {"anyOf": [part, _older_part()]}},
        ],
    }
    content = {"$ref": ref_template.format(name="Content")}
    for name in ("UserMessage", "RetryFromIndex"):
        components[name]["properties"]["content"] = content
    for name in ("UpdateMessage", "EditQueued"):  # absent: it stays
        components[name]["properties"]["content"] = {"anyOf": [content, {"type": "null"}], "default": None}
    for kind in components["ThreadPatch"]["properties"].values():
        if {"type": "null"} in kind.get("anyOf", ()):
            kind["anyOf"].append({"const": ""})  # as `read_patch` takes it
    components["SetParams"]["properties"]["patch"] = {
        "description": 'Known keys within their bounds; null or "" clears an optional one. Unknown keys are ignored.',
        **patch,
    }
    return command, components


def _untyped(kind: type) -> JsonObject:
    """`object`: taken as it comes; what is meant is put in its place above."""
    if kind is not object:
        raise NotImplementedError(f"{kind} has no schema")
    return {"description": "Any JSON."}


def _older_part() -> JsonObject:
    return {
        "type": "object",
        "required": ["m_type", "m_content"],
        "properties": {"m_type": {"type": "string"}, "m_content": {"type": "string"}},
    }


def commands_schema() -> JsonObject:
    command, definitions = command_components("#/$defs/{name}")
    return {
        "$schema": DIALECT,
        "title": "Command",
        "description": "The body of POST /v1/chats/{chat_id}/commands. Unknown keys are ignored.",
        **command,
        "$defs": definitions,
    }
