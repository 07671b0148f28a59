"""The JSON bodies of requests and responses about chats (PROTOCOL).

`commands.py` has the commands, `server_info.py` the bodies in which a server describes itself. The OpenAPI document and
the TypeScript types are generated from these structs.
"""

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from threadcast_protocol.framing.stream_ids import CHATS_MAX
from threadcast_protocol.wire.errors import CODES
from threadcast_protocol.wire.events import PauseReason, Runtime, Snapshot
from threadcast_protocol.wire.ids import ID_OR_EMPTY_PATTERN, ID_PATTERN, RESERVED_CHAT_IDS
from threadcast_protocol.wire.messages import JsonObject, Message
from threadcast_protocol.wire.thread import Thread

__all__ = [
    "Addition",
    "Approvals",
    "BlobStored",
    "ChatId",
    "ChatIdOrEmpty",
    "ChatList",
    "ChatSnapshot",
    "ChatSummary",
    "ChatTree",
    "FailedImport",
    "Failure",
    "FeedItem",
    "ImportReport",
    "ParamValue",
    "Params",
    "Receipt",
    "Status",
    "StreamChange",
    "TypingNotice",
]

ChatId: TypeAlias = Annotated[
    str, Meta(pattern=ID_PATTERN, extra_json_schema={"not": {"enum": sorted(RESERVED_CHAT_IDS)}})
]
"""The id of a chat. The decoder checks the pattern; `check_chat_id` also refuses the reserved ids."""

ChatIdOrEmpty: TypeAlias = Annotated[
    str, Meta(extra_json_schema={"pattern": ID_OR_EMPTY_PATTERN, "not": {"enum": sorted(RESERVED_CHAT_IDS)}})
]
"""The id of a chat in requests of older clients; "" means no chat. The endpoints check this id and have their own error
messages."""

IdOrEmpty: TypeAlias = Annotated[str, Meta(pattern=ID_OR_EMPTY_PATTERN)]

Code: TypeAlias = Annotated[str, Meta(extra_json_schema={"enum": sorted(CODES)})]


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """The body of an error response, the same for all endpoints.

    `path` is a JSON Pointer into the request's body. `status` and `error` repeat the code and the sentence under the
    keys that older clients read. With the code `gone`, `first` is the earliest position that can still be read.
    """

    detail: str
    code: Code
    path: str | None = None
    status: str | None = None
    error: str | None = None
    first: int | None = None


class Receipt(msgspec.Struct, frozen=True, omit_defaults=True):
    """The outcome of a posted command. `accepted` and `result` are those of the command's final ack, if the request
    waited for it; `status` is then applied, aborted or refused."""

    status: Literal["accepted", "duplicate", "aborted", "applied", "refused"]
    accepted: bool | None = None
    result: JsonObject | None = None


class Status(msgspec.Struct, frozen=True):
    """The outcome of a request in one word."""

    status: Literal["cancelled", "deleted", "applied"]


class BlobStored(msgspec.Struct, frozen=True):
    """A stored upload. Commands refer to the upload by `url`, or by `hash` in parts that have a field `blob`. `bytes`
    is its size."""

    url: str
    hash: str
    mime: str
    bytes: int


class Addition(msgspec.Struct, frozen=True):
    """A chat to add to a running stream. `from` is an SSE id of the chat, or of a stream that contained the chat, after
    which the stream continues. Without a usable id the stream begins with a snapshot."""

    chat_id: ChatId
    last_event_id: str = msgspec.field(name="from", default="")


class StreamChange(msgspec.Struct, frozen=True):
    """A change of a running stream. Chats are removed before others are added."""

    add: Annotated[list[Addition], Meta(max_length=CHATS_MAX)] = []
    remove: Annotated[list[ChatId], Meta(max_length=CHATS_MAX)] = []


class TypingNotice(msgspec.Struct, frozen=True):
    """Reports that the user began or stopped to type. `stream_id` is the named stream of this user, which gets no
    notice; with "" all streams get the notice."""

    typing: bool
    stream_id: IdOrEmpty = ""


class ParamValue(msgspec.Struct, frozen=True):
    """The value of a parameter, and the layer that sets it."""

    value: Any  # Any: each key has its own type
    layer: Literal["server", "profile", "thread", "command"]


class Params(msgspec.Struct, frozen=True):
    """The effective parameters of a chat, under the keys of `set_params`."""

    params: dict[str, ParamValue]


class Approvals(msgspec.Struct, frozen=True):
    """The tools whose calls need no approval in this chat. `mcp__SERVER__*` means all tools of that MCP server
    (PROTOCOL §11)."""

    tools: list[str]


class Questions(msgspec.Struct, frozen=True):
    """The questions that a paused run asks, with the arguments that the stream does not show (PROTOCOL §11). `input` is
    empty if the question was asked by a version of the server that kept no arguments."""

    questions: list[PauseReason]


class QuestionAnswer(msgspec.Struct, frozen=True):
    """The answer to one question of a chat. `input_hash` is the hash that the question contains."""

    tool_call_id: Annotated[str, Meta(min_length=1, max_length=128)]
    accepted: bool
    input_hash: Annotated[str, Meta(max_length=128)]


class ChatSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A chat in a list. Times are Unix milliseconds."""

    id: str
    title: str
    state: str
    model: str
    mode: str
    message_count: int
    queue_size: int
    created_at: int
    last_active: int


class ChatList(msgspec.Struct, frozen=True):
    """A page of chats; the chats with the newest `last_active` come first. `next_cursor` is null on the last page."""

    items: list[ChatSummary]
    has_more: bool
    next_cursor: str | None


class FeedItem(msgspec.Struct, frozen=True, kw_only=True):
    """One `data:` line of the feed. `seq` counts from the snapshot, whose `seq` is 0."""

    seq: str
    type: Literal["feed_snapshot", "chat_updated", "chat_removed"]
    chats: list[ChatSummary] | UnsetType = UNSET
    has_more: bool | UnsetType = UNSET
    chat: ChatSummary | UnsetType = UNSET
    chat_id: str | UnsetType = UNSET


class FailedImport(msgspec.Struct, frozen=True):
    """A chat whose import was refused, with the code and the sentence of the refusal."""

    id: str
    code: str
    error: str


class ImportReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result for each chat of an import, by id, in the order of the body. `skipped` chats existed and were not
    changed. The import of `accepted` chats is stored, but had not taken effect when the answer was sent."""

    imported: list[str]
    skipped: list[str]
    accepted: list[str]
    failed: list[FailedImport]


class ChatSnapshot(Snapshot, frozen=True, kw_only=True, tag_field="type", tag="snapshot"):
    """The chat as it is at `position`. `id` is the value of `?from=` with which a subscription continues from here."""

    chat_id: str
    position: int
    id: str


class ChatTree(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="tree"):
    """The whole tree at `position`: each message after its parent, siblings in the order of their creation. The active
    path ends at `leaf_id`."""

    chat_id: str
    position: int
    id: str
    thread: Thread
    runtime: Runtime
    leaf_id: str | None
    messages: list[Message]
