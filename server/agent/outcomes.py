"""What becomes of a finished step: a model's whole or broken answer, a tool's result. Pure; the loop commits it.

Each function says what happened and then asks the plan for the next step, so that the entry which ends one step
announces the next. Tests drive the same functions without any model.
"""

import msgspec
from msgspec.structs import replace

from protocol.events import ErrorHappened, MessageRemoved, StreamFinished, ThreadUpdated
from protocol.facts import (
    ArgumentsHidden,
    PreviewShown,
    Progressed,
    ProviderCallId,
    ProviderDataKept,
    ReasoningLogged,
    ResultWithheld,
    RoundStarted,
    SetAside,
)
from protocol.failures import Failure, with_failure
from protocol.ledger import Ledger
from protocol.messages import JsonObject, ToolCall, Usage
from protocol.previews import settle_commit
from protocol.queue import is_steered
from protocol.reducer import drafted_message
from protocol.runs import answer_call, fail_run, say_error
from protocol.runtime import say_runtime
from protocol.state import ProviderEcho
from protocol.thread import OBJECT_MAX_BYTES
from server.agent.answer import empty
from server.agent.calls.gates import ToolTable
from server.agent.calls.hiding import hidden_call, hides
from server.agent.calls.memory import remember
from server.agent.calls.previews import shown_of
from server.agent.history.summaries import keep_summary
from server.agent.plan import advance, may_go_on
from server.agent.steps import CallModel, RunTool, Step, Summarize
from server.tools.base import ToolResult

EMPTY = {
    False: "The model answered with nothing.",
    True: "The model's provider held the whole answer back.",
}
"""The error sentences for an empty answer, by whether the provider's content filter is the reason."""

__all__ = ["Answer", "break_off", "finish", "say_fallback", "summarized", "tool_done"]


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a model call besides the streamed text. `calls`: the complete calls, without those that have no
    name. `hidden_reasoning` is for the server's log only. `provider` gave `provider_data`: the name of a model does not
    always say whose it is."""

    calls: list[ToolCall] = []
    finish_reason: str | None = None
    usage: Usage | None = None
    timings: JsonObject | None = None
    model: str | None = None
    has_nameless_calls: bool = False
    provider_ids: dict[str, str] = {}
    hidden_reasoning: str = ""
    provider: str = ""
    provider_data: list[JsonObject] = []


def finish(ledger: Ledger, step: CallModel, answer: Answer, table: ToolTable) -> Step:
    """Write the final events of a complete answer (EVT-14, LOOP-14). After an empty answer the model is asked once
    more; a second empty answer ends the run."""
    run, draft = ledger.state.private.run, ledger.state.draft
    reason = "tool_calls" if answer.calls else answer.finish_reason or "stop"
    objection = ""
    if draft is not None:
        objection = empty.objection_to(
            draft, has_calls=bool(answer.calls), has_nameless_calls=answer.has_nameless_calls
        )
    if not objection or run is None or draft is None:
        _close(ledger, step, answer, table, reason=reason, status=None)
        return advance(ledger, table)
    asks = not empty.has_asked(ledger.state, run) and may_go_on(ledger, run) and reason != "content_filter"
    _close_empty(ledger, step, answer, table, reason=reason)
    if asks:
        leaf = ledger.state.leaf
        after = leaf.message_id if leaf is not None else None
        ledger.note(SetAside(aside=empty.aside_of(objection, run, after, ledger.new_id, ledger.now_ms)))
    elif not empty.says_something(draft) and not is_steered(ledger.state):
        fail_run(
            ledger,
            Failure(code="empty_answer", message=EMPTY[reason == "content_filter"], model=answer.model or step.model),
        )
    return advance(ledger, table)


def _close_empty(ledger: Ledger, step: CallModel, answer: Answer, table: ToolTable, *, reason: str) -> None:
    """Keep the words and the reasoning that people have seen; remove a message that has neither."""
    draft = ledger.state.draft
    if draft is not None and (empty.says_something(draft) or draft.reasoning):
        _close(ledger, step, answer, table, reason=reason, status=None)
        return
    ledger.say(MessageRemoved(step.message_id))
    if answer.hidden_reasoning:
        ledger.note(ReasoningLogged(message_id=step.message_id, text=answer.hidden_reasoning))
    ledger.note(Progressed())


def break_off(ledger: Ledger, step: CallModel, answer: Answer, failure: Failure, table: ToolTable) -> Step:
    """The stream broke or never began (LOOP-8, LOOP-9). Calls that came whole are carried out all the same."""
    if not answer.calls or not step.with_tools:
        fail_run(ledger, failure)
    else:
        say_error(ledger, failure, fatal=False)
        _close(ledger, step, answer, table, reason="error", status="error", failure=failure)
    return advance(ledger, table)


def _close(
    ledger: Ledger,
    step: CallModel,
    answer: Answer,
    table: ToolTable,
    *,
    reason: str,
    status: str | None,
    failure: Failure | None = None,
) -> None:
    draft = ledger.state.draft
    if draft is None:  # cannot be: only the loop and an abort close drafts, and an abort stops the loop first
        return
    ledger.say(
        StreamFinished(message_id=step.message_id, finish_reason=reason, usage=answer.usage, timings=answer.timings)
    )
    ledger.add_message(
        replace(
            with_failure(drafted_message(draft), failure),
            finish_reason=reason,
            tool_calls=_public(ledger, answer.calls, table),
            usage=answer.usage or draft.message.usage,
            model=answer.model or step.model,
            status=status,
        )
    )
    for call_id, provider_id in answer.provider_ids.items():
        ledger.note(ProviderCallId(tool_call_id=call_id, provider_id=provider_id))
    if answer.hidden_reasoning:
        ledger.note(ReasoningLogged(message_id=step.message_id, text=answer.hidden_reasoning))
    if answer.provider_data:
        echo = ProviderEcho(answer.provider, answer.provider_data)
        ledger.note(ProviderDataKept(message_id=step.message_id, echo=echo))
    ledger.note(Progressed())


def _public(ledger: Ledger, calls: list[ToolCall], table: ToolTable) -> list[ToolCall]:
    """The calls as clients see them; what is hidden of them is kept as a fact (EVT-8)."""
    shown: list[ToolCall] = []
    for call in calls:
        is_hidden = hides(table, call.function.name)
        if is_hidden:
            ledger.note(ArgumentsHidden(tool_call_id=call.id, arguments=call.function.arguments))
        shown.append(hidden_call(call) if is_hidden else call)
    return shown


def summarized(
    ledger: Ledger, step: Summarize, text: str, elapsed_ms: int, table: ToolTable, usage: Usage | None = None
) -> Step:
    """The history is summed up, or cannot be ('')."""
    keep_summary(ledger, step, text, elapsed_ms, usage)
    return advance(ledger, table)


def say_fallback(ledger: Ledger, model: str, window_tokens: int | None) -> None:
    """The open round goes on with another model, whose window is that large."""
    run = ledger.state.private.run
    if run is not None:
        ledger.note(RoundStarted(round=run.round, summarizing=run.summarizing, window_tokens=window_tokens))
    say_runtime(ledger, "generating", status_text=f"asking {model} instead")


def tool_done(
    ledger: Ledger,
    call: ToolCall,
    result: ToolResult,
    elapsed_ms: int | None,
    table: ToolTable,
    attachments: list[JsonObject] | None = None,
    withheld: str | None = None,
    rest: tuple[RunTool, ...] = (),
) -> Step:
    """A tool's result: its message with `attachments` (a commit has none: its result is for the model alone), its
    payloads (EVT-11), its change of the thread's metadata (LOOP-12). `withheld` is what the model reads in place of the
    message's text (EVT-10). While the `rest` of the calls beside it still run, nothing else is begun."""
    result = remember(ledger, result)
    run = ledger.state.private.run
    commits = run is not None and run.commit is not None
    tool = table.commit_tool(call.function.name) if commits else table.get(call.function.name)
    shown = shown_of(ledger, call, tool, result, table)
    result = shown.result
    status = "error" if result.failed else "done"
    if commits:
        approval = "commit_failed" if result.failed else "committed"
        text = result.content if withheld is None else withheld
        settle_commit(
            ledger,
            approval,
            text,
            status=status,
            elapsed_ms=elapsed_ms,
            end_state=result.end_run,
            payloads=shown.payloads,
        )
    else:
        message_id = answer_call(
            ledger,
            call,
            result.content,
            status=status,
            elapsed_ms=elapsed_ms,
            end_state=result.end_run,
            payloads=shown.payloads,
            attachments=attachments,
        )
        if withheld is not None:
            ledger.note(ResultWithheld(message_id=message_id, content=withheld))
    if shown.preview is not None:
        for payload in shown.payloads:
            ledger.note(PreviewShown(payload_id=payload.payload_id, preview=shown.preview))
    if result.metadata_patch:
        metadata = {**(ledger.state.thread.metadata or {}), **result.metadata_patch}
        if len(msgspec.json.encode(metadata)) <= OBJECT_MAX_BYTES:
            ledger.say(ThreadUpdated(metadata=metadata))
        else:
            sentence = f"The tool's metadata was not kept: the chat's would exceed {OBJECT_MAX_BYTES} bytes."
            ledger.say(ErrorHappened(code="too_large", message=sentence, fatal=False))
    return replace(rest[0], beside=rest[1:]) if rest else advance(ledger, table)
