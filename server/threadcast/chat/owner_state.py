"""Defines the server's state of a chat: the public state, the head of the log, and the private state.

The owner of a chat folds the whole state. Relays fold the same struct without facts, so `private` stays empty in
relays. `entry_fold.py` folds entries into the state; checkpoints store the state as JSON.
"""

from typing import Any, TypeAlias

import msgspec

from threadcast.chat.journal import DurableRun
from threadcast.chat.relations import Relations
from threadcast_protocol.fold.state import ChatState, empty_state
from threadcast_protocol.wire.commands import DeclaredTool
from threadcast_protocol.wire.events import ToolDefinition
from threadcast_protocol.wire.messages import JsonObject, Message
from threadcast_protocol.wire.principal import Principal

__all__ = [
    "Aside",
    "Commit",
    "Gate",
    "Importing",
    "KeptDefinition",
    "Life",
    "OwnerState",
    "PendingPreview",
    "Private",
    "ProviderEcho",
    "Queued",
    "RawAnswer",
    "Remembered",
    "Run",
    "Summary",
    "empty_owner_state",
    "resume_is_possible",
]

Life: TypeAlias = tuple[int, int]
"""(epoch, first position): the epoch of a life of the log, and the position of its first event (DESIGN §2)."""

LIVES_KEPT = 256


class Queued(msgspec.Struct, frozen=True, kw_only=True):
    """A complete waiting command. `body` is its JSON."""

    request_id: str
    principal: Principal
    body: str
    at_ms: int


class Gate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The approval of one call of the open round. `status` is asked, accepted, rejected or started. `hidden_input` has
    the arguments that the public question does not show. With `is_question`, the gate belongs to a question, and the
    key `answer` of `edited_input` has the answer."""

    status: str
    input_hash: str = ""
    hidden_input: JsonObject | None = None
    edited_input: JsonObject | None = None
    note: str | None = None
    by: str | None = None
    is_question: bool = False


class KeptDefinition(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tool's definition at the time when a permission was given. `definition` is None if the definition is too long
    to keep; the digest is enough to detect a change of the tool."""

    digest: str
    definition: ToolDefinition | None = None


class PendingPreview(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An undecided preview: the tool that made it, the context of that tool's run, and the tool that runs when the
    preview is accepted."""

    tool_name: str
    commit_tool: str = ""
    context: JsonObject = {}


class Commit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The call of the tool `tool_name` with `arguments` (JSON) that carries out an accepted preview. `principal` has
    accepted the preview by the command `request_id`."""

    payload_id: str
    tool_name: str
    arguments: str
    principal: Principal
    context: JsonObject = {}
    request_id: str = ""


class Run(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An open run. `params` and `model` come from the command and override the thread's values (SET-1). `continues` is
    the answer that this run continues, as it was before the run (CMD-6). A run with a `commit` only calls the tool of
    the commit. A run with an `agent` is carried out by a durable function."""

    run_id: str
    principal: Principal
    request_ids: list[str]
    started_at_ms: int
    model: str | None = None
    params: JsonObject = {}
    context: JsonObject = {}
    continues: Message | None = None
    round: int = -1
    rounds_allowed: int | None = None
    first_index: int = 0
    calls_count: int = 0
    tools_used: list[str] = []
    gates: dict[str, Gate] = {}
    end_state: str | None = None
    summarizing: bool = False
    window_tokens: int | None = None
    commit: Commit | None = None
    summary_failed: bool = False
    agent: DurableRun | None = None


class ProviderEcho(msgspec.Struct, frozen=True):
    """Data that the named provider needs with a later call. Only this provider can interpret the data."""

    provider: str
    data: list[JsonObject]


class RawAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """An answer as the model wrote it, and the number of suggested actions that were removed because the configuration
    does not declare them (PAY-6)."""

    text: str
    dropped_actions_count: int = 0


class Aside(msgspec.Struct, frozen=True):
    """A message that only the model reads, after the message `after` of the tree. If `after` is None, the message comes
    before all others."""

    message: Message
    after: str | None = None


class Summary(msgspec.Struct, frozen=True):
    """A summary of the messages from `first` to `last`. On each path with these messages, the model reads `message` in
    their place (HIST-4)."""

    message: Message
    first: str
    last: str


class Remembered(msgspec.Struct, frozen=True, omit_defaults=True):
    """A JSON value that a tool stores in this chat, until `expires_at_ms` (Unix milliseconds) or without a limit."""

    value: Any  # Any: JSON of a tool
    expires_at_ms: int | None = None


class Importing(msgspec.Struct, frozen=True):
    """An unfinished import or copy that expects the part `next_part` next. Until the last part of an import has
    arrived, the chat accepts no command of a client except `abort`."""

    import_id: str
    next_part: int


class Private(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The part of the state that only the owner has. `attempts` counts takeovers without progress, which detects
    commands that crash their workers (DESIGN §4.7).

    Four dicts have message ids as keys. `withheld` has the content that the model reads in place of the public content.
    `provider_data` has the data that a provider needs back with its answer (thinking signatures, encrypted reasoning).
    `raw_answers` has the answers before they were cleaned (DIAG-2). `declared_tools` has the tools of the sender of a
    message (PROTOCOL §12). `hidden_arguments` has, by call id, the arguments that clients see as `{}`. `previews` has
    the undecided previews by payload id; `commits` are accepted previews that wait until no run is open. `wakes_count`
    is the number of consecutive runs without a command of a user. For each name in `allowed_tools`,
    `allowed_definitions` has the definitions of the tools that the permission covers, by tool name. `shown_definitions`
    has the definitions of the latest questions in the same form. `untitled_at` is the id of the message that was the
    newest when the model for titles last failed, or '' if it never failed. `tainted_by` are the untrusted sources whose
    content has entered the chat.
    """

    queue: tuple[Queued, ...] = ()
    run: Run | None = None
    attempts: int = 0
    allowed_tools: tuple[str, ...] = ()
    allowed_definitions: dict[str, dict[str, KeptDefinition]] = {}
    shown_definitions: dict[str, dict[str, KeptDefinition]] = {}
    unknown_outcomes: tuple[str, ...] = ()
    provider_call_ids: dict[str, str] = {}
    asides: tuple[Aside, ...] = ()
    withheld: dict[str, str] = {}
    hidden_arguments: dict[str, str] = {}
    provider_data: dict[str, ProviderEcho] = {}
    raw_answers: dict[str, RawAnswer] = {}
    declared_tools: dict[str, list[DeclaredTool]] = {}
    previews: dict[str, PendingPreview] = {}
    commits: tuple[Commit, ...] = ()
    relations: Relations = Relations()
    summaries: tuple[Summary, ...] = ()
    memory: dict[str, Remembered] = {}
    wakes_count: int = 0
    importing: Importing | None = None
    untitled_at: str = ""
    tainted_by: tuple[str, ...] = ()


class OwnerState(ChatState, frozen=True, kw_only=True):
    """The server's state of a chat. `head` is the head string of the last folded entry; `version` is the highest format
    version of all folded entries."""

    head: str = ""
    version: int = 0
    lives: tuple[Life, ...] = ()
    private: Private = Private()


def empty_owner_state(chat_id: str) -> OwnerState:
    """Return the state of a chat before its first entry."""
    public = empty_state(chat_id)
    return OwnerState(chat_id=chat_id, thread=public.thread, runtime=public.runtime)


def resume_is_possible(state: OwnerState, epoch: int, position: int) -> bool:
    """Return whether (epoch, position) is a position of this log (DESIGN §2). This function does not check whether the
    log still has the events after the position. Returns False for a chat that does not exist.

    The positions of a life of the log begin one position before its first event, and end one position before the first
    event of the next life.
    """
    if position > state.position or not state.lives:
        return False
    for (life, first), following in zip(state.lives, [*state.lives[1:], (0, state.position + 1)], strict=True):
        if life == epoch and first - 1 <= position < following[1]:
            return True
    return False
