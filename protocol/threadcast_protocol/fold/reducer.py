"""The fold of public events: `reduce(state, position, event) -> state`.

Actors, relays and clients compute the same state with these pure functions; the JavaScript client is tested against the
same transcripts. Folding must obey one law: `state(i) + events(i..j) == state(j)` for all i < j, where states are
compared by `snapshot.snapshot_of`. Events that are already folded are skipped. A gap raises `Gap`, and the reader
starts again from a snapshot. The result has the type of the given state, so the server can fold its own larger state.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import Any, Protocol, TypeVar

from msgspec.structs import asdict, replace

from threadcast_protocol.fold.growing_text import GrowingText
from threadcast_protocol.fold.state import AGENT_STEPS_KEPT, AGENTS_KEPT, RECENT_ACKS_KEPT, ChatState, Draft
from threadcast_protocol.fold.tree import subtree_of, way_to, with_siblings
from threadcast_protocol.wire import events as ev
from threadcast_protocol.wire.deltas import (
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
from threadcast_protocol.wire.messages import Message, text_of
from threadcast_protocol.wire.thread import apply_changes

__all__ = [
    "Gap",
    "drafted_message",
    "reduce",
    "reduce_added",
    "reduce_all",
    "reduce_event",
    "reduce_payloads",
    "with_ops",
]


S = TypeVar("S", bound=ChatState)


class _Fold(Protocol):
    def __call__(self, state: S, event: Any, /) -> S: ...  # Any: each function gets events of its key in _FOLDS


class Gap(Exception):
    """An event or entry does not follow the state. The reader must start again from a snapshot."""


def reduce(state: S, position: int, event: ev.Event) -> S:
    """Return the state after the event at `position`, or `state` itself if it already contains this event.

    Raises:
        Gap: `position` is not the next position.
    """
    if position <= state.position:
        return state
    if position != state.position + 1:
        raise Gap(f"position {position} after {state.position}")
    return replace(reduce_event(state, event), position=position)


def reduce_all(state: S, events: Sequence[ev.Event]) -> S:
    """Fold events in order; `position` is not changed.

    Consecutive messages, with the cuts between them, are folded together, so that the tree is copied only once.
    Consecutive payloads are folded together too.
    """
    if len(events) == 1:
        return reduce_event(state, events[0])
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


def reduce_event(state: S, event: ev.Event) -> S:
    """Return the state after `event`; `position` is not changed. Returns `state` itself for events that change no
    state."""
    fold = _FOLDS.get(type(event))
    return state if fold is None else fold(state, event)


def _ack(state: S, event: ev.Ack) -> S:
    return replace(state, recent_acks=(*state.recent_acks, event)[-RECENT_ACKS_KEPT:])


def _queue_updated(state: S, event: ev.QueueUpdated) -> S:
    return _with_runtime(state, queue_size=event.queue_size, queued_items=event.queued_items)


def _runtime_updated(state: S, event: ev.RuntimeUpdated) -> S:
    rests = event.state in ev.AT_REST
    return _with_runtime(
        state,
        **asdict(event),
        paused=event.state == "paused",
        tools=[] if rests else state.runtime.tools,
        ide_calls=[] if rests else state.runtime.ide_calls,
    )


def _with_runtime(state: S, /, **changes: Any) -> S:  # Any: each field of Runtime has its own type
    return replace(state, runtime=replace(state.runtime, **changes))


def _thread_updated(state: S, event: ev.ThreadUpdated) -> S:
    return replace(state, thread=apply_changes(state.thread, event))


def _message_added(state: S, event: ev.MessageAdded) -> S:
    return reduce_added(state, (event,))


def reduce_added(state: S, events: Sequence[ev.MessageAdded | ev.MessagesTruncated]) -> S:
    """Fold any number of added messages, and the cuts between them, with a single copy of the tree and of the path. If
    there are cuts, `state.draft` must be None, which means that no answer is being written."""
    nodes, path, draft, runtime = dict(state.nodes), list(state.path), state.draft, state.runtime
    on_path = _on_path(state, events[0]) if len(events) == 1 else set(path)
    for event in events:
        if isinstance(event, ev.MessagesTruncated):
            on_path.difference_update(path[event.from_index :])
            del path[event.from_index :]
            continue
        message = event.message
        if message.message_id not in on_path:
            on_path.add(message.message_id)
            path[event.index : event.index] = [message.message_id]  # like `insert`, but accepts integers beyond 64 bits
        if draft is not None and draft.message.message_id == message.message_id:
            draft = None
        if message.tool_call_id is not None and runtime.ide_calls:
            left = [call for call in runtime.ide_calls if call.tool_call_id != message.tool_call_id]
            runtime = replace(runtime, ide_calls=left)
        nodes[message.message_id] = message
    return replace(state, nodes=nodes, path=tuple(path), draft=draft, runtime=runtime)


def _on_path(state: ChatState, event: ev.MessageAdded | ev.MessagesTruncated) -> set[str]:
    """Return the id of the event's message if it is on the path. Finding the ids of all messages of the path would take
    longer than the rest of the fold."""
    if isinstance(event, ev.MessagesTruncated):
        return set()
    key = event.message.message_id
    is_on_path = key in state.nodes and (state.path[-1:] == (key,) or key in state.path)
    return {key} if is_on_path else set()


def _message_updated(state: S, event: ev.MessageUpdated) -> S:
    if event.message_id not in state.nodes:
        return state
    return replace(state, nodes={**state.nodes, event.message_id: event.message})


def _message_removed(state: S, event: ev.MessageRemoved) -> S:
    """Remove the message and all messages below it. If the message is on the active path, the path ends before it
    (CMD-9)."""
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


def _messages_truncated(state: S, event: ev.MessagesTruncated) -> S:
    cut = state.path[event.from_index :]
    if state.draft is not None and state.draft.message.message_id in cut:
        state = _bake(state, state.draft)
    return replace(state, path=state.path[: event.from_index])


def _branch_selected(state: S, event: ev.BranchSelected) -> S:
    """Switch to another path. Messages on the new path get their present siblings, because events do not update
    siblings of messages that are not on the active path."""
    path = way_to(state.nodes, event.leaf_id)
    if not path:
        return state
    return replace(state, nodes=with_siblings(state.nodes, path), path=path)


def _stream_started(state: S, event: ev.StreamStarted) -> S:
    if state.draft is not None:
        state = _bake(state, state.draft)
    before = state.nodes.get(event.message_id)
    if before is not None:
        open_again = replace(before, finish_reason=None, status=None)
        draft = Draft(open_again, GrowingText(text_of(before.content)), GrowingText(before.reasoning_content or ""))
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


def _stream_delta(state: S, event: ev.StreamDelta) -> S:
    draft = state.draft
    if draft is None or draft.message.message_id != event.message_id:
        return state
    return replace(state, draft=with_ops(draft, event.ops))


def with_ops(draft: Draft, ops: Sequence[DeltaOp]) -> Draft:
    """Return the draft after these operations."""
    for op in ops:
        draft = _apply(draft, op)
    return draft


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


def _stream_finished(state: S, event: ev.StreamFinished) -> S:
    draft = state.draft
    if draft is None or draft.message.message_id != event.message_id:
        return state
    message = replace(draft.message, finish_reason=event.finish_reason, usage=event.usage or draft.message.usage)
    return _bake(state, Draft(message, draft.content, draft.reasoning))


def _bake(state: S, draft: Draft) -> S:
    message = drafted_message(draft)
    return replace(state, nodes={**state.nodes, message.message_id: message}, draft=None)


def drafted_message(draft: Draft) -> Message:
    """Return the message of the draft with its texts so far."""
    return replace(draft.message, content=str(draft.content), reasoning_content=str(draft.reasoning) or None)


def _pause_required(state: S, event: ev.PauseRequired) -> S:
    return _with_runtime(state, pause_reasons=event.reasons)


def _pause_cleared(state: S, event: ev.PauseCleared) -> S:
    return _with_runtime(state, pause_reasons=[])


def _tool_status(state: S, event: ev.ToolStatus) -> S:
    before = next((tool for tool in state.runtime.tools if tool.tool_call_id == event.tool_call_id), event)
    tools = [tool for tool in state.runtime.tools if tool is not before]
    if event.status not in ev.FINAL_TOOL_STATUSES:  # events about progress do not repeat the input and the label
        shown = before.input if event.input is None else event.input
        tools.append(replace(event, input=shown, label=event.label or before.label))
    calls = state.runtime.ide_calls if event.claimed_by is None else _claimed(state.runtime.ide_calls, event)
    return _with_runtime(state, tools=tools, ide_calls=calls)


def _ide_tool_required(state: S, event: ev.IdeToolRequired) -> S:
    call = ev.IdeCall(
        tool_call_id=event.tool_call_id,
        tool_name=event.tool_name,
        args=event.args,
        deadline_at=event.deadline_at,
    )
    others = [c for c in state.runtime.ide_calls if c.tool_call_id != event.tool_call_id]
    return _with_runtime(state, ide_calls=[*others, call])


def _claimed(calls: list[ev.IdeCall], event: ev.ToolStatus) -> list[ev.IdeCall]:
    return [
        replace(call, claimed_by=event.claimed_by, claim_expires_at=event.claim_expires_at)
        if call.tool_call_id == event.tool_call_id
        else call
        for call in calls
    ]


def _background_agent_updated(state: S, event: ev.BackgroundAgentUpdated) -> S:
    name = event.agent.get("id")
    others = tuple(agent for agent in state.background_agents if agent.get("id") != name)
    return replace(state, background_agents=(*others, event.agent)[-AGENTS_KEPT:])


def _agent_step(state: S, event: ev.AgentStep) -> S:
    """Replace the step of the same id in its place, or add the step as the newest step. The first step of another run
    takes the place of all steps of the run before."""
    steps = [step for step in state.runtime.agent_steps if step.run_id == event.run_id]
    for index, step in enumerate(steps):
        if step.step_id == event.step_id:
            steps[index] = event
            break
    else:
        steps.append(event)
    return _with_runtime(state, agent_steps=steps[-AGENT_STEPS_KEPT:])


def _payload_added(state: S, event: ev.PayloadAdded) -> S:
    return reduce_payloads(state, (event,))


def reduce_payloads(state: S, events: Sequence[ev.PayloadAdded]) -> S:
    """Fold any number of new payloads with a single copy of the tuple of payloads."""
    return replace(state, payloads=(*state.payloads, *events))


def _payload_updated(state: S, event: ev.PayloadUpdated) -> S:
    now = ev.PayloadAdded(**asdict(event))
    return replace(state, payloads=tuple(now if old.payload_id == event.payload_id else old for old in state.payloads))


_FOLDS: dict[type, _Fold] = {
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
    ev.AgentStep: _agent_step,
    ev.PayloadAdded: _payload_added,
    ev.PayloadUpdated: _payload_updated,
}
