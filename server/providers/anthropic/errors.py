"""Maps errors of the Anthropic client, its HTTP library, its server and Google's sign-in (on Vertex AI) to our causes.

The SDK wraps what goes wrong before the response; httpx2 raises unwrapped while its body is read. Import it only where
the SDK is wanted: importing `anthropic` costs a second.
"""

import re
from contextlib import suppress

import anthropic
import httpx2

from protocol.errors import ModelFailed
from server.providers.anthropic.events import ErrorBody
from server.providers.failures import Cause, model_failed, retry_after

__all__ = ["FOREIGN_ERRORS", "from_error_body", "from_exception"]

_sign_in_errors: tuple[type[Exception], ...] = ()
_no_connection: tuple[type[Exception], ...] = (anthropic.APIConnectionError, httpx2.TransportError)
with suppress(ModuleNotFoundError):  # installed with the extra anthropic-vertex
    from google.auth.exceptions import GoogleAuthError, TransportError

    _sign_in_errors = (GoogleAuthError,)
    _no_connection += (TransportError,)

FOREIGN_ERRORS: tuple[type[Exception], ...] = (
    anthropic.AnthropicError,
    httpx2.HTTPError,
    httpx2.StreamError,
    httpx2.InvalidURL,
    *_sign_in_errors,
)

_BY_STATUS: dict[int, Cause] = {
    401: "auth_failed",
    403: "auth_failed",
    404: "unknown_model",
    408: "timeout",
    429: "rate_limited",
    504: "timeout",
    529: "rate_limited",
}

_BY_WORD: dict[str, Cause] = {
    "authentication_error": "auth_failed",
    "billing_error": "auth_failed",
    "not_found_error": "unknown_model",
    "overloaded_error": "rate_limited",
    "permission_error": "auth_failed",
    "rate_limit_error": "rate_limited",
    "timeout_error": "timeout",
}
"""`type` of an error object. Overload is theirs, a rate limit ours, but both say: no more requests for now."""

_OVERFLOW = re.compile(r"prompt is too long|exceed context limit|context (length|window)|too many tokens", re.I)
"""An overflow is an `invalid_request_error` like any other; only the sentence tells."""


def from_exception(wrong: Exception, *, has_begun: bool) -> ModelFailed:
    """The failure behind a foreign exception. `has_begun`: something of the answer was already passed on."""
    detail = f"{type(wrong).__name__}: {wrong}"
    if isinstance(wrong, anthropic.APIStatusError):
        return model_failed(
            _cause(wrong.status_code, ErrorBody(wrong.type or "", str(wrong))),
            detail,
            body=wrong.body,
            status=wrong.status_code,
            retry_after_seconds=retry_after(wrong.response.headers),
        )
    is_timeout = isinstance(wrong, anthropic.APITimeoutError | httpx2.TimeoutException)
    if has_begun:
        return model_failed("silent" if is_timeout else "broken", detail)
    if is_timeout:
        return model_failed("timeout", detail)
    if isinstance(wrong, _no_connection):
        # The wrapped exception says which of the many ways a connection can fail it was.
        return model_failed("connection", f"{detail} ({wrong.__cause__!r})")
    return model_failed("auth_failed" if isinstance(wrong, _sign_in_errors) else "refused", detail)


def from_error_body(error: ErrorBody, *, has_begun: bool) -> ModelFailed:
    """The failure that the server reports inside its stream."""
    detail = f"error in the stream: {error.type}: {error.message}"
    return model_failed("broken" if has_begun else _cause(500, error), detail, body=error.message)


def _cause(status: int, error: ErrorBody) -> Cause:
    if error.type in _BY_WORD:
        return _BY_WORD[error.type]
    if status in (400, 413, 500) and _OVERFLOW.search(error.message):
        return "context_overflow"
    return _BY_STATUS.get(status) or ("server_error" if status >= 500 else "refused")
