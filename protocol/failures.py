"""Why a run ended without a whole answer, kept with the message that it failed for (PROTOCOL §8).

The failure stands in `extra` of the last message of the path: the broken answer where something of it was kept, else
the question or the tool's result that got no answer. Snapshots, copies, exports and older workers carry `extra` as it
is, so the failure lasts as long as its message. An answer that follows it on the path supersedes it.
"""

from typing import Any

import msgspec
from msgspec.structs import replace

from protocol.messages import JsonObject, Message

__all__ = [
    "CRASH_LOOP",
    "ROUND_LIMIT",
    "STOPPED",
    "Failure",
    "details_of",
    "failure_of",
    "with_failure",
    "without_failure",
]

_KEY = "failure"


class Failure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Says why a run ended without a complete answer.

    `code` is one of PROTOCOL §17, `message` a fixed sentence. `reason` is what the model's provider said, cleaned and
    without secrets; it is untrusted, so show it as plain text only. `status` is the provider's HTTP status, `retry_at`
    the time before which the provider asks not to be called again (Unix milliseconds), `model` the model that was
    asked.
    """

    code: str
    message: str
    reason: str = ""
    status: int | None = None
    retry_at: int | None = None
    model: str = ""


STOPPED = Failure(code="aborted", message="Stopped before an answer.")
ROUND_LIMIT = Failure(code="max_tool_rounds", message="The run used all its rounds of tools.")
CRASH_LOOP = Failure(
    code="crash_loop", message="The run was stopped: its server died three times without getting further."
)


def failure_of(message: Message) -> Failure | None:
    """Return the failure stored with `message`; None if it has no readable failure (`extra` may come from a client)."""
    found: Any = message.extra.get(_KEY)  # Any: JSON
    try:
        return None if found is None else msgspec.convert(found, Failure)
    except msgspec.ValidationError:
        return None


def with_failure(message: Message, failure: Failure | None) -> Message:
    """Return `message` with `failure` in place of its present failure; None removes the present failure."""
    extra = {name: value for name, value in message.extra.items() if name != _KEY}
    if failure is not None:
        extra[_KEY] = msgspec.to_builtins(failure)
    return message if extra == message.extra else replace(message, extra=extra)


def without_failure(message: Message) -> Message:
    return with_failure(message, None)


def details_of(failure: Failure) -> JsonObject | None:
    """Return `details` of the event `error`: the fields of a failure beside code and message; None if all are unset."""
    told: JsonObject = msgspec.to_builtins(failure)
    return {name: value for name, value in told.items() if name not in ("code", "message")} or None
