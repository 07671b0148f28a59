"""reduce(state, position, event) -> state: the only fold of public events.

Actor, relay and client compute the same state with it (the JavaScript client follows the same transcripts). It reads
nothing but its arguments and changes neither. The law: `state(i) + events(i..j) == state(j)` for all i < j, compared
by `snapshot.snapshot_of`. What was seen is skipped; a gap is refused, never papered over: the reader starts again from
a snapshot. `fold_entry` is the same for whole entries of the log, private facts and fences included.
"""

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

from msgspec.structs import replace

from protocol import events as ev
from protocol.codec import decode_events, decode_facts
from protocol.deltas import (
    AddCitation,
    AddServerContentBlock,
    AppendContent,
    AppendReasoning,
    DeltaOp,
    MergeExtra,
    SetReasoning,
    SetThinkingBlocks,
    SetToolCalls,
    SetUsage,
)
from protocol.entries import RawEntry
from protocol.fact_fold import fold_fact
from protocol.facts import Fact
from protocol.messages import Message, text_of
from protocol.state import AGENTS_KEPT, LIVES_KEPT, RECENT_ACKS_KEPT, ChatState, Draft, Private
from protocol.text import GrowingText
from protocol.thread import apply_changes
from protocol.tree import subtree_of, way_to, with_siblings

__all__ = ["Gap", "drafted_message", "fold_entry", "reduce", "reduce_added", "reduce_event", "reduce_payloads"]


class Gap(Exception):
    """An event or entry does not follow on what I have. Start again from a snapshot."""


def reduce(state: ChatState, position: int, event: ev.Event) -> ChatState:
    """The state after the event at `position`; the same state when it was seen already.

    Raises:
        Gap: `position` is not the next one.
    """
    if position <= state.position:
        return state
    if position != state.position + 1:
        raise Gap(f"position {position} after {state.position}")
    return replace(reduce_event(state, event), position=position)


def fold_entry(state: ChatState, entry: RawEntry, *, with_facts: bool) -> tuple[ChatState, Sequence[ev.Event]]:
    """The state after a whole entry, and its events. Relays fold without facts.

    Raises:
        Gap: the entry does not continue this history.
    """
    if entry.before != state.head:
        raise Gap(f"entry {entry.entry_id} follows {entry.before!r}, not {state.head!r}")
    events = decode_events(entry.events)
    if entry.position != state.position + len(events):
        raise Gap(f"entry {entry.entry_id} ends at position {entry.position}, not {state.position + len(events)}")
    state = reduce_event(state, events[0]) if len(events) == 1 else _reduce_all(state, events)
    facts: Sequence[Fact] = decode_facts(entry.facts) if with_facts and entry.facts else ()
    private = state.private
    for fact in facts:
        private = fold_fact(private, fact)
    lives = state.lives
    if entry.fence is not None:
        lives = (*lives, (entry.entry_id.epoch, entry.position + 1))[-LIVES_KEPT:]
        if entry.fence.why == "takeover":
            private = replace(private, attempts=private.attempts + 1)
    return (
        replace(
            state,
            head=entry.head,
            version=max(state.version, entry.version),
            epoch=entry.entry_id.epoch,
            position=entry.position,
            lives=lives,
            private=private if with_facts else _NO_PRIVATE,
        ),
        events,
    )


_NO_PRIVATE = Private()


def _reduce_all(state: ChatState, events: Sequence[ev.Event]) -> ChatState:
    """Folds messages that follow each other, with the cuts between them, at the cost of one copy; payloads, too."""
    for kind, group in groupby(events, _kind_of):
        together = list(group)
        if kind == "messages" and len(together) > 1 and state.draft is None:
            state = reduce_added(state, together)  # type: ignore[arg-type]  # of these two types, as grouped
        elif kind == "payloads":
            state = reduce_payloads(state, together)  # type: ignore[arg-type]  # of this type, as grouped
        else:
            for event in together:
                state = reduce_event(state, event)
    return state


def _kind_of(event: ev.Event) -> str:
    if isinstance(event, ev.MessageAdded | ev.MessagesTruncated):
        return "messages"
    return "payloads" if isinstance(event, ev.PayloadAdded) else ""


def reduce_event(state: ChatState, event: ev.Event) -> ChatState:
    """The state after `event`, position aside. Events that fold into nothing return the state itself."""
    fold = _FOLDS.get(type(event))
    return state if fold is None else fold(state, event)


def _ack(state: ChatState, event: ev.Ack) -> ChatState:
    return replace(state, recent_acks=(*state.recent_acks, event)[-RECENT_ACKS_KEPT:])


def _queue_updated(state: ChatState, event: ev.QueueUpdated) -> ChatState:
    runtime = replace(state.runtime, queue_size=event.queue_size, queued_items=event.queued_items)
    return replace(state, runtime=runtime)


def _runtime_updated(state: ChatState, event: ev.RuntimeUpdated) -> ChatState:
    rests = event.state in ev.AT_REST
    runtime = replace(
        state.runtime,
        state=event.state,
        paused=event.state == "paused",
        error=event.error,
        is_compressing=event.is_compressing,
        run_id=event.run_id,
        round=event.round,
        status_text=event.status_text,
        active_tool=event.active_tool,
        outcome=event.outcome,
        context=event.context,
        tools_used=event.tools_used,
        tools=[] if rests else state.runtime.tools,
        ide_calls=[] if rests else state.runtime.ide_calls,
    )
    return replace(state, runtime=runtime)


def _thread_updated(state: ChatState, event: ev.ThreadUpdated) -> ChatState:
    return replace(state, thread=apply_changes(state.thread, event))


def _message_added(state: ChatState, event: ev.MessageAdded) -> ChatState:
    return reduce_added(state, (event,))


def reduce_added(state: ChatState, events: Sequence[ev.MessageAdded | ev.MessagesTruncated]) -> ChatState:
    """Folds any number of additions, and cuts of the path between them, at the cost of one copy of tree and path. Cuts
    are taken only while no answer is being written: `state.draft` must then be None."""
    nodes, path, draft, runtime = dict(state.nodes), list(state.path), state.draft, state.runtime
    on_path = set(path)
    for event in events:
        if isinstance(event, ev.MessagesTruncated):
            on_path.difference_update(path[event.from_index :])
            del path[event.from_index :]
            continue
        message = event.message
        if message.message_id not in on_path:
            on_path.add(message.message_id)
            path[event.index : event.index] = [message.message_id]  # as `insert`, which takes no number of 65 bits
        if draft is not None and draft.message.message_id == message.message_id:
            draft = None
        if message.tool_call_id is not None and runtime.ide_calls:
            left = [call for call in runtime.ide_calls if call.tool_call_id != message.tool_call_id]
            runtime = replace(runtime, ide_calls=left)
        nodes[message.message_id] = message
    return replace(state, nodes=nodes, path=tuple(path), draft=draft, runtime=runtime)


def _message_updated(state: ChatState, event: ev.MessageUpdated) -> ChatState:
    if event.message_id not in state.nodes:
        return state
    return replace(state, nodes={**state.nodes, event.message_id: event.message})


def _message_removed(state: ChatState, event: ev.MessageRemoved) -> ChatState:
    """The message goes with everything below it; of a path, that is the rest of the path (CMD-9)."""
    if event.message_id not in state.nodes:
        return state
    gone = set(subtree_of(state.nodes, event.message_id))
    draft = state.draft if state.draft is None or state.draft.message.message_id not in gone else None
    return replace(
        state,
        nodes={key: node for key, node in state.nodes.items() if key not in gone},
        path=tuple(key for key in state.path if key not in gone),
        draft=draft,
    )


def _messages_truncated(state: ChatState, event: ev.MessagesTruncated) -> ChatState:
    cut = state.path[event.from_index :]
    if state.draft is not None and state.draft.message.message_id in cut:
        state = _bake(state, state.draft)
    return replace(state, path=state.path[: event.from_index])


def _branch_selected(state: ChatState, event: ev.BranchSelected) -> ChatState:
    """Another path. Its messages learn who their siblings are now: nobody told them while they lay aside."""
    path = way_to(state.nodes, event.leaf_id)
    if not path:
        return state
    return replace(state, nodes=with_siblings(state.nodes, path), path=path)


def _stream_started(state: ChatState, event: ev.StreamStarted) -> ChatState:
    if state.draft is not None:
        state = _bake(state, state.draft)
    before = state.nodes.get(event.message_id)
    if before is not None:
        text = before.content if isinstance(before.content, str) else text_of(before.content)
        open_again = replace(before, finish_reason=None, status=None)
        draft = Draft(open_again, GrowingText(text), GrowingText(before.reasoning_content or ""))
        return replace(state, draft=draft)
    message = Message(
        role="assistant",
        content="",
        message_id=event.message_id,
        model=event.model,
        parent_id=event.parent_id,
        created_at=event.created_at,
    )
    return replace(
        state,
        nodes={**state.nodes, message.message_id: message},
        path=(*state.path, message.message_id),
        draft=Draft(message, GrowingText(), GrowingText()),
    )


def _stream_delta(state: ChatState, event: ev.StreamDelta) -> ChatState:
    draft = state.draft
    if draft is None or draft.message.message_id != event.message_id:
        return state
    for op in event.ops:
        draft = _apply(draft, op)
    return replace(state, draft=draft)


def _apply(draft: Draft, op: DeltaOp) -> Draft:
    message = draft.message
    match op:
        case AppendContent():
            return Draft(message, draft.content.plus(op.text), draft.reasoning)
        case AppendReasoning():
            return Draft(message, draft.content, draft.reasoning.plus(op.text))
        case SetReasoning():
            return Draft(message, draft.content, GrowingText(op.text))
        case SetToolCalls():
            message = replace(message, tool_calls=op.tool_calls)
        case SetThinkingBlocks():
            message = replace(message, thinking_blocks=op.blocks)
        case AddCitation():
            message = replace(message, citations=[*message.citations, op.citation])
        case AddServerContentBlock():
            message = replace(message, server_content_blocks=[*message.server_content_blocks, op.block])
        case SetUsage():
            message = replace(message, usage=op.usage)
        case MergeExtra():
            message = replace(message, extra={**message.extra, **op.extra})
    return Draft(message, draft.content, draft.reasoning)


def _stream_finished(state: ChatState, event: ev.StreamFinished) -> ChatState:
    draft = state.draft
    if draft is None or draft.message.message_id != event.message_id:
        return state
    message = replace(draft.message, finish_reason=event.finish_reason, usage=event.usage or draft.message.usage)
    return _bake(state, Draft(message, draft.content, draft.reasoning))


def _bake(state: ChatState, draft: Draft) -> ChatState:
    message = drafted_message(draft)
    return replace(state, nodes={**state.nodes, message.message_id: message}, draft=None)


def drafted_message(draft: Draft) -> Message:
    """The message as it stands now, its growing texts joined."""
    return replace(draft.message, content=str(draft.content), reasoning_content=str(draft.reasoning) or None)


def _pause_required(state: ChatState, event: ev.PauseRequired) -> ChatState:
    return replace(state, runtime=replace(state.runtime, pause_reasons=event.reasons))


def _pause_cleared(state: ChatState, event: ev.PauseCleared) -> ChatState:
    return replace(state, runtime=replace(state.runtime, pause_reasons=[]))


def _tool_status(state: ChatState, event: ev.ToolStatus) -> ChatState:
    before = next((tool for tool in state.runtime.tools if tool.tool_call_id == event.tool_call_id), event)
    tools = [tool for tool in state.runtime.tools if tool is not before]
    if event.status not in ev.FINAL_TOOL_STATUSES:  # progress does not repeat what the call was begun with
        shown = before.input if event.input is None else event.input
        tools.append(replace(event, input=shown, label=event.label or before.label))
    calls = state.runtime.ide_calls if event.claimed_by is None else _claimed(state.runtime.ide_calls, event)
    return replace(state, runtime=replace(state.runtime, tools=tools, ide_calls=calls))


def _ide_tool_required(state: ChatState, event: ev.IdeToolRequired) -> ChatState:
    call = ev.IdeCall(
        tool_call_id=event.tool_call_id,
        tool_name=event.tool_name,
        args=event.args,
        deadline_at=event.deadline_at,
    )
    others = [c for c in state.runtime.ide_calls if c.tool_call_id != event.tool_call_id]
    return replace(state, runtime=replace(state.runtime, ide_calls=[*others, call]))


def _claimed(calls: list[ev.IdeCall], event: ev.ToolStatus) -> list[ev.IdeCall]:
    return [
        replace(call, claimed_by=event.claimed_by, claim_expires_at=event.claim_expires_at)
        if call.tool_call_id == event.tool_call_id
        else call
        for call in calls
    ]


def _background_agent_updated(state: ChatState, event: ev.BackgroundAgentUpdated) -> ChatState:
    name = event.agent.get("id")
    others = tuple(agent for agent in state.background_agents if agent.get("id") != name)
    return replace(state, background_agents=(*others, event.agent)[-AGENTS_KEPT:])


def _payload_added(state: ChatState, event: ev.PayloadAdded) -> ChatState:
    return reduce_payloads(state, (event,))


def reduce_payloads(state: ChatState, events: Sequence[ev.PayloadAdded]) -> ChatState:
    """Folds any number of new payloads at the cost of one copy of their tuple."""
    return replace(state, payloads=(*state.payloads, *events))


def _payload_updated(state: ChatState, event: ev.PayloadUpdated) -> ChatState:
    fields = {name: getattr(event, name) for name in event.__struct_fields__}
    now = ev.PayloadAdded(**fields)
    return replace(state, payloads=tuple(now if old.payload_id == event.payload_id else old for old in state.payloads))


_FOLDS: dict[type, Callable[[ChatState, Any], ChatState]] = {  # Any: each function takes the event of its key
    ev.Ack: _ack,
    ev.QueueUpdated: _queue_updated,
    ev.RuntimeUpdated: _runtime_updated,
    ev.ThreadUpdated: _thread_updated,
    ev.MessageAdded: _message_added,
    ev.MessageUpdated: _message_updated,
    ev.MessageRemoved: _message_removed,
    ev.MessagesTruncated: _messages_truncated,
    ev.BranchSelected: _branch_selected,
    ev.StreamStarted: _stream_started,
    ev.StreamDelta: _stream_delta,
    ev.StreamFinished: _stream_finished,
    ev.PauseRequired: _pause_required,
    ev.PauseCleared: _pause_cleared,
    ev.ToolStatus: _tool_status,
    ev.IdeToolRequired: _ide_tool_required,
    ev.BackgroundAgentUpdated: _background_agent_updated,
    ev.PayloadAdded: _payload_added,
    ev.PayloadUpdated: _payload_updated,
}
