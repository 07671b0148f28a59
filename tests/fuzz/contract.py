"""Bodies for every operation of the OpenAPI document, with the document's verdict on each of them.

Each example is a body that the server accepts. `bodies` yields each example, and every body that differs from it in one
place by a missing key, an unknown key, or a value of another type or size. `raw_bodies` does the same for the lines of
an export, and yields blobs of several sizes and types.
"""

import base64
import copy
import hashlib
import json
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from jsonschema import Draft202012Validator, validators

from tests.unit.samples import COMMANDS
from threadcast.api.schema import openapi_document
from threadcast_protocol.wire.messages import JsonObject

__all__ = [
    "EXAMPLES",
    "RAW_EXAMPLES",
    "Asked",
    "bodies",
    "json_operations",
    "other_bodies",
    "raw_bodies",
    "raw_operations",
    "with_verdict",
]

OTHERS: tuple[object, ...] = (
    None,
    "",
    "x",
    "not an id!",
    "feed",
    "y" * 300,
    -1,
    0,
    1,
    2.5,
    10**6 + 1,
    2**70,
    "two\nlines",
    True,
    [],
    ["x"],
    [None],
    {},
    {"x": 1},
)
"""The values that replace each value of an example."""

_PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
_IMAGE = f"data:image/png;base64,{_PIXEL}"
_PARTS: list[JsonObject] = [
    {"type": "text", "text": "hi"},
    {"type": "image_url", "image_url": {"url": _IMAGE, "detail": "low", "mime": "image/png", "bytes": 70}},
    {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
    {"type": "file", "name": "a.txt", "mime": "text/plain", "text": "hello"},
    {"type": "file", "name": "a.pdf", "mime": "application/pdf", "data": "AAAA"},
    {"m_type": "text", "m_content": "older"},
]
_CONTENT: JsonObject = {
    "type": "user_message",
    "content": _PARTS,
    "attachments": [{"image_url": {"url": _IMAGE}}],
    "context_files": [{"file_name": "a", "content": "b"}],
    "params": {
        "temperature": 0.5,
        "title": "t",
        "max_rounds": 3,
        "scope": ["a"],
        "tools_disabled": ["t"],
        "on_limit": "stop",
        "context": {"a": 1},
        "merge_queued": True,
    },
    "tools": [{"name": "open_tab", "description": "Opens a tab.", "input_schema": {"type": "object"}}],
}
_RESTORED: JsonObject = {
    "type": "restore_messages",
    "messages": [
        {"role": "user", "content": "hi", "message_id": "m1", "created_at": 5},
        {
            "role": "assistant",
            "content": [{"type": "text", "text": "x"}],
            "tool_calls": [{"id": "c", "index": 0, "type": "function", "function": {"name": "f", "arguments": "{}"}}],
            "usage": {"prompt_tokens": 1},
            "finish_reason": "stop",
            "thinking_blocks": [{"a": 1}],
        },
        {"role": "tool", "tool_call_id": "c", "content": "done", "tool_failed": False},
    ],
}

_AG_UI: JsonObject = {
    "threadId": "pages",
    "runId": "r",
    "protocolVersion": "1.0",
    "parentRunId": None,
    "state": {"cart": [1]},
    "messages": [
        {"id": "m1", "role": "user", "content": "hi"},
        {"id": "m2", "role": "assistant", "toolCalls": [{"id": "c", "function": {"name": "f", "arguments": "{}"}}]},
        {"id": "m3", "role": "tool", "content": "done", "toolCallId": "c"},
        {"id": "m4", "role": "user", "content": "again"},
    ],
    "tools": [{"name": "open_tab", "description": "Opens a tab.", "parameters": {"type": "object"}}],
    "context": [{"description": "place", "value": "Bonn"}],
    "forwardedProps": {},
    "resume": [{"interruptId": "i", "status": "resolved", "payload": {"approved": True}}],
}

EXAMPLES: dict[str, list[JsonObject]] = {
    "postCommand": [
        *({"type": tag, **body} for tag, body in COMMANDS.items() if tag not in ("user_message", "restore_messages")),
        _CONTENT,
        _RESTORED,
    ],
    "answerQuestion": [{"tool_call_id": "call_1", "accepted": True, "input_hash": "0" * 32}],
    "changeStream": [{"add": [{"chat_id": "c1", "from": "1-2-3"}], "remove": ["c2"]}],
    "typeInChat": [{"typing": True, "stream_id": "s1"}],
    "textChat": [{"message": "hi", "session_id": "", "mode": None, "on_disconnect": "abort"}],
    "agentChat": [
        {"message": "hi", "context_type": "a/b", "context": {"a": 1}, "conversation_id": "", "on_disconnect": None},
        {"message": "hi", "context_type": ["a", "b"]},
    ],
    "pageChat": [
        {"message": "hi", "context": {"current_page": "a"}, "interaction_type": "text", "conversation_id": None},
    ],
    "aiSdkChat": [
        {
            "id": "pages",
            "trigger": "submit-message",
            "messageId": None,
            "messages": [
                {"id": "m1", "role": "user", "parts": [{"type": "text", "text": "hi"}]},
                {"id": "m2", "role": "assistant", "parts": [{"type": "tool-x", "toolCallId": "c", "state": "x"}]},
                {"id": "m3", "role": "user", "parts": [{"type": "text", "text": "again"}]},
            ],
            "tools": [{"name": "t", "description": "d", "input_schema": {}}],
            "model": "demo/echo",
        },
    ],
    "agUiRun": [_AG_UI, {"threadId": "c1", "runId": "r", "messages": []}],
    "agUiRunInMode": [_AG_UI],
    "mcpMessage": [
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "list_chats", "arguments": {}}},
        {"jsonrpc": "2.0", "method": "notifications/initialized", "params": {}},
        {"jsonrpc": "2.0", "id": "x", "result": {"action": "accept"}, "error": None},
    ],
    "createResponse": [
        {
            "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}],
            "model": "demo/echo",
            "instructions": "be kind",
            "stream": True,
            "background": False,
            "store": True,
            "metadata": {"a": "b"},
            "tools": [],
            "tool_choice": "auto",
            "parallel_tool_calls": True,
            "temperature": 1,
            "top_p": 0.5,
            "max_output_tokens": 5,
            "reasoning": {"effort": "low"},
            "text": {"format": {"type": "text"}},
            "prompt": None,
        },
        {"input": "hi", "conversation": {"id": "conv_x"}},
        {"input": "hi", "previous_response_id": "resp_x"},
    ],
    "createConversation": [{"items": [{"role": "user", "content": "hi"}], "metadata": {"a": "b"}}],
    "chatCompletions": [
        {
            "messages": [{"role": "system", "content": "be kind"}, {"role": "user", "content": "hi"}],
            "model": "demo/echo",
            "stream": True,
            "stream_options": {"include_usage": True},
            "metadata": {"chat_id": ""},
            "max_tokens": 5,
            "temperature": 1,
            "top_p": 0.5,
            "frequency_penalty": 0,
            "presence_penalty": 0,
            "reasoning_effort": "low",
            "parallel_tool_calls": True,
            "on_disconnect": "abort",
        },
        {"messages": [{"role": "user", "content": "hi"}], "max_completion_tokens": 5, "max_tokens": 4},
    ],
}
"""Example bodies for each operation with a JSON body; together they use all keys of the body's schema."""

_BLOB = b"some bytes"
_AGENT: JsonObject = {"id": "ag1", "kind": "research"}
RAW_EXAMPLES: dict[str, list[JsonObject]] = {
    "uploadBlob": [],
    "importChats": [
        {
            "type": "chat",
            "format": 1,
            "chat_id": "imported",
            "leaf_id": "m2",
            "message_count": 2,
            "payload_count": 1,
            "agent_count": 1,
            "blob_count": 1,
            "thread": {"title": "t", "model": "demo/echo", "temperature": 0.5, "created_at": 5},
        },
        {"type": "message", "message": {"role": "user", "message_id": "m1", "content": _PARTS[:1], "created_at": 5}},
        {
            "type": "message",
            "message": {
                "role": "assistant",
                "message_id": "m2",
                "parent_id": "m1",
                "content": "x",
                "tool_calls": _RESTORED["messages"][1]["tool_calls"],
                "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
            },
        },
        {
            "type": "payload",
            "payload": {
                "payload_id": "p1",
                "payload_type": "table",
                "source": "tool",
                "message_id": "m2",
                "summary": "a table",
                "approval": None,
                "data": {"rows": [1]},
            },
        },
        {"type": "background_agent", "agent": _AGENT},
        {
            "type": "blob",
            "hash": hashlib.sha256(_BLOB).hexdigest(),
            "mime": "text/plain",
            "data": base64.b64encode(_BLOB).decode(),
        },
    ],
}
"""The lines of an example for each operation with another type of body, or [] if the body has no lines."""


def _is_whole(_: object, value: object) -> bool:
    """JSON Schema counts 1.0 among the integers; the server's decoder does not (PROTOCOL §2)."""
    return isinstance(value, int) and not isinstance(value, bool)


_Validator = validators.extend(
    Draft202012Validator, type_checker=Draft202012Validator.TYPE_CHECKER.redefine("integer", _is_whole)
)


@cache
def _document() -> JsonObject:
    return openapi_document()


class Asked(NamedTuple):
    """A body for an operation. `request` holds the arguments of httpx. `misfit` is the reason why the body does not fit
    the document, or '' if the body fits."""

    request: dict[str, Any]  # Any: arguments of httpx
    misfit: str


def json_operations() -> dict[str, tuple[str, JsonObject]]:
    """Return, by operation id, the path and the body's schema of each operation with a JSON body."""
    return {name: (path, body["application/json"]["schema"]) for name, path, body in _requests() if _is_json(body)}


def raw_operations() -> dict[str, tuple[str, JsonObject]]:
    """Return, by operation id, the path and the body's content by media type of each operation with another kind of
    body."""
    return {name: (path, body) for name, path, body in _requests() if not _is_json(body)}


def _requests() -> Iterator[tuple[str, str, JsonObject]]:
    for path, item in _document()["paths"].items():
        for described in item.values():
            if "requestBody" in described:
                yield described["operationId"], path, described["requestBody"]["content"]


def _is_json(content: JsonObject) -> bool:
    return "application/json" in content


@cache
def _json_schema(operation_id: str) -> Draft202012Validator:
    return _validator(json_operations()[operation_id][1])


def _validator(schema: JsonObject) -> Draft202012Validator:
    return _Validator({**schema, "components": _document()["components"]})


def with_verdict(operation_id: str, body: object) -> Asked:
    """Return a JSON body with the document's verdict."""
    # httpx sends no body for None.
    sent = {"json": body} if body is not None else {"content": b"null", "headers": {"content-type": "application/json"}}
    return Asked(sent, _misfit(_json_schema(operation_id), body))


def _misfit(schema: Draft202012Validator, body: object) -> str:
    wrong = next(schema.iter_errors(body), None)
    return "" if wrong is None else str(wrong.message)


def bodies(operation_id: str) -> Iterator[JsonObject]:
    for example in EXAMPLES[operation_id]:
        body = {"client_request_id": "r1", **example} if operation_id == "postCommand" else example
        yield body
        yield from other_bodies(body)


def raw_bodies(operation_id: str) -> Iterator[Asked]:
    """Yield bodies for an operation whose body is not JSON, each with the document's verdict."""
    ((media_type, content),) = raw_operations()[operation_id][1].items()
    schema = content["schema"]
    if media_type == "*/*":
        for content_type in ("text/plain", "application/octet-stream", "image/svg+xml", "no type", ""):
            for size in (0, 1, schema["maxLength"], schema["maxLength"] + 1):
                fits = schema["minLength"] <= size <= schema["maxLength"]
                typed = {"content-type": content_type} if content_type else {}
                yield Asked({"content": b"x" * size, "headers": typed}, "" if fits else f"{size} bytes")
        return
    headers = {"content-type": media_type}
    yield Asked({"content": b"", "headers": headers}, "the body is required")
    line_schema = _validator(schema["contentSchema"])
    lines = RAW_EXAMPLES[operation_id]
    for number, line in enumerate(lines):
        for other in (line, *other_bodies(line)):
            asked = [*lines[:number], other, *lines[number + 1 :]]
            content = "".join(f"{json.dumps(each)}\n" for each in asked).encode()
            yield Asked({"content": content, "headers": headers}, _misfit(line_schema, other))


def other_bodies(body: JsonObject) -> Iterator[JsonObject]:
    """Yield every body that differs from this one in one place."""
    for place in _paths(body):
        for value in OTHERS:
            yield _with(body, place, value)
        if isinstance(place[-1], str):
            yield _with(body, place, _Absent)
    for place in ((), *_paths(body)):
        if isinstance(_at(body, place), dict):
            yield _with(body, (*place, "unheard_of"), {"a": [1]})


class _Absent:
    """Placeholder for a value that `_with` removes together with its key."""


def _paths(value: object, before: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield (*before, key)
        yield from _paths(each, (*before, key))


def _at(value: object, place: tuple[str | int, ...]) -> object:
    for key in place:
        value = value[key]  # type: ignore[index]  # a place is made of the keys that are there
    return value


def _with(body: JsonObject, place: tuple[str | int, ...], value: object) -> JsonObject:
    changed = copy.deepcopy(body)
    parent: Any = _at(changed, place[:-1])  # Any: an object or a list, and its key
    if value is _Absent:
        del parent[place[-1]]
    else:
        parent[place[-1]] = value
    return changed
