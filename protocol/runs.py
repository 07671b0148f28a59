"""How runs begin and end, purely: from the queue, by abort, by a limit or an error, after a crash.

Everything here writes into a ledger and looks at nothing else. A run is open while `private.run` is set; at most one
is. What happens inside a run, between these two moments, is the agent's plan.
"""

from collections.abc import Callable

import msgspec

from protocol.commands import Regenerate, UserMessage
from protocol.content import content_text, preview_of, read_content
from protocol.errors import BadRequest, NotFound, Refused
from protocol.events import (
    ErrorHappened,
    MessageRemoved,
    MessagesTruncated,
    PauseCleared,
    QueuedItem,
    QueueUpdated,
    RuntimeUpdated,
    StreamFinished,
    ToolStatus,
)
from protocol.facts import CommandsDequeued, Progressed, RunEnded, RunStarted, ToolFinished
from protocol.ledger import Ledger, shown_name
from protocol.messages import Message, ToolCall
from protocol.reducer import drafted_message
from protocol.state import ChatState, Queued
from protocol.thread import read_patch

__all__ = [
    "answer_call",
    "close_calls",
    "close_draft",
    "end_run",
    "fail_run",
    "open_calls",
    "say_queue",
    "say_runtime",
    "start_next",
]

_queued = msgspec.json.Decoder(UserMessage | Regenerate)


def start_next(ledger: Ledger) -> None:
    """Begin the next run, if the chat rests and something waits. A command that cannot be applied is refused, and
    the one after it is looked at."""
    while ledger.state.is_at_rest and ledger.state.private.run is None and ledger.state.private.queue:
        first = ledger.state.private.queue[0]
        command = _queued.decode(first.body)
        try:
            if isinstance(command, UserMessage):
                _start_with_messages(ledger, [first, *_mergeable(ledger.state)])
            else:
                _start_regenerating(ledger, first, command)
        except Refused as refusal:
            ledger.note(CommandsDequeued(request_ids=[first.request_id]))
            say_queue(ledger)
            ledger.refuse(first.request_id, refusal.code, refusal.message, by=first.principal)


def _mergeable(state: ChatState) -> list[Queued]:
    """What follows the head of the queue and may join its turn: plain user messages (PROTOCOL §9)."""
    if state.thread.merge_queued is False or not _is_plain(state.private.queue[0]):
        return []
    joined: list[Queued] = []
    for item in state.private.queue[1:]:
        if not _is_plain(item):
            break
        joined.append(item)
    return joined


def _is_plain(item: Queued) -> bool:
    command = _queued.decode(item.body)
    return isinstance(command, UserMessage) and not (
        command.priority or command.params or command.context or command.interaction
    )


def _start_with_messages(ledger: Ledger, batch: list[Queued]) -> None:
    commands = [(item, msgspec.json.decode(item.body, type=UserMessage)) for item in batch]
    contents = [read_content(command.content, command.attachments) for _, command in commands]
    last = commands[-1][1]
    params = read_patch(last.params)
    _open_run(ledger, batch, model=params.pop("model", None) or None, params=params, context=last.context)
    for (item, command), content in zip(commands, contents, strict=True):
        ledger.add_message(
            Message(
                role="user",
                content=content,
                message_id=ledger.new_id("msg"),
                client_request_id=item.request_id,
                by=shown_name(item.principal),
                context_files=command.context_files,
                context=command.context,
                interaction=None if command.interaction is None else msgspec.to_builtins(command.interaction),
                created_at=item.at_ms,
            )
        )
        ledger.settle(item.request_id, accepted=True)


def _start_regenerating(ledger: Ledger, item: Queued, command: Regenerate) -> None:
    cut = _regenerate_from(ledger.state, command.message_id)
    _open_run(ledger, [item], model=command.model or None, params={}, context={}, first_index=cut)
    if cut < len(ledger.state.path):
        ledger.say(MessagesTruncated(cut))
    ledger.settle(item.request_id, accepted=True)


def _regenerate_from(state: ChatState, message_id: str | None) -> int:
    """How many messages of the path stay (CMD-5).

    Raises:
        NotFound: no such message on the active path, or nothing to answer.
        BadRequest: the path would begin with an answer to nobody.
    """
    roles = [state.nodes[key].role for key in state.path]
    if not roles:
        raise NotFound("there is nothing to regenerate: the chat has no messages")
    if message_id is not None:
        if message_id not in state.path:
            raise NotFound("message_id is not on the active path")
        at = state.path.index(message_id)
        cut = at if roles[at] == "assistant" else at + 1
    elif roles[-1] in ("user", "tool"):
        cut = len(roles)
    else:
        last_user = max((i for i, role in enumerate(roles) if role == "user"), default=-1)
        answers = [i for i in range(last_user + 1, len(roles)) if roles[i] == "assistant"]
        cut = answers[0] if answers else len(roles)
    if "user" not in roles[:cut]:
        raise BadRequest("there is no user message before this answer")
    return cut


def _open_run(
    ledger: Ledger,
    batch: list[Queued],
    *,
    model: str | None,
    params: dict[str, object],
    context: dict[str, object],
    first_index: int | None = None,
) -> None:
    request_ids = [item.request_id for item in batch]
    run_id = ledger.new_id("run")
    ledger.note(CommandsDequeued(request_ids=request_ids))
    ledger.note(
        RunStarted(
            run_id=run_id,
            principal=batch[-1].principal,
            request_ids=request_ids,
            at_ms=ledger.now_ms,
            first_index=len(ledger.state.path) if first_index is None else first_index,
            model=model,
            params=params,
            context=context,
        )
    )
    say_runtime(ledger, "generating", round=0)
    say_queue(ledger)


def say_runtime(
    ledger: Ledger,
    state: str,
    *,
    round: int | None = None,
    status_text: str | None = None,
    active_tool: str | None = None,
) -> None:
    """`runtime_updated` of the open run, unless nothing would change."""
    run = ledger.state.private.run
    now = ledger.state.runtime
    event = RuntimeUpdated(
        state=state,
        run_id=run.run_id if run else None,
        round=round if round is not None else now.round,
        status_text=status_text,
        active_tool=active_tool,
        context=now.context,
    )
    shown = (now.state, now.error, now.run_id, now.round, now.status_text, now.active_tool, now.outcome)
    if shown != (state, None, event.run_id, event.round, status_text, active_tool, None):
        ledger.say(event)


def say_queue(ledger: Ledger) -> None:
    """`queue_updated` as the queue now is."""
    items = [_as_item(queued) for queued in ledger.state.private.queue]
    ledger.say(QueueUpdated(len(items), items))


def _as_item(queued: Queued) -> QueuedItem:
    command = _queued.decode(queued.body)
    if isinstance(command, UserMessage):
        preview, content = preview_of(command.content), content_text(command.content)
        return QueuedItem(queued.request_id, command.priority, "user_message", preview, content)
    return QueuedItem(queued.request_id, command.priority, "regenerate", "regenerate", "")


def open_calls(state: ChatState) -> list[ToolCall]:
    """The calls of the round's assistant message that no tool message has answered yet, in call order."""
    answered: set[str] = set()
    for key in reversed(state.path):
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
) -> None:
    """The tool message of `call`, then its last `tool_status` (EVT-10)."""
    run = ledger.state.private.run
    ledger.add_message(
        Message(
            role="tool",
            content=content,
            message_id=ledger.new_id("msg"),
            tool_call_id=call.id,
            tool_failed=status != "done",
            created_at=ledger.now_ms,
        )
    )
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


def asking_message_id(state: ChatState, tool_call_id: str) -> str:
    """The assistant message that made the call."""
    for key in reversed(state.path):
        if any(call.id == tool_call_id for call in state.nodes[key].tool_calls):
            return key
    return ""


def close_calls(ledger: Ledger, content: str, status: str) -> None:
    """Answer every open call of the round in the same words; take a pause back."""
    for call in open_calls(ledger.state):
        answer_call(ledger, call, content, status=status)
    if ledger.state.runtime.pause_reasons:
        ledger.say(PauseCleared())


def close_draft(ledger: Ledger, *, finish_reason: str, status: str, keep: bool) -> None:
    """End the open answer: kept with what it has of text and reasoning, or taken back. Half-received calls go."""
    draft = ledger.state.draft
    if draft is None:
        return
    message_id = draft.message.message_id
    if finish_reason == "error" and not (draft.content or draft.reasoning):
        ledger.say(MessageRemoved(message_id))  # LOOP-8: an answer that never began leaves no trace
        return
    ledger.say(StreamFinished(message_id=message_id, finish_reason=finish_reason, usage=draft.message.usage))
    message = msgspec.structs.replace(drafted_message(draft), finish_reason=finish_reason, status=status, tool_calls=[])
    if keep and (message.content or message.reasoning_content):
        ledger.add_message(message)
    else:
        ledger.say(MessageRemoved(message_id))


def end_run(ledger: Ledger, outcome: str, *, error: str | None = None, then: Callable[[], None] | None = None) -> None:
    """The run's one `runtime_updated` at rest (EVT-15), `then` the ack of who ended it, then the queue goes on."""
    run = ledger.state.private.run
    state = "error" if outcome == "error" else (run.end_state if run and run.end_state else "idle")
    ledger.say(
        RuntimeUpdated(
            state=state,
            error=error,
            run_id=run.run_id if run else None,
            round=run.round if run and run.round >= 0 else None,
            outcome=outcome,
            context=ledger.state.runtime.context,
            tools_used=run.tools_used if run else [],
        )
    )
    ledger.note(RunEnded())
    ledger.note(Progressed())
    if then is not None:
        then()
    start_next(ledger)


def fail_run(ledger: Ledger, code: str, message: str, *, outcome: str = "error") -> None:
    """End the run by an error that everybody sees: draft, open calls and pause are closed first."""
    run = ledger.state.private.run
    ledger.say(ErrorHappened(code=code, message=message, fatal=True, run_id=run.run_id if run else None))
    close_draft(ledger, finish_reason="error", status="error", keep=True)
    close_calls(ledger, "The run ended before this call was run.", "aborted")
    end_run(ledger, outcome, error=message if outcome == "error" else None)
