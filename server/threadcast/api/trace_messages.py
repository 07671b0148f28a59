"""Puts the messages back into a trace that refers to them (`agent_loop/tracing.py`), as the chat holds them now.

A message that was removed is left out. If messages were removed or changed since, or if there are more messages than a
trace shows, the round's `cut` contains `messages`. It is pure.
"""

from collections.abc import Mapping

from threadcast_protocol.framing.codec import encode
from threadcast_protocol.wire.decoders import decode_any
from threadcast_protocol.wire.messages import JsonObject, Message, text_of

__all__ = ["has_references", "with_messages"]

MESSAGES_MAX_COUNT = 200
CHARACTERS_MAX_COUNT = 250_000
"""Maximum number of messages of a round, and maximum characters of their texts, in a trace. A stored record has the
same limits. The newest messages are shown. Without a bound, a run of many rounds in a long chat would be a trace of
hundreds of megabytes."""


def has_references(record: JsonObject) -> bool:
    return any(_is_reference(each) for each in record.get("messages") or ())


def with_messages(record: JsonObject, nodes: Mapping[str, Message]) -> JsonObject:
    """Return the record of a round with the messages that it refers to."""
    found: list[JsonObject] = []  # newest first
    is_cut = False
    room = CHARACTERS_MAX_COUNT
    for each in reversed(record.get("messages") or []):
        if not _is_reference(each):
            found.append(each)
            continue
        characters = 0
        at: str | None = each["last"]
        for _ in range(each["count"]):
            message = nodes.get(at) if at is not None else None
            if message is None:
                is_cut = True
                break
            size = len(text_of(message.content))
            characters, room = characters + size, room - size
            if len(found) < MESSAGES_MAX_COUNT and room >= 0:
                found.append(decode_any(encode(message)))
            else:
                is_cut = True
            at = message.parent_id
        is_cut = is_cut or characters != each["characters"]
    cut = sorted({*record.get("cut", ()), "messages"}) if is_cut else record.get("cut", [])
    return {**record, "messages": found[::-1], "cut": cut}


def _is_reference(item: object) -> bool:
    return isinstance(item, dict) and "last" in item and "role" not in item
