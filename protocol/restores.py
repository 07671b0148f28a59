"""Messages that a client hands back, read as ours: what of them is taken, and how they get ids that hold (PROTOCOL §2).

Pure, and used twice: at the edge, which refuses, and where the chat is filled. Only what a message says and which calls
it makes is taken; what the server derives (places in the tree, lists of attachments, who spoke) is never believed.
"""

from collections.abc import Mapping, Sequence

import msgspec

from protocol.content import check_text
from protocol.errors import BadRequest, TooLarge, explain
from protocol.ids import check_id
from protocol.message_checks import check_message
from protocol.messages import JsonObject, Message, text_of

__all__ = ["NOTES_MAX_BYTES", "RESTORED_MAX_COUNT", "read_messages"]

RESTORED_MAX_COUNT = 10_000
"""Messages of one `restore_messages`: as long as the longest chats that are measured (DESIGN §13)."""

NOTES_MAX_BYTES = 65_536
"""What stands beside a restored message's words and calls (thinking, citations, extra), as JSON."""

CALL_ID_MAX_CHARACTERS = 128

_TAKEN = frozenset({"role", "content", "message_id", "tool_calls", "tool_call_id", "tool_failed", "usage", "model"})
_NOTES = frozenset({"thinking_blocks", "citations", "server_content_blocks", "extra"})
_FINISH_REASONS = frozenset({"stop", "tool_calls", "length", "content_filter", "abort", "error"})


def read_messages(messages: Sequence[JsonObject]) -> list[Message]:
    """Foreign messages as ours: `message_id` is '' where it is missing, content may be null, keys that are not taken
    are left out. Call ids that stand twice are made unique, in the calls and in their results.

    Raises:
        BadRequest: not a message; `path` points at it.
        TooLarge: more text in one, or more beside it, than a message may hold.
    """
    if len(messages) > RESTORED_MAX_COUNT:
        raise BadRequest(f"at most {RESTORED_MAX_COUNT} messages can be restored", path="/messages")
    calls = _CallIds()
    return [calls.told_apart(_read(message, f"/messages/{i}")) for i, message in enumerate(messages)]


def _read(foreign: JsonObject, path: str) -> Message:
    known = {key: value for key, value in foreign.items() if key in _TAKEN | _NOTES and value is not None}
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
        text, place = explain(wrong)
        raise BadRequest(text, path=path + place) from None
    try:
        if message.message_id:
            check_id(message.message_id, "message_id")
        check_message(message)
    except BadRequest as wrong:
        raise BadRequest(wrong.message, path=f"{path}{wrong.path}") from None
    check_text(text_of(message.content) + "".join(call.function.arguments for call in message.tool_calls), path)
    if len(msgspec.json.encode([getattr(message, name) for name in sorted(_NOTES)])) > NOTES_MAX_BYTES:
        raise TooLarge(f"beside its words a message may have {NOTES_MAX_BYTES} bytes of JSON", path=path)
    return message


class _CallIds:
    """Call ids are unique in a chat (PROTOCOL §8): one that comes again gets a number, and so do its results."""

    def __init__(self) -> None:
        self._used: set[str] = set()
        self._open: dict[str, list[str]] = {}

    def told_apart(self, message: Message) -> Message:
        for call in message.tool_calls:
            self._open[call.id] = []  # results that follow belong to these calls, not to older ones
        calls = [msgspec.structs.replace(call, id=self._new(call.id)) for call in message.tool_calls]
        answered = message.tool_call_id
        if answered is not None and (waiting := self._open.get(answered)):
            answered = waiting.pop(0) if len(waiting) > 1 else waiting[0]
        return msgspec.structs.replace(message, tool_calls=calls, tool_call_id=answered)

    def _new(self, wanted: str) -> str:
        base = wanted[:CALL_ID_MAX_CHARACTERS] or "call"  # a model that gives none is not rare
        name, number = base, 1
        while name in self._used:
            number += 1
            name = f"{base[: CALL_ID_MAX_CHARACTERS - 8]}-{number}"
        self._used.add(name)
        self._open[wanted].append(name)
        return name
