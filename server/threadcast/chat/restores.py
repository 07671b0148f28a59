"""Checks and converts messages that a client restores (PROTOCOL §2).

The endpoint uses the module to refuse invalid messages, and the decider uses it to fill the chat. Only the content and
the calls of a message are used. Values that the server derives (places in the tree, lists of attachments, users' names)
are ignored. All functions are pure.
"""

from collections.abc import Mapping, Sequence

import msgspec

from threadcast.chat.message_checks import check_message
from threadcast_protocol.wire.content import check_text
from threadcast_protocol.wire.errors import BadRequest, TooLarge, explain
from threadcast_protocol.wire.ids import check_id
from threadcast_protocol.wire.messages import JsonObject, Message, text_of

__all__ = ["NOTES", "NOTES_MAX_BYTES", "RESTORED_MAX_COUNT", "TAKEN", "read_messages"]

RESTORED_MAX_COUNT = 10_000
"""The maximum number of messages of one `restore_messages`. The longest chats that are measured have this length
(DESIGN §13)."""

NOTES_MAX_BYTES = 65_536
"""The maximum bytes of a restored message's other fields (thinking, citations, extra) as JSON."""

CALL_ID_MAX_CHARACTERS = 128

TAKEN = frozenset({"role", "content", "message_id", "tool_calls", "tool_call_id", "tool_failed", "usage", "model"})
NOTES = frozenset({"thinking_blocks", "citations", "server_content_blocks", "extra"})
_FINISH_REASONS = frozenset({"stop", "tool_calls", "length", "content_filter", "abort", "error"})


def read_messages(messages: Sequence[JsonObject]) -> list[Message]:
    """Convert messages from a client. A missing `message_id` becomes '', and missing content becomes ''. Unknown keys
    are left out. Repeated call ids become unique, both in the calls and in their results.

    Raises:
        BadRequest: an element is not a message; `path` points at the element.
        TooLarge: the text or the other fields of a message are too large.
    """
    if len(messages) > RESTORED_MAX_COUNT:
        raise BadRequest(f"at most {RESTORED_MAX_COUNT} messages can be restored", path="/messages")
    calls = _CallIds()
    return [calls.told_apart(_read(message, f"/messages/{i}")) for i, message in enumerate(messages)]


def _read(foreign: JsonObject, path: str) -> Message:
    known = {key: value for key, value in foreign.items() if key in TAKEN | NOTES and value is not None}
    reason = foreign.get("finish_reason")
    if isinstance(reason, str) and reason in _FINISH_REASONS:
        known["finish_reason"] = reason
    if isinstance(foreign.get("reasoning_content"), str):
        known["reasoning_content"] = check_text(foreign["reasoning_content"], f"{path}/reasoning_content")
    created_at = foreign.get("created_at")
    if isinstance(created_at, int) and not isinstance(created_at, bool) and created_at > 0:
        known["created_at"] = created_at
    known.setdefault("content", "")
    known.setdefault("message_id", "")
    if isinstance(known.get("tool_calls"), list):
        known["tool_calls"] = [
            {"id": "", **call, "index": number} if isinstance(call, Mapping) else call
            for number, call in enumerate(known["tool_calls"])
        ]
    try:
        message = msgspec.convert(known, Message)
    except msgspec.ValidationError as wrong:
        text, pointer = explain(wrong)
        raise BadRequest(text, path=path + pointer) from None
    try:
        if message.message_id:
            check_id(message.message_id, "message_id")
        check_message(message)
    except BadRequest as wrong:
        raise BadRequest(wrong.message, path=f"{path}{wrong.path}") from None
    check_text(text_of(message.content) + "".join(call.function.arguments for call in message.tool_calls), path)
    if len(msgspec.json.encode([getattr(message, name) for name in sorted(NOTES)])) > NOTES_MAX_BYTES:
        raise TooLarge(f"besides its text and calls a message may have {NOTES_MAX_BYTES} bytes of JSON", path=path)
    return message


class _CallIds:
    """Makes call ids unique in the chat (PROTOCOL §8). A number is added to a repeated id, both in the call and in the
    result of the call."""

    def __init__(self) -> None:
        self._used: set[str] = set()
        self._open: dict[str, list[str]] = {}

    def told_apart(self, message: Message) -> Message:
        """Return `message` with unique call ids."""
        for call in message.tool_calls:
            self._open[call.id] = []  # later results belong to these calls, not to older calls with this id
        calls = [msgspec.structs.replace(call, id=self._new(call.id)) for call in message.tool_calls]
        answered = message.tool_call_id
        if answered is not None and (waiting := self._open.get(answered)):
            answered = waiting.pop(0) if len(waiting) > 1 else waiting[0]
        return msgspec.structs.replace(message, tool_calls=calls, tool_call_id=answered)

    def _new(self, wanted: str) -> str:
        base = wanted[:CALL_ID_MAX_CHARACTERS] or "call"  # some models often give no id
        name, number = base, 1
        while name in self._used:
            number += 1
            name = f"{base[: CALL_ID_MAX_CHARACTERS - 8]}-{number}"
        self._used.add(name)
        self._open[wanted].append(name)
        return name
