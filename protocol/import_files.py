"""Reads a file of exports twice: first to check all of it, then chat by chat, in parts that fit a command each.

The file may be larger than memory, so nothing of it is kept but the ids and places of one chat at a time. The file
itself comes in as a `Lines`; `server/api/spool.py` has it on disk. Pure otherwise, and called in threads.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from protocol.blobs import Blob, parse_blob_url
from protocol.bodies import NESTING_MAX, decode_body
from protocol.commands import ImportChat
from protocol.errors import BadRequest, TooLarge
from protocol.exports import EXPORT_FORMAT, AgentLine, BlobLine, Header, Line, MessageLine, PayloadLine
from protocol.ids import RESERVED_CHAT_IDS, check_id
from protocol.message_checks import check_message, check_payload, check_thread
from protocol.messages import ImagePart, Message
from protocol.thread import OBJECT_MAX_BYTES

__all__ = [
    "EMPTY_LINES_MAX",
    "IMPORT_MAX_CHATS",
    "IMPORT_MAX_CHILDREN",
    "IMPORT_MAX_MESSAGES",
    "IMPORT_MAX_SIBLINGS",
    "LINE_MAX_BYTES",
    "LINE_NESTING_MAX",
    "PART_MAX_BYTES",
    "PART_MAX_MESSAGES",
    "ChatInFile",
    "Lines",
    "Place",
    "check_exports",
    "read_blobs",
    "read_parts",
]

IMPORT_MAX_CHATS = 1_000
"""The largest number of chats in one body; clients send more of them in several bodies."""

IMPORT_MAX_MESSAGES = 100_000
"""The largest number of messages, payloads and agents of one chat together, unless the operator sets another."""

IMPORT_MAX_CHILDREN = 1_000
"""The largest number of children of one message, and of messages without a parent. Each of them is given the list of
all its siblings, so the memory that they need grows with the square of their number."""

IMPORT_MAX_SIBLINGS = 2_000_000
"""The largest sum of the lengths of these lists in one chat: 100,000 messages with 20 siblings each reach it. The ids
take some 360 MB in the worker that holds the chat, when each has 128 characters."""

LINE_MAX_BYTES = 33_554_432
"""The largest blob takes 22 MB in base64; an export has no longer line."""

EMPTY_LINES_MAX = 1_000
"""The largest number of empty lines in one body. Each of them takes a step of its own and brings nothing."""

LINE_NESTING_MAX = NESTING_MAX + 8
"""A line of an export wraps a body in a few more objects."""

PART_MAX_BYTES = 2_097_152
PART_MAX_MESSAGES = 500
"""The limits of one part. A part is one command, which becomes one entry of the log. A part is folded in one go, at a
cost that grows with the chat for each branch in it: 500 branches of a chat of 100,000 messages take about a second, and
a lease is 3.5 s. 1 GiB in parts of 2 MiB fits an inbox, which holds 1,000."""


class Place(NamedTuple):
    """A line of the file: where it begins, how long it is without its line end, and its number from 1."""

    offset: int
    length: int
    number: int


class Lines(Protocol):
    """A file. Safe to read from several threads at once."""

    def places(self, start: int = 0, end: int | None = None) -> Iterator[tuple[Place, bytes]]:
        """Yield the lines that begin in [start, end) of the file, numbered from the first of them, without blank lines.
        A line longer than LINE_MAX_BYTES comes cut, with its whole length.

        Raises:
            BadRequest: more than EMPTY_LINES_MAX blank lines.
        """

    def read(self, offset: int, length: int) -> bytes: ...


class ChatInFile(msgspec.Struct, frozen=True, kw_only=True):
    """A chat that was checked: its header, and where the lines after that begin and end in the file. `digest` is the
    SHA-256 of them all, the header too, in hex."""

    header: Header
    start: int
    end: int
    digest: str


class _Node(msgspec.Struct, frozen=True):
    message_id: str
    parent_id: str | None = None


class _Glance(msgspec.Struct, frozen=True):
    """The fields of a line that the second reading needs."""

    type: str
    message: _Node | None = None


_T = TypeVar("_T")
_Body: TypeAlias = MessageLine | PayloadLine | AgentLine | BlobLine
_lines: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)
_glances = msgspec.json.Decoder(_Glance)


def check_exports(file: Lines, messages_max: int = IMPORT_MAX_MESSAGES) -> list[ChatInFile]:
    """Check all lines of one or several exports and return their chats, in order. Empty lines are skipped.

    Raises:
        BadRequest: a line that is wrong, named by its number from 1; `path` is `/<line>` and the place within it.
        TooLarge: more chats, more messages, payloads and agents in one, more siblings, or a longer line, than
            are taken.
    """
    chats: list[ChatInFile] = []
    names: set[str] = set()
    check: _Check | None = None
    for place, raw in file.places():
        if place.length > LINE_MAX_BYTES:
            raise TooLarge(f"line {place.number} is longer than {LINE_MAX_BYTES} bytes", path=f"/{place.number}")
        line = _read_line(raw, place.number)
        if isinstance(line, Header):
            if check is not None:
                chats.append(check.finish(place.offset))
            if line.chat_id in names:
                raise _wrong(place.number, f"chat_id {line.chat_id!r} stands twice", "/chat_id")
            names.add(line.chat_id)
            if len(names) > IMPORT_MAX_CHATS:
                raise TooLarge(f"one body may hold {IMPORT_MAX_CHATS} chats: send it in parts")
            check = _Check(line, place, raw, messages_max)
        elif check is None:
            raise _wrong(place.number, "an export begins with its line of type chat")
        else:
            check.take(line, place, raw)
    if check is None:
        raise BadRequest("there is no export in the body: send the lines that an export gave")
    chats.append(check.finish(None))
    return chats


def read_parts(file: Lines, chat: ChatInFile) -> Iterator[ImportChat]:
    """Yield the commands that make the chat, in order; the caller sets their request ids."""
    messages, others = _index(file, chat)
    sized = [(place, place.length + size) for place, _, size in messages]
    plan = [*_parts_of(sized), *_parts_of([(place, place.length) for place in others])] or [[]]
    known = {place: told for place, told, _ in messages}
    for number, places in enumerate(plan):
        part = ImportChat(
            client_request_id="import",
            import_id=chat.digest[:32],
            part=number,
            parts=len(plan),
            thread=chat.header.thread,
            leaf_id=chat.header.leaf_id,
            messages=[],
        )
        for place in places:
            match _lines.decode(file.read(place.offset, place.length)):
                case MessageLine(message):
                    part.messages.append(replace(message, **known[place]))
                case PayloadLine(payload):
                    part.payloads.append(payload)
                case AgentLine(agent):
                    part.agents.append(agent)
                case _:
                    pass
        yield part


def read_blobs(file: Lines, chat: ChatInFile) -> Iterator[Blob]:
    """Yield the blobs of the chat, one after the other."""
    for _, raw in file.places(chat.start, chat.end):
        if _glances.decode(raw).type == "blob":
            line = _lines.decode(raw)
            if isinstance(line, BlobLine):
                yield Blob(line.hash, line.mime, line.data)


def _index(file: Lines, chat: ChatInFile) -> tuple[list[tuple[Place, dict[str, object], int]], list[Place]]:
    """Find the places of messages, payloads and agents. Messages come depth first, branches in the order of the file,
    so that the parent of each message is an ancestor of the message before it or that message itself. With each message
    come its siblings, and the bytes that their list takes in JSON."""
    families: dict[str | None, list[str]] = {}
    places: dict[str, Place] = {}
    others: list[Place] = []
    for place, raw in file.places(chat.start, chat.end):
        glance = _glances.decode(raw)
        if glance.message is not None and glance.type == "message":
            families.setdefault(glance.message.parent_id, []).append(glance.message.message_id)
            places[glance.message.message_id] = place
        elif glance.type != "blob":
            others.append(place)
    ordered: list[tuple[Place, dict[str, object], int]] = []
    waiting = _siblings(families.get(None, []))
    while waiting:
        name, told, size = waiting.pop()
        ordered.append((places[name], told, size))
        waiting += _siblings(families.get(name, []))
    return ordered, others


def _siblings(family: list[str]) -> list[tuple[str, dict[str, object], int]]:
    """Give each message the ids of its siblings, and the bytes of their list, the last message first."""
    size = sum(len(name) + 3 for name in family)  # an id is ASCII, between two quotes and before a comma
    told: list[tuple[str, dict[str, object], int]] = [
        (name, {"sibling_ids": family, "sibling_index": at}, size) for at, name in enumerate(family)
    ]
    return told[::-1]


def _parts_of(places: Sequence[tuple[Place, int]]) -> Iterator[list[Place]]:
    """Divide the lines into parts. With each comes the number of bytes that it takes in the command."""
    part: list[Place] = []
    size = 0
    for place, length in places:
        if part and (len(part) >= PART_MAX_MESSAGES or size + length > PART_MAX_BYTES):
            yield part
            part, size = [], 0
        part.append(place)
        size += length
    if part:
        yield part


def _read_line(raw: bytes, number: int) -> Line:
    try:
        return decode_body(_lines, raw, LINE_NESTING_MAX)
    except BadRequest as wrong:
        raise _wrong(number, wrong.message, wrong.path or "") from None


class _Check:
    """Checks the lines of one chat: parents exist, ids are unique, and the header's counts are right."""

    def __init__(self, header: Header, place: Place, raw: bytes, messages_max: int) -> None:
        number = place.number
        if header.format > EXPORT_FORMAT:
            raise _wrong(number, f"format {header.format} is newer than this server's {EXPORT_FORMAT}", "/format")
        _check_id(header.chat_id, "chat_id", number, "/chat_id")
        if header.chat_id in RESERVED_CHAT_IDS:
            raise _wrong(number, f"chat_id {header.chat_id!r} is reserved", "/chat_id")
        if header.message_count + header.payload_count + header.agent_count > messages_max:
            raise TooLarge(
                f"line {number}: a chat of more than {messages_max} messages, payloads and agents together cannot be "
                "imported",
                path=f"/{number}/message_count",
            )
        _checked(check_thread, header.thread, number, "/thread")
        for key in ("context", "metadata"):
            value = getattr(header.thread, key)
            if value is not UNSET and len(msgspec.json.encode(value)) > OBJECT_MAX_BYTES:
                raise _wrong(number, f"{key} must be at most {OBJECT_MAX_BYTES} bytes of JSON", f"/thread/{key}")
        self._header = header
        self._place = place
        self._end = place.offset + place.length + 1
        self._digest = hashlib.sha256(raw)
        self._messages: set[str] = set()
        self._children: dict[str | None, int] = {}
        self._siblings_count = 0
        self._payloads: set[str] = set()
        self._blobs: set[str] = set()
        self._agents_count = 0

    def take(self, line: _Body, place: Place, raw: bytes) -> None:
        number = place.number
        self._end = place.offset + place.length + 1
        self._digest.update(b"\n" + raw)
        match line:
            case MessageLine(message):
                self._check_message(message, number)
                self._messages.add(message.message_id)
                self._count_siblings(message.parent_id, number)
            case PayloadLine(payload):
                _check_id(payload.payload_id, "payload_id", number, "/payload/payload_id")
                if payload.payload_id in self._payloads:
                    raise _wrong(number, f"payload_id {payload.payload_id!r} stands twice", "/payload/payload_id")
                _checked(check_payload, payload, number, "/payload")
                self._payloads.add(payload.payload_id)
            case AgentLine():
                self._agents_count += 1
            case BlobLine(name, _, data):
                if hashlib.sha256(data).hexdigest() != name:
                    raise _wrong(number, "hash is not the SHA-256 of data", "/hash")
                self._blobs.add(name)
        header = self._header
        limits = (header.message_count, header.payload_count, header.agent_count)
        if any(count > told for count, told in zip(self._counts(), limits, strict=False)):
            raise self._miscounted()

    def _count_siblings(self, parent_id: str | None, number: int) -> None:
        count = self._children[parent_id] = self._children.get(parent_id, 0) + 1
        self._siblings_count += 2 * count - 1  # count lists of this length stand in place of count - 1 shorter ones
        if count > IMPORT_MAX_CHILDREN:
            whose = "messages without a parent" if parent_id is None else f"messages with the parent {parent_id!r}"
            raise _too_many(number, f"more than {IMPORT_MAX_CHILDREN} {whose} cannot be imported")
        if self._siblings_count > IMPORT_MAX_SIBLINGS:
            raise _too_many(number, f"the sibling lists of its chat hold more than {IMPORT_MAX_SIBLINGS} ids together")

    def _counts(self) -> tuple[int, int, int, int]:
        return len(self._messages), len(self._payloads), self._agents_count, len(self._blobs)

    def _check_message(self, message: Message, number: int) -> None:
        _check_id(message.message_id, "message_id", number, "/message/message_id")
        if message.message_id in self._messages:
            raise _wrong(number, f"message_id {message.message_id!r} stands twice", "/message/message_id")
        if message.parent_id is not None and message.parent_id not in self._messages:
            raise _wrong(number, f"parent_id {message.parent_id!r} is no message before this one", "/message/parent_id")
        _checked(check_message, message, number, "/message")
        for at, part in enumerate(message.content if isinstance(message.content, list) else ()):
            if isinstance(part, ImagePart) and not self._is_image(part.image_url.url):
                raise _wrong(
                    number, "an image is a data URL or a blob of this chat", f"/message/content/{at}/image_url/url"
                )

    def _is_image(self, url: str) -> bool:
        place = parse_blob_url(url)
        return url.startswith("data:image/") if place is None else place[0] == self._header.chat_id

    def finish(self, end: int | None) -> ChatInFile:
        header, number = self._header, self._place.number
        if self._counts() != (header.message_count, header.payload_count, header.agent_count, header.blob_count):
            raise self._miscounted()
        if header.leaf_id is not None and header.leaf_id not in self._messages:
            raise _wrong(number, f"leaf_id {header.leaf_id!r} is none of its messages", "/leaf_id")
        return ChatInFile(
            header=header,
            start=self._place.offset + self._place.length + 1,
            end=self._end if end is None else end,
            digest=self._digest.hexdigest(),
        )

    def _miscounted(self) -> BadRequest:
        header = self._header
        messages, payloads, agents, blobs = self._counts()
        return _wrong(
            self._place.number,
            f"it tells of {header.message_count} messages, {header.payload_count} payloads, {header.agent_count} "
            f"agents and {header.blob_count} blobs, and has {messages}, {payloads}, {agents} and {blobs}: the file was "
            "cut or changed",
        )


def _check_id(value: str, what: str, number: int, path: str) -> None:
    try:
        check_id(value, what)
    except BadRequest as wrong:
        raise _wrong(number, wrong.message, path) from None


def _checked(check: Callable[[_T], None], what: _T, number: int, path: str) -> None:
    try:
        check(what)
    except BadRequest as wrong:
        raise _wrong(number, wrong.message, f"{path}{wrong.path}") from None


def _wrong(number: int, text: str, path: str = "") -> BadRequest:
    return BadRequest(f"line {number}: {text}", path=f"/{number}{path}")


def _too_many(number: int, text: str) -> TooLarge:
    return TooLarge(f"line {number}: {text}", path=f"/{number}/message/parent_id")
