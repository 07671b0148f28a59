"""A chat as lines of JSON, and back: the whole tree, not only the path that is shown (PROTOCOL §1, SES-6).

It knows neither HTTP nor the store; `server/api/transfer.py` sends and receives the lines, `imports.py` makes a chat of
them. The rule: what is derived is not written (sibling ids, a parent that is gone), so that a chat and its import give
the same bytes. Blobs are no part of a state: who exports puts them into the `ChatExport`, who imports takes them out.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from protocol.blobs import Blob, blob_hashes, parse_blob_url
from protocol.bodies import NESTING_MAX, decode_body
from protocol.errors import BadRequest, TooLarge
from protocol.events import PayloadAdded
from protocol.ids import RESERVED_CHAT_IDS, check_id
from protocol.message_checks import check_message, check_payload, check_thread
from protocol.messages import ImagePart, JsonObject, Message
from protocol.reducer import drafted_message
from protocol.state import ChatState
from protocol.thread import OBJECT_MAX_BYTES, Thread, ThreadChanges

__all__ = [
    "EXPORT_FORMAT",
    "IMPORT_MAX_CHATS",
    "IMPORT_MAX_MESSAGES",
    "LINE_NESTING_MAX",
    "ChatExport",
    "export_lines",
    "export_of",
    "hashes_of",
    "in_tree_order",
    "read_exports",
    "tree_of",
]

EXPORT_FORMAT = 1
"""Raised when an older reader would lose something; a reader refuses what is newer than itself."""

IMPORT_MAX_CHATS = 1_000
"""Of one body: more are sent in several."""

IMPORT_MAX_MESSAGES = 10_000
"""Of one chat, as of `restore_messages`: the longest chats that are measured (DESIGN §13). They are folded in one go,
at a cost that grows with the square: 1.5 s for as many, and a lease is 3.5 s."""


class ChatExport(msgspec.Struct, frozen=True, kw_only=True):
    """A chat to be written or restored. `messages` are in the tree's order, each after its parent;
    `leaf_id` ends the active path, None for an empty path."""

    chat_id: str
    thread: ThreadChanges
    leaf_id: str | None
    messages: list[Message]
    payloads: list[PayloadAdded] = []
    agents: list[JsonObject] = []
    blobs: list[Blob] = []


class _Header(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="chat"):
    """The counts let a reader notice a file that was cut."""

    format: int
    chat_id: str
    leaf_id: str | None
    message_count: int
    payload_count: int
    agent_count: int
    blob_count: int = 0
    thread: ThreadChanges


class _MessageLine(msgspec.Struct, frozen=True, tag_field="type", tag="message"):
    message: Message


class _PayloadLine(msgspec.Struct, frozen=True, tag_field="type", tag="payload"):
    payload: PayloadAdded


class _AgentLine(msgspec.Struct, frozen=True, tag_field="type", tag="background_agent"):
    agent: JsonObject


class _BlobLine(msgspec.Struct, frozen=True, tag_field="type", tag="blob"):
    """`data` is base64 on the line."""

    hash: str
    mime: str
    data: bytes


_Line = _Header | _MessageLine | _PayloadLine | _AgentLine | _BlobLine
_lines: msgspec.json.Decoder[_Line] = msgspec.json.Decoder(_Line)
_encode = msgspec.json.Encoder().encode
_T = TypeVar("_T")

LINE_NESTING_MAX = NESTING_MAX + 8
"""A line puts what came in a body of its own a few objects deeper."""


def tree_of(state: ChatState) -> list[Message]:
    """Every message with its siblings as they are now, the unfinished answer as it stands, in the tree's order.

    On the active path the parent is the message before; elsewhere a message whose parent is gone begins a tree.
    """
    nodes = dict(state.nodes)
    if state.draft is not None:
        nodes[state.draft.message.message_id] = drafted_message(state.draft)
    parents = {key: node.parent_id if node.parent_id in nodes else None for key, node in nodes.items()}
    parents.update(zip(state.path, (None, *state.path), strict=False))
    return in_tree_order([replace(node, parent_id=parents[key]) for key, node in nodes.items()])


def in_tree_order(messages: Iterable[Message]) -> list[Message]:
    """The messages, each told its siblings: every one with all that hangs below it, branches in the order given.

    In this order the parent of the next message always lies on the way to the one before, so that a chat is made anew
    without ever looking a path up.
    """
    families: dict[str | None, list[Message]] = {}
    for message in messages:
        families.setdefault(message.parent_id, []).append(message)
    ordered: list[Message] = []
    waiting = _told(families.get(None, []))[::-1]
    while waiting:
        message = waiting.pop()
        ordered.append(message)
        waiting += _told(families.get(message.message_id, []))[::-1]
    return ordered


def _told(family: list[Message]) -> list[Message]:
    names = [message.message_id for message in family]
    return [replace(message, sibling_ids=names, sibling_index=at) for at, message in enumerate(family)]


def export_of(state: ChatState) -> ChatExport:
    """Everything of a chat but what is going on in it: run, queue and remembered acks stay behind. An unfinished
    answer is kept as it stands, with status `partial` and finish reason `abort`: nobody goes on writing it."""
    drafted = state.draft.message.message_id if state.draft is not None else None
    messages = [
        replace(
            message,
            sibling_ids=[],
            sibling_index=None,
            status="partial" if message.message_id == drafted else message.status,
            finish_reason="abort" if message.message_id == drafted else message.finish_reason,
        )
        for message in tree_of(state)
    ]
    return ChatExport(
        chat_id=state.chat_id,
        thread=_set_fields(state.thread),
        leaf_id=state.path[-1] if state.path else None,
        messages=messages,
        payloads=list(state.payloads),
        agents=list(state.background_agents),
    )


def hashes_of(chat: ChatExport) -> tuple[str, ...]:
    """The blobs that its messages and payloads refer to, each once, in the order of the lines."""
    return blob_hashes(*map(_encode, chat.messages), *map(_encode, chat.payloads))


def _set_fields(thread: Thread) -> ThreadChanges:
    """What differs from a new chat's thread."""
    new = Thread(id=thread.id)
    changed = {
        name: value
        for name in ThreadChanges.__struct_fields__
        if (value := getattr(thread, name)) != getattr(new, name)
    }
    return ThreadChanges(**changed)


def export_lines(chat: ChatExport) -> Iterator[bytes]:
    """The lines, each with its line end."""
    header = _Header(
        format=EXPORT_FORMAT,
        chat_id=chat.chat_id,
        leaf_id=chat.leaf_id,
        message_count=len(chat.messages),
        payload_count=len(chat.payloads),
        agent_count=len(chat.agents),
        blob_count=len(chat.blobs),
        thread=chat.thread,
    )
    yield _encode(header) + b"\n"
    for line in (
        *map(_MessageLine, chat.messages),
        *map(_PayloadLine, chat.payloads),
        *map(_AgentLine, chat.agents),
        *(_BlobLine(blob.hash, blob.mime, blob.data) for blob in chat.blobs),
    ):
        yield _encode(line) + b"\n"


def read_exports(body: bytes) -> list[ChatExport]:
    """The chats of one or several exports, one after the other; empty lines are skipped.

    Raises:
        BadRequest: a line that is wrong, named by its number from 1; `path` is `/<line>` and the place within it.
        TooLarge: more chats, or more messages in one, than are taken.
    """
    chats: list[ChatExport] = []
    names: set[str] = set()
    reader: _Reader | None = None
    number = 0
    for number, raw in enumerate(body.split(b"\n"), start=1):
        if not raw.strip():
            continue
        line = _read_line(raw, number)
        if isinstance(line, _Header):
            if reader is not None:
                chats.append(reader.finish())
            if line.chat_id in names:
                raise _wrong(number, f"chat_id {line.chat_id!r} stands twice", "/chat_id")
            names.add(line.chat_id)
            if len(names) > IMPORT_MAX_CHATS:
                raise TooLarge(f"one body may hold {IMPORT_MAX_CHATS} chats: send it in parts")
            reader = _Reader(line, number)
        elif reader is None:
            raise _wrong(number, "an export begins with its line of type chat")
        else:
            reader.take(line, number)
    if reader is None:
        raise BadRequest("there is no export in the body: send the lines that an export gave")
    chats.append(reader.finish())
    return chats


def _read_line(raw: bytes, number: int) -> _Line:
    try:
        return decode_body(_lines, raw, LINE_NESTING_MAX)
    except BadRequest as wrong:
        raise _wrong(number, wrong.message, wrong.path or "") from None


class _Reader:
    """The lines of one chat, held to what a chat is: known parents, ids of their own, counts that are right."""

    def __init__(self, header: _Header, number: int) -> None:
        if header.format > EXPORT_FORMAT:
            raise _wrong(number, f"format {header.format} is newer than this server's {EXPORT_FORMAT}", "/format")
        _check_id(header.chat_id, "chat_id", number, "/chat_id")
        if header.chat_id in RESERVED_CHAT_IDS:
            raise _wrong(number, f"chat_id {header.chat_id!r} is reserved", "/chat_id")
        if header.message_count > IMPORT_MAX_MESSAGES:
            raise TooLarge(
                f"line {number}: a chat of more than {IMPORT_MAX_MESSAGES} messages cannot be imported",
                path=f"/{number}/message_count",
            )
        _checked(check_thread, header.thread, number, "/thread")
        for key in ("context", "metadata"):
            value = getattr(header.thread, key)
            if value is not UNSET and len(_encode(value)) > OBJECT_MAX_BYTES:
                raise _wrong(number, f"{key} must be at most {OBJECT_MAX_BYTES} bytes of JSON", f"/thread/{key}")
        self._header = header
        self._number = number
        self._messages: dict[str, Message] = {}
        self._payloads: dict[str, PayloadAdded] = {}
        self._agents: list[JsonObject] = []
        self._blobs: dict[str, Blob] = {}

    def take(self, line: _MessageLine | _PayloadLine | _AgentLine | _BlobLine, number: int) -> None:
        match line:
            case _MessageLine(message):
                self._check_message(message, number)
                self._messages[message.message_id] = replace(message, sibling_ids=[], sibling_index=None)
            case _PayloadLine(payload):
                _check_id(payload.payload_id, "payload_id", number, "/payload/payload_id")
                if payload.payload_id in self._payloads:
                    raise _wrong(number, f"payload_id {payload.payload_id!r} stands twice", "/payload/payload_id")
                _checked(check_payload, payload, number, "/payload")
                self._payloads[payload.payload_id] = payload
            case _AgentLine(agent):
                self._agents.append(agent)
            case _BlobLine(name, mime, data):
                if hashlib.sha256(data).hexdigest() != name:
                    raise _wrong(number, "hash is not the SHA-256 of data", "/hash")
                self._blobs[name] = Blob(name, mime, data)

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

    def finish(self) -> ChatExport:
        header = self._header
        counted = (len(self._messages), len(self._payloads), len(self._agents), len(self._blobs))
        told = (header.message_count, header.payload_count, header.agent_count, header.blob_count)
        if counted != told:
            raise _wrong(
                self._number,
                f"it tells of {told[0]} messages, {told[1]} payloads, {told[2]} agents and {told[3]} blobs, and has "
                f"{counted[0]}, {counted[1]}, {counted[2]} and {counted[3]}: the file was cut or changed",
            )
        if header.leaf_id is not None and header.leaf_id not in self._messages:
            raise _wrong(self._number, f"leaf_id {header.leaf_id!r} is none of its messages", "/leaf_id")
        return ChatExport(
            chat_id=header.chat_id,
            thread=header.thread,
            leaf_id=header.leaf_id,
            messages=list(self._messages.values()),
            payloads=list(self._payloads.values()),
            agents=self._agents,
            blobs=list(self._blobs.values()),
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
