"""Ends runs, their answers and their tool calls, either normally or because of an abort, a limit or an error.

All functions add to an `EntryBuilder`. A run is open while `private.run` is set; `starts.py` opens runs, one at a time.
The agent's plan decides the steps of an open run.
"""

from collections.abc import Callable, Sequence
from functools import reduce

import msgspec

from threadcast.chat.agent_steps import cancel
from threadcast.chat.entry_builder import EntryBuilder
from threadcast.chat.facts import Progressed, RunEnded, ToolFinished
from threadcast.chat.outbound import close_children, tell_parent
from threadcast.chat.owner_state import OwnerState
from threadcast.chat.previews import abandon_commit
from threadcast.chat.runtime import context_use
from threadcast.chat.starts import start_next
from threadcast.chat.wakes import wake_after
from threadcast_protocol.fold.reducer import drafted_message
from threadcast_protocol.fold.tree import with_siblings
from threadcast_protocol.wire.events import (
    ErrorHappened,
    MessageRemoved,
    MessageUpdated,
    PauseCleared,
    PayloadAdded,
    RuntimeUpdated,
    StreamFinished,
    ThreadUpdated,
    ToolStatus,
)
from threadcast_protocol.wire.failures import Failure, details_of, failure_of, with_failure
from threadcast_protocol.wire.messages import JsonObject, Message, ToolCall, add_usage

__all__ = [
    "answer_call",
    "asking_message_id",
    "blame",
    "close_calls",
    "close_draft",
    "end_run",
    "fail_run",
    "open_calls",
    "say_error",
    "tell_failure",
]


def open_calls(state: OwnerState) -> list[ToolCall]:
    """Return the calls of the round's assistant message that have no tool message yet, in their order. Unanswered calls
    from before the run are left out. A durable agent may have open calls in several messages. In this case the calls of
    all these messages are returned."""
    answered: set[str] = set()
    run = state.private.run
    if run is not None and run.agent is not None:
        messages = [state.nodes[key] for key in state.path[run.first_index :]]
        answered.update(each.tool_call_id for each in messages if each.tool_call_id is not None)
        return [call for each in messages for call in each.tool_calls if call.id not in answered]
    for key in reversed(state.path[run.first_index :] if run is not None else ()):
        message = state.nodes[key]
        if message.role == "tool" and message.tool_call_id is not None:
            answered.add(message.tool_call_id)
        elif message.role == "assistant":
            if state.draft is not None and state.draft.message.message_id == key:
                return []
            return [call for call in message.tool_calls if call.id not in answered]
        elif message.role == "user":
            break
    return []


def answer_call(
    builder: EntryBuilder,
    call: ToolCall,
    content: str,
    *,
    status: str,
    elapsed_ms: int | None = None,
    end_state: str | None = None,
    extra: JsonObject | None = None,
    payloads: Sequence[PayloadAdded] = (),
    attachments: list[JsonObject] | None = None,
) -> str:
    """Add the tool message of `call`, its payloads (EVT-11) and then its last `tool_status` (EVT-10). A client that
    reads the end of a call therefore already has all results of the call (OLD-8). Returns the id of the tool
    message."""
    run = builder.state.private.run
    message_id = builder.new_id("msg")
    builder.add_message(
        Message(
            role="tool",
            content=content,
            message_id=message_id,
            payloads=[payload.payload_id for payload in payloads],
            attachments=attachments or [],
            tool_call_id=call.id,
            tool_failed=status != "done",
            extra={**_how(builder.state, call, status, elapsed_ms), **(extra or {})},
            created_at=builder.now_ms,
        )
    )
    for payload in payloads:
        builder.say(msgspec.structs.replace(payload, message_id=message_id))
    builder.say(
        ToolStatus(
            tool_call_id=call.id,
            name=call.function.name,
            message_id=asking_message_id(builder.state, call.id),
            index=run.calls_count if run else 0,
            status=status,
            elapsed_ms=elapsed_ms,
        )
    )
    builder.note(ToolFinished(end_state=end_state))
    builder.note(Progressed())
    close_children(builder, call.id)
    return message_id


def _how(state: OwnerState, call: ToolCall, status: str, elapsed_ms: int | None) -> JsonObject:
    """Return the details of a finished call for the message's `extra`. Clients that connect later need these details
    there, because snapshots contain neither the last `tool_status` nor `subchat_update` events (PROTOCOL §8)."""
    chats = [child.chat_id for child in state.private.relations.children if child.tool_call_id == call.id]
    how = {"outcome": None if status in ("done", "error") else status, "elapsed_ms": elapsed_ms, "subchats": chats}
    return {name: value for name, value in how.items() if value}


def asking_message_id(state: OwnerState, tool_call_id: str) -> str:
    """Return the id of the assistant message that made the call, or "" if that message is not on the active path."""
    for key in reversed(state.path):
        if any(call.id == tool_call_id for call in state.nodes[key].tool_calls):
            return key
    return ""


def call_name(state: OwnerState, tool_call_id: str) -> str:
    """Return the name of the tool of a call on the active path, or "" if there is no such call."""
    message = state.nodes.get(asking_message_id(state, tool_call_id))
    calls = message.tool_calls if message is not None else []
    return next((call.function.name for call in calls if call.id == tool_call_id), "")


def close_calls(builder: EntryBuilder, content: str, status: str) -> None:
    """Answer every open call of the round with the same `content`, end an unfinished commit, and clear the pause."""
    for call in open_calls(builder.state):
        answer_call(builder, call, content, status=status)
    abandon_commit(builder, content, status=status)
    if builder.state.runtime.pause_reasons:
        builder.say(PauseCleared())


def close_draft(
    builder: EntryBuilder, *, finish_reason: str, status: str, keep: bool, failure: Failure | None = None
) -> None:
    """End the answer that is being written. With `keep`, an answer that has text or reasoning is kept, together with
    the `failure` that ended the answer. Otherwise the message is removed. Incomplete tool calls are dropped."""
    draft = builder.state.draft
    if draft is None:
        return
    run = builder.state.private.run
    before = run.continues if run is not None else None
    message_id = draft.message.message_id
    if before is not None and (not keep or str(draft.content) == before.content):
        builder.say(StreamFinished(message_id=message_id, finish_reason=finish_reason))
        # The answer that the run should have continued does not change.
        builder.add_message(before if failure is None else with_failure(before, failure))
        return
    if finish_reason == "error" and not (draft.content or draft.reasoning):
        builder.say(MessageRemoved(message_id))  # LOOP-8: an answer without any text leaves no message
        return
    builder.say(StreamFinished(message_id=message_id, finish_reason=finish_reason, usage=draft.message.usage))
    message = with_failure(drafted_message(draft), failure)
    message = msgspec.structs.replace(message, finish_reason=finish_reason, status=status, tool_calls=[])
    if run is not None and run.agent is not None:  # a message with this mark cannot be continued
        message = msgspec.structs.replace(message, extra={**message.extra, "durable": True})
    if keep and (message.content or message.reasoning_content):
        builder.add_message(message)
    else:
        builder.say(MessageRemoved(message_id))


def end_run(
    builder: EntryBuilder, outcome: str, *, error: str | None = None, then: Callable[[], None] | None = None
) -> None:
    """End the run: add its final `runtime_updated` (EVT-15), call `then`, and start the next waiting command. `then`
    adds the ack of the command that ended the run. If no run is open at the end, a sub-chat reports its end to its
    parent."""
    if builder.before_end is not None:
        builder.before_end(builder)
    run = builder.state.private.run
    state = "error" if outcome == "error" else (run.end_state if run and run.end_state else "idle")
    _say_totals(builder)
    if run is not None:
        cancel(builder, run)
    builder.say(
        RuntimeUpdated(
            state=state,
            error=error,
            run_id=run.run_id if run else None,
            round=run.round if run and run.round >= 0 else None,
            outcome=outcome,
            context=context_use(builder.state),
            tools_used=run.tools_used if run else [],
        )
    )
    builder.note(RunEnded())
    builder.note(Progressed())
    if then is not None:
        then()
    start_next(builder)
    if run is not None:
        wake_after(builder, run, outcome)
    if builder.state.private.run is None:
        tell_parent(builder, outcome, error)


def _say_totals(builder: EntryBuilder) -> None:
    """Update the thread with the time when the run ended, and with the tokens of all runs so far (SES-2, EVT-12)."""
    run = builder.state.private.run
    path = builder.state.path[run.first_index :] if run is not None else ()
    spent = reduce(add_usage, (builder.state.nodes[key].usage for key in path), None)
    changes: JsonObject = {"last_active": builder.now_ms}
    if spent is not None:
        changes["usage"] = add_usage(builder.state.thread.usage, spent)
    builder.say(ThreadUpdated(**changes))


def fail_run(builder: EntryBuilder, failure: Failure, *, outcome: str = "error") -> None:
    """End the run with an `error` event. The draft, the open calls and the pause are closed, and the failure is stored
    with the last message of the path."""
    say_error(builder, failure, fatal=True)
    close_draft(builder, finish_reason="error", status="error", keep=True, failure=failure)
    close_calls(builder, "The run ended before this call was run.", "aborted")
    blame(builder, failure)
    end_run(builder, outcome, error=failure.message if outcome == "error" else None)


def blame(builder: EntryBuilder, failure: Failure) -> None:
    """Store `failure` with the last message of the path. Adds no event if the message already has this failure."""
    leaf = builder.state.leaf
    if leaf is None or failure_of(leaf) == failure:
        return
    key = leaf.message_id
    told = with_siblings(builder.state.nodes, [key])[key]
    builder.say(MessageUpdated(key, with_failure(told, failure)))


def say_error(builder: EntryBuilder, failure: Failure, *, fatal: bool) -> None:
    """Add the `error` event for a failure of the open run."""
    run = builder.state.private.run
    builder.say(
        ErrorHappened(
            code=failure.code,
            message=failure.message,
            fatal=fatal,
            run_id=run.run_id if run else None,
            details=details_of(failure),
        )
    )


def tell_failure(builder: EntryBuilder, failure: Failure) -> None:
    """Report a command that failed before it started a run. Adds an `error` event and, if no run is open, a message
    with the role `error`. Messages with this role are not sent to models."""
    say_error(builder, failure, fatal=False)
    if not builder.state.is_at_rest:  # the path ends in the open answer
        return
    builder.add_message(
        with_failure(
            Message(
                role="error",
                content=failure.message,
                message_id=builder.new_id("msg"),
                created_at=builder.now_ms,
            ),
            failure,
        )
    )
