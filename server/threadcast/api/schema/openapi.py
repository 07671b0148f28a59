"""Makes the OpenAPI 3.1 document from the routes: each endpoint's operation describes its requests and answers.

The schemas come from the structs that the handlers decode and encode. `shapes.py` adds the rules that structs cannot
express.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from threadcast.api.operation import EVENT_STREAM, JSON_LINES, Answer, Endpoint, Operation, Parameter
from threadcast.api.schema.links import add_links
from threadcast.api.schema.shapes import (
    TRANSIENTS,
    command_components,
    event_components,
    export_components,
    one_shot_components,
    transient_event,
    wire_event,
)
from threadcast.routes import all_endpoints
from threadcast_protocol.wire.commands import Command
from threadcast_protocol.wire.http import ChatId, Failure
from threadcast_protocol.wire.ids import NAME_MAX_CHARACTERS, Id
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["openapi_document"]

_VERSION = "1"
"""The version of the protocol, not of the product. New fields do not change this version."""

REF = "#/components/schemas/{name}"

_PATH_PARAMETERS: dict[str, tuple[JsonObject, str]] = {
    "chat_id": (msgspec.json.schema(ChatId), "The chat. `subscribe`, `feed` and `import` are reserved."),
    "stream_id": (msgspec.json.schema(Id), "The name with which the stream was opened."),
    "client_request_id": (msgspec.json.schema(Id), "The id of the waiting command."),
    "run_id": (msgspec.json.schema(Id), "The run, as `runtime_updated` names it."),
    "response_id": ({"type": "string"}, "The id of a response, as `createResponse` returns it."),
    "conversation_id": ({"type": "string"}, "The id of a conversation, which is that of its chat."),
    "hash": ({"type": "string", "pattern": "^[0-9a-f]{64}$"}, "SHA-256 of the bytes, in lower-case hex."),
    "tool_name": (
        {"type": "string", "minLength": 1, "maxLength": NAME_MAX_CHARACTERS},
        "As `listApprovals` names it: a tool's name, or `mcp__SERVER__*`.",
    ),
    "mode": ({"type": "string", "minLength": 1}, "The name of a profile or of an agent."),
    "model": ({"type": "string", "minLength": 1, "maxLength": NAME_MAX_CHARACTERS}, "A model; it may contain `/`."),
}
"""The parameters in paths, by name, with their schemas and descriptions."""

_UNAUTHORIZED = {401: "`unauthorized`: no token, or a wrong one."}
_RETRY_AFTER = {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer", "minimum": 0}}}


def openapi_document() -> JsonObject:
    routes = all_endpoints()
    operations = [route.operation for route in routes]
    kinds = _Kinds(operations)
    event, components = event_components(REF, (*kinds.types, *TRANSIENTS))
    command, command_parts = command_components(REF)
    components.update(command_parts)
    one_shot_components(components)
    export_components(components)
    components["WireEvent"] = wire_event(event)
    components["TransientEvent"] = transient_event(REF)
    components["Command"] = {"title": "Command", **command}
    paths: JsonObject = {}
    for route in routes:
        paths.setdefault(route.path_format, {})[route.operation.method.lower()] = _described(route, kinds)
    add_links(paths)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Threadcast",
            "version": _VERSION,
            "description": "Typed commands in, one sequenced log per chat, the same answer in every tab. "
            "PROTOCOL.md describes the protocol in words.",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "security": [{"bearer": []}, {}],
        "tags": [{"name": name} for name in ("chats", "commands", "stream", "server", "foreign", "one-shot", "doors")],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "Required if tokens are configured; otherwise the server only listens on loopback.",
                }
            },
        },
    }


class _Kinds:
    """The types of all bodies, and the schema of each."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        named = [answer.kind for each in operations for answer in each.answers.values()]
        named += [each.body for each in operations]
        self.types: list[Any] = [Failure]  # Any: type hints
        for kind in named:
            if kind not in (None, str, bytes, dict, Command, *self.types) and not isinstance(kind, str):
                self.types.append(kind)

    def schema(self, kind: Any) -> JsonObject:  # Any: a type hint
        if kind is None or kind is bytes:
            return {}
        if kind is Command or isinstance(kind, str):
            return {"$ref": REF.format(name="Command" if kind is Command else kind)}
        (found,), _ = msgspec.json.schema_components([kind], schema_hook=_any, ref_template=REF)
        return found


def _any(kind: type) -> JsonObject:
    """Return the schema of the type `object`, which stands for any JSON value."""
    if kind is not object:
        raise NotImplementedError(f"{kind} has no schema")
    return {"description": "Any JSON."}


def _described(route: Endpoint, kinds: _Kinds) -> JsonObject:
    operation = route.operation
    failures = {**operation.errors, **({} if operation.is_open else _UNAUTHORIZED)}
    responses = {str(status): _answer(answer, kinds) for status, answer in operation.answers.items()}
    responses |= {
        str(status): _failure(status, told, operation.error_form is not None) for status, told in failures.items()
    }
    described: JsonObject = {
        "operationId": operation.operation_id,
        "tags": [operation.tag],
        "summary": operation.summary,
        "responses": responses,
    }
    if operation.is_open:
        described["security"] = []
    parameters = [_path_parameter(name) for name in route.param_convertors]
    parameters += [_parameter(each, kinds) for each in operation.parameters]
    if parameters:
        described["parameters"] = parameters
    if operation.body is not None:
        schema = _in_media_type(operation.body_media_type, kinds.schema(operation.body))
        if operation.body_max_bytes is not None:  # OpenAPI 3.1 counts the bytes of a raw body (§4.8.14.2)
            schema |= {"minLength": 1, "maxLength": operation.body_max_bytes}
        described["requestBody"] = {"required": True, "content": {operation.body_media_type: {"schema": schema}}}
    return described


def _in_media_type(media_type: str, schema: JsonObject) -> JsonObject:
    """Return the schema of a body. For an event stream and for JSON Lines, `schema` is the schema of a line."""
    return {"type": "string", "contentSchema": schema} if media_type in (EVENT_STREAM, JSON_LINES) else schema


def _answer(answer: Answer, kinds: _Kinds) -> JsonObject:
    if not answer.media_type:
        return {"description": answer.description}
    schema = kinds.schema(answer.kind)
    if answer.kind is dict and answer.media_type == EVENT_STREAM:  # a one-shot endpoint
        content = {EVENT_STREAM: {"schema": {"type": "string"}}, "application/json": {"schema": schema}}
    else:
        content = {answer.media_type: {"schema": _in_media_type(answer.media_type, schema)}}
    return {"description": answer.description, "content": content}


def _failure(status: int, description: str, has_own_form: bool) -> JsonObject:
    """Return an error answer; with `has_own_form` its body has the form of another server."""
    body = {"schema": {"type": "object"} if has_own_form else {"$ref": REF.format(name="Failure")}}
    answer: JsonObject = {"description": description, "content": {"application/json": body}}
    return answer | ({"headers": _RETRY_AFTER} if status in (429, 503) else {})


def _path_parameter(name: str) -> JsonObject:
    schema, description = _PATH_PARAMETERS[name]
    return {"name": name, "in": "path", "required": True, "description": description, "schema": schema}


def _parameter(parameter: Parameter, kinds: _Kinds) -> JsonObject:
    schema = kinds.schema(parameter.kind) | ({} if parameter.default is None else {"default": parameter.default})
    described: JsonObject = {"name": parameter.name, "in": parameter.where, "schema": schema}
    return described | ({"description": parameter.description} if parameter.description else {})
