"""Links between operations: which operations can use the values of an answer (OpenAPI 3.1, "Link Object").

A reader of the document sees from an answer which requests can follow. A test tool that follows links can send whole
sequences of requests: post a command, then read, export and delete its chat. Every link names an existing operation.
"""

from threadcast_protocol.wire.messages import JsonObject

__all__ = ["add_links"]

_CHAT = "$request.path.chat_id"
_OF_THE_CHAT = (
    "readChat",
    "readParams",
    "listRuns",
    "exportChat",
    "deleteChat",
    "postCommand",
    "typeInChat",
    "uploadBlob",
)

_LINKS: dict[str, dict[str, JsonObject]] = {
    "postCommand": {
        **{each: {"chat_id": _CHAT} for each in (*_OF_THE_CHAT, "subscribe", "readTrajectory")},
        "cancelQueued": {"chat_id": _CHAT, "client_request_id": "$request.body#/client_request_id"},
    },
    "readChat": {"subscribe": {"chat_id": _CHAT, "from": "$response.body#/id"}, "deleteChat": {"chat_id": _CHAT}},
    "listChats": {
        each: {"chat_id": "$response.body#/items/0/id"} for each in ("readChat", "postCommand", "exportChat")
    },
    "listTrajectories": {
        each: {"chat_id": "$response.body#/items/0/id"} for each in ("readTrajectory", "deleteTrajectory")
    },
    "listRuns": {"readRunTrace": {"chat_id": _CHAT, "run_id": "$response.body#/runs/0/run_id"}},
    "uploadBlob": {"readBlob": {"chat_id": _CHAT, "hash": "$response.body#/hash"}},
    "importChats": {each: {"chat_id": "$response.body#/imported/0"} for each in ("readChat", "postCommand")},
    "deleteChat": {each: {"chat_id": _CHAT} for each in ("readChat", "exportChat", "postCommand")},
}
"""For each operation, the operations that can follow, with their parameters as runtime expressions."""

_BODIES = {("exportChat", "importChats"): "$response.body"}
"""Maps pairs of operations to an expression: the answer of the first operation can be the body of the second."""


def add_links(paths: JsonObject) -> None:
    """Put the links into the 2xx answers that have a body, and into the answers of deletions."""
    for item in paths.values():
        for verb in ("get", "post", "delete"):
            if verb in item:
                _add(item[verb])


def _add(operation: JsonObject) -> None:
    name = operation["operationId"]
    links: JsonObject = {
        f"{name}_{target}": {"operationId": target, "parameters": parameters}
        for target, parameters in _LINKS.get(name, {}).items()
    }
    for (source, target), body in _BODIES.items():
        if source == name:
            links[f"{name}_{target}"] = {"operationId": target, "requestBody": body}
    for status, answer in operation["responses"].items():
        if links and status.startswith("2"):
            answer["links"] = links
