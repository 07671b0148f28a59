"""The exceptions of the product, each with a stable code.

    ThreadcastError
    ├── Refused                     the request cannot be fulfilled as it is
    │   ├── BadRequest              bad_request          wrong JSON, type, field or id
    │   ├── InvalidContent          invalid_content      content parts that PROTOCOL §10 refuses
    │   ├── TooLarge                too_large
    │   │   └── StorageFull         storage_full         the caller stores as much as one caller may
    │   ├── Unauthorized            unauthorized
    │   ├── Forbidden               forbidden
    │   ├── NotFound                not_found            also: belongs to another caller
    │   ├── Gone                    gone                 a position no longer held
    │   ├── Conflict                conflict
    │   ├── IdTaken                 id_taken             another caller has a chat of this id
    │   ├── IdempotencyMismatch     idempotency_mismatch same request id, other body
    │   ├── QueueFull               queue_full
    │   ├── RateLimited             rate_limited         the caller has reached a limit
    │   ├── NoPendingDecision       no_pending_decision
    │   ├── OtherApproverNeeded     other_approver_needed
    │   ├── AlreadyClaimed          already_claimed
    │   └── Cancelled               cancelled
    └── Failed                      something failed here
        ├── Unavailable             unavailable          the store does not answer or refuses writes
        │   └── StoreFull           store_full           the store's memory is full
        ├── ModelFailed             llm_error, stream_error, timeout, connection, auth_failed, context_overflow,
        │                           rate_limited; a run also ends by empty_answer: the model answered with nothing
        ├── ToolFailed              tool_error
        └── Internal                internal

Codes are part of the API (PROTOCOL §17); sentences may change. Only `api/errors.py` maps codes to HTTP statuses.
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
    "IdTaken",
    "IdempotencyMismatch",
    "Internal",
    "InvalidContent",
    "ModelFailed",
    "NoPendingDecision",
    "NotFound",
    "OtherApproverNeeded",
    "QueueFull",
    "RateLimited",
    "Refused",
    "StorageFull",
    "StoreFull",
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
        "storage_full",
        "unauthorized",
        "forbidden",
        "not_found",
        "gone",
        "conflict",
        "id_taken",
        "idempotency_mismatch",
        "queue_full",
        "rate_limited",
        "unavailable",
        "store_full",
        "not_implemented",
        "no_pending_decision",
        "other_approver_needed",
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
"""All error codes (PROTOCOL §17)."""


class ThreadcastError(Exception):
    """The base of all errors of this product. `retryable` means that the same request may succeed later, unchanged."""

    code = "internal"
    retryable = False

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class Refused(ThreadcastError):
    """The request cannot be fulfilled as it is. `path` is a JSON Pointer (RFC 6901) into the request's body."""

    def __init__(self, message: str, *, path: str | None = None) -> None:
        super().__init__(message)
        self.path = path


class BadRequest(Refused):
    """The request is not valid JSON, or a field or an id is invalid."""

    code = "bad_request"


class InvalidContent(Refused):
    """The content of a message is invalid (PROTOCOL §10)."""

    code = "invalid_content"


class TooLarge(Refused):
    """The request, or a part of it, is too large."""

    code = "too_large"


class StorageFull(TooLarge):
    """The caller stores as many bytes or chats as one caller may. Deleting chats makes room."""

    code = "storage_full"


class Unauthorized(Refused):
    """The caller has no valid token."""

    code = "unauthorized"


class Forbidden(Refused):
    """The caller lacks a permission."""

    code = "forbidden"


class NotFound(Refused):
    """The object does not exist, or belongs to another caller."""

    code = "not_found"


class Gone(Refused):
    """The position is no longer available."""

    code = "gone"


class Conflict(Refused):
    """The request conflicts with the present state."""

    code = "conflict"


class IdTaken(Refused):
    """Another caller has, or had until recently, a chat of the id that a command or an import would create."""

    code = "id_taken"

    def __init__(self, message: str = "") -> None:
        super().__init__(
            message
            or "this chat id is taken; choose a new one, at best 128 random bits, which nobody else chooses by chance",
            path="/chat_id",
        )


class IdempotencyMismatch(Refused):
    """Another command with the same request id has another body."""

    code = "idempotency_mismatch"


class QueueFull(Refused):
    """Too many commands are waiting."""

    code = "queue_full"
    retryable = True


class RateLimited(Refused):
    """The caller has reached a limit."""

    code = "rate_limited"
    retryable = True


class NoPendingDecision(Refused):
    """No such decision or call is pending."""

    code = "no_pending_decision"


class OtherApproverNeeded(Refused):
    """The tool needs the approval of another caller than the requester of the call."""

    code = "other_approver_needed"


class AlreadyClaimed(Refused):
    """Another client has claimed the call."""

    code = "already_claimed"


class Cancelled(Refused):
    """The command was removed from the queue before it ran."""

    code = "cancelled"


class Failed(ThreadcastError):
    """Something failed in the server, or in a service that the server uses."""


class Unavailable(Failed):
    """The store does not respond, or refuses writes."""

    code = "unavailable"
    retryable = True


class StoreFull(Unavailable):
    """The store's memory is full, so the store accepts no new data. It still answers reads and deletes chats."""

    code = "store_full"


class ModelFailed(Failed):
    """A model call failed. The sentence is fixed and may be shown to users; `detail` is for the server's log only.

    `code` is llm_error, stream_error, timeout, connection, auth_failed, context_overflow or rate_limited (PROV-7).
    `reason` is the provider's error message, unchanged; `agent_loop/reasons.py` cleans it before clients see it.
    `status` is the provider's HTTP status. `retry_after_seconds` is the pause that the provider asks for.
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
    """A tool reports that it failed. The sentence is shown to the model."""

    code = "tool_error"


class Internal(Failed):
    """An error inside the server."""

    code = "internal"


_VALIDATION = re.compile(r"(?P<text>.*?)(?: - at `(?P<path>[^`]*)`)?", re.DOTALL)


def explain(wrong: msgspec.ValidationError) -> tuple[str, str]:
    """Return the message of a validation error, and its path as a JSON Pointer (RFC 6901): `/a/0/b` for msgspec's
    `$.a[0].b`."""
    match = _VALIDATION.fullmatch(str(wrong))
    if match is None:
        return str(wrong), ""
    path = (match["path"] or "").removeprefix("$").replace("[", ".").replace("]", "")
    return match["text"], "".join("/" + step for step in path.split(".") if step and step != "...")
