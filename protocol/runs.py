"""How a run's answers, calls and the run itself are closed: in order, by abort, by a limit or an error.

Everything here writes into a ledger and looks at nothing else. A run is open while `private.run` is set; at most one
is, and `starts.py` opens it. What happens in between is the agent's plan.
"""

from collections.abc import Callable, Sequence

import msgspec

from protocol.events import (
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
from protocol.facts import Progressed, RunEnded, ToolFinished
from protocol.failures import Failure, details_of, failure_of, with_failure
from protocol.ledger import Ledger
from protocol.messages import JsonObject, Message, ToolCall, Usage, add_usage
from protocol.outbox import close_children, tell_parent
from protocol.previews import abandon_commit
from protocol.reducer import drafted_message
from protocol.runtime import context_use
from protocol.starts import start_next
from protocol.state import ChatState
from protocol.tree import with_siblings
from protocol.wakes import wake_after

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
]


def open_calls(state: ChatState) -> list[ToolCall]:
    """The calls of the round's assistant message that no tool message has answered yet, in call order. Calls from
    before the run are nobody's business any more."""
    answered: set[str] = set()
    run = state.private.run
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
    ledger: Ledger,
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
    """The tool message of `call`, its payloads (EVT-11), then its last `tool_status` (EVT-10): a client that hears that
    a call is done has everything that the call gave (OLD-8). Returns the message's id."""
    run = ledger.state.private.run
    message_id = ledger.new_id("msg")
    ledger.add_message(
        Message(
            role="tool",
            content=content,
            message_id=message_id,
            payloads=[payload.payload_id for payload in payloads],
            attachments=attachments or [],
            tool_call_id=call.id,
            tool_failed=status != "done",
            extra={**_how(ledger.state, call, status, elapsed_ms), **(extra or {})},
            created_at=ledger.now_ms,
        )
    )
    for payload in payloads:
        ledger.say(msgspec.structs.replace(payload, message_id=message_id))
    ledger.say(
        ToolStatus(
            tool_call_id=call.id,
            name=call.function.name,
            message_id=asking_message_id(ledger.state, call.id),
            index=run.calls_count if run else 0,
            status=status,
            elapsed_ms=elapsed_ms,
        )
    )
    ledger.note(ToolFinished(end_state=end_state))
    ledger.note(Progressed())
    close_children(ledger, call.id)
    return message_id


def _how(state: ChatState, call: ToolCall, status: str, elapsed_ms: int | None) -> JsonObject:
    """What a client that comes later could not know of a call from its text: the last `tool_status` is in no snapshot,
    and `subchat_update` never was (PROTOCOL §8)."""
    chats = [child.chat_id for child in state.private.relations.children if child.tool_call_id == call.id]
    how = {"outcome": None if status in ("done", "error") else status, "elapsed_ms": elapsed_ms, "subchats": chats}
    return {name: value for name, value in how.items() if value}


def asking_message_id(state: ChatState, tool_call_id: str) -> str:
    """The assistant message that made the call."""
    for key in reversed(state.path):
        if any(call.id == tool_call_id for call in state.nodes[key].tool_calls):
            return key
    return ""


def close_calls(ledger: Ledger, content: str, status: str) -> None:
    """Answer every open call of the round in the same words, a commit that has not ended too; take a pause back."""
    for call in open_calls(ledger.state):
        answer_call(ledger, call, content, status=status)
    abandon_commit(ledger, content, status=status)
    if ledger.state.runtime.pause_reasons:
        ledger.say(PauseCleared())


def close_draft(ledger: Ledger, *, finish_reason: str, status: str, keep: bool, failure: Failure | None = None) -> None:
    """End the open answer. An answer with text or reasoning is kept, with the `failure` that ended it; else it is taken
    back. Half-received calls are dropped."""
    draft = ledger.state.draft
    if draft is None:
        return
    run = ledger.state.private.run
    before = run.continues if run is not None else None
    message_id = draft.message.message_id
    if before is not None and (not keep or str(draft.content) == before.content):
        ledger.say(StreamFinished(message_id=message_id, finish_reason=finish_reason))
        # The answer that was being continued stays as it was.
        ledger.add_message(before if failure is None else with_failure(before, failure))
        return
    if finish_reason == "error" and not (draft.content or draft.reasoning):
        ledger.say(MessageRemoved(message_id))  # LOOP-8: an answer that never began leaves no trace
        return
    ledger.say(StreamFinished(message_id=message_id, finish_reason=finish_reason, usage=draft.message.usage))
    message = with_failure(drafted_message(draft), failure)
    message = msgspec.structs.replace(message, finish_reason=finish_reason, status=status, tool_calls=[])
    if keep and (message.content or message.reasoning_content):
        ledger.add_message(message)
    else:
        ledger.say(MessageRemoved(message_id))


def end_run(ledger: Ledger, outcome: str, *, error: str | None = None, then: Callable[[], None] | None = None) -> None:
    """The run's one `runtime_updated` at rest (EVT-15), `then` the ack of who ended it, then the queue goes on. A child
    that rests now tells its parent."""
    if ledger.before_end is not None:
        ledger.before_end(ledger)
    run = ledger.state.private.run
    state = "error" if outcome == "error" else (run.end_state if run and run.end_state else "idle")
    _say_totals(ledger)
    ledger.say(
        RuntimeUpdated(
            state=state,
            error=error,
            run_id=run.run_id if run else None,
            round=run.round if run and run.round >= 0 else None,
            outcome=outcome,
            context=context_use(ledger.state),
            tools_used=run.tools_used if run else [],
        )
    )
    ledger.note(RunEnded())
    ledger.note(Progressed())
    if then is not None:
        then()
    start_next(ledger)
    if run is not None:
        wake_after(ledger, run, outcome)
    if ledger.state.private.run is None:
        tell_parent(ledger, outcome, error)


def _say_totals(ledger: Ledger) -> None:
    """What the run leaves in its thread: when it ended, and the tokens of all runs so far (SES-2, EVT-12)."""
    run = ledger.state.private.run
    path = ledger.state.path[run.first_index :] if run is not None else ()
    spent: Usage | None = None
    for key in path:
        spent = add_usage(spent, ledger.state.nodes[key].usage)
    changes: JsonObject = {"last_active": ledger.now_ms}
    if spent is not None:
        changes["usage"] = add_usage(ledger.state.thread.usage, spent)
    ledger.say(ThreadUpdated(**changes))


def fail_run(ledger: Ledger, failure: Failure, *, outcome: str = "error") -> None:
    """Close the draft, the open calls and the pause, then end the run with an `error` event. The failure stays with the
    last message of the path."""
    say_error(ledger, failure, fatal=True)
    close_draft(ledger, finish_reason="error", status="error", keep=True, failure=failure)
    close_calls(ledger, "The run ended before this call was run.", "aborted")
    blame(ledger, failure)
    end_run(ledger, outcome, error=failure.message if outcome == "error" else None)


def blame(ledger: Ledger, failure: Failure) -> None:
    """Store `failure` with the last message of the path; appends no event if the message has this failure already."""
    leaf = ledger.state.leaf
    if leaf is None or failure_of(leaf) == failure:
        return
    key = leaf.message_id
    told = with_siblings(ledger.state.nodes, [key])[key]
    ledger.say(MessageUpdated(key, with_failure(told, failure)))


def say_error(ledger: Ledger, failure: Failure, *, fatal: bool) -> None:
    """Return the `error` event for a failure of the open run."""
    run = ledger.state.private.run
    ledger.say(
        ErrorHappened(
            code=failure.code,
            message=failure.message,
            fatal=fatal,
            run_id=run.run_id if run else None,
            details=details_of(failure),
        )
    )
