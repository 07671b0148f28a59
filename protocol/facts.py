"""Private facts: what the owner of a chat must remember and nobody else may see (DESIGN §2).

They lie in the same entries as the events, without positions, and never leave the server. `fact_fold.py` folds them.
"""

from typing import Any, TypeAlias

import msgspec

from protocol.messages import JsonObject, Message
from protocol.principal import Principal
from protocol.relations import RelationFact
from protocol.state import (
    Aside,
    Commit,
    PendingPreview,
    ProviderEcho,
    RawAnswer,
    Summary,
)

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
]


class _Fact(msgspec.Struct, frozen=True, tag_field="fact", omit_defaults=True, kw_only=True):
    pass


class CommandQueued(_Fact, frozen=True, tag="command_queued"):
    """A run-starting command waits, before the item at `index`."""

    request_id: str
    principal: Principal
    body: str
    at_ms: int
    index: int


class CommandEdited(_Fact, frozen=True, tag="command_edited"):
    """A waiting command has a new body and stands at `index`."""

    request_id: str
    body: str
    index: int


class CommandsDequeued(_Fact, frozen=True, tag="commands_dequeued"):
    request_ids: list[str]


class RunStarted(_Fact, frozen=True, tag="run_started", kw_only=True):
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
    """The gates of the round before are closed. `summarizing`: the last round, without tools. `window_tokens` is the
    size of its model's window, when it is known."""

    round: int
    summarizing: bool = False
    window_tokens: int | None = None


class RoundsGranted(_Fact, frozen=True, tag="rounds_granted"):
    rounds_allowed: int


class CallAsked(_Fact, frozen=True, tag="call_asked"):
    tool_call_id: str
    input_hash: str


class CallDecided(_Fact, frozen=True, tag="call_decided"):
    tool_call_id: str
    accepted: bool
    edited_input: JsonObject | None = None
    note: str | None = None
    by: str | None = None


class ToolAllowed(_Fact, frozen=True, tag="tool_allowed"):
    """Remembered: later calls of this tool in this chat are not asked (GATE-6); or `is_over`, and they are."""

    tool_name: str
    is_over: bool = False


class ToolStarted(_Fact, frozen=True, tag="tool_started"):
    """In the log before the tool runs, so that a successor knows that it may have had effects."""

    tool_call_id: str
    tool_name: str


class ToolFinished(_Fact, frozen=True, tag="tool_finished"):
    end_state: str | None = None


class OutcomeUnknown(_Fact, frozen=True, tag="outcome_unknown"):
    """A call broke with its worker; the same call again needs a person (DESIGN §7)."""

    input_hash: str


class ProviderCallId(_Fact, frozen=True, tag="provider_call_id"):
    """The provider's own id of a call that got a new one (PROV-4)."""

    tool_call_id: str
    provider_id: str


class ReasoningLogged(_Fact, frozen=True, tag="reasoning_logged"):
    """What the model thought, for the server's log only (EVT-7); it folds into nothing."""

    message_id: str
    text: str


class SetAside(_Fact, frozen=True, tag="set_aside"):
    """A message for the model alone: a guard's objection, a person's decision on a preview (PROTOCOL §5)."""

    aside: Aside


class ResultWithheld(_Fact, frozen=True, tag="result_withheld"):
    """What the model reads of a tool message whose public content is a summary, or nothing (EVT-10)."""

    message_id: str
    content: str


class ArgumentsHidden(_Fact, frozen=True, tag="arguments_hidden"):
    """What the model wrote in a call whose public arguments are `{}` (EVT-8)."""

    tool_call_id: str
    arguments: str


class ProviderDataKept(_Fact, frozen=True, tag="provider_data_kept"):
    """What the provider wants back with this answer in later calls (DESIGN §8)."""

    message_id: str
    echo: ProviderEcho


class AnswerCleaned(_Fact, frozen=True, tag="answer_cleaned"):
    """The answer as the model wrote it, of which a cleaned one is shown (DIAG-2)."""

    message_id: str
    raw: RawAnswer


class PreviewShown(_Fact, frozen=True, tag="preview_shown"):
    """A preview waits for a decision, for as long as its chat lives (GATE-3)."""

    payload_id: str
    preview: PendingPreview


class PreviewDecided(_Fact, frozen=True, tag="preview_decided"):
    """Nobody decides it a second time. `commit` runs when the chat rests, and once (GATE-5)."""

    payload_id: str
    commit: Commit | None = None


class Summarized(_Fact, frozen=True, tag="summarized"):
    """Private, since a summary may repeat what clients must not see."""

    summary: Summary


class SummaryFailed(_Fact, frozen=True, tag="summary_failed"):
    """The open run goes on without one."""


class ImportGoesOn(_Fact, frozen=True, tag="import_goes_on"):
    """The import expects the part number `next_part` next; 0 means that it is complete."""

    import_id: str
    next_part: int


class MemorySet(_Fact, frozen=True, tag="memory_set"):
    """A tool remembers `value` in this chat; null: it forgets the key."""

    key: str
    value: Any = None  # Any: JSON of the tool's own
    expires_at_ms: int | None = None


class Progressed(_Fact, frozen=True, tag="progressed"):
    """A command was consumed, a round or a tool ended: takeovers are counted from 0 again."""


class RunEnded(_Fact, frozen=True, tag="run_ended"):
    pass


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
    | PreviewShown
    | PreviewDecided
    | Summarized
    | SummaryFailed
    | ImportGoesOn
    | MemorySet
    | Progressed
    | RunEnded
    | RelationFact
)
