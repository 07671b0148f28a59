"""The OpenAPI 3.1 document: every endpoint that this version serves, its parameters and all its answers.

The shapes come from the structs (`shapes.py`, `answers.py`); the table of endpoints is written here by hand, since
the edge that serves them is above this package. A test of the edge holds its routes to this table.
"""

from collections.abc import Mapping
from typing import Final

from protocol.content import TEXT_MAX_BYTES
from protocol.ids import ID_PATTERN
from protocol.messages import JsonObject
from protocol.schema import answers
from protocol.schema.shapes import command_components, event_components, wire_event

__all__ = ["openapi_document"]

_REF: Final = "#/components/schemas/{name}"

_VERSION = "1"
"""Of the wire, not of the product: fields are added without a change of this number."""

_BODIES = (
    answers.Failure,
    answers.Receipt,
    answers.Status,
    answers.Health,
    answers.ChatList,
    answers.ChatSnapshot,
    answers.Capabilities,
    answers.ToolInfo,
    answers.McpResources,
    answers.McpPrompts,
    answers.ChatModes,
    answers.Providers,
)


def openapi_document() -> JsonObject:
    event, components = event_components(_REF, _BODIES)
    command, command_parts = command_components(_REF)
    components.update(command_parts)
    components["WireEvent"] = wire_event(event)
    components["Command"] = {"title": "Command", **command}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Threadcast",
            "version": _VERSION,
            "description": "Typed commands in, one sequenced log per chat, the same answer in every tab. "
            "The contract in words is PROTOCOL.md.",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "security": [{"bearer": []}, {}],
        "tags": [{"name": name} for name in ("chats", "commands", "stream", "server")],
        "paths": _paths(),
        "components": {
            "schemas": components,
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "Needed once tokens are configured; without any, the server is local only.",
                }
            },
        },
    }


def _paths() -> JsonObject:
    return {
        "/v1/chats/{chat_id}/commands": {"parameters": [_CHAT_ID], "post": _post_command()},
        "/v1/chats/subscribe": {"get": _subscribe()},
        "/v1/chats/{chat_id}/queue/{client_request_id}": {
            "parameters": [_CHAT_ID, _path("client_request_id", "The id of the waiting command.")],
            "delete": _operation(
                "cancelQueued",
                "commands",
                "Take a queued command back.",
                {
                    "200": _json("It will not run; `queue_updated` follows.", "Status"),
                    "202": _json("Kept, but its effect is not known yet.", "Receipt"),
                    "400": _BAD_ID,
                    "404": _failure("Not waiting: unknown, running or done."),
                    "503": _UNAVAILABLE,
                },
            ),
        },
        "/v1/chats": {"get": _list_chats()},
        "/v1/chats/{chat_id}": {
            "parameters": [_CHAT_ID],
            "get": _operation(
                "readChat",
                "chats",
                "The chat as it stands, as a subscriber's snapshot would show it.",
                {
                    "200": _json("The chat.", "ChatSnapshot"),
                    "400": _BAD_ID,
                    "404": _NOT_FOUND,
                    "503": _UNAVAILABLE,
                },
            ),
            "delete": _operation(
                "deleteChat",
                "chats",
                "Delete the chat and all that it holds.",
                {
                    "200": _json("Gone.", "Status"),
                    "400": _BAD_ID,
                    "404": _NOT_FOUND,
                    "503": _UNAVAILABLE,
                },
            ),
        },
        "/v1/caps": {"get": _question("readCaps", "Models, profiles, types and limits.", "Capabilities")},
        "/v1/ping": {
            "get": _operation(
                "ping", "server", "Is anybody there?", {"200": _text("`pong`.", "text/plain")}, is_open=True
            )
        },
        "/v1/tools": {
            "get": _operation(
                "listTools",
                "server",
                "The tools that this caller's models may be offered.",
                {"200": _json("The tools.", "ToolInfo", is_list=True)},
            )
        },
        "/v1/mcp/resources": {
            "get": _question("listMcpResources", "What MCP servers offer to be attached.", "McpResources")
        },
        "/v1/mcp/prompts": {"get": _question("listMcpPrompts", "The prompts of MCP servers.", "McpPrompts")},
        "/v1/chat-modes": {"get": _question("listChatModes", "The profiles that `mode` may name.", "ChatModes")},
        "/v1/providers": {"get": _question("listProviders", "Where models come from.", "Providers")},
        "/readyz": {
            "get": _operation(
                "readiness",
                "server",
                "Does the store answer and accept writes?",
                {"200": _json("Ready.", "Health"), "503": _json("Not ready, and why.", "Health")},
                is_open=True,
            )
        },
        "/livez": {
            "get": _operation(
                "liveness", "server", "Does the process answer?", {"200": _json("Alive.", "Health")}, is_open=True
            )
        },
        "/metrics": {
            "get": _operation(
                "metrics",
                "server",
                "Counters and gauges for Prometheus.",
                {"200": _text("The metrics.", "text/plain")},
            )
        },
    }


def _post_command() -> JsonObject:
    return _operation(
        "postCommand",
        "commands",
        "Ask something of a chat. What comes of it is told on the stream.",
        {
            "200": _json("Done (`aborted`, `applied`), known already (`duplicate`), or waited for.", "Receipt"),
            "202": _json("Kept: it takes effect once, or is reported as failed.", "Receipt"),
            "400": _failure("`bad_request` or `invalid_content`; nothing was kept."),
            "403": _failure("`forbidden`: this token may not approve tool calls."),
            "404": _NOT_FOUND,
            "409": _failure("`idempotency_mismatch`: the id was used for another body."),
            "413": _failure(f"`too_large`: a body above 16 MiB, or more text than {TEXT_MAX_BYTES} bytes."),
            "429": _failure("`queue_full` or `rate_limited`; try later.", retry_after=True),
            "503": _UNAVAILABLE,
        },
        parameters=[
            {
                "name": "Prefer",
                "in": "header",
                "description": "`wait=N`: answer when the command has taken effect, after at most N ≤ 30 seconds.",
                "schema": {"type": "string"},
            }
        ],
        body={"required": True, "content": {"application/json": {"schema": _ref("Command")}}},
    )


def _subscribe() -> JsonObject:
    description = "A position: go on after it. Anything unusable is answered by a snapshot, never by an error."
    stream = _text("Blocks whose `data:` lines are WireEvent, the first a snapshot.", "text/event-stream")
    stream["content"]["text/event-stream"]["schema"]["contentSchema"] = _ref("WireEvent")
    return _operation(
        "subscribe",
        "stream",
        "Watch a chat: a snapshot, then every event. Stays open until either side leaves.",
        {
            "200": stream,
            "400": _BAD_ID,
            "404": _failure("`not_found`: deleted, or somebody else's. An unknown chat is an empty snapshot."),
            "501": _failure("`not_implemented`: more than one chat on one stream."),
            "503": _UNAVAILABLE,
        },
        parameters=[
            {"name": "chat_id", "in": "query", "required": True, "schema": _ID},
            {"name": "from", "in": "query", "description": description, "schema": {"type": "string"}},
            {"name": "Last-Event-ID", "in": "header", "description": description, "schema": {"type": "string"}},
        ],
    )


def _list_chats() -> JsonObject:
    return _operation(
        "listChats",
        "chats",
        "The caller's chats, newest `last_active` first.",
        {
            "200": _json("One page.", "ChatList"),
            "400": _failure("`bad_request`: a parameter out of bounds."),
            "503": _UNAVAILABLE,
        },
        parameters=[
            _query("limit", {"type": "integer", "minimum": 1, "maximum": 200, "default": 50}),
            _query("cursor", {"type": "string"}, "`next_cursor` of the page before."),
            _query("state", {"type": "string"}, "Only chats in this state."),
        ],
    )


def _operation(
    name: str,
    tag: str,
    summary: str,
    responses: Mapping[str, JsonObject],
    *,
    parameters: list[JsonObject] | None = None,
    body: JsonObject | None = None,
    is_open: bool = False,
) -> JsonObject:
    """`is_open`: answered without a token."""
    operation: JsonObject = {"operationId": name, "tags": [tag], "summary": summary, "responses": dict(responses)}
    if is_open:
        operation["security"] = []
    else:
        operation["responses"]["401"] = _failure("`unauthorized`: no token, or a wrong one.")
    if parameters:
        operation["parameters"] = parameters
    if body:
        operation["requestBody"] = body
    return operation


def _question(name: str, summary: str, answer: str) -> JsonObject:
    return _operation(name, "server", summary, {"200": _json(summary, answer)})


def _ref(name: str) -> JsonObject:
    return {"$ref": _REF.format(name=name)}


def _json(description: str, name: str, *, is_list: bool = False) -> JsonObject:
    schema = {"type": "array", "items": _ref(name)} if is_list else _ref(name)
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _text(description: str, media_type: str) -> JsonObject:
    return {"description": description, "content": {media_type: {"schema": {"type": "string"}}}}


def _failure(description: str, *, retry_after: bool = False) -> JsonObject:
    answer = _json(description, "Failure")
    if retry_after:
        answer["headers"] = {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer", "minimum": 0}}}
    return answer


_ID: JsonObject = {"type": "string", "pattern": ID_PATTERN}


def _path(name: str, description: str) -> JsonObject:
    return {"name": name, "in": "path", "required": True, "description": description, "schema": _ID}


def _query(name: str, schema: JsonObject, description: str = "") -> JsonObject:
    return {"name": name, "in": "query", "schema": schema} | ({"description": description} if description else {})


_CHAT_ID = _path("chat_id", "The chat. `subscribe`, `feed` and `import` are taken.")
_BAD_ID = _failure("`bad_request`: a malformed or reserved id.")
_NOT_FOUND = _failure("`not_found`: no such chat, deleted, or somebody else's.")
_UNAVAILABLE = _failure("`unavailable`: the store does not answer or refuses writes; try again.", retry_after=True)
