"""Declares an endpoint beside its handler: the route, and its description in the OpenAPI document.

    @Operation(
        "DELETE",
        "/v1/chats/{chat_id}",
        "deleteChat",
        "Delete the chat.",
        tag="chats",
        answers={200: Answer("Gone.", Status)},
        errors=BAD_ID | NOT_FOUND | UNAVAILABLE,
    )
    async def delete_chat(request: Request) -> Response: ...

The decorated function becomes an `Endpoint`, which is a Starlette route. `routes.py` lists all endpoints, and
`api/schema/openapi.py` makes the document from that list. An operation does not declare the error 401, because all
operations without `is_open` have it. Neither does it declare the parameters of its path, which `openapi.py` describes
once.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias, cast

from starlette.convertors import StringConvertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from threadcast.api.errors import ERROR_FORM, ErrorForm
from threadcast_protocol.wire.ids import RESERVED_CHAT_IDS

__all__ = [
    "BAD_ID",
    "LIMITED",
    "NOT_FOUND",
    "UNAVAILABLE",
    "UNREAD",
    "Answer",
    "Endpoint",
    "Operation",
    "Parameter",
    "events",
]

Handler: TypeAlias = Callable[[Request], Awaitable[Response]]
Tag: TypeAlias = Literal["chats", "commands", "stream", "server", "foreign", "one-shot", "doors"]

EVENT_STREAM = "text/event-stream"
JSON_LINES = "application/jsonl"


class _ChatSegment(StringConvertor):
    """Matches a chat id in a path, but not the reserved words such as `feed`, so that `DELETE /v1/chats/feed` reaches
    no chat."""

    regex = f"(?!(?:{'|'.join(sorted(RESERVED_CHAT_IDS))})$)[^/]+"


register_url_convertor("chat", _ChatSegment())


class Answer(NamedTuple):
    """An answer of status 2xx or 3xx, or another answer whose body is no `Failure`.

    `kind` is the type that the handler encodes: a struct, a list or a union of structs. For an event stream, `kind` is
    the type of each `data:` line, or the name of its schema. `kind` is None if the body has no schema. `media_type` is
    "" if there is no body.
    """

    description: str
    kind: Any = None  # Any: a type hint
    media_type: str = "application/json"


class Parameter(NamedTuple):
    """A parameter of the query or a header. `kind` is the type that describes its value; `default` is None when the
    parameter has no default."""

    name: str
    kind: Any  # Any: a type hint
    description: str = ""
    where: Literal["query", "header"] = "query"
    default: object = None


BAD_ID: dict[int, str] = {400: "`bad_request`: a malformed or reserved id."}
NOT_FOUND: dict[int, str] = {404: "`not_found`: no such chat, or the chat is deleted or belongs to another principal."}
UNAVAILABLE: dict[int, str] = {503: "`unavailable`: the store does not answer or refuses writes; try again."}
LIMITED: dict[int, str] = {429: "`queue_full` or `rate_limited`; try later."}
UNREAD: dict[int, str] = {429: "`rate_limited`: other answers to the caller wait to be read; read them first."}


def events(kind: object, description: str = "") -> Answer:
    """Return the answer of an event stream whose `data:` lines are of type `kind`."""
    name = getattr(kind, "__name__", kind)
    return Answer(description or f"Blocks whose `data:` lines are {name}.", kind, EVENT_STREAM)


@dataclass(frozen=True)
class Operation:
    """The description of an endpoint in the OpenAPI document. As a decorator it turns the handler into an `Endpoint`.

    `body` is the type that the handler decodes. For JSON Lines it is the type of a line; for a body that no type
    describes, it is bytes, at most `body_max_bytes` of them. `is_open`: the endpoint needs no token. `is_asgi`: the
    handler is an ASGI application, which sends its answer itself. `error_form` makes the bodies of error answers, for
    an endpoint in the format of another server.
    """

    method: Literal["GET", "POST", "DELETE"]
    path: str
    operation_id: str
    summary: str
    _: KW_ONLY
    tag: Tag
    answers: Mapping[int, Answer]
    errors: Mapping[int, str] = field(default_factory=dict)
    parameters: Sequence[Parameter] = ()
    body: Any = None  # Any: a type hint
    body_media_type: str = "application/json"
    body_max_bytes: int | None = None
    is_open: bool = False
    is_asgi: bool = False
    error_form: ErrorForm | None = None

    def __call__(self, handler: "Handler | ASGIApp") -> "Endpoint":
        return Endpoint(self, handler)


class Endpoint(Route):
    """The route of an operation. A GET endpoint also answers HEAD, unless it sends an event stream: a HEAD of a stream
    would hold its connection open without ever getting a byte."""

    def __init__(self, operation: Operation, handler: "Handler | ASGIApp") -> None:
        super().__init__(operation.path, handler, methods=[operation.method])
        self.operation = operation
        if operation.is_asgi:
            self.app = cast(ASGIApp, handler)  # cast: `is_asgi` promises that type
        if any(answer.media_type == EVENT_STREAM for answer in operation.answers.values()):
            self.methods = {operation.method}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.operation.error_form is not None:
            scope[ERROR_FORM] = self.operation.error_form
        await super().handle(scope, receive, send)
