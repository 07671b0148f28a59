"""The OpenAPI 3.1 document: every endpoint that this version serves, its parameters and all its answers.

The shapes come from the structs (`shapes.py`, `answers.py`); the table of endpoints is written here by hand, since
the edge that serves them is above this package. A test of the edge holds its routes to this table.
"""

from collections.abc import Mapping
from typing import Final

from protocol.content import TEXT_MAX_BYTES
from protocol.ids import ID_PATTERN
from protocol.messages import JsonObject
from protocol.places import CHATS_MAX
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
    answers.BlobStored,
    answers.Health,
    answers.Params,
    answers.ChatList,
    answers.ChatSnapshot,
    answers.ChatTree,
    answers.FeedItem,
    answers.ImportReport,
    answers.TrajectoryList,
    answers.SidebarFrame,
    answers.Capabilities,
    answers.ToolInfo,
    answers.ChatModes,
    answers.Providers,
    answers.TextChatRequest,
    answers.AgentChatRequest,
    answers.PageChatRequest,
    answers.CompletionsRequest,
    answers.StreamChange,
    answers.TypingNotice,
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
        "tags": [{"name": name} for name in ("chats", "commands", "stream", "server", "foreign", "one-shot")],
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
        "/v1/chats/{chat_id}/typing": {"parameters": [_CHAT_ID], "post": _type_in_chat()},
        "/v1/streams/{stream_id}": {
            "parameters": [_path("stream_id", "The name that the stream was opened with.")],
            "post": _change_stream(),
        },
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
        "/v1/chats/{chat_id}/blobs": {"parameters": [_CHAT_ID], "post": _upload_blob()},
        "/v1/chats/{chat_id}/blobs/{hash}": {"parameters": [_CHAT_ID, _HASH], "get": _read_blob()},
        "/v1/chats": {"get": _list_chats()},
        "/v1/chats/{chat_id}": {
            "parameters": [_CHAT_ID],
            "get": _operation(
                "readChat",
                "chats",
                "The chat as it stands or stood, as a subscriber's snapshot would show it, or as a tree.",
                {
                    "200": _one_of("The chat.", "ChatSnapshot", "ChatTree"),
                    "400": _failure("`bad_request`: a malformed or reserved id, or a wrong parameter."),
                    "404": _failure("`not_found`: as everywhere, or a position that the chat has not come to."),
                    "410": _failure("`gone`: that position is no longer held; `first` is the earliest that is."),
                    "503": _UNAVAILABLE,
                },
                parameters=[
                    _query("view", {"enum": ["path", "tree"]}, "`tree`: every message, not only the active path."),
                    _query("at", {"type": "string"}, "A position, or the id of an event: the chat as it was then."),
                ],
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
        "/v1/chats/{chat_id}/params": {
            "parameters": [_CHAT_ID],
            "get": _operation(
                "readParams",
                "chats",
                "Every parameter: the value that holds, and the layer it comes from.",
                {"200": _json("The parameters.", "Params"), "400": _BAD_ID, "404": _NOT_FOUND, "503": _UNAVAILABLE},
            ),
        },
        "/v1/chats/feed": {
            "get": _operation(
                "feed",
                "stream",
                "The caller's chats: a snapshot, then every change. Begins with a snapshot each time.",
                {"200": _stream("FeedItem"), "503": _UNAVAILABLE},
            )
        },
        "/v1/chats/import": {"post": _import_chats()},
        "/v1/chats/{chat_id}/export": {
            "parameters": [_CHAT_ID],
            "get": _operation(
                "exportChat",
                "chats",
                "The whole tree as JSON Lines: a header, a line for each message, then what else belongs to it.",
                {
                    "200": _text("The lines; `POST /v1/chats/import` takes them.", "application/jsonl"),
                    "400": _BAD_ID,
                    "404": _NOT_FOUND,
                    "503": _UNAVAILABLE,
                },
            ),
        },
        "/v1/trajectories": {
            "get": _operation(
                "listTrajectories",
                "foreign",
                "`GET /v1/chats` in the words of a foreign GUI.",
                {
                    "200": _json("One page.", "TrajectoryList"),
                    "400": _failure("`bad_request`: a parameter out of bounds."),
                    "503": _UNAVAILABLE,
                },
                parameters=[
                    _query("limit", {"type": "integer", "minimum": 1, "maximum": 200, "default": 50}),
                    _query("cursor", {"type": "string"}, "`next_cursor` of the page before."),
                ],
            )
        },
        "/v1/trajectories/{chat_id}": {
            "parameters": [_CHAT_ID],
            "get": _operation(
                "readTrajectory",
                "foreign",
                "The thread's parameters and the messages of the active path, in one object.",
                {
                    "200": _json("The chat.", "Thread"),
                    "400": _BAD_ID,
                    "404": _NOT_FOUND,
                    "503": _UNAVAILABLE,
                },
            ),
            "delete": _operation(
                "deleteTrajectory",
                "foreign",
                "Delete the chat and all that it holds.",
                {"200": _json("Gone.", "Status"), "400": _BAD_ID, "404": _NOT_FOUND, "503": _UNAVAILABLE},
            ),
        },
        "/v1/sidebar/subscribe": {
            "get": _operation(
                "sidebar",
                "foreign",
                "The feed in the envelope of a foreign GUI.",
                {"200": _stream("SidebarFrame"), "503": _UNAVAILABLE},
            )
        },
        "/chat": {"post": _one_shot("textChat", "A message in, its answer as raw text frames.", "TextChatRequest")},
        "/v1/agent/chat": {
            "post": _one_shot("agentChat", "A message in, its run as named JSON frames.", "AgentChatRequest")
        },
        "/api/chat/stream": {
            "post": _one_shot("pageChat", "A message in, typed frames, and a whole payload last.", "PageChatRequest")
        },
        "/v1/chat/completions": {
            "post": _one_shot("chatCompletions", "OpenAI's wire over a chat of this server.", "CompletionsRequest")
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
        "Watch one chat or many: for each a snapshot, then every event. Stays open until either side leaves.",
        {
            "200": stream,
            "400": _BAD_ID,
            "404": _failure("`not_found`: one is deleted, or somebody else's. An unknown chat is an empty snapshot."),
            "429": _failure("`rate_limited`: more open streams than one caller may have.", retry_after=True),
            "503": _UNAVAILABLE,
        },
        parameters=[
            {
                "name": "chat_id",
                "in": "query",
                "description": "Repeated for each chat. Needed unless the stream is named.",
                "schema": {"type": "array", "items": _ID, "maxItems": CHATS_MAX},
            },
            _query("stream_id", _ID, "Names the stream, so that it can be changed while it runs."),
            _query("presence", {"const": "1"}, "Also send the transient frames `presence` and `typing`."),
            {"name": "from", "in": "query", "description": description, "schema": {"type": "string"}},
            {"name": "Last-Event-ID", "in": "header", "description": description, "schema": {"type": "string"}},
        ],
    )


def _change_stream() -> JsonObject:
    return _operation(
        "changeStream",
        "stream",
        "Add chats to a running stream and take others away, from any process.",
        {
            "200": _json("The stream has changed; snapshots follow on it.", "Status"),
            "400": _failure("`bad_request`: a malformed id or body, or more than 64 chats."),
            "404": _failure("`not_found`: nobody holds this stream, or no such chat."),
            "503": _UNAVAILABLE,
        },
        body={"required": True, "content": {"application/json": {"schema": _ref("StreamChange")}}},
    )


def _type_in_chat() -> JsonObject:
    return _operation(
        "typeInChat",
        "stream",
        "Tell the readers that asked for presence that somebody types. Stored nowhere, passed on once a second.",
        {
            "204": {"description": "Told, if anybody is there."},
            "400": _failure("`bad_request`: a malformed id or body."),
            "404": _NOT_FOUND,
            "503": _UNAVAILABLE,
        },
        body={"required": True, "content": {"application/json": {"schema": _ref("TypingNotice")}}},
    )


def _upload_blob() -> JsonObject:
    return _operation(
        "uploadBlob",
        "chats",
        "Lay bytes beside a chat, to refer to them in a command. Unused ones go after a day.",
        {
            "201": _json("There.", "BlobStored"),
            "400": _failure("`bad_request`, or `invalid_content`: said to be an image, and is none."),
            "404": _NOT_FOUND,
            "413": _failure("`too_large`: the blob, or what the chat would hold with it."),
            "503": _UNAVAILABLE,
        },
        body={"required": True, "content": {"*/*": {"schema": {}}}},
    )


def _read_blob() -> JsonObject:
    return _operation(
        "readBlob",
        "chats",
        "The bytes of a large part.",
        {
            "200": {"description": "The bytes, which never change.", "content": {"*/*": {"schema": {}}}},
            "304": {"description": "The client has them already (`If-None-Match`)."},
            "400": _BAD_ID,
            "404": _failure("`not_found`: no such blob, or no such chat of the caller's."),
            "503": _UNAVAILABLE,
        },
    )


def _one_shot(name: str, summary: str, body: str) -> JsonObject:
    stream = _text("Frames of this wire (PROTOCOL §14), closed after the last one.", "text/event-stream")
    stream["content"]["application/json"] = {"schema": {"type": "object"}}
    return _operation(
        name,
        "one-shot",
        summary,
        {
            "200": stream,
            "400": _failure("`bad_request` or `invalid_content`: a bad body or an unknown scope; nothing was kept."),
            "404": _NOT_FOUND,
            "409": _failure("`conflict`: the chat waits for a person's decision. JSON answers: so does this run."),
            "413": _failure("`too_large`."),
            "429": _failure("`queue_full` or `rate_limited`; try later.", retry_after=True),
            "502": _failure("JSON answers only: the run failed. The payload of this wire stands beside these keys."),
            "503": _UNAVAILABLE,
        },
        parameters=[
            {
                "name": "on_disconnect",
                "in": "query",
                "description": "What the caller's leaving means for its run; also a key of the body.",
                "schema": {"enum": ["abort", "detach"], "default": "abort"},
            }
        ],
        body={"required": True, "content": {"application/json": {"schema": _ref(body)}}},
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
            _query("q", {"type": "string", "maxLength": 200}, "Only chats with this in their title, in any case."),
        ],
    )


def _import_chats() -> JsonObject:
    return _operation(
        "importChats",
        "chats",
        "Restore exported chats, under their ids, for the caller.",
        {
            "200": _json("What became of each chat.", "ImportReport"),
            "400": _failure("`bad_request`: a line that is wrong, named in `path`; nothing was imported."),
            "413": _failure("`too_large`: more bytes or chats than one body may hold."),
            "503": _UNAVAILABLE,
        },
        body={"required": True, "content": {"application/jsonl": {"schema": {"type": "string"}}}},
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


def _one_of(description: str, *names: str) -> JsonObject:
    schema = {"oneOf": [_ref(name) for name in names]}
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _stream(name: str) -> JsonObject:
    answer = _text(f"Blocks whose `data:` lines are {name}.", "text/event-stream")
    answer["content"]["text/event-stream"]["schema"]["contentSchema"] = _ref(name)
    return answer


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
_HASH: JsonObject = {
    "name": "hash",
    "in": "path",
    "required": True,
    "description": "SHA-256 of the bytes, in lower-case hex.",
    "schema": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
}
_BAD_ID = _failure("`bad_request`: a malformed or reserved id.")
_NOT_FOUND = _failure("`not_found`: no such chat, deleted, or somebody else's.")
_UNAVAILABLE = _failure("`unavailable`: the store does not answer or refuses writes; try again.", retry_after=True)
