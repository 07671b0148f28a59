"""The SSE id of a stream of several chats, which contains the client's position in each chat (PROTOCOL §4).

An id has one part per chat, joined by dots: `<tag>-<epoch>-<position>-<seq>`, the numbers in base 36. The tag is six
characters of a hash of the chat's id, so that an id stays valid when chats join or leave the running stream, and when
chats are requested in another order. Clients return ids without parsing them. An unreadable or duplicate part is not an
error: its chat begins with a snapshot.
"""

import re
from collections.abc import Collection
from hashlib import blake2b

from threadcast_protocol.wire.ids import Position

__all__ = ["CHATS_MAX", "parse_stream_ids", "stream_id_word", "tag_of"]

CHATS_MAX = 64
"""The maximum number of chats on one stream. With 64 chats an id has at most 2.5 kB, far below the 8 kB that proxies
allow for a header."""

TAG_CHARACTERS = 6
"""The length of a tag: 36^6 = 2 * 10^9 values. In one of a million streams of 64 chats, two chats have the same tag;
then both chats begin with a snapshot."""

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_WORD = re.compile(rf"([0-9a-z]{{{TAG_CHARACTERS}}})-([0-9a-z]{{1,13}})-([0-9a-z]{{1,10}})-([0-9a-z]{{1,10}})")


def tag_of(chat_id: str) -> str:
    """Return the tag that identifies a chat inside an id."""
    number = int.from_bytes(blake2b(chat_id.encode(), digest_size=8).digest(), "big")
    return _base36(number % 36**TAG_CHARACTERS).zfill(TAG_CHARACTERS)


def stream_id_word(tag: str, stream_position: Position) -> str:
    """Return the part of the id for one chat."""
    return f"{tag}-{_base36(stream_position.epoch)}-{_base36(stream_position.position)}-{_base36(stream_position.seq)}"


def parse_stream_ids(text: str, chat_ids: Collection[str]) -> dict[str, Position]:
    """Return the client's position in each chat of `chat_ids` whose part in the id `text` is readable. For a single
    chat, `text` may also be the id of a stream of only this chat."""
    if not text:
        return {}
    if len(chat_ids) == 1 and (single := Position.parse(text)) is not None:
        return dict.fromkeys(chat_ids, single)
    told: dict[str, Position | None] = {}
    for word in text.split(".", CHATS_MAX)[:CHATS_MAX]:
        match = _WORD.fullmatch(word)
        if match is None:
            continue
        epoch, position, seq = (int(number, 36) for number in match.groups()[1:])
        is_position = seq <= position and match[1] not in told
        told[match[1]] = Position(epoch, position, position - seq) if is_position else None
    tags = [tag_of(chat_id) for chat_id in chat_ids]
    return {
        chat_id: found
        for chat_id, tag in zip(chat_ids, tags, strict=True)
        if (found := told.get(tag)) is not None and tags.count(tag) == 1
    }


def _base36(number: int) -> str:
    text = ""
    while number:
        number, digit = divmod(number, 36)
        text = _DIGITS[digit] + text
    return text or "0"
