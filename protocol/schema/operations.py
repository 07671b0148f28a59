"""The pieces that the OpenAPI document is put together from: operations, answers, parameters, failures.

Plain functions that return plain objects. `openapi.py` says which endpoints there are; nothing here knows one.
"""

from collections.abc import Mapping
from typing import Final

from protocol.ids import ID_PATTERN
from protocol.messages import JsonObject

REF: Final = "#/components/schemas/{name}"


def operation(
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
        operation["responses"]["401"] = failure("`unauthorized`: no token, or a wrong one.")
    if parameters:
        operation["parameters"] = parameters
    if body:
        operation["requestBody"] = body
    return operation


def question(name: str, summary: str, answer: str) -> JsonObject:
    return operation(name, "server", summary, {"200": json_answer(summary, answer)})


def ref(name: str) -> JsonObject:
    return {"$ref": REF.format(name=name)}


def json_answer(description: str, name: str, *, is_list: bool = False) -> JsonObject:
    schema = {"type": "array", "items": ref(name)} if is_list else ref(name)
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def one_of(description: str, *names: str) -> JsonObject:
    schema = {"oneOf": [ref(name) for name in names]}
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def stream_answer(name: str) -> JsonObject:
    answer = text_answer(f"Blocks whose `data:` lines are {name}.", "text/event-stream")
    answer["content"]["text/event-stream"]["schema"]["contentSchema"] = ref(name)
    return answer


def text_answer(description: str, media_type: str) -> JsonObject:
    return {"description": description, "content": {media_type: {"schema": {"type": "string"}}}}


def failure(description: str, *, retry_after: bool = False) -> JsonObject:
    answer = json_answer(description, "Failure")
    if retry_after:
        answer["headers"] = {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer", "minimum": 0}}}
    return answer


ID: JsonObject = {"type": "string", "pattern": ID_PATTERN}


def path_parameter(name: str, description: str) -> JsonObject:
    return {"name": name, "in": "path", "required": True, "description": description, "schema": ID}


def query_parameter(name: str, schema: JsonObject, description: str = "") -> JsonObject:
    return {"name": name, "in": "query", "schema": schema} | ({"description": description} if description else {})


CHAT_ID = path_parameter("chat_id", "The chat. `subscribe`, `feed` and `import` are taken.")
HASH: JsonObject = {
    "name": "hash",
    "in": "path",
    "required": True,
    "description": "SHA-256 of the bytes, in lower-case hex.",
    "schema": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
}
BAD_ID = failure("`bad_request`: a malformed or reserved id.")
NOT_FOUND = failure("`not_found`: no such chat, deleted, or somebody else's.")
UNAVAILABLE = failure("`unavailable`: the store does not answer or refuses writes; try again.", retry_after=True)
