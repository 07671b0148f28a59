"""Checks messages, payloads and threads from clients and imports.

`restore_messages` and imports use the same checks, so that a restored chat can be exported and imported (PROTOCOL §2,
§1). Types were checked when the JSON was decoded; this module checks names and ranges.
"""

import re
from collections.abc import Iterator

from msgspec import UNSET

from threadcast_protocol.wire.errors import BadRequest
from threadcast_protocol.wire.events import PayloadAdded
from threadcast_protocol.wire.messages import AudioPart, FilePart, ImagePart, Message, Usage
from threadcast_protocol.wire.thread import ThreadChanges

__all__ = ["COUNT_MAX", "TIME_MAX_MS", "check_message", "check_payload", "check_thread"]

ROLE = re.compile("[a-z][a-z0-9_]{0,63}")
"""The pattern of a role's name. Roles are an open list (PROTOCOL §8)."""

TIME_MAX_MS = 253_402_300_799_999
"""The last millisecond of the year 9999, the maximum of dates in RFC 3339 and of Python's calendar."""

COUNT_MAX = 9_007_199_254_740_991
"""2^53 − 1, the largest integer that every JSON decoder represents exactly (RFC 8259 §6)."""

COST_MAX_USD = 1e12

PAYLOAD_SOURCES = frozenset({"tool", "llm", "preview"})
APPROVALS = frozenset({"pending", "rejected", "accepted", "committed", "commit_failed", "outcome_unknown"})
"""The sources of payloads (PROTOCOL §5), and the states of previews (PROTOCOL §11)."""


def check_message(message: Message) -> None:
    """Check the names and ranges of a message. Raises BadRequest, whose `path` is a JSON Pointer into the message."""
    if not ROLE.fullmatch(message.role):
        raise BadRequest("role must be a lower-case name: a letter, then at most 63 letters, digits or _", path="/role")
    if message.role == "tool" and not message.tool_call_id:
        raise BadRequest("a tool message must have a tool_call_id", path="/tool_call_id")
    _check_time(message.created_at, "/created_at")
    _check_usage(message.usage, "/usage")
    for number, call in enumerate(message.tool_calls):
        _check_count(call.index, f"/tool_calls/{number}/index")
    for path, size in _sizes(message):
        _check_count(size, f"{path}/bytes")
    _check_count(message.sibling_index, "/sibling_index")


def check_payload(payload: PayloadAdded) -> None:
    """Check the names of a payload. Raises BadRequest, whose `path` is a JSON Pointer into the payload."""
    if payload.source not in PAYLOAD_SOURCES:
        raise BadRequest(f"source must be one of {', '.join(sorted(PAYLOAD_SOURCES))}", path="/source")
    if payload.approval is not None and payload.approval not in APPROVALS:
        raise BadRequest(f"approval must be one of {', '.join(sorted(APPROVALS))}", path="/approval")


def check_thread(thread: ThreadChanges) -> None:
    """Check the fields of a thread that clients cannot set. The bounds of parameters are part of their types. Raises
    BadRequest."""
    for key in ("created_at", "last_active"):
        value = getattr(thread, key)
        _check_time(None if value is UNSET else value, f"/{key}")
    _check_usage(thread.usage if isinstance(thread.usage, Usage) else None, "/usage")


def _sizes(message: Message) -> Iterator[tuple[str, int | None]]:
    for number, part in enumerate(message.content if isinstance(message.content, list) else ()):
        match part:
            case ImagePart():
                yield f"/content/{number}/image_url", part.image_url.bytes
            case AudioPart():
                yield f"/content/{number}/input_audio", part.input_audio.bytes
            case FilePart():
                yield f"/content/{number}", part.bytes


def _check_usage(usage: Usage | None, path: str) -> None:
    if usage is None:
        return
    for name in usage.__struct_fields__:
        if name != "cost_usd":
            _check_count(getattr(usage, name), f"{path}/{name}")
    if usage.cost_usd is not None and not 0 <= usage.cost_usd <= COST_MAX_USD:
        raise BadRequest(f"cost_usd must be from 0 to {COST_MAX_USD:g}", path=f"{path}/cost_usd")


def _check_count(value: int | None, path: str) -> None:
    if value is not None and not 0 <= value <= COUNT_MAX:
        raise BadRequest(f"{path.rpartition('/')[2]} must be from 0 to {COUNT_MAX}", path=path)


def _check_time(value: int | None, path: str) -> None:
    if value is not None and not 0 <= value <= TIME_MAX_MS:
        raise BadRequest(f"{path[1:]} must be Unix milliseconds from 0 to {TIME_MAX_MS}", path=path)
