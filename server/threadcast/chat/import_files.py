"""Reads a file of exported chats: first checks the whole file, then yields each chat in parts that fit into a command.

The file may be larger than memory, so only the ids and offsets of one chat at a time are kept in memory. The file is
passed as a `Lines` object; `api/spool.py` stores the file on disk. The functions are called in threads.
"""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple, Protocol, TypeAlias

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from threadcast.chat.exports import EXPORT_FORMAT, AgentLine, BlobLine, ExportHeader, Line, MessageLine, PayloadLine
from threadcast.chat.import_blobs import CheckedBlob, begins_as_blob, check_large_blob
from threadcast.chat.internal_commands import ImportChat
from threadcast.chat.message_checks import check_message, check_payload, check_thread
from threadcast_protocol.wire.blobs import Blob, parse_blob_url, true_mime
from threadcast_protocol.wire.bodies import NESTING_MAX, decode_body
from threadcast_protocol.wire.decoders import decoder
from threadcast_protocol.wire.errors import BadRequest, TooLarge
from threadcast_protocol.wire.ids import check_chat_id, check_id
from threadcast_protocol.wire.messages import ImagePart, Message
from threadcast_protocol.wire.thread import OBJECT_MAX_BYTES, is_too_large

__all__ = [
    "EMPTY_LINES_MAX",
    "IMPORT_MAX_CHATS",
    "IMPORT_MAX_CHILDREN",
    "IMPORT_MAX_SIBLINGS",
    "LINE_MAX_BYTES",
    "LINE_NESTING_MAX",
    "PART_MAX_BYTES",
    "PART_MAX_MESSAGES",
    "ChatInFile",
    "LineSpan",
    "Lines",
    "check_exports",
    "read_blobs",
    "read_parts",
]

IMPORT_MAX_CHATS = 1_000
"""The maximum number of chats in one body. A client that imports more chats sends several bodies."""

IMPORT_MAX_CHILDREN = 1_000
"""The maximum number of children of one message, and of messages without a parent. Each message has the list of all its
siblings, so the memory grows with the square of the number of siblings."""

IMPORT_MAX_SIBLINGS = 2_000_000
"""The maximum total length of the sibling lists in one chat. A chat reaches this length with 100,000 messages in groups
of 20 siblings. The worker needs about 360 MB for these lists if each id has 128 characters."""

LINE_MAX_BYTES = 23_068_672
"""The maximum length of a line. The longest line of an export has the largest blob, 22.4 MB in base64."""

NO_BLOB_MAX_BYTES = 16_777_216
"""The maximum length of a line that is not a blob. A request's body has the same maximum. Such a line takes twice its
length in memory while it is decoded."""

EMPTY_LINES_MAX = 1_000
"""The maximum number of empty lines in one body. Each empty line takes processing time although it has no content."""

LINE_NESTING_MAX = NESTING_MAX + 8
"""The maximum nesting in a line: the limit of a request's body, and a few levels for the objects that a line adds."""

PART_MAX_BYTES = 524_288
PART_MAX_MESSAGES = 500
"""The maximum size of one part, in bytes and in messages. A part is one command and becomes one entry of the log. The
fold of an entry is not interrupted, and its time grows with the size of the chat for each branch in the part. 500
branches of a chat of 100,000 messages take about a second, and a lease lasts 3.5 s. Storing a part or its entry blocks
the store for about 2 ms (`bench/holds.py`)."""

LARGE_BLOB_BYTES = 1_048_576
"""The line of a blob above this size is checked without being decoded as a whole (`check_large_blob`)."""


class LineSpan(NamedTuple):
    """The place of a line in the file: its offset, its length without the line end, and its number, counted from 1."""

    offset: int
    length: int
    number: int


class Lines(Protocol):
    """A file that several threads may read at once."""

    def spans(self, start: int = 0, end: int | None = None) -> Iterator[tuple[LineSpan, bytes | None]]:
        """Yield the lines that begin in [start, end) of the file, without blank lines. Lines are counted from 1,
        beginning at `start`. Each line is paired with its bytes, or with None if `line` must read the bytes.

        Raises:
            BadRequest: there are more than EMPTY_LINES_MAX blank lines.
            TooLarge: a line is longer than LINE_MAX_BYTES, or has too many values.
        """

    def line(self, span: LineSpan, raw: bytes | None = None) -> AbstractContextManager[bytes]:
        """Return a context manager with the bytes of a line, which are `raw` if it is given. The process reads only one
        large line at a time, so the `with` block must not wait for anything."""

    def read(self, offset: int, length: int) -> bytes:
        """Return `length` bytes from `offset` on."""


class ChatInFile(msgspec.Struct, frozen=True, kw_only=True):
    """A checked chat: its header, and the offsets at which its further lines begin and end. `digest` is the SHA-256 of
    all its lines including the header, in hex."""

    header: ExportHeader
    start: int
    end: int
    digest: str


class _Node(msgspec.Struct, frozen=True):
    message_id: str
    parent_id: str | None = None


class _Glance(msgspec.Struct, frozen=True):
    """The fields of a line that `_index` needs to find the places of messages in the tree."""

    type: str
    message: _Node | None = None


_Body: TypeAlias = MessageLine | PayloadLine | AgentLine | BlobLine | CheckedBlob
_lines: msgspec.json.Decoder[Line] = decoder(Line)
_glances = msgspec.json.Decoder(_Glance)


def check_exports(file: Lines, messages_max: int) -> list[ChatInFile]:
    """Check all lines of one or several exports, and return their chats in order. Empty lines are skipped.

    Raises:
        BadRequest: a line is invalid. `path` is `/<line number>`, from 1, and the JSON Pointer in the line.
        TooLarge: the file has too many chats, a chat has too many messages, payloads, agents or siblings, or a line is
            too long.
    """
    chats: list[ChatInFile] = []
    names: set[str] = set()
    check: _Check | None = None
    for span, known in file.spans():
        is_large_blob = span.length > LARGE_BLOB_BYTES and begins_as_blob(file.read(span.offset, 64))
        if span.length > NO_BLOB_MAX_BYTES and not is_large_blob:
            raise TooLarge(
                f'line {span.number} is longer than {NO_BLOB_MAX_BYTES} bytes and does not begin with {{"type":"blob"',
                path=f"/{span.number}",
            )
        with file.line(span, known) as raw:
            with _at(span.number):
                line = check_large_blob(raw) if is_large_blob else decode_body(_lines, raw, LINE_NESTING_MAX)
            if isinstance(line, ExportHeader):
                if check is not None:
                    chats.append(check.finish(span.offset))
                if line.chat_id in names:
                    raise _wrong(span.number, f"chat_id {line.chat_id!r} is used twice", "/chat_id")
                names.add(line.chat_id)
                if len(names) > IMPORT_MAX_CHATS:
                    raise TooLarge(f"one body may have {IMPORT_MAX_CHATS} chats: send the chats in several bodies")
                check = _Check(line, span, raw, messages_max)
            elif check is None:
                raise _wrong(span.number, "an export must begin with a line of the type chat")
            else:
                check.take(line, span, raw)
            del raw, line, known  # frees memory before the next line is read
    if check is None:
        raise BadRequest("the body has no export: send the lines of an export")
    chats.append(check.finish(None))
    return chats


def read_parts(file: Lines, chat: ChatInFile) -> Iterator[ImportChat]:
    """Yield the commands that create the chat, in order. The caller sets their request ids. The `import_id` of several
    parts has their maximum size, so that parts from a version with another size are never mixed with them."""
    messages, others = _index(file, chat)
    sized = [(span, span.length + size) for span, _, size in messages]
    plan = [*_parts_of(sized), *_parts_of([(span, span.length) for span in others])] or [[]]
    known = {span: told for span, told, _ in messages}
    for number, spans in enumerate(plan):
        part = ImportChat(
            client_request_id="import",
            import_id=chat.digest[:32] if len(plan) == 1 else f"{chat.digest[:32]}-{PART_MAX_BYTES}",
            part=number,
            parts=len(plan),
            thread=chat.header.thread,
            leaf_id=chat.header.leaf_id,
            messages=[],
        )
        for span in spans:
            with file.line(span) as raw:
                line = _lines.decode(raw)
                del raw
            match line:
                case MessageLine(message):
                    part.messages.append(replace(message, **known[span]))
                case PayloadLine(payload):
                    part.payloads.append(payload)
                case AgentLine(agent):
                    part.agents.append(agent)
                case _:
                    pass
        yield part


def read_blobs(file: Lines, chat: ChatInFile) -> Iterator[Blob]:
    """Yield the blobs of the chat, one after the other."""
    for span, known in file.spans(chat.start, chat.end):
        with file.line(span, known) as raw:
            line = _lines.decode(raw) if _glances.decode(raw).type == "blob" else None
            del raw, known
        if isinstance(line, BlobLine):
            yield Blob(line.hash, true_mime(line.data, line.mime), line.data)
        del line


def _index(file: Lines, chat: ChatInFile) -> tuple[list[tuple[LineSpan, dict[str, object], int]], list[LineSpan]]:
    """Return the places of the chat's messages, and those of its payloads and agents. Messages are in the order of the
    tree (`exports.in_tree_order`), and branches are in the order of the file. Each message is paired with its sibling
    fields and with the bytes that the sibling fields take in JSON."""
    families: dict[str | None, list[str]] = {}
    spans: dict[str, LineSpan] = {}
    others: list[LineSpan] = []
    for span, known in file.spans(chat.start, chat.end):
        with file.line(span, known) as raw:
            glance = _glances.decode(raw)
            del raw, known
        if glance.message is not None and glance.type == "message":
            families.setdefault(glance.message.parent_id, []).append(glance.message.message_id)
            spans[glance.message.message_id] = span
        elif glance.type != "blob":
            others.append(span)
    ordered: list[tuple[LineSpan, dict[str, object], int]] = []
    waiting = _siblings(families.get(None, []))
    while waiting:
        name, told, size = waiting.pop()
        ordered.append((spans[name], told, size))
        waiting += _siblings(families.get(name, []))
    return ordered, others


def _siblings(family: list[str]) -> list[tuple[str, dict[str, object], int]]:
    """Return the id of each message with its sibling fields and with the bytes of its list of siblings, in reverse
    order."""
    size = sum(len(name) + 3 for name in family)  # ids are ASCII; each id also takes two quotes and a comma
    return [
        (name, {"sibling_ids": family, "sibling_index": at}, size) for at, name in reversed(list(enumerate(family)))
    ]


def _parts_of(spans: Sequence[tuple[LineSpan, int]]) -> Iterator[list[LineSpan]]:
    """Divide lines into parts. Each line is paired with the number of bytes that it takes in the command."""
    part: list[LineSpan] = []
    size = 0
    for span, length in spans:
        if part and (len(part) >= PART_MAX_MESSAGES or size + length > PART_MAX_BYTES):
            yield part
            part, size = [], 0
        part.append(span)
        size += length
    if part:
        yield part


class _Check:
    """Checks the lines of one chat: parents exist, ids are unique, and the counts of the header are correct."""

    def __init__(self, header: ExportHeader, span: LineSpan, raw: bytes, messages_max: int) -> None:
        number = span.number
        if header.format > EXPORT_FORMAT:
            raise _wrong(number, f"format {header.format} is newer than this server's {EXPORT_FORMAT}", "/format")
        with _at(number):
            check_chat_id(header.chat_id)
        if header.message_count + header.payload_count + header.agent_count > messages_max:
            raise TooLarge(
                f"line {number}: a chat of more than {messages_max} messages, payloads and agents together cannot be "
                "imported",
                path=f"/{number}/message_count",
            )
        with _at(number, "/thread"):
            check_thread(header.thread)
        for key in ("context", "metadata"):
            value = getattr(header.thread, key)
            if value is not UNSET and is_too_large(value):
                raise _wrong(number, f"{key} must be at most {OBJECT_MAX_BYTES} bytes of JSON", f"/thread/{key}")
        self._header = header
        self._span = span
        self._end = span.offset + span.length + 1
        self._digest = hashlib.sha256(raw)
        self._messages: set[str] = set()
        self._children: dict[str | None, int] = {}
        self._siblings_count = 0
        self._payloads: set[str] = set()
        self._blobs: set[str] = set()
        self._agents_count = 0

    def take(self, line: _Body, span: LineSpan, raw: bytes) -> None:
        """Check the next line of the chat."""
        number = span.number
        self._end = span.offset + span.length + 1
        self._digest.update(b"\n")
        self._digest.update(raw)
        match line:
            case MessageLine(message):
                self._check_message(message, number)
                self._messages.add(message.message_id)
                self._count_siblings(message.parent_id, number)
            case PayloadLine(payload):
                with _at(number, "/payload"):
                    check_id(payload.payload_id, "payload_id")
                    check_payload(payload)
                if payload.payload_id in self._payloads:
                    raise _wrong(number, f"payload_id {payload.payload_id!r} is used twice", "/payload/payload_id")
                self._payloads.add(payload.payload_id)
            case AgentLine():
                self._agents_count += 1
            case BlobLine(name, _, data):
                if hashlib.sha256(data).hexdigest() != name:
                    raise _wrong(number, "hash is not the SHA-256 of data", "/hash")
                self._blobs.add(name)
            case CheckedBlob(name):
                self._blobs.add(name)
        header = self._header
        limits = (header.message_count, header.payload_count, header.agent_count)
        if any(count > told for count, told in zip(self._counts(), limits, strict=False)):
            raise self._miscounted()

    def _count_siblings(self, parent_id: str | None, number: int) -> None:
        count = self._children[parent_id] = self._children.get(parent_id, 0) + 1
        # `count` lists with `count` ids each replace `count - 1` lists with `count - 1` ids each.
        self._siblings_count += 2 * count - 1
        if count > IMPORT_MAX_CHILDREN:
            whose = "messages without a parent" if parent_id is None else f"messages with the parent {parent_id!r}"
            raise _too_many(number, f"more than {IMPORT_MAX_CHILDREN} {whose} cannot be imported")
        if self._siblings_count > IMPORT_MAX_SIBLINGS:
            raise _too_many(number, f"the sibling lists of its chat hold more than {IMPORT_MAX_SIBLINGS} ids together")

    def _counts(self) -> tuple[int, int, int, int]:
        return len(self._messages), len(self._payloads), self._agents_count, len(self._blobs)

    def _check_message(self, message: Message, number: int) -> None:
        with _at(number, "/message"):
            check_id(message.message_id, "message_id")
            check_message(message)
        if message.message_id in self._messages:
            raise _wrong(number, f"message_id {message.message_id!r} is used twice", "/message/message_id")
        if message.parent_id is not None and message.parent_id not in self._messages:
            raise _wrong(number, f"parent_id {message.parent_id!r} is not an earlier message", "/message/parent_id")
        for at, part in enumerate(message.content if isinstance(message.content, list) else ()):
            if isinstance(part, ImagePart) and not self._is_image(part.image_url.url):
                raise _wrong(
                    number, "an image must be a data URL or a blob of this chat", f"/message/content/{at}/image_url/url"
                )

    def _is_image(self, url: str) -> bool:
        span = parse_blob_url(url)
        return url.startswith("data:image/") if span is None else span[0] == self._header.chat_id

    def finish(self, end: int | None) -> ChatInFile:
        """Check the counts, and return the chat, which ends at the offset `end` or, if None, after its last line."""
        header, number = self._header, self._span.number
        if self._counts() != (header.message_count, header.payload_count, header.agent_count, header.blob_count):
            raise self._miscounted()
        if header.leaf_id is not None and header.leaf_id not in self._messages:
            raise _wrong(number, f"leaf_id {header.leaf_id!r} is not a message of the chat", "/leaf_id")
        return ChatInFile(
            header=header,
            start=self._span.offset + self._span.length + 1,
            end=self._end if end is None else end,
            digest=self._digest.hexdigest(),
        )

    def _miscounted(self) -> BadRequest:
        header = self._header
        messages, payloads, agents, blobs = self._counts()
        return _wrong(
            self._span.number,
            f"the header counts {header.message_count} messages, {header.payload_count} payloads, {header.agent_count} "
            f"agents and {header.blob_count} blobs, the file has {messages}, {payloads}, {agents} and {blobs}: it was "
            "cut or changed",
        )


@contextmanager
def _at(number: int, path: str = "") -> Iterator[None]:
    """Add the number of the line, and the position in the line, to each BadRequest that the block raises."""
    try:
        yield
    except BadRequest as wrong:
        raise _wrong(number, wrong.message, f"{path}{wrong.path or ''}") from None


def _wrong(number: int, text: str, path: str = "") -> BadRequest:
    return BadRequest(f"line {number}: {text}", path=f"/{number}{path}")


def _too_many(number: int, text: str) -> TooLarge:
    return TooLarge(f"line {number}: {text}", path=f"/{number}/message/parent_id")
