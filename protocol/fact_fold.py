"""The only fold of private facts; together with `reducer.py` it makes a crashed worker's successor know all that the
dead one knew.

Pure and total: a fact about a run that is not open changes nothing. Each thing that is remembered without end has a
bound here, and the oldest go first.
"""

from typing import TypeVar

from msgspec.structs import replace

from protocol.facts import (
    AnswerCleaned,
    ArgumentsHidden,
    CallAsked,
    CallDecided,
    CommandEdited,
    CommandQueued,
    CommandsDequeued,
    Fact,
    ImportGoesOn,
    MemorySet,
    OutcomeUnknown,
    PreviewDecided,
    PreviewShown,
    Progressed,
    ProviderCallId,
    ProviderDataKept,
    ResultWithheld,
    RoundsGranted,
    RoundStarted,
    RunEnded,
    RunStarted,
    SetAside,
    Summarized,
    SummaryFailed,
    ToolAllowed,
    ToolFinished,
    ToolStarted,
)
from protocol.relations import RelationFact, fold_relation
from protocol.state import Gate, Importing, Private, Queued, Remembered, Run

__all__ = ["ASIDES_KEPT", "RAW_ANSWERS_KEPT", "WITHHELD_KEPT", "fold_fact"]

_T = TypeVar("_T")

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
            others = tuple(name for name in private.allowed_tools if name != fact.tool_name)
            if not fact.is_over and len(others) < len(private.allowed_tools):
                return private
            return replace(private, allowed_tools=others if fact.is_over else (*others, fact.tool_name))
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
        case ImportGoesOn():
            going = Importing(fact.import_id, fact.next_part) if fact.next_part else None
            return replace(private, importing=going)
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
