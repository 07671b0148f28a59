"""The commands of clients (PROTOCOL §2).

Unknown keys are skipped, because foreign clients send additional keys; a known key of the wrong type is refused.
`content` and `patch` are not decoded here: `content.py` and `thread.read_patch` check these fields and have their own
error messages. `decider.py` defines the effects of the commands.
"""

import hashlib
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from threadcast_protocol.wire.bodies import decode_body, not_json
from threadcast_protocol.wire.decoders import decode_any, decoder
from threadcast_protocol.wire.errors import BadRequest
from threadcast_protocol.wire.ids import Id, Name
from threadcast_protocol.wire.messages import JsonObject

__all__ = [
    "CREATES_CHAT",
    "DECLARED_TOOLS_MAX",
    "EXEMPT_FROM_QUEUE_LIMIT",
    "Abort",
    "BranchFromChat",
    "BrowserContextDecision",
    "Command",
    "ContinueMessage",
    "Decision",
    "DeclaredTool",
    "EditQueued",
    "IdeToolClaim",
    "IdeToolResult",
    "Queueable",
    "Regenerate",
    "RemoveMessage",
    "RestoreMessages",
    "RetryFromIndex",
    "SelectBranch",
    "SetParams",
    "ToolDecision",
    "ToolDecisions",
    "UpdateMessage",
    "UserMessage",
    "body_digest",
    "decode_command",
    "encode_command",
]

CallId: TypeAlias = Annotated[str, Meta(min_length=1, max_length=128)]
Note: TypeAlias = Annotated[str, Meta(max_length=8_192)]
"""A remark for the model that a user adds to a decision. The limit allows a long paragraph, not a document."""
ToolName: TypeAlias = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
"""The names of functions that OpenAI and Anthropic accept."""

DECLARED_TOOLS_MAX = 32
"""The most tools that one message may declare."""

InteractionType: TypeAlias = Literal["text", "value_selected", "action_selected", "form_submitted"]


class _Command(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", omit_defaults=True):
    """The base of all commands. `priority` puts the command before the waiting commands without priority."""

    client_request_id: Id
    priority: bool = False


class Interaction(msgspec.Struct, frozen=True, omit_defaults=True):
    """The kind of the user's input, if it was not typed text (CMD-18)."""

    type: InteractionType
    action: Name | None = None
    data: JsonObject | None = None


class DeclaredTool(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tool that the sender of a message carries out (PROTOCOL §12). `input_schema` is the JSON Schema of an object;
    {} allows any object."""

    name: ToolName
    description: Annotated[str, Meta(min_length=1, max_length=8_192)]
    input_schema: JsonObject = {}


class UserMessage(_Command, frozen=True, tag="user_message"):
    """Adds a message of the user and starts a run. `interrupt` ends the open run and puts this message before all
    waiting commands (PROTOCOL §9). `tools` are offered in this run beside the server's tools; a client answers their
    calls."""

    content: object
    attachments: list[JsonObject] = []
    context_files: list[JsonObject] = []
    context: JsonObject = {}
    interaction: Interaction | None = None
    params: JsonObject = {}
    tools: Annotated[list[DeclaredTool], Meta(max_length=DECLARED_TOOLS_MAX)] = []
    interrupt: bool = False


class RetryFromIndex(_Command, frozen=True, tag="retry_from_index"):
    """Replaces the message at `index` of the active path, and all messages after it, by a new message of the user.
    `prune` also deletes the replaced messages from the tree. Without `tools`, the new message has the tools of the
    message at `index`. `params` apply to this run alone, as in `user_message`."""

    index: Annotated[int, Meta(ge=0)]
    content: object
    attachments: list[JsonObject] = []
    prune: bool = False
    tools: Annotated[list[DeclaredTool], Meta(max_length=DECLARED_TOOLS_MAX)] | None = None
    params: JsonObject = {}


class Regenerate(_Command, frozen=True, tag="regenerate"):
    """Generates a new answer. `message_id` is the answer to replace, or the user message to answer. Without
    `message_id`, the last answer of the path is generated again."""

    message_id: Id | None = None
    model: Name | None = None


class Abort(_Command, frozen=True, tag="abort"):
    """Ends the open run. With `run_id` the command ends only that run; `clear_queue` also removes all waiting
    commands."""

    run_id: Id | None = None
    clear_queue: bool = False


class SetParams(_Command, frozen=True, tag="set_params"):
    """Sets parameters of the thread. `patch` has the new values; null clears a parameter."""

    patch: object


class UpdateMessage(_Command, frozen=True, tag="update_message"):
    """Edits a message. An absent field stays unchanged. `branch` adds the edited message as a sibling. `tools` are for
    messages of the user, as in `user_message`."""

    message_id: Id
    content: object = None
    attachments: list[JsonObject] | None = None
    regenerate: bool = False
    mode: Literal["in_place", "branch"] | None = None
    tools: Annotated[list[DeclaredTool], Meta(max_length=DECLARED_TOOLS_MAX)] | None = None


class RemoveMessage(_Command, frozen=True, tag="remove_message"):
    """Deletes a message and all messages below it. `regenerate` then asks for a new answer."""

    message_id: Id
    regenerate: bool = False


class Decision(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A decision about one paused tool call or preview, which `tool_call_id` or `payload_id` names."""

    tool_call_id: CallId | None = None
    accepted: bool
    payload_id: Id | None = None
    remember: Literal["call", "tool", "server"] | None = None
    edited_input: JsonObject | None = None
    input_hash: CallId | None = None
    note: Note | None = None


class ToolDecision(_Command, frozen=True, kw_only=True, tag="tool_decision"):
    """Decides about one paused tool call or preview, which `tool_call_id` or `payload_id` names."""

    tool_call_id: CallId | None = None
    accepted: bool
    payload_id: Id | None = None
    remember: Literal["call", "tool", "server"] | None = None
    edited_input: JsonObject | None = None
    input_hash: CallId | None = None
    note: Note | None = None

    @property
    def decision(self) -> Decision:
        """This decision as an element of `tool_decisions`."""
        return Decision(**{name: getattr(self, name) for name in Decision.__struct_fields__})


class ToolDecisions(_Command, frozen=True, tag="tool_decisions"):
    """Decides about several paused tool calls and previews at once."""

    decisions: Annotated[list[Decision], Meta(min_length=1, max_length=100)]


class IdeToolResult(_Command, frozen=True, tag="ide_tool_result"):
    """The result of a tool call that the client has carried out. The server sets `attachments` to the images that it
    finds in `content`; values from clients are replaced."""

    tool_call_id: CallId
    content: str
    tool_failed: bool = False
    files_changed: list[str] = []
    attachments: list[JsonObject] = []


class IdeToolClaim(_Command, frozen=True, tag="ide_tool_claim"):
    """Claims a tool call for one client. `claimer` names the client, which can renew its claim with the same name.
    Without `claimer` no claim can be renewed."""

    tool_call_id: CallId
    claimer: Id | None = None


class BranchFromChat(_Command, frozen=True, tag="branch_from_chat"):
    """Fills this chat, which must be empty, with a copy of another chat up to the message `up_to_message_id`."""

    source_chat_id: Id
    up_to_message_id: Id


class RestoreMessages(_Command, frozen=True, tag="restore_messages"):
    """Fills this chat, which must be empty, with `messages` that a client has kept."""

    messages: list[JsonObject]


class BrowserContextDecision(_Command, frozen=True, tag="browser_context_decision"):
    """Accepts a browser tool's paused call and selects the data of the browser that the call may use."""

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
    input_hash: CallId | None = None


class EditQueued(_Command, frozen=True, tag="edit_queued"):
    """Edits or moves the waiting command `target_request_id`. An absent field stays unchanged. `interrupt` ends the
    open run and starts this command next."""

    target_request_id: Id
    content: object = None
    attachments: list[JsonObject] | None = None
    position: Annotated[int, Meta(ge=0)] | None = None
    interrupt: bool = False


class ContinueMessage(_Command, frozen=True, tag="continue_message"):
    """Continues the last answer of the active path, or continues after the results of the answer's tool calls."""

    message_id: Id


class SelectBranch(_Command, frozen=True, tag="select_branch"):
    """Moves the active path to the message `message_id` and from there to its newest leaf."""

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


CREATES_CHAT = (UserMessage, RetryFromIndex, SetParams, BranchFromChat, RestoreMessages)
"""The commands that create a chat if it does not exist (PROTOCOL §1)."""

EXEMPT_FROM_QUEUE_LIMIT = (Abort, SetParams, ToolDecision, ToolDecisions, IdeToolResult, IdeToolClaim, EditQueued)
"""Commands that do not count towards the limit of 100 waiting commands. These commands have a separate limit (PROTOCOL
§18)."""

Queueable: TypeAlias = UserMessage | RetryFromIndex | Regenerate | UpdateMessage | RemoveMessage | ContinueMessage
"""Commands that wait in the queue until no run is open, and then start a run or edit the tree, in the order of the
queue."""

_commands: msgspec.json.Decoder[Command] = decoder(Command)
_encoder = msgspec.json.Encoder()
_canonical = msgspec.json.Encoder(order="sorted")


def decode_command(body: bytes) -> Command:
    """Decode a client's command from the body of a POST.

    Raises:
        BadRequest: the body is not JSON, is nested too deep, or has an unknown type, a missing field or a field of the
            wrong type. `path` is a JSON Pointer to the place.
    """
    return decode_body(_commands, body)


def encode_command(command: msgspec.Struct) -> bytes:
    """Encode a command as JSON: a client's command, or an internal command of the server."""
    return _encoder.encode(command)


def body_digest(body: bytes) -> str:
    """Return the SHA-256 of the body's canonical JSON (sorted keys) in hex. Equal bodies have equal digests (PROTOCOL
    §3).

    All keys are part of the digest, including unknown keys.

    Raises:
        BadRequest: the body is not JSON in a place that `decode_command` skips, such as the value of an unknown key.
    """
    try:
        canonical = _canonical.encode(decode_any(body))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as wrong:
        raise BadRequest(not_json(body, wrong)) from None
    return hashlib.sha256(canonical).hexdigest()
