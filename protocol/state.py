"""What events fold into: a chat's state, the tree of its messages and its active path.

One struct serves three readers. The owner of a chat holds all of it; a relay holds it with an empty `private` part;
a client that started from a snapshot holds the nodes of the active path only. `reducer.py` is the only fold. States are
values: a change makes a new one, and what it shares with the old one is never changed.
"""

from typing import Any, TypeAlias

import msgspec

from protocol.events import AT_REST, Ack, PayloadAdded, Runtime
from protocol.messages import JsonObject, Message
from protocol.principal import Principal
from protocol.relations import Relations
from protocol.text import GrowingText
from protocol.thread import Thread

__all__ = [
    "Aside",
    "ChatState",
    "Commit",
    "Draft",
    "Gate",
    "Life",
    "PendingPreview",
    "Private",
    "ProviderEcho",
    "Queued",
    "RawAnswer",
    "Remembered",
    "Run",
    "Summary",
    "empty_state",
]

Life: TypeAlias = tuple[int, int]
"""(epoch, first position): which positions belong to which life of the log (DESIGN §2)."""

LIVES_KEPT = 256
RECENT_ACKS_KEPT = 64
AGENTS_KEPT = 64
"""Background agents that a snapshot shows: those told of last."""


class Draft(msgspec.Struct, frozen=True):
    """The answer that is being streamed. `message` holds all of it but the two growing texts."""

    message: Message
    content: GrowingText
    reasoning: GrowingText


class Queued(msgspec.Struct, frozen=True, kw_only=True):
    """A waiting command in full. `body` is its JSON."""

    request_id: str
    principal: Principal
    body: str
    at_ms: int


class Gate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where one call of the open round stands: asked, accepted, rejected or started."""

    status: str
    input_hash: str = ""
    edited_input: JsonObject | None = None
    note: str | None = None
    by: str | None = None


class PendingPreview(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A preview that nobody has decided: who made it, in which request context, and what runs when it is accepted."""

    tool_name: str
    commit_tool: str = ""
    context: JsonObject = {}


class Commit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An accepted preview whose `tool_name` is to run with `arguments` (JSON), in the name of who accepted it by the
    command `request_id`."""

    payload_id: str
    tool_name: str
    arguments: str
    principal: Principal
    context: JsonObject = {}
    request_id: str = ""


class Run(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An open run. `params` and `model` are the command's own, above the thread's (SET-1). `continues` is the answer
    that this run goes on writing, as it stood before (CMD-6). `commit`: the run is this one tool call and no more."""

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


class ProviderEcho(msgspec.Struct, frozen=True):
    """`data` means something to the provider of that name alone; the log carries it and does not read it."""

    provider: str
    data: list[JsonObject]


class RawAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """As the model wrote it, and how many suggested actions were left out since nobody declared them (PAY-6)."""

    text: str
    dropped_actions_count: int = 0


class Aside(msgspec.Struct, frozen=True):
    """A message that only the model reads, after the message `after` of the tree; None: before all others."""

    message: Message
    after: str | None = None


class Summary(msgspec.Struct, frozen=True):
    """`message` stands, for the model, in place of the messages from `first` to `last` of any path that leads through
    them (HIST-4)."""

    message: Message
    first: str
    last: str


class Remembered(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a tool keeps in this chat: any JSON value, until then (Unix milliseconds) or for good."""

    value: Any  # Any: it is the tool's own
    expires_at_ms: int | None = None


class Importing(msgspec.Struct, frozen=True):
    """An unfinished import that expects part `next_part`; until the last part the chat takes no other command than
    `abort`."""

    import_id: str
    next_part: int


class Private(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What only the owner knows. `attempts` counts takeovers without progress (poison, DESIGN §4.7).

    By message id: `withheld` is what the model reads in place of what clients see, `provider_data` what a provider
    wants back with an answer of its own (thinking signatures, encrypted reasoning), `raw_answers` an answer before it
    was cleaned (DIAG-2). By call id: `hidden_arguments` are what the model wrote where clients see `{}`. By payload id:
    `previews` are undecided. `commits` wait for the chat to rest. `wakes_count`: runs that nobody asked for, since
    somebody last asked for one.
    """

    queue: tuple[Queued, ...] = ()
    run: Run | None = None
    attempts: int = 0
    allowed_tools: tuple[str, ...] = ()
    unknown_outcomes: tuple[str, ...] = ()
    provider_call_ids: dict[str, str] = {}
    asides: tuple[Aside, ...] = ()
    withheld: dict[str, str] = {}
    hidden_arguments: dict[str, str] = {}
    provider_data: dict[str, ProviderEcho] = {}
    raw_answers: dict[str, RawAnswer] = {}
    previews: dict[str, PendingPreview] = {}
    commits: tuple[Commit, ...] = ()
    relations: Relations = Relations()
    summaries: tuple[Summary, ...] = ()
    memory: dict[str, Remembered] = {}
    wakes_count: int = 0
    importing: Importing | None = None


class ChatState(msgspec.Struct, frozen=True, kw_only=True):
    """`head`, `epoch`, `position` say where in the log this is; `version` is the newest format folded into it.

    `path` is the active path, root first; `nodes` is the tree by message id; `draft` overlays its node while open.
    """

    chat_id: str
    thread: Thread
    runtime: Runtime
    head: str = ""
    version: int = 0
    epoch: int = 0
    position: int = 0
    lives: tuple[Life, ...] = ()
    nodes: dict[str, Message] = {}
    path: tuple[str, ...] = ()
    draft: Draft | None = None
    background_agents: tuple[JsonObject, ...] = ()
    payloads: tuple[PayloadAdded, ...] = ()
    recent_acks: tuple[Ack, ...] = ()
    private: Private = Private()

    @property
    def is_at_rest(self) -> bool:
        return self.runtime.state in AT_REST

    @property
    def leaf(self) -> Message | None:
        """The last message of the active path, without what a draft has added."""
        return self.nodes[self.path[-1]] if self.path else None


def empty_state(chat_id: str) -> ChatState:
    """A chat before its first entry."""
    return ChatState(
        chat_id=chat_id,
        thread=Thread(id=chat_id),
        runtime=Runtime(
            state="idle",
            paused=False,
            error=None,
            queue_size=0,
            queued_items=[],
            pause_reasons=[],
            is_compressing=False,
        ),
    )
