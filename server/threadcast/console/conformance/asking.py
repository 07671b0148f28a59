"""Checks the HTTP answers of a transcript: against the patterns of a step, and against the rules that hold for every
answer (PROTOCOL §1)."""

import base64
import json
import re
from collections.abc import Mapping

import httpx2

from threadcast.console.conformance.expecting import Failed
from threadcast.console.conformance.patterns import Names, mismatch
from threadcast.console.conformance.target import Target
from threadcast.console.conformance.transcripts import Answer
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["check", "compare", "fields_of", "json_of", "post", "rules_of"]

_JSON = re.compile(r"application/json(; ?charset=utf-8)?", re.IGNORECASE)
_JSON_HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
_CODE = re.compile("[a-z][a-z_]*")


async def post(
    target: Target,
    chat_id: str,
    command: JsonObject,
    *,
    headers: Mapping[str, str] | None = None,
    wait_seconds: float | None = None,
) -> None:
    """Post a command that the server must accept; names of models are replaced by the server's names.

    Raises Failed, httpx2.TransportError.
    """
    path, body = f"/v1/chats/{chat_id}/commands", json.dumps(target.outgoing(command)).encode()
    response = await target.request("POST", path, body=body, headers=headers, wait_seconds=wait_seconds)
    if response.status_code not in (200, 202):
        raise Failed(f"a {command['type']} was answered {response.status_code}: {response.text[:200]}")


def check(target: Target, names: Names, answer: Answer, response: httpx2.Response) -> None:
    """Compare an answer with its patterns, and add new names to `names`. Raises Failed."""
    came = f"was answered {response.status_code} {_text(response)[:200]}: "
    compare(target, names, answer.status, response.status_code, f"{came}the status ")
    headers = {key.lower(): value for key, value in response.headers.items()}
    compare(target, names, answer.headers, headers, f"{came}headers")
    if answer.text is not None:
        compare(target, names, answer.text, _text(response), came)
    if answer.base64 is not None:
        compare(target, names, answer.base64, base64.b64encode(response.content).decode(), came)
    if answer.lines is not None:
        compare(target, names, answer.lines, _lines(response, came), came)
    if answer.body is not None:
        compare(target, names, answer.body, json_of(response, came), came)


def compare(target: Target, names: Names, pattern: object, value: object, where: str = "") -> None:
    """Compare a value with its pattern, and add new names to `names`. `where`: the beginning of the error message.

    Raises Failed.
    """
    if (wrong := mismatch(target.translate(pattern), value, names)) is not None:
        raise Failed(f"{where}{wrong}")


def fields_of(body: bytes | str) -> JsonObject:
    """Return the JSON object in a body; {} for any other body."""
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def json_of(response: httpx2.Response, came: str = "") -> object:
    """Decode the body, which must be JSON in UTF-8. `came`: the beginning of the error message. Raises Failed."""
    try:
        found: object = json.loads(response.content.decode())
    except ValueError as wrong:
        raise Failed(f"{came}the body is not JSON in UTF-8 ({wrong})") from None
    return found


def rules_of(response: httpx2.Response) -> dict[str, str]:
    """Return the general rules that an answer breaks: the headers of JSON, and the form of errors (PROTOCOL §1).

    The result maps the name of each broken rule to a sentence. The answer must not be an event stream.
    """
    request = f"{response.request.method} {response.request.url.path}"
    kind = response.headers.get("content-type", "")
    broken: dict[str, str] = {}
    if kind.lower().partition(";")[0] == "application/json":
        if not _JSON.fullmatch(kind):
            broken["headers-json"] = f"{request}: a JSON answer must be application/json, is {kind!r}"
        for name, word in _JSON_HEADERS.items():
            if word not in response.headers.get(name, ""):
                broken[f"headers-{name}"] = f"{request}: a JSON answer must have the header {name}: {word}"
    if response.status_code >= 400 and "text/html" not in response.request.headers.get("accept", ""):
        broken |= _wrong_error(request, kind, response)
    return broken


def _wrong_error(request: str, kind: str, response: httpx2.Response) -> dict[str, str]:
    try:
        body = json_of(response)
    except Failed as wrong:
        return {"error-shape": f"{request} was answered {response.status_code}, but {wrong}"}
    match body:
        case {"detail": str(), "code": str() as code} if _CODE.fullmatch(code) and _JSON.fullmatch(kind):
            return {}
    wanted = '`{"detail": TEXT, "code": CODE}` as application/json'
    came = f"{request} was answered {response.status_code} with {kind}, {body}"
    return {"error-shape": f"{came}; an error should be {wanted}"}


def _lines(response: httpx2.Response, came: str) -> list[JsonObject]:
    text = _text(response)
    if text and not text.endswith("\n"):
        raise Failed(f"{came}the last line does not end with a newline")
    try:
        return [json.loads(line) for line in text.split("\n")[:-1]]
    except ValueError as wrong:
        raise Failed(f"{came}a line is not JSON ({wrong})") from None


def _text(response: httpx2.Response) -> str:
    return response.content.decode("utf-8", "backslashreplace")
