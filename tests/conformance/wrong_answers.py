"""Mutations of the other answers: of lists, earlier states of a chat, exports and blobs."""

import json
import re
from collections.abc import Callable

from tests.conformance.breaking import (
    Json,
    answers,
    bodies,
    header,
    json_answers,
    json_requests,
    query,
    without_query,
)
from tests.conformance.proxy import Answer, Mutation, Request

__all__ = ["ANSWERS"]

ID = r"/v1/chats/[\w-]+"
LIST = "GET /v1/chats"
FINAL = ("plain-turn",)


def _position(request: Request, body: Json) -> None:
    if "position" in body:
        body["position"] += 1


def _later(request: Request) -> None:
    """Answer with the chat one event later than the requested position `at`."""
    at = request.query.get("at", [""])[0]
    if at.isdecimal():
        query(request, at=str(int(at) + 1))
    elif found := re.fullmatch(r"(\d+)-(\d+)-(\d+)", at):
        query(request, at=f"{found[1]}-{int(found[2]) + 1}-{found[3]}")


def _is_tree(request: Request) -> bool:
    return request.query.get("view") == ["tree"]


def _leaves_first(request: Request, body: Json) -> None:
    if _is_tree(request):
        body["messages"].reverse()


def _only_children(request: Request, body: Json) -> None:
    for message in body.get("messages", []) if _is_tree(request) else []:
        message.update(sibling_ids=[message["message_id"]], sibling_index=0)


def _path_alone(request: Request, body: Json) -> None:
    """Remove the branches that are not active from a tree."""
    if not _is_tree(request):
        return
    parents = {message["message_id"]: message.get("parent_id") for message in body["messages"]}
    path, at = set(), body["leaf_id"]
    while at is not None:
        path.add(at)
        at = parents[at]
    body["messages"] = [message for message in body["messages"] if message["message_id"] in path]


def _no_leaf(request: Request, body: Json) -> None:
    if _is_tree(request) and body["messages"]:
        body["leaf_id"] = body["messages"][0]["message_id"]


def _reversed(key: str) -> Callable[[Request, Json], None]:
    def change(request: Request, body: Json) -> None:
        body[key].reverse()

    return change


def _no_more(request: Request, body: Json) -> None:
    body.update(has_more=False, next_cursor=None)


def _without(*names: str) -> Callable[[Request], None]:
    return lambda request: without_query(request, *names) if request.path == "/v1/chats" else None


def _swallowed(request: Request, body: Json) -> None:
    if body.get("skipped"):
        body.update(imported=body["skipped"], skipped=[])


def _bad_lines_dropped(request: Request) -> None:
    if request.path == "/v1/chats/import":
        request.body = (
            b"".join(line for line in request.body.splitlines(keepends=True) if b'"role":7' not in line)
            .replace(b'"message_count":2', b'"message_count":1')
            .replace(b'"leaf_id":"m2"', b'"leaf_id":"m1"')
        )


def _strangers_empty(request: Request, answer: Answer) -> None:
    if answer.status == 404:
        answer.status, answer.body = 200, b"{}"


def _bare_errors(request: Request, answer: Answer) -> None:
    if answer.status >= 400:
        answer.body, answer.headers["content-type"] = b"something is wrong", "text/plain"


def _no_codes(request: Request, answer: Answer) -> None:
    if answer.status >= 400 and answer.body:
        body = json.loads(answer.body)
        body.pop("code", None)
        answer.body = json.dumps(body).encode()


def _deletes_nothing(request: Request) -> None:
    if request.method == "DELETE" and re.fullmatch(ID, request.path):
        request.method = "GET"


def _keeps_approvals(request: Request) -> None:
    if request.method == "DELETE" and "/approvals/" in request.path:
        request.method, request.target = "GET", request.target.rpartition("/")[0]


def _never_ready(request: Request, body: Json) -> None:
    body["status"] = "starting"


def _loud_hash(request: Request, answer: Answer) -> None:
    body = json.loads(answer.body or b"{}")
    if "hash" in body:
        answer.body = json.dumps({**body, "hash": body["hash"].upper()}).encode()


def _no_tool_runs(request: Request, body: Json) -> None:
    for each in body.get("rounds", []):
        each["tool_runs"] = []


def _server_says(request: Request, body: Json) -> None:
    for each in body["params"].values():
        each["layer"] = "server"


def _ascii(request: Request, answer: Answer) -> None:
    if answer.body and answer.headers.get("content-type", "").startswith("application/json"):
        answer.body = re.sub(r"[^\x00-\x7f]+", "?", answer.body.decode()).encode()


def _adds_nothing(request: Request) -> None:
    if request.path.startswith("/v1/streams/") and b'"add"' in request.body:
        request.body = re.sub(rb'"add": *\[[^\]]*\]', b'"add": []', request.body)


def _adds_anew(request: Request) -> None:
    if request.path.startswith("/v1/streams/"):
        request.body = request.body.replace(b'"from"', b'"other"')


ANSWERS: dict[str, Mutation] = {
    "read-position-ahead": Mutation(
        "GET of a chat has a position that is one too high", FINAL, answer=json_answers(f"GET {ID}", _position)
    ),
    "at-is-late": Mutation("at= shows the chat one event later", FINAL, request=_later),
    "at-is-now": Mutation("at= is ignored", FINAL, request=lambda request: without_query(request, "at")),
    "no-tree": Mutation("view=tree is ignored", FINAL, request=lambda request: without_query(request, "view")),
    "tree-leaves-first": Mutation(
        "a tree has children before their parents", FINAL, answer=json_answers(f"GET {ID}", _leaves_first)
    ),
    "tree-without-siblings": Mutation(
        "messages of a tree name no siblings", ("tree",), answer=json_answers(f"GET {ID}", _only_children)
    ),
    "tree-of-the-path": Mutation(
        "a tree lacks the branches that are not active", ("tree",), answer=json_answers(f"GET {ID}", _path_alone)
    ),
    "tree-without-leaf": Mutation(
        "leaf_id names the root of the tree", FINAL, answer=json_answers(f"GET {ID}", _no_leaf)
    ),
    "list-reversed": Mutation(
        "the list of chats is reversed", ("paging",), answer=json_answers(LIST, _reversed("items"))
    ),
    "one-page": Mutation("a list says that its first page is all", ("paging",), answer=json_answers(LIST, _no_more)),
    "same-page": Mutation("a list ignores its cursor", ("paging",), request=_without("cursor")),
    "limit-ignored": Mutation("a list ignores limit", ("paging", "list-and-read"), request=_without("limit")),
    "search-ignored": Mutation("a list ignores q", ("paging",), request=_without("q")),
    "state-ignored": Mutation("a list ignores state", ("paging",), request=_without("state")),
    "runs-reversed": Mutation(
        "the oldest run comes first", ("diagnostics",), answer=json_answers(f"GET {ID}/runs", _reversed("runs"))
    ),
    "trace-without-tools": Mutation(
        "a trace lacks the runs of tools", ("diagnostics",), answer=json_answers(f"GET {ID}/runs/.*", _no_tool_runs)
    ),
    "export-cut": Mutation(
        "an export lacks its last line",
        ("export-import",),
        answer=bodies(f"GET {ID}/export", lambda body: b"".join(body.splitlines(keepends=True)[:-1])),
    ),
    "export-cut-in-a-line": Mutation(
        "an export ends in the middle of a line",
        ("export-import",),
        answer=bodies(f"GET {ID}/export", lambda body: body[:-20]),
    ),
    "export-with-siblings": Mutation(
        "an export writes siblings",
        ("export-import",),
        answer=bodies(
            f"GET {ID}/export",
            lambda body: body.replace(
                b'{"type":"message","message":{', b'{"type":"message","message":{"sibling_ids":[],'
            ),
        ),
    ),
    "import-says-done": Mutation(
        "an import of an existing chat says imported",
        ("export-import",),
        answer=json_answers("POST /v1/chats/import", _swallowed),
    ),
    "import-in-part": Mutation(
        "an import leaves bad lines out and imports the rest", ("import-refused",), request=_bad_lines_dropped
    ),
    "unknown-chats-empty": Mutation(
        "an unknown chat is answered 200",
        ("unknown-chat", "delete"),
        answer=answers(f"\\w+ {ID}(/.*)?", _strangers_empty),
    ),
    "errors-as-text": Mutation("errors are plain text", ("unknown-chat",), answer=answers(".*", _bare_errors)),
    "errors-without-code": Mutation("errors have no code", ("unknown-chat",), answer=answers(".*", _no_codes)),
    "errors-without-methods": Mutation(
        "405 does not tell which methods are taken", ("wrong-addresses",), answer=header("allow", None, streams=False)
    ),
    "json-stored": Mutation(
        "answers with JSON may be stored", FINAL, answer=header("cache-control", None, streams=False)
    ),
    "json-sniffed": Mutation(
        "answers with JSON have no nosniff", FINAL, answer=header("x-content-type-options", None, streams=False)
    ),
    "approvals-unlisted": Mutation(
        "the list of remembered approvals is empty",
        ("approvals-forgotten",),
        answer=json_answers(f"GET {ID}/approvals", lambda request, body: {"tools": []}),
    ),
    "approvals-kept": Mutation(
        "a withdrawn approval stays",
        ("approvals-forgotten",),
        request=_keeps_approvals,
        answer=bodies(f"DELETE {ID}/approvals/.*", lambda body: b'{"status":"deleted"}'),
    ),
    "never-ready": Mutation(
        "the server says that it is starting", ("for-operators",), answer=json_answers("GET /readyz", _never_ready)
    ),
    "deletes-nothing": Mutation(
        "DELETE says deleted and deletes nothing",
        ("delete",),
        request=_deletes_nothing,
        answer=bodies(f"DELETE {ID}", lambda body: b'{"status":"deleted"}'),
    ),
    "blob-cut": Mutation(
        "a blob lacks its last byte", ("blobs",), answer=bodies(f"GET {ID}/blobs/.*", lambda body: body[:-1])
    ),
    "blob-hash-in-capitals": Mutation(
        "the hash of a blob is in capitals", ("blobs",), answer=answers(f"POST {ID}/blobs", _loud_hash)
    ),
    "blob-never-cached": Mutation(
        "If-None-Match is ignored", ("blobs",), request=lambda request: request.headers.pop("if-none-match", None)
    ),
    "blob-runs": Mutation(
        "blobs have no Content-Security-Policy",
        ("blobs",),
        answer=header("content-security-policy", None, streams=False),
    ),
    "ascii-in-json": Mutation(
        "every character of JSON that is not ASCII becomes ?", ("unicode",), answer=answers("GET .*", _ascii)
    ),
    "typing-echoes": Mutation(
        "the typing of a reader is sent back to that reader",
        ("presence",),
        request=json_requests(
            b'"typing"', lambda body: {key: value for key, value in body.items() if key != "stream_id"}
        ),
    ),
    "stream-adds-nothing": Mutation("adding a chat to a stream does nothing", ("named-stream",), request=_adds_nothing),
    "stream-adds-anew": Mutation(
        "a chat added with `from` begins with a snapshot", ("named-stream",), request=_adds_anew
    ),
    "layers-unknown": Mutation(
        "every parameter is said to come from the server",
        ("params-layers",),
        answer=json_answers(f"GET {ID}/params", _server_says),
    ),
}
