"""A chat as lines of JSON: the whole tree, not only the path that is shown (PROTOCOL §1, SES-6).

`server/api/transfer.py` sends the lines, `import_files.py` reads them, `imports.py` makes a chat of them. An
export leaves out what is derived (sibling ids, a parent that is gone), so that a chat and its import give the same
bytes. Blobs are not part of the state: the caller sends their lines after the chat's.
"""

from collections.abc import Iterable, Iterator
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from protocol.blobs import Blob, blob_hashes
from protocol.events import PayloadAdded
from protocol.messages import JsonObject, Message
from protocol.reducer import drafted_message
from protocol.state import ChatState
from protocol.thread import Thread, ThreadChanges

__all__ = [
    "EXPORT_FORMAT",
    "AgentLine",
    "BlobLine",
    "ChatExport",
    "Header",
    "Line",
    "MessageLine",
    "PayloadLine",
    "blob_line",
    "export_lines",
    "export_of",
    "hashes_of",
    "in_tree_order",
    "tree_of",
]

EXPORT_FORMAT = 1
"""Raised when an older reader would lose something; a reader refuses what is newer than itself."""


class ChatExport(msgspec.Struct, frozen=True, kw_only=True):
    """A chat to be written. `messages` are in the tree's order, each after its parent. `leaf_id` is the last message of
    the active path, None for an empty path."""

    chat_id: str
    thread: ThreadChanges
    leaf_id: str | None
    messages: list[Message]
    payloads: list[PayloadAdded] = []
    agents: list[JsonObject] = []


class Header(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="chat"):
    """The counts let a reader notice a file that was cut."""

    format: int
    chat_id: str
    leaf_id: str | None
    message_count: int
    payload_count: int
    agent_count: int
    blob_count: int = 0
    thread: ThreadChanges


class MessageLine(msgspec.Struct, frozen=True, tag_field="type", tag="message"):
    message: Message


class PayloadLine(msgspec.Struct, frozen=True, tag_field="type", tag="payload"):
    payload: PayloadAdded


class AgentLine(msgspec.Struct, frozen=True, tag_field="type", tag="background_agent"):
    agent: JsonObject


class BlobLine(msgspec.Struct, frozen=True, tag_field="type", tag="blob"):
    """`data` is base64 on the line."""

    hash: str
    mime: str
    data: bytes


Line: TypeAlias = Header | MessageLine | PayloadLine | AgentLine | BlobLine
_encode = msgspec.json.Encoder().encode


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
    found: dict[str, None] = {}
    for each in (*chat.messages, *chat.payloads):  # encoded one by one, because together they may be 1 GiB of JSON
        found.update(dict.fromkeys(blob_hashes(_encode(each))))
    return tuple(found)


def _set_fields(thread: Thread) -> ThreadChanges:
    """What differs from a new chat's thread."""
    new = Thread(id=thread.id)
    changed = {
        name: value
        for name in ThreadChanges.__struct_fields__
        if (value := getattr(thread, name)) != getattr(new, name)
    }
    return ThreadChanges(**changed)


def export_lines(chat: ChatExport, blob_count: int = 0) -> Iterator[bytes]:
    """Yield the lines, each with its line end; the caller then sends `blob_count` lines of `blob_line`."""
    header = Header(
        format=EXPORT_FORMAT,
        chat_id=chat.chat_id,
        leaf_id=chat.leaf_id,
        message_count=len(chat.messages),
        payload_count=len(chat.payloads),
        agent_count=len(chat.agents),
        blob_count=blob_count,
        thread=chat.thread,
    )
    yield _encode(header) + b"\n"
    for line in (
        *map(MessageLine, chat.messages),
        *map(PayloadLine, chat.payloads),
        *map(AgentLine, chat.agents),
    ):
        yield _encode(line) + b"\n"


def blob_line(blob: Blob) -> bytes:
    """Encode a blob as a line, with its line end."""
    return _encode(BlobLine(blob.hash, blob.mime, blob.data)) + b"\n"
