"""Folds private facts. After a crash of a worker, this fold and the fold of events in `reducer.py` restore the complete
state of a chat.

The fold is pure. A fact about a run that is not open changes nothing. Collections that would grow without end have a
limit here. The oldest elements are dropped first, except in `tainted_by`.
"""

from typing import TypeVar

from msgspec.structs import replace

from threadcast.chat.facts import (
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
    ToolsDeclared,
    ToolStarted,
)
from threadcast.chat.journal import AgentFact, AgentStarted, DurableRun, fold_agent
from threadcast.chat.owner_state import (
    Gate,
    Importing,
    Private,
    Queued,
    Remembered,
    Run,
)
from threadcast.chat.relations import RelationFact, fold_relation

__all__ = ["ASIDES_KEPT", "RAW_ANSWERS_KEPT", "WITHHELD_KEPT", "fold_fact"]

_T = TypeVar("_T")

UNKNOWN_OUTCOMES_KEPT = 64

ASIDES_KEPT = 256
ECHOES_KEPT = 256
RAW_ANSWERS_KEPT = 32
"""The maximum numbers of messages that only the model reads, of answers with provider data and of raw answers. The
newest elements are kept, and older elements are no longer needed. Raw answers are also in traces."""

WITHHELD_KEPT = 1_024
"""The maximum number of hidden results, and of hidden arguments. For older calls, the model reads the results and
arguments that clients see."""

DECLARATIONS_KEPT = 32
"""The maximum number of messages whose declared tools are kept. Older messages are rarely answered again, and the tools
of each message may have 64 kB."""

PREVIEWS_KEPT = 128
"""The maximum number of undecided previews that are kept. Older previews can no longer be decided."""

SUMMARIES_KEPT = 32
"""The maximum number of summaries that are kept. Each summary covers the earlier summaries of its branch, so a chat
needs only one for each branch in use."""


TAINTED_BY_KEPT = 16
"""The maximum number of untrusted sources that a chat names in its questions. The first sources are kept, because one
source is enough to make sensitive tools ask for approval."""


def fold_fact(private: Private, fact: Fact) -> Private:
    """Return the private state after `fact`. A fact about a run that is not open changes nothing."""
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
            return _fold_permission(private, fact)
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
        case ToolsDeclared():
            declared = _newest(private.declared_tools, fact.message_id, fact.tools, DECLARATIONS_KEPT)
            return replace(private, declared_tools=declared)
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
            if fact.is_dropped:  # the chat had no messages before the copy
                private = replace(private, withheld={}, hidden_arguments={})
            return replace(private, importing=going)
        case MemorySet():
            memory = {key: item for key, item in private.memory.items() if key != fact.key}
            if fact.value is not None:
                memory[fact.key] = Remembered(fact.value, fact.expires_at_ms)
            return replace(private, memory=memory)
        case Progressed():
            untitled_at = fact.untitled_at or private.untitled_at
            tainted_by = tuple(dict.fromkeys((*private.tainted_by, *fact.tainted_by)))[:TAINTED_BY_KEPT]
            was = (private.attempts, private.untitled_at, private.tainted_by)
            if was == (0, untitled_at, tainted_by):
                return private
            return replace(private, attempts=0, untitled_at=untitled_at, tainted_by=tainted_by)
    open_run = private.run
    if open_run is None:
        return private
    if isinstance(fact, CallAsked) and fact.shown is not None:
        name, definitions = fact.shown
        private = replace(private, shown_definitions={**private.shown_definitions, name: definitions})
    return replace(private, run=_fold_run(open_run, fact))


def _fold_permission(private: Private, fact: ToolAllowed) -> Private:
    names = private.allowed_tools
    definitions = {name: kept for name, kept in private.allowed_definitions.items() if name != fact.tool_name}
    if fact.is_over:
        left = tuple(name for name in names if name != fact.tool_name)
        return replace(private, allowed_tools=left, allowed_definitions=definitions)
    if fact.definitions is not None:
        definitions[fact.tool_name] = fact.definitions
    names = names if fact.tool_name in names else (*names, fact.tool_name)
    return replace(private, allowed_tools=names, allowed_definitions=definitions)


def _newest(kept: dict[str, _T], key: str, value: _T, most: int) -> dict[str, _T]:
    """Return `kept` with `key` added, and with the oldest keys removed if there are more than `most` keys."""
    added = {**kept, key: value}
    return added if len(added) <= most else dict(list(added.items())[-most:])


def _edited(queue: tuple[Queued, ...], fact: CommandEdited) -> tuple[Queued, ...]:
    others = tuple(item for item in queue if item.request_id != fact.request_id)
    moved = tuple(replace(item, body=fact.body) for item in queue if item.request_id == fact.request_id)
    return (*others[: fact.index], *moved, *others[fact.index :])


def _fold_run(run: Run, fact: Fact) -> Run:
    if isinstance(fact, AgentStarted):
        agent = DurableRun(name=fact.name, path_length=fact.path_length)
        return replace(run, round=0, params=fact.params, agent=agent)
    if isinstance(fact, AgentFact):
        return run if run.agent is None else replace(run, agent=fold_agent(run.agent, fact))
    match fact:
        case RoundStarted():
            return replace(
                run, round=fact.round, gates={}, summarizing=fact.summarizing, window_tokens=fact.window_tokens
            )
        case RoundsGranted():
            return replace(run, rounds_allowed=fact.rounds_allowed)
        case CallAsked():
            gate = Gate(
                status="asked",
                input_hash=fact.input_hash,
                hidden_input=fact.hidden_input,
                is_question=fact.is_question,
            )
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
