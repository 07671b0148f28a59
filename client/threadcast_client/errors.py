"""The errors that the client raises, as a tree.

    ThreadcastError                 .code (PROTOCOL §17), .retryable, .message
    ├── Refused                     the server has refused, in an HTTP answer or an ack; waiting does not help
    │   ├── Unauthorized            ends the chat's stream; sent commands stay in the outbox
    │   ├── NotFound                the chat does not exist or is not the caller's; ends the chat's stream too
    │   ├── QueueFull               100 commands wait; send the command again when some have run
    │   └── BadRequest, InvalidContent, TooLarge, Forbidden, Conflict, IdempotencyMismatch, Gone, RateLimited,
    │       NoPendingDecision, AlreadyClaimed, Cancelled
    ├── Unreachable                 no answer in time; sent commands stay in the outbox and are sent later
    ├── Unreadable                  the server is not a Threadcast server, or this client cannot read its answers
    ├── AnswerFailed                the run ended without a complete answer
    ├── OutboxFull                  the outbox holds as many commands of one chat as it may
    ├── OutboxInUse                 another program has the outbox's file open
    └── ChatLeft                    the block of `async with client.chat(…)` has ended

The refusals are the classes of `wire/errors.py`, which the server uses, too: each code has one class.
"""

from threadcast_protocol.wire.errors import (
    AlreadyClaimed,
    BadRequest,
    Cancelled,
    Conflict,
    Forbidden,
    Gone,
    IdempotencyMismatch,
    InvalidContent,
    NoPendingDecision,
    NotFound,
    OtherApproverNeeded,
    QueueFull,
    RateLimited,
    Refused,
    ThreadcastError,
    TooLarge,
    Unauthorized,
)

__all__ = [
    "AlreadyClaimed",
    "AnswerFailed",
    "BadRequest",
    "Cancelled",
    "ChatLeft",
    "Conflict",
    "Forbidden",
    "Gone",
    "IdempotencyMismatch",
    "InvalidContent",
    "NoPendingDecision",
    "NotFound",
    "OtherApproverNeeded",
    "OutboxFull",
    "OutboxInUse",
    "QueueFull",
    "RateLimited",
    "Refused",
    "ThreadcastError",
    "TooLarge",
    "Unauthorized",
    "Unreachable",
    "Unreadable",
    "refusal",
]


class Unreachable(ThreadcastError):
    """The server did not answer in time. The client does not know whether a command has arrived. The client holds the
    command and posts it again. This is safe, because a command with a known id takes effect only once."""

    code = "unavailable"
    retryable = True


class Unreadable(ThreadcastError):
    """An answer cannot be understood, and another attempt would not help."""


class AnswerFailed(ThreadcastError):
    """The run ended without a complete answer.

    `outcome` is error, aborted, limit, interrupted or lost (the message no longer exists). `text` is the answer up to
    that moment. `code` is the code of the server's `error` event. `reason` is the message of the model's provider, if
    the server passes it on.
    """

    def __init__(self, message: str, *, outcome: str, text: str, code: str = "", reason: str = "") -> None:
        super().__init__(message)
        self.outcome = outcome
        self.text = text
        self.reason = reason
        self.code = code or outcome


class OutboxFull(ThreadcastError):
    """The outbox holds as many commands of this chat as the server would accept (PROTOCOL §18)."""

    code = "queue_full"
    retryable = True


class OutboxInUse(ThreadcastError):
    """Another program has the outbox's file open. Two programs must not send the same commands."""

    code = "conflict"


class ChatLeft(ThreadcastError):
    """The block of the chat has ended, so that commands can no longer be sent."""

    code = "cancelled"


_BY_CODE = {
    kind.code: kind
    for kind in (
        AlreadyClaimed, BadRequest, Cancelled, Conflict, Forbidden, Gone, IdempotencyMismatch, InvalidContent,
        NoPendingDecision, NotFound, OtherApproverNeeded, QueueFull, RateLimited, TooLarge, Unauthorized,
    )
}  # fmt: skip
_BY_STATUS = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    413: TooLarge,
    429: RateLimited,
}
"""Maps HTTP statuses to errors, for answers without a code of PROTOCOL §17, such as answers of a proxy."""


def refusal(code: str, message: str, *, status: int = 0, path: str | None = None) -> Refused:
    """Return the error for a code of PROTOCOL §17. The class of an unknown code follows from the HTTP status; the error
    keeps the code."""
    wrong = (_BY_CODE.get(code) or _BY_STATUS.get(status, Refused))(message, path=path)
    wrong.code = code or (wrong.code if status in _BY_STATUS else "bad_request")
    return wrong
