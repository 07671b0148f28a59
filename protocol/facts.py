"""Private facts: what the owner of a chat must remember and nobody else may see (DESIGN §2).

They lie in the same entries as the events, without positions, and never leave the server. `fold_fact` is their only
fold; together with `reducer.py` it makes a crashed worker's successor know all that the dead one knew.
"""

from typing import Any, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from protocol.messages import JsonObject, Message
from protocol.principal import Principal
from protocol.relations import RelationFact, fold_relation
from protocol.state import (
    Aside,
    Commit,
    Gate,
    PendingPreview,
    Private,
    ProviderEcho,
    Queued,
    RawAnswer,
    Remembered,
    Run,
    Summary,
)

_T = TypeVar("_T")

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
    "fold_fact",
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
    """Remembered: later calls of this tool in this chat are not asked (GATE-6)."""

    tool_name: str


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
    | MemorySet
    | Progressed
    | RunEnded
    | RelationFact
)

UNKNOWN_OUTCOMES_KEPT = 64

ASIDES_KEPT = 256
ECHOES_KEPT = 256
RAW_ANSWERS_KEPT = 32
"""The newest. Older notes to the model and older signed thinking are missed by nobody; traces hold raw answers too."""

WITHHELD_KEPT = 1_024
"""Of older hidden results the model reads what clients see."""

PREVIEWS_KEPT = 128
"""That wait for a decision; an older one can no longer be decided."""

SUMMARIES_KEPT = 32
"""The newest ones: each covers what those before it on its branch do, so a chat needs one for each branch in use."""


def fold_fact(private: Private, fact: Fact) -> Private:
    """The private part after `fact`. Total: a fact about a run that is not open changes nothing."""
    if isinstance(fact, RelationFact):
        return replace(private, relations=fold_relation(private.relations, fact))
    match fact:
        case CommandQueued():
            item = Queued(request_id=fact.request_id, principal=fact.principal, body=fact.body, at_ms=fact.at_ms)
            return replace(private, queue=(*private.queue[: fact.index], item, *private.queue[fact.index :]))
        case CommandEdited():
            return replace(private, queue=_edited(private.queue, fact))
        case CommandsDequeued():
            gone = set(fact.request_ids)
            return replace(private, queue=tuple(q for q in private.queue if q.request_id not in gone))
        case RunStarted():
            run = Run(
                run_id=fact.run_id,
                principal=fact.principal,
                request_ids=fact.request_ids,
                started_at_ms=fact.at_ms,
                first_index=fact.first_index,
                model=fact.model,
                params=fact.params,
                context=fact.context,
                continues=fact.continues,
                commit=fact.commit,
            )
            is_asked_for = bool(fact.request_ids) or fact.commit is not None
            return replace(
                private,
                run=run,
                commits=tuple(waits for waits in private.commits if waits != fact.commit),
                wakes_count=0 if is_asked_for else private.wakes_count + 1,
            )
        case RunEnded():
            return replace(private, run=None)
        case ToolAllowed():
            if fact.tool_name in private.allowed_tools:
                return private
            return replace(private, allowed_tools=(*private.allowed_tools, fact.tool_name))
        case OutcomeUnknown():
            kept = (*private.unknown_outcomes, fact.input_hash)[-UNKNOWN_OUTCOMES_KEPT:]
            return replace(private, unknown_outcomes=kept)
        case ProviderCallId():
            ids = {**private.provider_call_ids, fact.tool_call_id: fact.provider_id}
            return replace(private, provider_call_ids=ids)
        case SetAside():
            return replace(private, asides=(*private.asides, fact.aside)[-ASIDES_KEPT:])
        case ResultWithheld():
            return replace(private, withheld=_newest(private.withheld, fact.message_id, fact.content, WITHHELD_KEPT))
        case ArgumentsHidden():
            hidden = _newest(private.hidden_arguments, fact.tool_call_id, fact.arguments, WITHHELD_KEPT)
            return replace(private, hidden_arguments=hidden)
        case ProviderDataKept():
            echoes = _newest(private.provider_data, fact.message_id, fact.echo, ECHOES_KEPT)
            return replace(private, provider_data=echoes)
        case AnswerCleaned():
            raw = _newest(private.raw_answers, fact.message_id, fact.raw, RAW_ANSWERS_KEPT)
            return replace(private, raw_answers=raw)
        case PreviewShown():
            previews = _newest(private.previews, fact.payload_id, fact.preview, PREVIEWS_KEPT)
            return replace(private, previews=previews)
        case PreviewDecided():
            left = {key: preview for key, preview in private.previews.items() if key != fact.payload_id}
            commits = private.commits if fact.commit is None else (*private.commits, fact.commit)
            return replace(private, previews=left, commits=commits)
        case Summarized():
            return replace(private, summaries=(*private.summaries, fact.summary)[-SUMMARIES_KEPT:])
        case MemorySet():
            memory = {key: item for key, item in private.memory.items() if key != fact.key}
            if fact.value is not None:
                memory[fact.key] = Remembered(fact.value, fact.expires_at_ms)
            return replace(private, memory=memory)
        case Progressed():
            return private if private.attempts == 0 else replace(private, attempts=0)
    if private.run is None:
        return private
    return replace(private, run=_fold_run(private.run, fact))


def _newest(kept: dict[str, _T], key: str, value: _T, most: int) -> dict[str, _T]:
    """With `key`, and without the oldest where there are too many."""
    added = {**kept, key: value}
    return added if len(added) <= most else dict(list(added.items())[-most:])


def _edited(queue: tuple[Queued, ...], fact: CommandEdited) -> tuple[Queued, ...]:
    others = tuple(item for item in queue if item.request_id != fact.request_id)
    moved = tuple(replace(item, body=fact.body) for item in queue if item.request_id == fact.request_id)
    return (*others[: fact.index], *moved, *others[fact.index :])


def _fold_run(run: Run, fact: Fact) -> Run:
    match fact:
        case RoundStarted():
            return replace(
                run, round=fact.round, gates={}, summarizing=fact.summarizing, window_tokens=fact.window_tokens
            )
        case RoundsGranted():
            return replace(run, rounds_allowed=fact.rounds_allowed)
        case CallAsked():
            gate = Gate(status="asked", input_hash=fact.input_hash)
            return replace(run, gates={**run.gates, fact.tool_call_id: gate})
        case CallDecided():
            before = run.gates.get(fact.tool_call_id, Gate(status="asked"))
            gate = replace(
                before,
                status="accepted" if fact.accepted else "rejected",
                edited_input=fact.edited_input,
                note=fact.note,
                by=fact.by,
            )
            return replace(run, gates={**run.gates, fact.tool_call_id: gate})
        case ToolStarted():
            before = run.gates.get(fact.tool_call_id, Gate(status="started"))
            used = run.tools_used if fact.tool_name in run.tools_used else [*run.tools_used, fact.tool_name]
            return replace(
                run, gates={**run.gates, fact.tool_call_id: replace(before, status="started")}, tools_used=used
            )
        case ToolFinished():
            return replace(run, calls_count=run.calls_count + 1, end_state=fact.end_state or run.end_state)
        case SummaryFailed():
            return replace(run, summary_failed=True)
    return run
