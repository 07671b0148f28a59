"""One HTTP request of a transcript and the check of its answer, with what holds of every answer (PROTOCOL §1)."""

import base64
import json
import re

import httpx2

from protocol.messages import JsonObject
from server.console.conformance.expecting import Failed
from server.console.conformance.patterns import Names, mismatch
from server.console.conformance.target import Target
from server.console.conformance.transcripts import Answer

__all__ = ["check", "compare", "json_of", "rules_of"]

_JSON = re.compile(r"application/json(; ?charset=utf-8)?", re.IGNORECASE)
_JSON_HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
_CODE = re.compile("[a-z][a-z_]*")


def check(target: Target, names: Names, answer: Answer, response: httpx2.Response) -> None:
    """Compare an answer with its patterns; new names are bound. Raises Failed."""
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
    """Bind the pattern's names if `value` matches. Raises Failed."""
    tried = dict(names)
    if (wrong := mismatch(target.translate(pattern), value, tried)) is not None:
        raise Failed(f"{where}{wrong}")
    names.update(tried)


def json_of(response: httpx2.Response, came: str = "") -> object:
    """Decode the body, which must be UTF-8 and JSON. Raises Failed."""
    try:
        found: object = json.loads(response.content.decode())
    except ValueError as wrong:
        raise Failed(f"{came}the body is not JSON in UTF-8 ({wrong})") from None
    return found


def rules_of(response: httpx2.Response) -> dict[str, str]:
    """Return the general rules that an answer breaks, if it is no stream, each with a sentence: headers of JSON, and
    the form of errors (PROTOCOL §1)."""
    request = f"{response.request.method} {response.request.url.path}"
    kind = response.headers.get("content-type", "")
    broken: dict[str, str] = {}
    if kind.lower().partition(";")[0] == "application/json":
        if not _JSON.fullmatch(kind):
            broken["headers-json"] = f"{request}: JSON is answered as {kind!r}"
        for name, word in _JSON_HEADERS.items():
            if word not in response.headers.get(name, ""):
                broken[f"headers-{name}"] = f"{request}: an answer with JSON must have the header {name}: {word}"
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
    return {"error-shape": f"{request} was answered {response.status_code}, which should be {wanted}: {kind}, {body}"}


def _lines(response: httpx2.Response, came: str) -> list[JsonObject]:
    text = _text(response)
    if text and not text.endswith("\n"):
        raise Failed(f"{came}the last line of JSON Lines has no end")
    try:
        return [json.loads(line) for line in text.split("\n")[:-1]]
    except ValueError as wrong:
        raise Failed(f"{came}a line is not JSON ({wrong})") from None


def _text(response: httpx2.Response) -> str:
    return response.content.decode("utf-8", "backslashreplace")
