"""Maps errors of Anthropic's server to the causes of `failures.py`. Pure."""

import re

from threadcast.providers.failures import Cause, CauseTable

__all__ = ["cause_of"]

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
"""Causes by the `type` of an error object. An overload is the provider's fault and a rate limit the caller's, but in
both cases the provider accepts no more requests for now."""

_OVERFLOW = re.compile(r"prompt is too long|exceed context limit|context (length|window)|too many tokens", re.I)
"""An overflow is an `invalid_request_error` like many other errors; only the message identifies an overflow."""

_TABLE = CauseTable(_BY_STATUS, _BY_WORD, _OVERFLOW, (400, 413, 500))


def cause_of(status: int, message: str, type: str) -> Cause:
    """Return the cause of an error; `type` is the `type` field of the error object."""
    return _TABLE.cause(status, message, type)
