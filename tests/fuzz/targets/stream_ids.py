"""Ids, positions, cursors, scopes, URLs of blobs: the short texts in paths, queries and headers.

Each law also turns the value back into text, which must equal the input, so that no value has two spellings.
"""

from collections.abc import Callable
from random import Random

from tests.fuzz.target import Law, Target, held
from threadcast.chat.scopes import path_of, read_scope, scope_of_page
from threadcast_protocol.framing.stream_ids import parse_stream_ids, stream_id_word, tag_of
from threadcast_protocol.wire.blobs import blob_url, decode_base64, encode_base64, parse_blob_url
from threadcast_protocol.wire.errors import BadRequest
from threadcast_protocol.wire.ids import EntryId, Head, Position, check_chat_id, check_id

__all__ = ["stream_id_targets"]


def _text(law: Callable[[str, Random], bool]) -> Law:
    """Decode the text as the server does: headers as Latin-1, queries and JSON as UTF-8."""

    def of_bytes(data: bytes, random: Random) -> bool:
        return law(data.decode("latin-1") if random.random() < 0.5 else data.decode("utf-8", "replace"), random)

    return of_bytes


def _position(text: str, random: Random) -> bool:
    position = Position.parse(text)
    if position is None:
        return False
    held(text.isascii() and position.seq >= 0, text)
    held(Position.parse(str(position)) == position, position)
    return True


def _stream_ids(text: str, random: Random) -> bool:
    chat_ids = random.choice((["c1"], ["c1", "c2"], ["c2", "c3", "c1"]))
    stream_positions = parse_stream_ids(text, chat_ids)
    held(
        set(stream_positions) <= set(chat_ids)
        and all(stream_position.seq >= 0 for stream_position in stream_positions.values()),
        stream_positions,
    )
    words = ".".join(
        stream_id_word(tag_of(chat_id), stream_position) for chat_id, stream_position in stream_positions.items()
    )
    held(parse_stream_ids(words, chat_ids) == stream_positions, "places are others when they come back", words)
    return bool(stream_positions)


def _id(text: str, random: Random) -> bool:
    try:
        held(check_chat_id(text) == check_id(text, "chat_id") == text)
    except BadRequest:
        return False
    held(text.isascii() and 0 < len(text) <= 128 and not set(text) & set("/.\n {}*:"), text)
    return True


def _entry_id(text: str, random: Random) -> bool:
    accepted = False
    try:
        head = Head.parse(text)
        held(Head.parse(str(head)) == head, head)
        accepted = True
    except ValueError:
        pass
    try:
        entry_id = EntryId.parse(text)
        held(EntryId.parse(str(entry_id)) == entry_id, entry_id)
        accepted = True
    except ValueError:
        pass
    return accepted


def _scope(text: str, random: Random) -> bool:
    for value in (text, text.split(","), [text, 1], {text: text}):
        scope = read_scope(value)
        if scope is not None:
            held(not scope or read_scope(path_of(scope)) == scope, "a scope has two names", scope)
    page = scope_of_page([text])
    held(not page or read_scope(list(page)) == page, "a page is no scope", page)
    held(scope_of_page(page) == page, "a page has two names", page)
    return read_scope(text) is not None


def _blob_url(text: str, random: Random) -> bool:
    stream_position = parse_blob_url(text)
    if stream_position is not None:
        held(blob_url(*stream_position) == text, "a blob has two names", text)
    try:
        data = decode_base64(text)
    except ValueError:
        return stream_position is not None
    held(decode_base64(encode_base64(data)) == data, text)
    return True


def stream_id_targets() -> list[Target]:
    positions = [b"1700000000000-42-40", b"1-0-0", b"0-1-0", b"9223372036854775807-999999999999999-1"]
    words = [
        ".".join(stream_id_word(tag_of(name), Position(1_700_000_000_000, 42, 40)) for name in names).encode()
        for names in (["c1"], ["c1", "c2"], ["c3", "c2", "c1"], ["c1", "c1"])
    ]
    heads = [b"1-2", b"1700-3 abcdef 4", b"0-0  0"]
    ids = [b"c1", b"feed", b"subscribe", b"a" * 128, b"A_-9"]
    urls = [b"/v1/chats/c1/blobs/" + b"0f" * 32, b"aGVsbG8=", b"/v1/chats//blobs/"]
    return [
        Target("position", _text(_position), positions),
        Target("places", _text(_stream_ids), [*words, *positions]),
        Target("id", _text(_id), ids, weight=2),
        Target("entry-id", _text(_entry_id), heads, weight=2),
        Target("scope", _text(_scope), [b"reports/articles", b"a", b"a,b,c", b"a/b/c/d", b"general"], weight=2),
        Target("blob-url", _text(_blob_url), urls, weight=2),
    ]
