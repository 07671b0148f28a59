"""Commands that the server itself sends to chats, and the decoder of inbox entries.

Clients cannot send internal commands over HTTP, because `decode_command` of the protocol accepts clients' commands
only.
"""

from typing import ClassVar, TypeAlias

import msgspec

from threadcast.chat.relations import Parent
from threadcast_protocol.wire.commands import Command, UserMessage
from threadcast_protocol.wire.decoders import decoder
from threadcast_protocol.wire.errors import BadRequest
from threadcast_protocol.wire.events import PayloadAdded
from threadcast_protocol.wire.messages import JsonObject, Message
from threadcast_protocol.wire.principal import Principal
from threadcast_protocol.wire.thread import ThreadChanges

__all__ = [
    "AnswerQuestion",
    "BeginSubchat",
    "CancelQueued",
    "ForgetTool",
    "ImportChat",
    "InternalCommand",
    "Refuse",
    "StopSubchat",
    "StoredCommand",
    "SubchatFinished",
    "decode_inbox_body",
]


class _Internal(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", omit_defaults=True):
    """The base of all internal commands. Their principal is `system` (DESIGN §4.9). Only `AnswerQuestion` and
    `StoredCommand` have the principal of a caller."""

    client_request_id: str
    priority: ClassVar[bool] = False


class StoredCommand(_Internal, frozen=True, tag="stored"):
    """A client's command above 1 MiB, whose body is the private blob `blob` of the chat. The request id is that of the
    command, and the principal is its sender."""

    blob: str


class Refuse(_Internal, frozen=True, tag="refused"):
    """Publish the negative ack of a command that the web process has refused. `target` is the request id of that
    command."""

    target: str
    code: str
    error: str


class CancelQueued(_Internal, frozen=True, tag="cancel"):
    """Remove the waiting command `target` from the queue (DELETE …/queue/<target>)."""

    target: str


class ForgetTool(_Internal, frozen=True, tag="forget_tool"):
    """Require approval for calls of this tool again (DELETE …/approvals/<tool_name>)."""

    tool_name: str


class AnswerQuestion(_Internal, frozen=True, tag="answer_question"):
    """Decide about a call whose arguments have this hash (POST …/questions). The principal is the caller, who may be
    another person than the user of the chat."""

    tool_call_id: str
    accepted: bool
    input_hash: str


class ImportChat(_Internal, frozen=True, tag="import"):
    """Fill an empty chat with an exported chat (POST /v1/chats/import). Each part of the export is a separate command.
    `part` counts from 0, and `import_id` is the same in all parts. `messages` are in the order of the tree and have
    their sibling ids."""

    thread: ThreadChanges
    messages: list[Message]
    import_id: str = ""
    part: int = 0
    parts: int = 1
    leaf_id: str | None = None
    payloads: list[PayloadAdded] = []
    agents: list[JsonObject] = []


class BeginSubchat(_Internal, frozen=True, tag="begin_subchat"):
    """Make this chat a child of `parent` with the parameters in `thread`, and answer `message` on behalf of `principal`
    (PROTOCOL §12)."""

    parent: Parent
    principal: Principal
    thread: ThreadChanges
    message: UserMessage


class SubchatFinished(_Internal, frozen=True, tag="subchat_finished"):
    """The child `subchat_id` has ended. `text` is the last answer of the child, or the error that ended the child.
    `tainted_by` are the untrusted sources whose content the answer may repeat."""

    subchat_id: str
    outcome: str
    text: str = ""
    message_id: str | None = None
    tainted_by: list[str] = []


class StopSubchat(_Internal, frozen=True, tag="stop_subchat"):
    """The parent asks a child to abort its run and clear its queue."""


InternalCommand: TypeAlias = (
    StoredCommand
    | Refuse
    | CancelQueued
    | ForgetTool
    | AnswerQuestion
    | ImportChat
    | BeginSubchat
    | SubchatFinished
    | StopSubchat
)

_inbox: msgspec.json.Decoder[Command | InternalCommand] = decoder(Command | InternalCommand)


def decode_inbox_body(body: bytes) -> Command | InternalCommand:
    """Decode the body of an inbox entry: a client's command or an internal command.

    Raises:
        BadRequest: a newer version wrote the command, or the command is damaged.
    """
    try:
        return _inbox.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as wrong:
        raise BadRequest(f"unreadable inbox entry: {wrong}") from None
