"""What can go wrong for a program that uses the client, as a tree.

    ThreadcastError                 .code (PROTOCOL §17), .retryable, .message
    ├── Refused                     the server says no, by an HTTP answer or by an ack; waiting does not help
    │   ├── Unauthorized            ends the chat's stream; what was sent stays in the outbox
    │   ├── NotFound                no such chat, or not yours; ends the chat's stream too
    │   ├── QueueFull               100 commands wait; send it again when some have run
    │   └── BadRequest, InvalidContent, TooLarge, Forbidden, Conflict, IdempotencyMismatch, Gone, RateLimited,
    │       NoPendingDecision, AlreadyClaimed, Cancelled
    ├── Unreachable                 no answer in time; what was sent stays in the outbox and goes out later
    ├── Unreadable                  what answers is no Threadcast server, or one that this client does not understand
    ├── AnswerFailed                the run ended without a complete answer
    ├── OutboxFull                  more is waiting than one chat may hold
    ├── OutboxInUse                 another program has the outbox's file
    └── ChatLeft                    the block of `async with client.chat(…)` is over

The refusals are the server's own classes (`protocol/errors.py`): one code, one class, on both ends.
"""

from protocol.errors import (
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
    """No answer in time. A command may or may not have arrived; it is held, and its id makes it safe to repeat."""

    code = "unavailable"
    retryable = True


class Unreadable(ThreadcastError):
    """What came cannot be understood, and asking again will not change it."""


class AnswerFailed(ThreadcastError):
    """The run ended, and not with a complete answer. `outcome` is error, aborted, limit, interrupted or lost (the
    message is no longer there); `text` is what was said until then; `code` is that of the server's `error` event.
    `reason` is what the model's provider said, if the server passes it on."""

    def __init__(self, message: str, *, outcome: str, text: str, code: str = "", reason: str = "") -> None:
        super().__init__(message)
        self.outcome = outcome
        self.text = text
        self.reason = reason
        self.code = code or outcome


class OutboxFull(ThreadcastError):
    """So many commands wait for this chat that the server would take no more either (PROTOCOL §18)."""

    code = "queue_full"
    retryable = True


class OutboxInUse(ThreadcastError):
    """Two programs must not send the same file's commands."""

    code = "conflict"


class ChatLeft(ThreadcastError):
    """The chat is not watched any more, so nothing can be sent or waited for."""

    code = "cancelled"


_BY_CODE = {
    kind.code: kind
    for kind in (
        AlreadyClaimed, BadRequest, Cancelled, Conflict, Forbidden, Gone, IdempotencyMismatch, InvalidContent,
        NoPendingDecision, NotFound, QueueFull, RateLimited, TooLarge, Unauthorized,
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
"""For answers without a code of ours, such as a proxy's."""


def refusal(code: str, message: str, *, status: int = 0, path: str | None = None) -> Refused:
    """The error for a code of PROTOCOL §17; an unknown one goes by the HTTP status, and is kept."""
    wrong = (_BY_CODE.get(code) or _BY_STATUS.get(status, Refused))(message, path=path)
    wrong.code = code or (wrong.code if status in _BY_STATUS else "bad_request")
    return wrong
