"""Exports a chat as lines of JSON with the whole tree of messages (PROTOCOL §1, SES-6).

`api/transfer.py` sends the lines, `import_files.py` reads them, `imports.py` creates a chat from them. An export leaves
out derived values (sibling ids, removed parents), so that an imported chat has the same export as the original. Blobs
are not part of the state; the caller sends their lines after the chat's lines.
"""

from collections.abc import Iterable, Iterator
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from threadcast.chat.owner_state import OwnerState
from threadcast_protocol.fold.reducer import drafted_message
from threadcast_protocol.wire.blobs import Blob, blob_hashes
from threadcast_protocol.wire.events import PayloadAdded
from threadcast_protocol.wire.messages import JsonObject, Message
from threadcast_protocol.wire.thread import Thread, ThreadChanges, differences

__all__ = [
    "EXPORT_FORMAT",
    "AgentLine",
    "BlobLine",
    "ChatExport",
    "ExportHeader",
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
"""The version of the format. Increment the number for each change that older readers cannot import correctly. Readers
refuse exports with a higher number than their own."""


class ChatExport(msgspec.Struct, frozen=True, kw_only=True):
    """A chat to export. `messages` are in the order of the tree, each after its parent. `leaf_id` is the id of the last
    message of the active path, or None if the path is empty."""

    chat_id: str
    thread: ThreadChanges
    leaf_id: str | None
    messages: list[Message]
    payloads: list[PayloadAdded] = []
    agents: list[JsonObject] = []


class ExportHeader(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="chat"):
    """The first line of an export. A reader uses the counts to detect a file that was cut."""

    format: int
    chat_id: str
    leaf_id: str | None
    message_count: int
    payload_count: int
    agent_count: int
    blob_count: int = 0
    thread: ThreadChanges


class MessageLine(msgspec.Struct, frozen=True, tag_field="type", tag="message"):
    """A line with a message."""

    message: Message


class PayloadLine(msgspec.Struct, frozen=True, tag_field="type", tag="payload"):
    """A line with a payload."""

    payload: PayloadAdded


class AgentLine(msgspec.Struct, frozen=True, tag_field="type", tag="background_agent"):
    """A line with a background agent."""

    agent: JsonObject


class BlobLine(msgspec.Struct, frozen=True, tag_field="type", tag="blob"):
    """A line with a blob. In the JSON, `data` is base64."""

    hash: str
    mime: str
    data: bytes


Line: TypeAlias = ExportHeader | MessageLine | PayloadLine | AgentLine | BlobLine
_encode = msgspec.json.Encoder().encode


def tree_of(state: OwnerState) -> list[Message]:
    """Return all messages in the order of the tree, with their present sibling ids and with the present text of an
    unfinished answer.

    On the active path the parent of a message is the message before it. A message on another branch whose parent was
    removed has no parent.
    """
    nodes = dict(state.nodes)
    if state.draft is not None:
        nodes[state.draft.message.message_id] = drafted_message(state.draft)
    parents = {key: node.parent_id if node.parent_id in nodes else None for key, node in nodes.items()}
    parents.update(zip(state.path, (None, *state.path), strict=False))
    return in_tree_order([replace(node, parent_id=parents[key]) for key, node in nodes.items()])


def in_tree_order(messages: Iterable[Message]) -> list[Message]:
    """Return the messages with their sibling ids. Each message is followed by all messages below it; siblings keep
    their order.

    In this order the parent of a message is always the message before it or an ancestor of the message before it. A
    chat can therefore be rebuilt without searching for paths.
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


def export_of(state: OwnerState) -> ChatExport:
    """Return the export of a chat, without the open run, the queue and recent acks. An unfinished answer is exported
    with its present text, status `partial` and finish reason `abort`. The export of a temporary chat is not marked as
    temporary, because users export a chat to keep it."""
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
    kept = replace(state.thread, temporary=None)
    return ChatExport(
        chat_id=state.chat_id,
        thread=ThreadChanges(**differences(kept, Thread(id=state.chat_id))),
        leaf_id=state.path[-1] if state.path else None,
        messages=messages,
        payloads=list(state.payloads),
        agents=list(state.background_agents),
    )


def hashes_of(chat: ChatExport) -> tuple[str, ...]:
    """Return the hashes of the blobs that the messages and payloads refer to, in the order of the lines and without
    duplicates."""
    each_encoded = map(_encode, (*chat.messages, *chat.payloads))  # one by one: all of them may be 1 GiB
    return tuple(dict.fromkeys(hash for encoded in each_encoded for hash in blob_hashes(encoded)))


def export_lines(chat: ChatExport, blob_count: int = 0) -> Iterator[bytes]:
    """Yield the lines of the chat, each with its line end. The caller must then send `blob_count` lines that
    `blob_line` returns."""
    header = ExportHeader(
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
    """Encode a blob as a line of the export, with its line end."""
    return _encode(BlobLine(blob.hash, blob.mime, blob.data)) + b"\n"
