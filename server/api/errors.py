"""Our errors as HTTP answers, in one table; and the boundary that turns every exception of a request into one.

One form everywhere: `{"detail": TEXT, "code": CODE, "path"?: JSON-POINTER}`, with `status` or `error` beside it where
foreign clients look for them (PROTOCOL §1, §3). Nothing else in the house knows HTTP status numbers.
"""

import asyncio

import structlog
from prometheus_client import Counter
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from protocol.codec import encode
from protocol.errors import BadRequest, RateLimited, Refused, ThreadcastError, Unavailable
from protocol.reducer import Gap
from server.foreign import pass_on
from server.readiness import Readiness
from server.relay.hub import NEWER_VERSION
from server.store.load import NewerVersion

__all__ = ["ANSWER_HEADERS", "BodyTooSlow", "ErrorBoundary", "QuotaSpent", "answer", "error_response", "tell_started"]

_log = structlog.get_logger()

STATUS_OF_CODE = {
    "bad_request": 400,
    "invalid_content": 400,
    "unauthorized": 401,
    "forbidden": 403,
    "not_found": 404,
    "conflict": 409,
    "idempotency_mismatch": 409,
    "already_claimed": 409,
    "no_pending_decision": 409,
    "gone": 410,
    "too_large": 413,
    "queue_full": 429,
    "rate_limited": 429,
    "not_implemented": 501,
    "unavailable": 503,
}

RETRY_AFTER_SECONDS = {"queue_full": "2", "rate_limited": "5", "unavailable": "1"}

ANSWER_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
"""The headers of every answer with JSON (PROTOCOL §1): its content belongs to one user and is soon outdated, so no
cache stores it (RFC 9111 §5.2.2.5), and no browser guesses another content type."""

STATUS_WORDS = frozenset({"invalid_content", "idempotency_mismatch", "queue_full", "unavailable"})
"""Codes that foreign clients expect as `status` with the sentence as `error` (PROTOCOL §3)."""


class BodyTooSlow(BadRequest):
    """The rest of the body is not waited for, so that the connection cannot be used again: it is closed."""


class QuotaSpent(RateLimited):
    """This caller may begin another run in `retry_after_seconds`."""

    def __init__(self, message: str, retry_after_seconds: int) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


def answer(status: int, body: object, headers: dict[str, str] | None = None) -> Response:
    """A JSON answer."""
    return Response(encode(body), status, {**ANSWER_HEADERS, **(headers or {})}, "application/json")


def error_response(error: ThreadcastError) -> Response:
    """The HTTP answer of one of our errors."""
    body: dict[str, str] = {"detail": error.message, "code": error.code}
    if isinstance(error, Refused) and error.path:
        body["path"] = error.path
    if error.code in STATUS_WORDS:
        body["status"], body["error"] = error.code, error.message
    headers = {}
    if error.code in RETRY_AFTER_SECONDS:
        headers["Retry-After"] = RETRY_AFTER_SECONDS[error.code]
    if isinstance(error, QuotaSpent):
        headers["Retry-After"] = str(error.retry_after_seconds)
    if isinstance(error, BodyTooSlow):
        headers["Connection"] = "close"
    if error.code == "unauthorized":
        headers["WWW-Authenticate"] = "Bearer"
    return answer(STATUS_OF_CODE.get(error.code, 500), body, headers)


class ErrorBoundary:
    """ASGI middleware: an exception before the first byte becomes a JSON answer, also on SSE routes (ERR-5). Answers of
    a process that was told to stop close their connection, so that nobody sends the next request to it (RFC 9112
    §9.6)."""

    def __init__(self, app: ASGIApp, requests: Counter, readiness: Readiness) -> None:
        self._app = app
        self._requests = requests
        self._readiness = readiness

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # A pipelined request is begun by the task of the one before, and in its context.
        structlog.contextvars.clear_contextvars()
        has_started = False

        def started(status: int) -> None:
            nonlocal has_started
            has_started = True
            self._requests.labels(_route_of(scope), status).inc()

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
            # The process is stopping and has given this request all the time it had (`server/app.py`). What it asked
            # may have been done, so the caller must know that asking again is right; nothing follows this answer.
            if has_started:
                raise
            await error_response(Unavailable("this server is being stopped; ask again"))(scope, receive, watched)
        except ClientDisconnect:  # in the middle of its own body: nobody is there to be answered, and nothing failed
            _log.info("request.left", path=scope.get("path"))
        except BaseException as wrong:  # the boundary of a request
            pass_on(wrong)
            error = _ours(wrong)
            if error is None:
                _log.exception("request.crashed", path=scope.get("path"))
            if has_started:
                raise
            failed = {"detail": "something failed inside the server; it is in its log", "code": "internal"}
            response = answer(500, failed) if error is None else error_response(error)
            await response(scope, receive, watched)


def tell_started(scope: Scope, status: int) -> None:
    """For streams, which outlive what stands around their endpoint: called just before they start their answer."""
    scope.pop(_STARTED)(status)  # a stream is open for hours, and keeps its scope


def _ours(wrong: BaseException) -> ThreadcastError | None:
    """Our error, also when a task group wrapped it; None for any other, or several at once. A chat that a newer
    version wrote is no mistake of this one: another process can show it. Nor is a chat whose log is damaged, which
    `docs/operations.md` says is answered 503."""
    while isinstance(wrong, BaseExceptionGroup) and len(wrong.exceptions) == 1:
        wrong = wrong.exceptions[0]
    if isinstance(wrong, NewerVersion):
        return Unavailable(NEWER_VERSION)
    if isinstance(wrong, Gap):
        _log.error("chat.unreadable", error=str(wrong))
        return Unavailable("the log of this chat cannot be read; the reason is in the server's own log")
    return wrong if isinstance(wrong, ThreadcastError) else None


def _route_of(scope: Scope) -> str:
    """The endpoint's name: a label must not grow with what clients write into paths."""
    endpoint = scope.get("endpoint")
    return str(getattr(endpoint, "__name__", None) or type(endpoint).__name__.strip("_").lower())


_STREAMS = frozenset({"/v1/chats/subscribe"})
"""They get the server's own `send`, and say themselves when they have started."""

_STARTED = "threadcast.started"
