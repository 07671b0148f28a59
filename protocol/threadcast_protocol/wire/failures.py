"""The reason why a run ended without a complete answer, stored with the last message (PROTOCOL §8).

The failure is in `extra` of the last message of the path: the broken answer if a part of it was kept, otherwise the
question or the tool's result that was not answered. Snapshots, copies, exports and older workers keep `extra`
unchanged, so the failure lasts as long as its message. After a later answer on the path the failure no longer applies.
"""

from typing import Any

import msgspec
from msgspec.structs import replace

from threadcast_protocol.wire.messages import JsonObject, Message

__all__ = [
    "COMMAND_CRASHED",
    "CRASH_LOOP",
    "POISON",
    "ROUND_LIMIT",
    "STOPPED",
    "UNREADABLE",
    "Failure",
    "details_of",
    "failure_of",
    "with_failure",
    "without_failure",
]

_KEY = "failure"


class Failure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The reason why a run ended without a complete answer.

    `code` is a code of PROTOCOL §17, `message` a fixed sentence. `reason` is the error message of the model's provider,
    cleaned and without secrets; the text is untrusted, so show it as plain text only. `status` is the provider's HTTP
    status, `model` the model that was called. `retry_at` is the time before which the provider asks not to be called
    again (Unix milliseconds).
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
POISON = Failure(code="poison", message="The command was given up: its server died three times while carrying it out.")
UNREADABLE = Failure(code="internal", message="The command could not be read back.")
COMMAND_CRASHED = Failure(code="internal", message="The command failed inside the server.")


def failure_of(message: Message) -> Failure | None:
    """Return the failure stored with `message`, or None if the message has no readable failure. `extra` may come from a
    client."""
    found: Any = message.extra.get(_KEY)  # Any: JSON
    try:
        return None if found is None else msgspec.convert(found, Failure)
    except msgspec.ValidationError:
        return None


def with_failure(message: Message, failure: Failure | None) -> Message:
    """Return `message` with `failure` in place of its present failure. None removes the present failure."""
    extra = {name: value for name, value in message.extra.items() if name != _KEY}
    if failure is not None:
        extra[_KEY] = msgspec.to_builtins(failure)
    return message if extra == message.extra else replace(message, extra=extra)


def without_failure(message: Message) -> Message:
    """Return `message` without its failure."""
    return with_failure(message, None)


def details_of(failure: Failure) -> JsonObject | None:
    """Return the `details` of an `error` event: the fields of `failure` other than code and message. Returns None if
    all of these fields are unset."""
    told: JsonObject = msgspec.to_builtins(failure)
    return {name: value for name, value in told.items() if name not in ("code", "message")} or None
