"""Defines private facts, which change the private state of a chat (DESIGN §2).

Facts are in the same entries of the log as events, but have no positions and never leave the server. `fact_fold.py`
folds the facts.
"""

from typing import Any, TypeAlias

import msgspec

from threadcast.chat.journal import AgentFact
from threadcast.chat.owner_state import (
    Aside,
    Commit,
    KeptDefinition,
    PendingPreview,
    ProviderEcho,
    RawAnswer,
    Summary,
)
from threadcast.chat.relations import RelationFact
from threadcast_protocol.wire.commands import DeclaredTool
from threadcast_protocol.wire.messages import JsonObject, Message
from threadcast_protocol.wire.principal import Principal

__all__ = [
    "AnswerCleaned",
    "CallAsked",
    "CallDecided",
    "CommandEdited",
    "CommandQueued",
    "CommandsDequeued",
    "Fact",
    "MemorySet",
    "OutcomeUnknown",
    "PreviewDecided",
    "PreviewShown",
    "Progressed",
    "ProviderCallId",
    "ProviderDataKept",
    "ReasoningLogged",
    "ResultWithheld",
    "RoundStarted",
    "RoundsGranted",
    "RunEnded",
    "RunStarted",
    "SetAside",
    "Summarized",
    "SummaryFailed",
    "ToolAllowed",
    "ToolFinished",
    "ToolStarted",
    "ToolsDeclared",
]


class _Fact(msgspec.Struct, frozen=True, tag_field="fact", omit_defaults=True, kw_only=True):
    """The base of the facts of this module. `fact` is the tag of the JSON."""


class CommandQueued(_Fact, frozen=True, tag="command_queued"):
    """A command was inserted into the queue, before the item at `index`."""

    request_id: str
    principal: Principal
    body: str
    at_ms: int
    index: int


class CommandEdited(_Fact, frozen=True, tag="command_edited"):
    """A waiting command has a new body and is now at `index`."""

    request_id: str
    body: str
    index: int


class CommandsDequeued(_Fact, frozen=True, tag="commands_dequeued"):
    """These commands have left the queue."""

    request_ids: list[str]


class RunStarted(_Fact, frozen=True, tag="run_started", kw_only=True):
    """A run was opened. The fields are those of `Run`."""

    run_id: str
    principal: Principal
    request_ids: list[str]
    at_ms: int
    first_index: int
    model: str | None = None
    params: JsonObject = {}
    context: JsonObject = {}
    continues: Message | None = None
    commit: Commit | None = None


class RoundStarted(_Fact, frozen=True, tag="round_started"):
    """A new round has begun and has no gates yet. `summarizing` means that this is the last round and that its model
    call has no tools. `window_tokens` is the size of the model's context window, if it is known."""

    round: int
    summarizing: bool = False
    window_tokens: int | None = None


class RoundsGranted(_Fact, frozen=True, tag="rounds_granted"):
    """The user has allowed the open run this total number of rounds."""

    rounds_allowed: int


class CallAsked(_Fact, frozen=True, tag="call_asked"):
    """A call waits for approval.

    `hidden_input` has the arguments if the public question does not show them. `shown` is a pair: the widest name that
    a permission may have, and, by tool name, the definitions that a permission given now covers. `shown` is None if the
    definitions of earlier questions still apply. With `is_question`, a person is asked a question, and `tool_call_id`
    is the question's id.
    """

    tool_call_id: str
    input_hash: str
    hidden_input: JsonObject | None = None
    shown: tuple[str, dict[str, KeptDefinition]] | None = None
    is_question: bool = False


class CallDecided(_Fact, frozen=True, tag="call_decided"):
    """The user has decided about a call."""

    tool_call_id: str
    accepted: bool
    edited_input: JsonObject | None = None
    note: str | None = None
    by: str | None = None


class ToolAllowed(_Fact, frozen=True, tag="tool_allowed"):
    """Later calls of this tool in this chat need no approval (GATE-6), provided that the tool's definition is still the
    one in `definitions`. The keys of `definitions` are tool names. `definitions` is None in logs of older versions,
    which did not keep definitions. With `is_over`, calls of this tool need approval again."""

    tool_name: str
    is_over: bool = False
    definitions: dict[str, KeptDefinition] | None = None


class ToolStarted(_Fact, frozen=True, tag="tool_started"):
    """A tool is about to run. This fact is appended to the log before the tool runs. After a crash, the next owner
    therefore knows that the tool may have had effects."""

    tool_call_id: str
    tool_name: str


class ToolFinished(_Fact, frozen=True, tag="tool_finished"):
    """A tool call has ended. `end_state` is the state of the chat after the run, if the tool sets one."""

    end_state: str | None = None


class OutcomeUnknown(_Fact, frozen=True, tag="outcome_unknown"):
    """The worker crashed during a call. Repeating the same call needs the decision of a user (DESIGN §7)."""

    input_hash: str


class ProviderCallId(_Fact, frozen=True, tag="provider_call_id"):
    """The provider's id of a call to which the server gave a new id (PROV-4)."""

    tool_call_id: str
    provider_id: str


class ReasoningLogged(_Fact, frozen=True, tag="reasoning_logged"):
    """The reasoning of the model, for the server's log only (EVT-7). This fact changes no state."""

    message_id: str
    text: str


class SetAside(_Fact, frozen=True, tag="set_aside"):
    """A message that only the model reads, such as a guard's objection or a user's decision on a preview (PROTOCOL
    §5)."""

    aside: Aside


class ResultWithheld(_Fact, frozen=True, tag="result_withheld"):
    """The content that the model reads in place of a tool message's public content, which is a summary or empty
    (EVT-10)."""

    message_id: str
    content: str


class ArgumentsHidden(_Fact, frozen=True, tag="arguments_hidden"):
    """The arguments of a call whose public arguments are `{}` (EVT-8)."""

    tool_call_id: str
    arguments: str


class ProviderDataKept(_Fact, frozen=True, tag="provider_data_kept"):
    """Data that the provider needs with this answer in later calls (DESIGN §8)."""

    message_id: str
    echo: ProviderEcho


class AnswerCleaned(_Fact, frozen=True, tag="answer_cleaned"):
    """The answer as the model wrote it. Clients see a cleaned answer (DIAG-2)."""

    message_id: str
    raw: RawAnswer


class ToolsDeclared(_Fact, frozen=True, tag="tools_declared"):
    """The tools that the sender of a message carries out (PROTOCOL §12)."""

    message_id: str
    tools: list[DeclaredTool]


class PreviewShown(_Fact, frozen=True, tag="preview_shown"):
    """A preview waits for a decision, without a time limit (GATE-3)."""

    payload_id: str
    preview: PendingPreview


class PreviewDecided(_Fact, frozen=True, tag="preview_decided"):
    """A preview was decided and cannot be decided again. The tool call `commit` runs once, when no run is open
    (GATE-5)."""

    payload_id: str
    commit: Commit | None = None


class Summarized(_Fact, frozen=True, tag="summarized"):
    """A summary of messages. Summaries are private, because they may repeat content that clients must not see."""

    summary: Summary


class SummaryFailed(_Fact, frozen=True, tag="summary_failed"):
    """No summary could be written; the open run continues without a summary."""


class ImportGoesOn(_Fact, frozen=True, tag="import_goes_on"):
    """The import, or the copy of another chat's messages, expects the part `next_part` next. 0 means that it is
    complete, or, with `is_dropped`, that nothing is left of the copy, also not what was withheld of its messages."""

    import_id: str
    next_part: int
    is_dropped: bool = False


class MemorySet(_Fact, frozen=True, tag="memory_set"):
    """A tool stores `value` under `key` in this chat. The value None deletes the key."""

    key: str
    value: Any = None  # Any: JSON of a tool
    expires_at_ms: int | None = None


class Progressed(_Fact, frozen=True, tag="progressed"):
    """A command, a round, a tool call or a title was completed, so the count of takeovers without progress is reset to
    0.

    `untitled_at` is the id of the message that was the newest when the model for titles failed. `tainted_by` are
    untrusted sources whose content has entered the chat (`taint.py`). `untitled_at` and `tainted_by` are fields and not
    separate facts, because older workers skip unknown fields but cannot read unknown facts.
    """

    untitled_at: str = ""
    tainted_by: list[str] = []


class RunEnded(_Fact, frozen=True, tag="run_ended"):
    """The open run has ended."""


Fact: TypeAlias = (
    CommandQueued
    | CommandEdited
    | CommandsDequeued
    | RunStarted
    | RoundStarted
    | RoundsGranted
    | CallAsked
    | CallDecided
    | ToolAllowed
    | ToolStarted
    | ToolFinished
    | OutcomeUnknown
    | ProviderCallId
    | ReasoningLogged
    | SetAside
    | ResultWithheld
    | ArgumentsHidden
    | ProviderDataKept
    | AnswerCleaned
    | ToolsDeclared
    | PreviewShown
    | PreviewDecided
    | Summarized
    | SummaryFailed
    | ImportGoesOn
    | MemorySet
    | Progressed
    | RunEnded
    | RelationFact
    | AgentFact
)
