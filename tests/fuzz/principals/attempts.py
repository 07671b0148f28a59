"""Makes the requests of a stranger, who knows all or none of the owner's ids, from the application's own list of
routes.

Every parameter of a path, a query or a header, and every body, has a source of values here. `without_story` names the
routes whose values have no source yet, so that no new endpoint goes untested.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import NamedTuple
from urllib.parse import urlencode

from starlette.routing import BaseRoute

from tests.fuzz.principals.owned import ECHO, Pools
from tests.fuzz.principals.served import OWNER
from threadcast.api.operation import Endpoint
from threadcast_protocol.framing.stream_ids import stream_id_word, tag_of
from threadcast_protocol.wire.ids import Position
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["METHODS", "Attempt", "Attempts", "is_stream", "without_story"]

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND")

_PAGE = {"/", "/c/{chat_id}", "/diagram", "/favicon.svg", "/assets", "/pages"}
"""Routes of the page, which have the same answer for everybody."""

_QUERIES = ("chat_id", "parent_id", "stream_id", "cursor", "at", "from", "q", "presence", "limit", "state", "view")
_QUERIES_OF_SERVER = ("mode", "scope", "on_disconnect", "stream", "starting_after", "after", "order")
_HEADERS = ("Prefer", "Last-Event-ID", "Threadcast-Forward-Authorization")
_PATHS = (
    *("chat_id", "chat_id:chat", "chat_id:path", "hash", "run_id", "tool_name", "client_request_id", "stream_id"),
    *("conversation_id", "response_id", "model:path", "mode"),
)

_EVIL_PATHS = (".", "..", "%2e%2e", "%2e%2e%2f", "%00", "*", "%0d%0aSet-Cookie:a=b", "{}", "-", "feed", "import")


class Attempt(NamedTuple):
    """A request. `body` is None if the request has no body."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes | None


def is_stream(attempt: Attempt) -> bool:
    """Return whether the attempt opens a stream, which may never end."""
    return "subscribe" in attempt.path or "/feed" in attempt.path


def without_story(routes: Iterable[BaseRoute]) -> list[str]:
    """Return the routes for which this module cannot make requests, each with the missing source."""
    lacking: list[str] = []
    for route in routes:
        path = getattr(route, "path", "")
        if not isinstance(route, Endpoint):
            lacking += [] if path in _PAGE else [f"{path}: not an Endpoint, and unknown to this test"]
            continue
        operation = route.operation
        named = [part.partition("}")[0] for part in path.split("{")[1:]]
        known = {"query": {*_QUERIES, *_QUERIES_OF_SERVER}, "header": {*_HEADERS}}
        lacking += [f"{path}: no values for the part {name!r}" for name in named if name not in _PATHS]
        lacking += [
            f"{path}: no values for the {each.where} {each.name!r}"
            for each in operation.parameters
            if each.name not in known[each.where]
        ]
        if operation.body is not None and operation.operation_id not in _BODIES:
            lacking.append(f"{path}: no body for {operation.operation_id!r}")
    return lacking


class Attempts:
    """Makes attempts. `pools` holds the owner's ids, or made-up ids if the stranger knows none; `own` holds the ids of
    the stranger's own chats."""

    def __init__(self, routes: Sequence[BaseRoute], random: Random, pools: Pools, own: Sequence[str]) -> None:
        self._endpoints = [route for route in routes if isinstance(route, Endpoint)]
        self._paths = sorted({getattr(route, "path", "/") for route in routes})
        self._random = random
        self._pools = pools
        self._own = own

    def make(self) -> Attempt:
        """Make the next attempt: mostly an endpoint as it is documented, else another method or a bent path."""
        random = self._random
        endpoint = random.choice(self._endpoints)
        path = self._filled(endpoint.path if random.random() < 0.95 else random.choice(self._paths))
        if random.random() < 0.05:
            path = self._bent(path)
        query = self._query(endpoint)
        method = endpoint.operation.method if random.random() < 0.85 else random.choice(METHODS)
        maker = _BODIES.get(endpoint.operation.operation_id)
        body = maker(self) if maker is not None else None
        if body is None and random.random() < 0.05:
            body = b"{}"
        return Attempt(method, path + (f"?{query}" if query else ""), self._headers(endpoint), body)

    def reads(self) -> list[Attempt]:
        """Return plain reads with all values of all pools; they check that a permitted reader would see the secrets."""
        paths = {
            self._filled(endpoint.path, chat_id)
            for endpoint in self._endpoints
            if endpoint.operation.method == "GET" and endpoint.path not in ("/v1/chats/subscribe", "/metrics")
            for chat_id in self._pools.chat_ids
        }
        chats = "&".join(f"chat_id={chat_id}" for chat_id in self._pools.chat_ids)
        return [Attempt("GET", path, {}, None) for path in (*sorted(paths), f"/v1/chats/subscribe?{chats}")]

    # Values.

    def chat(self) -> str:
        """Return the id of a chat: usually one of the pool's, rarely one of the stranger's own."""
        return self._random.choice(self._own if self._random.random() < 0.15 else self._pools.chat_ids)

    def value(self, name: str) -> str:
        """Return a value that the owner's requests or answers had under this name."""
        known = self._pools.values.get(name, self._pools.chat_ids)
        return self._random.choice(known) if known else "unknown"

    def position(self) -> str:
        """Return an SSE id of one chat or of several chats."""
        known = Position.parse(self.value("position")) or Position(1, 1, 0)
        moved = known._replace(position=self._random.randrange(known.base, known.position + 1))
        of_many = ".".join(stream_id_word(tag_of(chat_id), moved) for chat_id in self._pools.chat_ids)
        return self._random.choice([str(known), str(moved), of_many, "0-0-0", "x"])

    def text(self) -> str:
        return f"stranger {self._random.getrandbits(32):x}"

    def _filled(self, path: str, chat_id: str = "") -> str:
        for name in _PATHS:
            if f"{{{name}}}" in path:
                plain = name.partition(":")[0]
                value = (chat_id or self.chat()) if plain == "chat_id" else self.value(plain)
                path = path.replace(f"{{{name}}}", "keep_secret" if plain == "tool_name" else value)
        return path

    def _bent(self, path: str) -> str:
        parts = path.split("/")
        at = self._random.randrange(1, len(parts))
        return self._random.choice(
            [
                path + "/",
                path.upper(),
                path.replace("/", "//", 1),
                f"/v1/chats/{self._own[0]}/..{path.removeprefix('/v1/chats')}",
                f"{path};x=1",
                f"{path}%00",
                "/".join([*parts[:at], self._random.choice(_EVIL_PATHS), *parts[at + 1 :]]),
                "".join(f"%{ord(sign):02x}" if sign.isalnum() and sign not in "/v" else sign for sign in path),
            ]
        )

    def _query(self, endpoint: Endpoint) -> str:
        random = self._random
        pairs: list[tuple[str, str]] = []
        for parameter in endpoint.operation.parameters:
            if parameter.where == "query" and (random.random() < 0.5 or parameter.name == "chat_id"):
                count = random.choice([1, 1, 3, 20]) if parameter.name == "chat_id" else 1
                pairs += [(parameter.name, self._query_value(parameter.name)) for _ in range(count)]
        if "subscribe" in endpoint.path and random.random() < 0.3:
            pairs.append(("blobs", "inline"))
        if random.random() < 0.05:
            pairs.append(
                random.choice([("owner", OWNER), ("principal", OWNER), ("access_token", "x"), ("user", OWNER)])
            )
        return urlencode(pairs)

    def _query_value(self, name: str) -> str:
        random = self._random
        match name:
            case "cursor":
                return f"{random.choice([0, 1, 2**45])}:{self.chat()}"
            case "at" | "from":
                return self.position()
            case "q":
                return random.choice(["zq", "a", "title", "%", "*"])
            case "limit":
                return random.choice(["1", "200"])
            case "presence":
                return "1"
            case "state":
                return random.choice(["idle", "paused", "generating"])
            case "view":
                return random.choice(["tree", "path"])
            case "on_disconnect":
                return random.choice(["abort", "detach"])
            case "mode" | "scope":
                return random.choice(["agent", self.chat()])
        return self.chat() if name == "chat_id" else self.value(name)

    def _headers(self, endpoint: Endpoint) -> dict[str, str]:
        random, headers = self._random, dict[str, str]()
        if random.random() < 0.5:
            headers["Accept"] = random.choice(["application/json", "text/event-stream", "text/html", "*/*"])
        for parameter in endpoint.operation.parameters:
            if parameter.where == "header" and random.random() < 0.5:
                headers[parameter.name] = {"Prefer": "wait=1", "Last-Event-ID": self.position()}.get(
                    parameter.name, "x"
                )
        doubtful = {
            "If-None-Match": f'"{self.value("hash")}", *',
            "Range": "bytes=0-100",
            "Threadcast-Principal": OWNER,
            "X-Forwarded-User": OWNER,
            "X-Remote-User": OWNER,
            "X-Original-URL": f"/v1/chats/{self.chat()}",
            "X-HTTP-Method-Override": "DELETE",
            "Cookie": f"threadcast-session={OWNER}",
            "Idempotency-Key": self.value("client_request_id"),
        }
        for name, value in doubtful.items():
            if random.random() < 0.04 or (
                name == "If-None-Match" and "hash" in endpoint.path and random.random() < 0.5
            ):
                headers[name] = value
        return headers

    # Bodies.

    def _command(self) -> bytes:
        kind = self._random.choice(_COMMANDS)
        own_id = f"s-{self._random.getrandbits(64):x}"
        request_id = self.value("client_request_id") if self._random.random() < 0.4 else own_id
        body: JsonObject = {"client_request_id": request_id, **kind(self)}
        return json.dumps(body).encode()

    def _upload(self) -> bytes:
        return f"blob of a {self.text()}".encode()

    def _import(self) -> bytes:
        thread = {"parent_id": self.chat(), "title": self.text(), "owner": OWNER}
        counts = {"message_count": 1, "payload_count": 0, "agent_count": 0, "leaf_id": "m1"}
        header = {"type": "chat", "format": 1, "chat_id": self.chat(), **counts, "thread": thread}
        content = [{"type": "text", "text": self.text()}, *self._references()]
        message = {"type": "message", "message": {"message_id": "m1", "role": "user", "content": content}}
        return b"".join(json.dumps(line).encode() + b"\n" for line in (header, message))

    def _change(self) -> bytes:
        add = [{"chat_id": self.chat(), "from": self.position()} for _ in range(self._random.randrange(3))]
        return json.dumps({"add": add, "remove": [self.chat()]}).encode()

    def _typing(self) -> bytes:
        return json.dumps({"typing": True, "stream_id": self.value("stream_id")}).encode()

    def _answer(self) -> bytes:
        return json.dumps({"tool_call_id": self.value("tool_call_id"), "accepted": True, "input_hash": "x"}).encode()

    def _response(self) -> bytes:
        chat_id = self.chat()
        place = self._random.choice([{"conversation": chat_id}, {"previous_response_id": f"resp_x_{chat_id}"}])
        return json.dumps({"model": "demo/echo", "input": self.text(), **place}).encode()

    def _ui_message(self) -> bytes:
        message = {"id": "m1", "role": "user", "parts": [{"type": "text", "text": self.text()}]}
        return json.dumps({"id": self.chat(), "messages": [message], "trigger": "submit-message"}).encode()

    def _ag_ui(self) -> bytes:
        message = {"id": "m1", "role": "user", "content": self.text()}
        body: JsonObject = {"threadId": self.chat(), "runId": "r", "messages": [message]}
        if self._random.random() < 0.5:
            interrupt_id = f"{self.value('tool_call_id')}.x"
            body |= {"resume": [{"interruptId": interrupt_id, "status": "resolved", "payload": {"approved": True}}]}
        return json.dumps(body).encode()

    def _mcp(self) -> bytes:
        chat_id, call_id = self.chat(), self.value("tool_call_id")
        if self._random.random() < 0.2:  # an answer to a question of the server
            own = json.dumps([chat_id, call_id, "x"])
            result = {"action": "accept", "content": {"approved": True}}
            return json.dumps({"jsonrpc": "2.0", "id": own, "result": result}).encode()
        uri = f"threadcast://chats/{chat_id}"
        method, params = self._random.choice(
            [
                ("resources/read", {"uri": uri}),
                ("resources/list", {"cursor": f"9999999999999:{chat_id}"}),
                ("notifications/cancelled", {"requestId": 1}),
                ("tools/call", {"name": "ask", "arguments": {"text": self.text(), "chat_id": chat_id, "model": ECHO}}),
                ("tools/call", {"name": "read_chat", "arguments": {"chat_id": chat_id}}),
                ("tools/call", {"name": "list_chats", "arguments": {"cursor": f"9999999999999:{chat_id}"}}),
                ("tools/call", {"name": "search_chats", "arguments": {"query": self.text()[:200] or "x"}}),
                (
                    "tools/call",
                    {"name": "decide", "arguments": {"chat_id": chat_id, "tool_call_id": call_id, "accepted": True}},
                ),
            ]
        )
        return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()

    def _one_shot(self) -> bytes:
        chat_id, text = self.chat(), self.text()
        body: JsonObject = {
            "message": text,
            "messages": [{"role": "user", "content": text}],
            "context_type": "page",
            "session_id": chat_id,
            "conversation_id": chat_id,
            "metadata": {"chat_id": chat_id},
            "stream": self._random.random() < 0.5,
            "model": ECHO,
        }
        return json.dumps(body).encode()

    def _references(self) -> list[JsonObject]:
        """Return attachments that name the owner's blobs, and an MCP server's content."""
        chat_id, hash = self.chat(), self.value("hash")
        return self._random.choice(
            [
                [],
                [{"type": "file", "name": "a.txt", "mime": "text/plain", "text_blob": hash}],
                [{"type": "file", "name": "a.bin", "mime": "x/y", "blob": hash}],
                [{"type": "image_url", "image_url": {"url": f"/v1/chats/{chat_id}/blobs/{hash}"}}],
                [{"type": "input_audio", "input_audio": {"format": "wav", "blob": hash}}],
                [{"type": "mcp_resource", "server": "desk", "uri": f"notes://{chat_id}"}],
                [{"type": "file", "name": "a.txt", "mime": "text/plain", "text": f"/v1/chats/{chat_id}/blobs/{hash}"}],
            ]
        )


Kind = Callable[[Attempts], JsonObject]

_COMMANDS: tuple[Kind, ...] = (
    lambda a: {
        "type": "user_message",
        "content": a.text(),
        "attachments": a._references(),
        "context": {"parent_id": a.chat(), "chat_id": a.chat()},
        "params": {"model": ECHO},
    },
    lambda a: {"type": "branch_from_chat", "source_chat_id": a.chat(), "up_to_message_id": a.value("message_id")},
    lambda a: {
        "type": "restore_messages",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "x"}, *a._references()]}],
    },
    lambda a: {
        "type": "set_params",
        "patch": {"parent_id": a.chat(), "root_chat_id": a.chat(), "link_type": "subchat", "title": a.text()},
    },
    lambda a: {"type": "set_params", "patch": {"autonomous_no_confirm": True}},
    lambda a: {"type": "retry_from_index", "index": 0, "content": a.text(), "attachments": a._references()},
    lambda a: {"type": "regenerate", "message_id": a.value("message_id")},
    lambda a: {"type": "abort", "run_id": a.value("run_id"), "clear_queue": True},
    lambda a: {"type": "abort"},
    lambda a: {"type": "update_message", "message_id": a.value("message_id"), "content": a.text()},
    lambda a: {"type": "remove_message", "message_id": a.value("message_id"), "regenerate": True},
    lambda a: {"type": "tool_decision", "tool_call_id": a.value("tool_call_id"), "accepted": True},
    lambda a: {"type": "tool_decision", "tool_call_id": "call_1_0", "accepted": True, "remember": "tool"},
    lambda a: {"type": "tool_decisions", "decisions": [{"payload_id": a.value("payload_id"), "accepted": True}]},
    lambda a: {"type": "ide_tool_result", "tool_call_id": "call_1_0", "content": a.text()},
    lambda a: {"type": "ide_tool_claim", "tool_call_id": "call_1_0", "claimer": a.value("client_request_id")},
    lambda a: {"type": "browser_context_decision", "pending_message_id": a.value("tool_call_id")},
    lambda a: {"type": "edit_queued", "target_request_id": a.value("client_request_id"), "content": a.text()},
    lambda a: {"type": "continue_message", "message_id": a.value("message_id")},
    lambda a: {"type": "select_branch", "message_id": a.value("message_id")},
)

_BODIES: Mapping[str, Callable[[Attempts], bytes]] = {
    "postCommand": Attempts._command,
    "uploadBlob": Attempts._upload,
    "importChats": Attempts._import,
    "changeStream": Attempts._change,
    "typeInChat": Attempts._typing,
    "answerQuestion": Attempts._answer,
    "textChat": Attempts._one_shot,
    "agentChat": Attempts._one_shot,
    "pageChat": Attempts._one_shot,
    "chatCompletions": Attempts._one_shot,
    "createResponse": Attempts._response,
    "createConversation": lambda a: b"{}",
    "aiSdkChat": Attempts._ui_message,
    "agUiRun": Attempts._ag_ui,
    "agUiRunInMode": Attempts._ag_ui,
    "mcpMessage": Attempts._mcp,
}
