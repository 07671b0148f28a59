"""The HTTP answers of errors, and the middleware that turns every exception of a request into such an answer.

All error answers have one form: `{"detail": TEXT, "code": CODE, "path"?: JSON-POINTER}`. Some have `status` and `error`
too, which foreign clients read (PROTOCOL §1, §3).
"""

import asyncio
from collections.abc import Callable
from typing import TypeAlias

import structlog
from msgspec.structs import replace
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from threadcast.api.refused_tokens import RefusedTokens
from threadcast.base.boundary import pass_on
from threadcast.base.loop_metrics import LoopCounter
from threadcast.fanout.admissions import OpenedTooFast
from threadcast.fanout.relay import NEWER_VERSION
from threadcast.http.readiness import Readiness
from threadcast.store.load import NewerVersion
from threadcast_protocol.fold.reducer import Gap
from threadcast_protocol.framing.codec import encode
from threadcast_protocol.wire.errors import (
    BadRequest,
    RateLimited,
    Refused,
    ThreadcastError,
    Unauthorized,
    Unavailable,
)
from threadcast_protocol.wire.http import Failure

__all__ = [
    "ANSWER_HEADERS",
    "ANSWER_ROOM",
    "BODY_ROOM",
    "ERROR_FORM",
    "AnotherUser",
    "BodyTooSlow",
    "ErrorBoundary",
    "ErrorForm",
    "QuotaSpent",
    "answer",
    "error_response",
    "tell_started",
]

_log = structlog.get_logger()

STATUS_OF_CODE = {
    "bad_request": 400,
    "invalid_content": 400,
    "unauthorized": 401,
    "forbidden": 403,
    "not_found": 404,
    "conflict": 409,
    "id_taken": 409,
    "idempotency_mismatch": 409,
    "already_claimed": 409,
    "no_pending_decision": 409,
    "other_approver_needed": 403,
    "gone": 410,
    "too_large": 413,
    "storage_full": 413,
    "queue_full": 429,
    "rate_limited": 429,
    "not_implemented": 501,
    "unavailable": 503,
    "store_full": 503,
}

RETRY_AFTER_SECONDS = {"queue_full": "2", "rate_limited": "5", "unavailable": "1", "store_full": "10"}
"""Seconds that an answer asks the client to wait (`Retry-After`). A full store stays full until a person deletes chats
or gives the store more memory."""

ANSWER_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
"""The headers of every answer with JSON (PROTOCOL §1): the content belongs to one user and is soon outdated, so caches
must not store it (RFC 9111 §5.2.2.5), and browsers must not guess another content type."""

STATUS_WORDS = frozenset({"invalid_content", "idempotency_mismatch", "queue_full", "unavailable"})
"""Codes that foreign clients expect as `status`, with the message as `error` (PROTOCOL §3)."""


ErrorForm: TypeAlias = Callable[[Failure, int], object]
"""Returns the body of an error answer in the form of another server, from our own body and the HTTP status."""


class BodyTooSlow(BadRequest):
    """The body did not arrive in time. Its connection is closed, because the unread rest makes the connection
    unusable."""


class AnotherUser(Unauthorized):
    """The token is valid, but belongs to another user than the request names."""

    def __init__(self) -> None:
        super().__init__("another user is signed in now")


class QuotaSpent(RateLimited):
    """The caller has used up its quota, and may begin another run in `retry_after_seconds`."""

    def __init__(self, message: str, retry_after_seconds: int) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


def answer(status: int, body: object, headers: dict[str, str] | None = None) -> Response:
    """Return an answer with `body` as JSON."""
    return Response(encode(body), status, {**ANSWER_HEADERS, **(headers or {})}, "application/json")


def error_response(error: ThreadcastError | None, form: ErrorForm | None = None) -> Response:
    """Return the HTTP answer for an error; `error` is None for a fault of the server. `form` makes its body for
    endpoints in the format of another server."""
    if error is None:
        failed = Failure("something failed inside the server; it is in its log", "internal")
        return answer(500, failed if form is None else form(failed, 500))
    path = error.path if isinstance(error, Refused) else None
    body = Failure(error.message, error.code, path or None)
    if error.code in STATUS_WORDS:
        body = replace(body, status=error.code, error=error.message)
    elif isinstance(error, Unavailable):  # such as `store_full`, which foreign clients do not know
        body = replace(body, status=Unavailable.code, error=error.message)
    headers = {}
    if error.code in RETRY_AFTER_SECONDS:
        headers["Retry-After"] = RETRY_AFTER_SECONDS[error.code]
    if isinstance(error, QuotaSpent | OpenedTooFast):
        headers["Retry-After"] = str(error.retry_after_seconds)
    if isinstance(error, BodyTooSlow):
        headers["Connection"] = "close"
    if error.code == "unauthorized":
        headers["WWW-Authenticate"] = "Bearer"
    status = STATUS_OF_CODE.get(error.code, 500)
    return answer(status, body if form is None else form(body, status), headers)


class ErrorBoundary:
    """ASGI middleware that turns an exception into a JSON answer if no answer has begun, also on SSE routes (ERR-5).
    While the process stops, every answer closes its connection, so that the next request goes to another process (RFC
    9112 §9.6)."""

    def __init__(
        self,
        app: ASGIApp,
        requests: LoopCounter,
        readiness: Readiness,
        refused_tokens: RefusedTokens | None = None,
        no_route: Callable[[Request, HTTPException], Response] | None = None,
    ) -> None:
        """`refused_tokens` delays and logs the answers with status 401. `no_route` returns the answer for an
        exception of Starlette's router, or of its classes for files."""
        self._app = app
        self._no_route = no_route
        self._refused_tokens = refused_tokens or RefusedTokens()
        self._requests = requests
        self._readiness = readiness

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # A pipelined request runs in the task and the context of the request before it.
        structlog.contextvars.clear_contextvars()
        has_started = False

        def started(status: int) -> None:
            nonlocal has_started
            has_started = True
            self._requests.inc(_route_of(scope), str(status))

        async def watched(message: Message) -> None:
            if message["type"] == "http.response.start":
                if not has_started:
                    started(message["status"])
                if self._readiness.is_draining and all(name != b"connection" for name, _ in message["headers"]):
                    message = {**message, "headers": [*message["headers"], (b"connection", b"close")]}
            await send(message)

        scope[_STARTED] = started
        try:
            await self._app(scope, receive, send if scope.get("path") in _STREAMS else watched)
        except asyncio.CancelledError:
            # The process is stopping, and has given the request all remaining time (`wiring`). The request may have
            # taken effect, so the answer tells the caller to repeat it. No answer follows on this connection.
            if has_started:
                raise
            await error_response(Unavailable("this server is being stopped; ask again"))(scope, receive, watched)
        except ClientDisconnect:  # the client disconnected while it sent the body: no answer, no failure
            _log.info("request.left", path=scope.get("path"))
        except HTTPException as wrong:  # Starlette's router and its classes for files raise it
            if has_started or self._no_route is None:
                _log.exception("request.crashed", path=scope.get("path"))
                raise
            await self._no_route(Request(scope), wrong)(scope, receive, watched)
        except BaseException as wrong:  # the boundary of a request: every exception is answered
            pass_on(wrong)
            error = _ours(wrong)
            if error is None:
                _log.exception("request.crashed", path=scope.get("path"))
            if has_started:
                raise
            # otherwise the error would keep the frames, with parts of the body, until a garbage collection
            wrong.__traceback__ = None
            if error is not None:
                error.__traceback__ = None
            response = error_response(error, scope.get(ERROR_FORM))
            is_refused = isinstance(error, Unauthorized) and not isinstance(error, AnotherUser)
            if is_refused and await self._refused_tokens.note(scope):
                response.headers["Connection"] = "close"
            await response(scope, receive, watched)
            del error, response  # only a garbage collection frees a frame in the traceback of its own error
        finally:
            for key in (BODY_ROOM, ANSWER_ROOM):
                if (room := scope.pop(key, None)) is not None:
                    room.give_back()


def tell_started(scope: Scope, status: int) -> None:
    """Count an answer that the endpoint sends without the middleware's `send`, as streams do. Call it just before the
    answer begins."""
    scope.pop(_STARTED)(status)  # removed, because a stream keeps its scope for hours


def _ours(wrong: BaseException) -> ThreadcastError | None:
    """Return the `ThreadcastError` for an exception, also if a task group wrapped it; None for any other exception, and
    for a group of several exceptions. If a newer version wrote the chat, the error is Unavailable, because another
    process can show the chat. If the chat's log is damaged, the error is Unavailable, too (`docs/operations.md`)."""
    while isinstance(wrong, BaseExceptionGroup) and len(wrong.exceptions) == 1:
        wrong = wrong.exceptions[0]
    if isinstance(wrong, NewerVersion):
        return Unavailable(NEWER_VERSION)
    if isinstance(wrong, Gap):
        _log.error("chat.unreadable", error=str(wrong))
        return Unavailable("the log of this chat cannot be read; the reason is in the server's own log")
    return wrong if isinstance(wrong, ThreadcastError) else None


def _route_of(scope: Scope) -> str:
    """Return the name of the endpoint as a label of a metric. The path is not used, because it would give the metric a
    new label for each chat."""
    endpoint = scope.get("endpoint")
    return str(getattr(endpoint, "__name__", None) or type(endpoint).__name__.strip("_").lower())


_STREAMS = frozenset({"/v1/chats/subscribe"})
"""The paths of endpoints that get the server's own `send`; they call `tell_started` themselves."""

_STARTED = "threadcast.started"

ERROR_FORM = "threadcast.error_form"
"""The key of a request's scope for the `ErrorForm` of its endpoint (`operation.py`)."""

BODY_ROOM = "threadcast.body_room"
"""The key of a request's scope under which `edge.py` keeps the `BodyRoom` of the request (`bodies.py`)."""

ANSWER_ROOM = "threadcast.answer_room"
"""The key of a request's scope for the `AnswerRoom` of the request (`answers.py`)."""
