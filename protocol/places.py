"""Where a client stands in several chats at once: the id of a stream that carries more than one (PROTOCOL §4).

One word for each chat, joined by dots: `<tag>-<epoch>-<position>-<seq>`, the numbers in base 36. The tag is six
characters of a hash of the chat's id, so that an id stays good when chats join or leave the running stream, and when
they are asked for in another order. Clients hand ids back and never look inside. The rule: whatever cannot be read,
or is told twice, counts as no place, and that chat begins with a snapshot; never an error.
"""

import re
from collections.abc import Collection
from hashlib import blake2b

from protocol.ids import Position

__all__ = ["CHATS_MAX", "parse_places", "place_word", "tag_of"]

CHATS_MAX = 64
"""Chats on one stream: their places make an id of at most 2.5 kB, far below the 8 kB that proxies allow a header."""

TAG_CHARACTERS = 6
"""36^6 = 2 * 10^9: two of 64 chats collide once in a million streams, and then both begin with a snapshot."""

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_WORD = re.compile(rf"([0-9a-z]{{{TAG_CHARACTERS}}})-([0-9a-z]{{1,13}})-([0-9a-z]{{1,10}})-([0-9a-z]{{1,10}})")


def tag_of(chat_id: str) -> str:
    """The short name of a chat inside an id."""
    number = int.from_bytes(blake2b(chat_id.encode(), digest_size=8).digest(), "big")
    return _base36(number % 36**TAG_CHARACTERS).zfill(TAG_CHARACTERS)


def place_word(tag: str, place: Position) -> str:
    """One chat's word of the id."""
    return f"{tag}-{_base36(place.epoch)}-{_base36(place.position)}-{_base36(place.seq)}"


def parse_places(text: str, chat_ids: Collection[str]) -> dict[str, Position]:
    """Where the client stands in those of `chat_ids` that `text` tells of. The id of a single chat will do for one."""
    if len(chat_ids) == 1 and (single := Position.parse(text)) is not None:
        return dict.fromkeys(chat_ids, single)
    told: dict[str, Position | None] = {}
    for word in text.split(".", CHATS_MAX)[:CHATS_MAX]:
        match = _WORD.fullmatch(word)
        if match is None:
            continue
        epoch, position, seq = (int(number, 36) for number in match.groups()[1:])
        is_place = seq <= position and match[1] not in told
        told[match[1]] = Position(epoch, position, position - seq) if is_place else None
    tags = [tag_of(chat_id) for chat_id in chat_ids]
    places: dict[str, Position] = {}
    for chat_id, tag in zip(chat_ids, tags, strict=True):
        place = told.get(tag)
        if place is not None and tags.count(tag) == 1:
            places[chat_id] = place
    return places


def _base36(number: int) -> str:
    text = ""
    while number:
        number, digit = divmod(number, 36)
        text = _DIGITS[digit] + text
    return text or "0"
