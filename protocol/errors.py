"""The tree of errors, with the stable code of each.

    ThreadcastError
    ├── Refused                     the caller asked for something that cannot be
    │   ├── BadRequest              bad_request          wrong JSON, type, field or id
    │   ├── InvalidContent          invalid_content      content parts that PROTOCOL §10 refuses
    │   ├── TooLarge                too_large
    │   ├── Unauthorized            unauthorized
    │   ├── Forbidden               forbidden
    │   ├── NotFound                not_found            also: somebody else's (no existence leak)
    │   ├── Gone                    gone                 a position no longer held
    │   ├── Conflict                conflict
    │   ├── IdempotencyMismatch     idempotency_mismatch same request id, other body
    │   ├── QueueFull               queue_full
    │   ├── RateLimited             rate_limited         more of something than one caller may have
    │   ├── NoPendingDecision       no_pending_decision
    │   ├── AlreadyClaimed          already_claimed
    │   └── Cancelled               cancelled
    └── Failed                      something failed here
        ├── Unavailable             unavailable          the store does not answer or refuses writes
        ├── ModelFailed             llm_error, stream_error, timeout, connection, auth_failed, context_overflow,
        │                           rate_limited; a run also ends by empty_answer: the model answered with nothing
        ├── ToolFailed              tool_error
        └── Internal                internal

Codes are API (PROTOCOL §17), sentences may change. Only `server/api/errors.py` knows what each means in HTTP.
"""

import re

import msgspec

__all__ = [
    "CODES",
    "AlreadyClaimed",
    "BadRequest",
    "Cancelled",
    "Conflict",
    "Failed",
    "Forbidden",
    "Gone",
    "IdempotencyMismatch",
    "Internal",
    "InvalidContent",
    "ModelFailed",
    "NoPendingDecision",
    "NotFound",
    "QueueFull",
    "RateLimited",
    "Refused",
    "ThreadcastError",
    "TooLarge",
    "ToolFailed",
    "Unauthorized",
    "Unavailable",
    "explain",
]

CODES = frozenset(
    {
        "bad_request",
        "invalid_content",
        "too_large",
        "unauthorized",
        "forbidden",
        "not_found",
        "gone",
        "conflict",
        "idempotency_mismatch",
        "queue_full",
        "rate_limited",
        "unavailable",
        "not_implemented",
        "no_pending_decision",
        "already_claimed",
        "cancelled",
        "llm_error",
        "stream_error",
        "timeout",
        "connection",
        "auth_failed",
        "context_overflow",
        "empty_answer",
        "tool_error",
        "max_tool_rounds",
        "aborted",
        "interrupted",
        "crash_loop",
        "poison",
        "unknown_mode",
        "internal",
    }
)
"""The closed set of codes (PROTOCOL §17)."""


class ThreadcastError(Exception):
    """Root of everything we raise. `retryable`: the same request may succeed later, unchanged."""

    code = "internal"
    retryable = False

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class Refused(ThreadcastError):
    """The caller asked for something that cannot be. `path` is a JSON Pointer (RFC 6901) into its body."""

    def __init__(self, message: str, *, path: str | None = None) -> None:
        super().__init__(message)
        self.path = path


class BadRequest(Refused):
    code = "bad_request"


class InvalidContent(Refused):
    code = "invalid_content"


class TooLarge(Refused):
    code = "too_large"


class Unauthorized(Refused):
    code = "unauthorized"


class Forbidden(Refused):
    code = "forbidden"


class NotFound(Refused):
    code = "not_found"


class Gone(Refused):
    code = "gone"


class Conflict(Refused):
    code = "conflict"


class IdempotencyMismatch(Refused):
    code = "idempotency_mismatch"


class QueueFull(Refused):
    code = "queue_full"
    retryable = True


class RateLimited(Refused):
    code = "rate_limited"
    retryable = True


class NoPendingDecision(Refused):
    code = "no_pending_decision"


class AlreadyClaimed(Refused):
    code = "already_claimed"


class Cancelled(Refused):
    code = "cancelled"


class Failed(ThreadcastError):
    """Something failed on our side or behind it."""


class Unavailable(Failed):
    code = "unavailable"
    retryable = True


class ModelFailed(Failed):
    """A model call failed. The sentence is fixed and fit for clients; `detail` goes to the server's log only.

    `code` is one of PROV-7's: llm_error, stream_error, timeout, connection, auth_failed, context_overflow,
    rate_limited. `reason` is the sentence of the provider's error, as it came: `server/agent/reasons.py` cleans it
    before clients see it. `status` is the provider's HTTP status; `retry_after_seconds` is the pause that the provider
    asks for.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        detail: str = "",
        retryable: bool = False,
        reason: str = "",
        status: int | None = None,
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.detail = detail
        self.retryable = retryable
        self.reason = reason
        self.status = status
        self.retry_after_seconds = retry_after_seconds


class ToolFailed(Failed):
    """A tool says that it failed; the sentence is shown to the model."""

    code = "tool_error"


class Internal(Failed):
    code = "internal"


_VALIDATION = re.compile(r"(?P<text>.*?)(?: - at `(?P<path>[^`]*)`)?", re.DOTALL)


def explain(wrong: msgspec.ValidationError) -> tuple[str, str]:
    """msgspec's sentence, and its path `$.a[0].b` as a JSON Pointer `/a/0/b` (RFC 6901)."""
    match = _VALIDATION.fullmatch(str(wrong))
    if match is None:
        return str(wrong), ""
    path = (match["path"] or "").removeprefix("$").replace("[", ".").replace("]", "")
    return match["text"], "".join("/" + step for step in path.split(".") if step and step != "...")
