"""The endpoints of chats in the OpenAPI document: commands, streams, chats as resources, blobs, exports.

Written by hand, since the edge that serves them is above this package; a test of the edge holds its routes to it.
"""

from protocol.content import TEXT_MAX_BYTES
from protocol.ids import NAME_MAX_CHARACTERS
from protocol.messages import JsonObject
from protocol.places import CHATS_MAX
from protocol.schema.operations import (
    BAD_ID,
    CHAT_ID,
    HASH,
    ID,
    NOT_FOUND,
    UNAVAILABLE,
    failure,
    json_answer,
    one_of,
    operation,
    path_parameter,
    query_parameter,
    ref,
    stream_answer,
    text_answer,
)

_TOOL_NAME: JsonObject = {"schema": {"type": "string", "minLength": 1, "maxLength": NAME_MAX_CHARACTERS}}
"""A tool's name, or `mcp__SERVER__*`, which is no id."""

_NO_DIAGNOSTICS = failure("`forbidden`: this token may not see diagnostics.")


def chat_paths() -> JsonObject:
    return {
        "/v1/chats/{chat_id}/commands": {"parameters": [CHAT_ID], "post": _post_command()},
        "/v1/chats/subscribe": {"get": _subscribe()},
        "/v1/chats/{chat_id}/typing": {"parameters": [CHAT_ID], "post": _type_in_chat()},
        "/v1/streams/{stream_id}": {
            "parameters": [path_parameter("stream_id", "The name that the stream was opened with.")],
            "post": _change_stream(),
        },
        "/v1/chats/{chat_id}/queue/{client_request_id}": {
            "parameters": [CHAT_ID, path_parameter("client_request_id", "The id of the waiting command.")],
            "delete": operation(
                "cancelQueued",
                "commands",
                "Take a queued command back.",
                {
                    "200": json_answer("It will not run; `queue_updated` follows.", "Status"),
                    "202": json_answer("Kept, but its effect is not known yet.", "Receipt"),
                    "400": BAD_ID,
                    "404": failure("Not waiting: unknown, running or done."),
                    "503": UNAVAILABLE,
                },
            ),
        },
        "/v1/chats/{chat_id}/blobs": {"parameters": [CHAT_ID], "post": _upload_blob()},
        "/v1/chats/{chat_id}/blobs/{hash}": {"parameters": [CHAT_ID, HASH], "get": _read_blob()},
        "/v1/chats": {"get": _list_chats()},
        "/v1/chats/{chat_id}": {
            "parameters": [CHAT_ID],
            "get": operation(
                "readChat",
                "chats",
                "The chat as it stands or stood, as a subscriber's snapshot would show it, or as a tree.",
                {
                    "200": one_of("The chat.", "ChatSnapshot", "ChatTree"),
                    "400": failure("`bad_request`: a malformed or reserved id, or a wrong parameter."),
                    "404": failure("`not_found`: as everywhere, or a position that the chat has not come to."),
                    "410": failure("`gone`: that position is no longer held; `first` is the earliest that is."),
                    "503": UNAVAILABLE,
                },
                parameters=[
                    query_parameter(
                        "view", {"enum": ["path", "tree"]}, "`tree`: every message, not only the active path."
                    ),
                    query_parameter(
                        "at", {"type": "string"}, "A position, or the id of an event: the chat as it was then."
                    ),
                ],
            ),
            "delete": operation(
                "deleteChat",
                "chats",
                "Delete the chat, all that it holds, and the chats that its tools began.",
                {
                    "200": json_answer("Gone.", "Status"),
                    "400": BAD_ID,
                    "404": NOT_FOUND,
                    "503": UNAVAILABLE,
                },
            ),
        },
        "/v1/chats/{chat_id}/params": {
            "parameters": [CHAT_ID],
            "get": operation(
                "readParams",
                "chats",
                "Every parameter: the value that holds, and the layer it comes from.",
                {"200": json_answer("The parameters.", "Params"), "400": BAD_ID, "404": NOT_FOUND, "503": UNAVAILABLE},
            ),
        },
        "/v1/chats/{chat_id}/approvals": {
            "parameters": [CHAT_ID],
            "get": operation(
                "listApprovals",
                "chats",
                "The tools whose calls are not asked about any more.",
                {"200": json_answer("The tools.", "Approvals"), "400": BAD_ID, "404": NOT_FOUND, "503": UNAVAILABLE},
            ),
        },
        "/v1/chats/{chat_id}/approvals/{tool_name}": {
            "parameters": [CHAT_ID, path_parameter("tool_name", "As `listApprovals` names it.") | _TOOL_NAME],
            "delete": operation(
                "forgetApproval",
                "chats",
                "Ask about calls of this tool again.",
                {
                    "200": json_answer("Its next call is asked about.", "Status"),
                    "202": json_answer("Kept, but its effect is not known yet.", "Receipt"),
                    "400": BAD_ID,
                    "404": failure("No such chat, or no such approval in it."),
                    "503": UNAVAILABLE,
                },
            ),
        },
        "/v1/chats/{chat_id}/runs": {
            "parameters": [CHAT_ID],
            "get": operation(
                "listRuns",
                "chats",
                "The runs that have a trace, newest first; for callers with the permission `diagnostics`.",
                {
                    "200": json_answer("The runs.", "TracedRuns"),
                    "400": BAD_ID,
                    "403": _NO_DIAGNOSTICS,
                    "404": NOT_FOUND,
                    "503": UNAVAILABLE,
                },
            ),
        },
        "/v1/chats/{chat_id}/runs/{run_id}/diagnostics": {
            "parameters": [CHAT_ID, path_parameter("run_id", "The run, as `runtime_updated` names it.")],
            "get": operation(
                "readRunTrace",
                "chats",
                "What a run asked, heard and did; for callers with the permission `diagnostics`.",
                {
                    "200": json_answer("The trace, as far as the run has come.", "RunTrace"),
                    "400": BAD_ID,
                    "403": _NO_DIAGNOSTICS,
                    "404": failure("`not_found`: as everywhere, or there is no trace of such a run."),
                    "503": UNAVAILABLE,
                },
            ),
        },
        "/v1/chats/feed": {
            "get": operation(
                "feed",
                "stream",
                "The caller's chats: a snapshot, then every change. Begins with a snapshot each time.",
                {"200": stream_answer("FeedItem"), "503": UNAVAILABLE},
            )
        },
        "/v1/chats/import": {"post": _import_chats()},
        "/v1/chats/{chat_id}/export": {
            "parameters": [CHAT_ID],
            "get": operation(
                "exportChat",
                "chats",
                "The whole tree as JSON Lines: a header, a line for each message, then what else belongs to it.",
                {
                    "200": text_answer("The lines; `POST /v1/chats/import` takes them.", "application/jsonl"),
                    "400": BAD_ID,
                    "404": NOT_FOUND,
                    "503": UNAVAILABLE,
                },
            ),
        },
    }


def _post_command() -> JsonObject:
    return operation(
        "postCommand",
        "commands",
        "Ask something of a chat. What comes of it is told on the stream.",
        {
            "200": json_answer("Done (`aborted`, `applied`), known already (`duplicate`), or waited for.", "Receipt"),
            "202": json_answer("Kept: it takes effect once, or is reported as failed.", "Receipt"),
            "400": failure("`bad_request` or `invalid_content`; nothing was kept."),
            "403": failure("`forbidden`: this token may not approve tool calls."),
            "404": NOT_FOUND,
            "409": failure("`idempotency_mismatch`: the id was used for another body."),
            "413": failure(f"`too_large`: a body above 16 MiB, or more text than {TEXT_MAX_BYTES} bytes."),
            "429": failure("`queue_full` or `rate_limited`; try later.", retry_after=True),
            "503": UNAVAILABLE,
        },
        parameters=[
            {
                "name": "Prefer",
                "in": "header",
                "description": "`wait=N`: answer when the command has taken effect, after at most N ≤ 30 seconds.",
                "schema": {"type": "string"},
            }
        ],
        body={"required": True, "content": {"application/json": {"schema": ref("Command")}}},
    )


def _subscribe() -> JsonObject:
    description = "A position: go on after it. Anything unusable is answered by a snapshot, never by an error."
    stream = text_answer(
        "Blocks whose `data:` lines are WireEvent, the first a snapshot; with `presence=1` also TransientEvent.",
        "text/event-stream",
    )
    stream["content"]["text/event-stream"]["schema"]["contentSchema"] = ref("WireEvent")
    return operation(
        "subscribe",
        "stream",
        "Watch one chat or many: for each a snapshot, then every event. Stays open until either side leaves.",
        {
            "200": stream,
            "400": BAD_ID,
            "404": failure("`not_found`: one is deleted, or somebody else's. An unknown chat is an empty snapshot."),
            "429": failure("`rate_limited`: more open streams than one caller may have.", retry_after=True),
            "503": UNAVAILABLE,
        },
        parameters=[
            {
                "name": "chat_id",
                "in": "query",
                "description": "Repeated for each chat. Needed unless the stream is named.",
                "schema": {"type": "array", "items": ID, "maxItems": CHATS_MAX},
            },
            query_parameter("stream_id", ID, "Names the stream, so that it can be changed while it runs."),
            query_parameter("presence", {"const": "1"}, "Also send the transient frames `presence` and `typing`."),
            {"name": "from", "in": "query", "description": description, "schema": {"type": "string"}},
            {"name": "Last-Event-ID", "in": "header", "description": description, "schema": {"type": "string"}},
        ],
    )


def _change_stream() -> JsonObject:
    return operation(
        "changeStream",
        "stream",
        "Add chats to a running stream and take others away, from any process.",
        {
            "200": json_answer("The stream has changed; snapshots follow on it.", "Status"),
            "400": failure("`bad_request`: a malformed id or body, or more than 64 chats."),
            "404": failure("`not_found`: nobody holds this stream, or no such chat."),
            "503": UNAVAILABLE,
        },
        body={"required": True, "content": {"application/json": {"schema": ref("StreamChange")}}},
    )


def _type_in_chat() -> JsonObject:
    return operation(
        "typeInChat",
        "stream",
        "Tell the readers that asked for presence that somebody types. Stored nowhere, passed on once a second.",
        {
            "204": {"description": "Told, if anybody is there."},
            "400": failure("`bad_request`: a malformed id or body."),
            "404": NOT_FOUND,
            "503": UNAVAILABLE,
        },
        body={"required": True, "content": {"application/json": {"schema": ref("TypingNotice")}}},
    )


def _upload_blob() -> JsonObject:
    return operation(
        "uploadBlob",
        "chats",
        "Lay bytes beside a chat, to refer to them in a command. Unused ones go after a day.",
        {
            "201": json_answer("There.", "BlobStored"),
            "400": failure("`bad_request`, or `invalid_content`: said to be an image, and is none."),
            "404": NOT_FOUND,
            "413": failure("`too_large`: the blob, or what the chat would hold with it."),
            "503": UNAVAILABLE,
        },
        body={"required": True, "content": {"*/*": {"schema": {}}}},
    )


def _read_blob() -> JsonObject:
    return operation(
        "readBlob",
        "chats",
        "The bytes of a large part.",
        {
            "200": {"description": "The bytes, which never change.", "content": {"*/*": {"schema": {}}}},
            "304": {"description": "The client has them already (`If-None-Match`)."},
            "400": BAD_ID,
            "404": failure("`not_found`: no such blob, or no such chat of the caller's."),
            "503": UNAVAILABLE,
        },
    )


def _list_chats() -> JsonObject:
    return operation(
        "listChats",
        "chats",
        "The caller's chats, newest `last_active` first.",
        {
            "200": json_answer("One page.", "ChatList"),
            "400": failure("`bad_request`: a parameter out of bounds."),
            "404": failure("`not_found`: no chat `parent_id` of the caller's."),
            "503": UNAVAILABLE,
        },
        parameters=[
            query_parameter("limit", {"type": "integer", "minimum": 1, "maximum": 200, "default": 50}),
            query_parameter("cursor", {"type": "string"}, "`next_cursor` of the page before."),
            query_parameter("state", {"type": "string"}, "Only chats in this state."),
            query_parameter(
                "q", {"type": "string", "maxLength": 200}, "Only chats with this in their title, in any case."
            ),
            query_parameter("parent_id", {"type": "string"}, "The chats that this one's tools began, instead."),
        ],
    )


def _import_chats() -> JsonObject:
    return operation(
        "importChats",
        "chats",
        "Restore exported chats, under their ids, for the caller.",
        {
            "200": json_answer("What became of each chat.", "ImportReport"),
            "400": failure("`bad_request`: a line that is wrong, named in `path`; nothing was imported."),
            "413": failure("`too_large`: more bytes or chats than one body may hold."),
            "503": UNAVAILABLE,
        },
        body={"required": True, "content": {"application/jsonl": {"schema": {"type": "string"}}}},
    )
