"""Maps errors of Google's client, its HTTP library, its sign-in and its server to the causes of `failures.py`.

Import this module only with the SDK: importing `google.genai` costs half a second.
"""

import json
import re
from typing import Any

import httpx2
from google.auth.exceptions import GoogleAuthError, TransportError
from google.genai.errors import APIError, UnknownApiResponseError

from threadcast.providers.failures import RETRY_AFTER_MAX_SECONDS, Cause, CauseTable, model_failed
from threadcast.providers.sdk_errors import HTTP_ERRORS, SdkErrors
from threadcast_protocol.wire.errors import ModelFailed

__all__ = ["ERRORS"]

_BY_STATUS: dict[int, Cause] = {
    401: "auth_failed",
    403: "auth_failed",
    404: "unknown_model",
    408: "timeout",
    429: "rate_limited",
    499: "timeout",
    503: "rate_limited",
    504: "timeout",
}
"""503 is UNAVAILABLE: the model is overloaded."""

_OVERFLOW = re.compile(r"input token count|exceeds the maximum number of tokens|context (length|window)", re.I)
_BAD_KEY = re.compile(r"API key (not valid|expired)|API_KEY_INVALID", re.I)
"""Both errors are INVALID_ARGUMENT like many other errors; only the message identifies them."""


_TABLE = CauseTable(_BY_STATUS, {}, _OVERFLOW, (400, 413))


def _failure(wrong: Exception, has_begun: bool) -> ModelFailed:
    detail = f"{type(wrong).__name__}: {wrong}"
    is_timeout = isinstance(wrong, httpx2.TimeoutException)
    if has_begun:
        return model_failed("silent" if is_timeout else "broken", detail)
    if isinstance(wrong, APIError):
        return model_failed(
            _cause(wrong.code, detail),
            detail,
            body=wrong.message,
            status=wrong.code,
            retry_after_seconds=_retry_delay(wrong.details),
        )
    if isinstance(wrong, GoogleAuthError) and not isinstance(wrong, TransportError):
        return model_failed("auth_failed", detail)
    if isinstance(wrong, UnknownApiResponseError):
        return model_failed("malformed", type(wrong).__name__)  # its message contains the whole answer
    if is_timeout:
        return model_failed("timeout", detail)
    return model_failed("connection", detail)


def _retry_delay(details: Any) -> float | None:  # Any: JSON
    """Return the seconds until the model may be called again: the `retryDelay` ("34s") of a google.rpc.RetryInfo,
    anywhere in the error; None if there is no such field, or it asks for more than a day."""
    found = re.search(r'"retryDelay": ?"(\d{1,6}(?:\.\d+)?)s"', json.dumps(details, default=str))
    seconds = float(found[1]) if found else None
    return seconds if seconds is not None and seconds <= RETRY_AFTER_MAX_SECONDS else None


def _cause(status: int | None, detail: str) -> Cause:
    if status == 400 and _BAD_KEY.search(detail):
        return "auth_failed"
    return _TABLE.cause(status or 500, detail)


ERRORS = SdkErrors((APIError, UnknownApiResponseError, GoogleAuthError, *HTTP_ERRORS), _failure)
