"""What a client may ask, in the imperative (PROTOCOL §2), and what the server asks of itself.

Unknown keys are skipped, since foreign clients send more than we know; a known key of the wrong type is refused.
`content` and `patch` are taken as they come: their checks (`content.py`, `thread.read_patch`) have refusals of
their own. Effects are `decider.py`'s business.
"""

import hashlib
from typing import Annotated, ClassVar, Literal, TypeAlias

import msgspec
from msgspec import Meta

from protocol.bodies import decode_body
from protocol.errors import BadRequest
from protocol.events import PayloadAdded
from protocol.ids import Id, Name
from protocol.messages import JsonObject, Message
from protocol.principal import Principal
from protocol.relations import Parent
from protocol.thread import ThreadChanges

__all__ = [
    "CREATES_CHAT",
    "EXEMPT_FROM_QUEUE_LIMIT",
    "Abort",
    "BeginSubchat",
    "BranchFromChat",
    "BrowserContextDecision",
    "CancelQueued",
    "Command",
    "ContinueMessage",
    "Decision",
    "EditQueued",
    "ForgetTool",
    "IdeToolClaim",
    "IdeToolResult",
    "ImportChat",
    "InternalCommand",
    "Queueable",
    "Refuse",
    "Regenerate",
    "RemoveMessage",
    "RestoreMessages",
    "RetryFromIndex",
    "SelectBranch",
    "SetParams",
    "StopSubchat",
    "SubchatFinished",
    "ToolDecision",
    "ToolDecisions",
    "UpdateMessage",
    "UserMessage",
    "body_digest",
    "decode_command",
    "decode_inbox_body",
    "encode_command",
]

CallId: TypeAlias = Annotated[str, Meta(min_length=1, max_length=128)]
Note: TypeAlias = Annotated[str, Meta(max_length=8_192)]
"""A person's word to the model beside a decision: a long paragraph, not a document."""
InteractionType: TypeAlias = Literal["text", "value_selected", "action_selected", "form_submitted"]


class _Command(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", omit_defaults=True):
    client_request_id: Id
    priority: bool = False


class Interaction(msgspec.Struct, frozen=True, omit_defaults=True):
    """How the user spoke, when not by typing (CMD-18)."""

    type: InteractionType
    action: Name | None = None
    data: JsonObject | None = None


class UserMessage(_Command, frozen=True, tag="user_message"):
    """With `interrupt` the open run ends and this message goes before all that waits (PROTOCOL §9)."""

    content: object
    attachments: list[JsonObject] = []
    context_files: list[JsonObject] = []
    context: JsonObject = {}
    interaction: Interaction | None = None
    params: JsonObject = {}
    interrupt: bool = False


class RetryFromIndex(_Command, frozen=True, tag="retry_from_index"):
    index: Annotated[int, Meta(ge=0)]
    content: object
    attachments: list[JsonObject] = []
    prune: bool = False


class Regenerate(_Command, frozen=True, tag="regenerate"):
    message_id: Id | None = None
    model: Name | None = None


class Abort(_Command, frozen=True, tag="abort"):
    run_id: Id | None = None
    clear_queue: bool = False


class SetParams(_Command, frozen=True, tag="set_params"):
    patch: object


class UpdateMessage(_Command, frozen=True, tag="update_message"):
    """An absent field stays unchanged (`protocol.content.edited`)."""

    message_id: Id
    content: object = None
    attachments: list[JsonObject] | None = None
    regenerate: bool = False
    mode: Literal["in_place", "branch"] | None = None


class RemoveMessage(_Command, frozen=True, tag="remove_message"):
    message_id: Id
    regenerate: bool = False


class Decision(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A person's word on one paused call or preview. One of `tool_call_id`, `payload_id` names it."""

    tool_call_id: CallId | None = None
    accepted: bool
    payload_id: Id | None = None
    remember: Literal["call", "tool", "server"] | None = None
    edited_input: JsonObject | None = None
    input_hash: CallId | None = None
    note: Note | None = None


class ToolDecision(_Command, frozen=True, kw_only=True, tag="tool_decision"):
    tool_call_id: CallId | None = None
    accepted: bool
    payload_id: Id | None = None
    remember: Literal["call", "tool", "server"] | None = None
    edited_input: JsonObject | None = None
    input_hash: CallId | None = None
    note: Note | None = None

    @property
    def decision(self) -> Decision:
        return Decision(
            tool_call_id=self.tool_call_id,
            accepted=self.accepted,
            payload_id=self.payload_id,
            remember=self.remember,
            edited_input=self.edited_input,
            input_hash=self.input_hash,
            note=self.note,
        )


class ToolDecisions(_Command, frozen=True, tag="tool_decisions"):
    decisions: Annotated[list[Decision], Meta(min_length=1, max_length=100)]


class IdeToolResult(_Command, frozen=True, tag="ide_tool_result"):
    """`attachments` are the server's own word: the images that it took out of `content`. What a client writes there is
    replaced."""

    tool_call_id: CallId
    content: str
    tool_failed: bool = False
    files_changed: list[str] = []
    attachments: list[JsonObject] = []


class IdeToolClaim(_Command, frozen=True, tag="ide_tool_claim"):
    """`claimer` names the IDE, so that it can renew its claim; without it every claim is somebody else's."""

    tool_call_id: CallId
    claimer: Id | None = None


class BranchFromChat(_Command, frozen=True, tag="branch_from_chat"):
    source_chat_id: Id
    up_to_message_id: Id


class RestoreMessages(_Command, frozen=True, tag="restore_messages"):
    messages: list[JsonObject]


class BrowserContextDecision(_Command, frozen=True, tag="browser_context_decision"):
    pending_message_id: Id
    include_actions: bool = True
    include_console: bool = True
    include_network: bool = True
    include_mutations: bool = True
    include_screenshot: bool = True
    last_n_actions: int | None = None
    last_n_console: int | None = None
    last_n_network: int | None = None
    last_n_mutations: int | None = None


class EditQueued(_Command, frozen=True, tag="edit_queued"):
    """An absent field stays unchanged (`protocol.content.edited`). With `interrupt` the open run ends and the waiting
    command is next."""

    target_request_id: Id
    content: object = None
    attachments: list[JsonObject] | None = None
    position: Annotated[int, Meta(ge=0)] | None = None
    interrupt: bool = False


class ContinueMessage(_Command, frozen=True, tag="continue_message"):
    message_id: Id


class SelectBranch(_Command, frozen=True, tag="select_branch"):
    message_id: Id


Command: TypeAlias = (
    UserMessage
    | RetryFromIndex
    | Regenerate
    | Abort
    | SetParams
    | UpdateMessage
    | RemoveMessage
    | ToolDecision
    | ToolDecisions
    | IdeToolResult
    | IdeToolClaim
    | BranchFromChat
    | RestoreMessages
    | BrowserContextDecision
    | EditQueued
    | ContinueMessage
    | SelectBranch
)


class _Internal(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", omit_defaults=True):
    """Asked by the server itself, principal `system`; HTTP cannot say these (DESIGN §4.9)."""

    client_request_id: str
    priority: ClassVar[bool] = False


class Refuse(_Internal, frozen=True, tag="refused"):
    """Publish the negative ack of a command that the web process refused; `target` is its request id."""

    target: str
    code: str
    error: str


class CancelQueued(_Internal, frozen=True, tag="cancel"):
    """Take the queued command `target` back (DELETE …/queue/<target>)."""

    target: str


class ForgetTool(_Internal, frozen=True, tag="forget_tool"):
    """Ask about calls of this tool again (DELETE …/approvals/<tool_name>)."""

    tool_name: str


class ImportChat(_Internal, frozen=True, tag="import"):
    """Fill a chat without messages with an exported one (POST /v1/chats/import), by as many commands as it has parts;
    `imports.py` says how. `part` counts from 0, and `import_id` is the same in all of them. `messages` are in the
    tree's order, each told its siblings."""

    thread: ThreadChanges
    messages: list[Message]
    import_id: str = ""
    part: int = 0
    parts: int = 1
    leaf_id: str | None = None
    payloads: list[PayloadAdded] = []
    agents: list[JsonObject] = []


class BeginSubchat(_Internal, frozen=True, tag="begin_subchat"):
    """Be a child of `parent`, with these parameters, and answer `message` for `principal` (PROTOCOL §12)."""

    parent: Parent
    principal: Principal
    thread: ThreadChanges
    message: UserMessage


class SubchatFinished(_Internal, frozen=True, tag="subchat_finished"):
    """The child `subchat_id` rests; `text` is its last answer, or what went wrong."""

    subchat_id: str
    outcome: str
    text: str = ""
    message_id: str | None = None


class StopSubchat(_Internal, frozen=True, tag="stop_subchat"):
    """From its parent to a child: abort the run, drop what waits."""


InternalCommand: TypeAlias = (
    Refuse | CancelQueued | ForgetTool | ImportChat | BeginSubchat | SubchatFinished | StopSubchat
)

CREATES_CHAT = (UserMessage, RetryFromIndex, SetParams, BranchFromChat, RestoreMessages)
"""A chat comes into being with its first accepted one of these (PROTOCOL §1)."""

EXEMPT_FROM_QUEUE_LIMIT = (Abort, SetParams, ToolDecision, ToolDecisions, IdeToolResult, IdeToolClaim, EditQueued)
"""Not counted against the 100 that may wait, but bounded too (PROTOCOL §18)."""

Queueable: TypeAlias = UserMessage | RetryFromIndex | Regenerate | UpdateMessage | RemoveMessage | ContinueMessage
"""Wait in the queue until the chat rests, and then start a run or edit the tree, in the order of the queue."""

_commands: msgspec.json.Decoder[Command] = msgspec.json.Decoder(Command)
_inbox: msgspec.json.Decoder[Command | InternalCommand] = msgspec.json.Decoder(Command | InternalCommand)
_encoder = msgspec.json.Encoder()
_canonical = msgspec.json.Encoder(order="sorted")


def decode_command(body: bytes) -> Command:
    """A client's command from the bytes of a POST.

    Raises:
        BadRequest: not JSON, nested too deep, unknown type, missing field or wrong type; `path` is a JSON Pointer to
            the place.
    """
    return decode_body(_commands, body)


def decode_inbox_body(body: bytes) -> Command | InternalCommand:
    """A command as it lies in an inbox: a client's or one of our own.

    Raises:
        BadRequest: written by a newer version, or damaged.
    """
    try:
        return _inbox.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as wrong:
        raise BadRequest(f"unreadable inbox entry: {wrong}") from None


def encode_command(command: Command | InternalCommand) -> bytes:
    return _encoder.encode(command)


def body_digest(body: bytes) -> str:
    """SHA-256 of the body's canonical JSON (sorted keys): equal bodies have equal digests (PROTOCOL §3).

    All keys count, also those we do not know.

    Raises:
        BadRequest: not JSON in a place that `decode_command` skips, such as the value of a key we do not know.
    """
    try:
        canonical = _canonical.encode(msgspec.json.decode(body))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as wrong:
        raise BadRequest(f"the body is not JSON: {wrong}") from None
    return hashlib.sha256(canonical).hexdigest()
