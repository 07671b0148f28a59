"""JSON-RPC messages of MCP: the messages that a client may send, and the server's answers (PROTOCOL §14). Pure.

Two kinds of revisions are in use. Up to 2025-11-25 a client begins with `initialize` and names a session in each later
request. From 2026-07-28 on each request itself declares what the client can do, in `params._meta` (npm and PyPI
packages of the Model Context Protocol, module `types`).
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from threadcast_protocol.wire.bodies import decode_body
from threadcast_protocol.wire.decoders import decoder
from threadcast_protocol.wire.errors import ThreadcastError
from threadcast_protocol.wire.messages import JsonObject

__all__ = [
    "HANDSHAKE_REVISIONS",
    "INVALID_PARAMS",
    "META",
    "METHOD_NOT_FOUND",
    "REVISION",
    "STATUS_OF_ERROR",
    "Envelope",
    "McpMessage",
    "RequestId",
    "RpcError",
    "envelope_of",
    "error_body",
    "new_session",
    "notification",
    "read_message",
    "reply",
    "tool_failure",
]

HANDSHAKE_REVISIONS = ("2025-11-25", "2025-06-18", "2025-03-26")
"""The revisions that begin with `initialize`, newest first. Older revisions have another transport."""

REVISION = "2026-07-28"
"""The revision whose requests need no session."""

INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS = -32600, -32601, -32602
HEADER_MISMATCH, UNSUPPORTED_REVISION = -32020, -32022

STATUS_OF_ERROR = {
    INVALID_REQUEST: 400,
    METHOD_NOT_FOUND: 404,
    INVALID_PARAMS: 400,
    HEADER_MISMATCH: 400,
    UNSUPPORTED_REVISION: 400,
}
"""The HTTP status of an error, for requests of `REVISION`. Earlier revisions answer 200."""

META = "io.modelcontextprotocol/"
"""The prefix of the protocol's own keys in `_meta`."""

_NAMED = {"tools/call": "name", "resources/read": "uri"}
"""The parameter that the header `Mcp-Name` repeats, by method."""

ID_MAX_CHARACTERS = 4_096
"""The maximum characters in the id of a message. The longest ids are those of this server's own requests."""

RequestId: TypeAlias = Annotated[str, Meta(max_length=ID_MAX_CHARACTERS)] | int


class RpcError(Exception):
    """An error of the protocol; errors of tools are results instead."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class McpMessage(msgspec.Struct, frozen=True):
    """A request, a notification (without `id`), or the client's answer to a request of this server (without
    `method`)."""

    jsonrpc: Literal["2.0"]
    id: RequestId | None | UnsetType = UNSET
    method: str = ""
    params: JsonObject = {}
    result: JsonObject | None = None
    error: JsonObject | None = None


@dataclass(frozen=True)
class Envelope:
    """The information about a client that its request contains. `session` is '' for `REVISION` and later revisions.
    `can_elicit`: the client can ask a person, with a form. `progress_token` is None if the client wants no progress."""

    revision: str
    session: str = ""
    can_elicit: bool = False
    progress_token: RequestId | None = None

    @property
    def is_alone(self) -> bool:
        """Whether the request belongs to no session, so that closing its connection cancels the request."""
        return self.revision == REVISION


_messages: msgspec.json.Decoder[McpMessage] = decoder(McpMessage)


def read_message(body: bytes) -> McpMessage:
    """Decode a body. Raises BadRequest: the body is not one message (batches were removed in 2025-06-18)."""
    return decode_body(_messages, body)


def new_session(revision: str, capabilities: object) -> str:
    """Return the id of a new session. The id contains the negotiated values, so that every process of the server
    understands it; a client that changes it affects only itself."""
    return f"{revision}.{'form' if _elicits(capabilities) else 'none'}.{secrets.token_hex(16)}"


def envelope_of(message: McpMessage, headers: Mapping[str, str]) -> Envelope:
    """Return what a request declares about its client.

    Raises:
        RpcError: the revision is unknown, or headers and body differ (2026-07-28, streamable HTTP).
    """
    meta = message.params.get("_meta")
    meta = meta if isinstance(meta, dict) else {}
    token = meta.get("progressToken")
    progress_token = token if isinstance(token, str | int) and not isinstance(token, bool) else None
    named = headers.get("mcp-protocol-version", "")
    if named != REVISION and f"{META}protocolVersion" not in meta:
        revision, _, rest = headers.get("mcp-session-id", "").partition(".")
        session = headers.get("mcp-session-id", "")
        if named and named not in HANDSHAKE_REVISIONS:
            raise _unsupported(named)
        known = revision if revision in HANDSHAKE_REVISIONS else named or HANDSHAKE_REVISIONS[-1]
        return Envelope(known, session, rest.startswith("form."), progress_token)
    asked = meta.get(f"{META}protocolVersion")
    if message.id is not UNSET:
        for header, expected in (
            ("mcp-protocol-version", asked),
            ("mcp-method", message.method),
            ("mcp-name", message.params.get(_NAMED.get(message.method, ""))),
        ):
            if expected is not None and headers.get(header) != expected and not _is_encoded(headers.get(header)):
                raise RpcError(HEADER_MISMATCH, f"the header {header} must repeat {str(expected)[:100]!r} of the body")
        if asked != REVISION:
            raise _unsupported(str(asked))
        if f"{META}clientCapabilities" not in meta:
            raise RpcError(INVALID_PARAMS, f"params._meta needs {META}clientCapabilities")
    return Envelope(REVISION, "", _elicits(meta.get(f"{META}clientCapabilities")), progress_token)


def _is_encoded(value: str | None) -> bool:
    """Return whether a header's value is encoded in base64. Clients encode values that are not plain ASCII. No decision
    depends on the header, so it is not decoded."""
    return value is not None and value.startswith("=?base64?")


def _elicits(capabilities: object) -> bool:
    asked = capabilities.get("elicitation") if isinstance(capabilities, dict) else None
    return isinstance(asked, dict) and (not asked or "form" in asked)


def _unsupported(revision: str) -> RpcError:
    data = {"supported": [REVISION, *HANDSHAKE_REVISIONS], "requested": revision[:100]}
    return RpcError(UNSUPPORTED_REVISION, "Unsupported protocol version", data)


def reply(request_id: RequestId, result: JsonObject) -> JsonObject:
    return {"jsonrpc": "2.0", "id": request_id, "result": result}


def notification(method: str, params: JsonObject) -> JsonObject:
    return {"jsonrpc": "2.0", "method": method, "params": params}


def error_body(request_id: RequestId | None, error: RpcError) -> JsonObject:
    told: dict[str, Any] = {"code": error.code, "message": error.message}  # Any: JSON
    if error.data is not None:
        told["data"] = error.data
    return {"jsonrpc": "2.0", "id": request_id, "error": told}


def tool_failure(error: ThreadcastError) -> JsonObject:
    """Return the result of a tool that failed. The result contains the reason, so that the model can read it."""
    return {"content": [{"type": "text", "text": f"{error.message} ({error.code})"}], "isError": True}
