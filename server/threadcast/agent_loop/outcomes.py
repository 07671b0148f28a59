"""Writes the results of finished steps: a complete or broken answer of a model, a summary, or a tool's result. Pure;
the loop commits the results.

Each function writes the events of one result and then asks the plan for the next step. Therefore the entry that ends
one step also announces the next step. Tests call these functions without a model.
"""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from threadcast.agent_loop.answer import empty
from threadcast.agent_loop.calls.hiding import hidden_call, hides
from threadcast.agent_loop.calls.memory import remember
from threadcast.agent_loop.calls.previews import shown_of
from threadcast.agent_loop.history.summaries import keep_summary
from threadcast.agent_loop.plan import advance, may_go_on
from threadcast.agent_loop.steps import CallModel, RunTool, Step, Summarize
from threadcast.chat.entry_builder import EntryBuilder
from threadcast.chat.facts import (
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
from threadcast.chat.owner_state import ProviderEcho
from threadcast.chat.previews import settle_commit
from threadcast.chat.queue import is_steered
from threadcast.chat.runs import answer_call, fail_run, say_error
from threadcast.chat.runtime import say_runtime
from threadcast.chat.taint import note_untrusted
from threadcast.chat.tool_results import KeptResult
from threadcast.profiles.profile import ChatTools
from threadcast.tools.base import ToolResult
from threadcast.tools.runner import ToolRun
from threadcast_protocol.fold.reducer import drafted_message
from threadcast_protocol.wire.events import ErrorHappened, MessageRemoved, StreamFinished, ThreadUpdated
from threadcast_protocol.wire.failures import Failure, with_failure
from threadcast_protocol.wire.messages import JsonObject, ToolCall, Usage
from threadcast_protocol.wire.thread import OBJECT_MAX_BYTES

EMPTY = {
    False: "The model answered with nothing.",
    True: "The model's provider held the whole answer back.",
}
"""The error sentences for an empty answer. The key is True if the provider's content filter held the answer back."""

__all__ = [
    "Answer",
    "EndedCall",
    "break_off",
    "finish",
    "keep_answer",
    "public_calls",
    "say_fallback",
    "summarized",
    "tool_done",
]


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a model call, apart from the streamed text. `calls` are the complete calls that have a name.
    `hidden_reasoning` is stored but never sent to clients. `provider` is the name of the provider that sent
    `provider_data`, because a model's name does not always identify its provider."""

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


class EndedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call that has run. `kept` is its result as the log stores it; `withheld` is the text that only the model
    reads. `content` is the text that the tool returned. `is_json` is true if this text is JSON."""

    done: ToolRun
    kept: KeptResult
    withheld: str | None
    content: str
    is_json: bool


def finish(builder: EntryBuilder, step: CallModel, answer: Answer, table: ChatTools) -> Step:
    """Write the final events of a complete answer (EVT-14, LOOP-14). After an empty answer the model is asked once
    more. A second empty answer ends the run."""
    run, draft = builder.state.private.run, builder.state.draft
    reason = "tool_calls" if answer.calls else answer.finish_reason or "stop"
    objection = ""
    if draft is not None:
        objection = empty.objection_to(
            draft, has_calls=bool(answer.calls), has_nameless_calls=answer.has_nameless_calls
        )
    if not objection or run is None or draft is None:
        _close(builder, step, answer, table, reason=reason, status=None)
        return advance(builder, table)
    asks = not empty.has_asked(builder.state, run) and may_go_on(builder, run) and reason != "content_filter"
    _close_empty(builder, step, answer, table, reason=reason)
    if asks:
        leaf = builder.state.leaf
        after = leaf.message_id if leaf is not None else None
        builder.note(SetAside(aside=empty.aside_of(objection, run, after, builder.new_id, builder.now_ms)))
    elif not empty.says_something(draft) and not is_steered(builder.state):
        fail_run(
            builder,
            Failure(code="empty_answer", message=EMPTY[reason == "content_filter"], model=answer.model or step.model),
        )
    return advance(builder, table)


def _close_empty(builder: EntryBuilder, step: CallModel, answer: Answer, table: ChatTools, *, reason: str) -> None:
    """Finish an empty answer. A message with text or reasoning is kept, because people have seen it. A message without
    text and reasoning is removed."""
    draft = builder.state.draft
    if draft is not None and (empty.says_something(draft) or draft.reasoning):
        _close(builder, step, answer, table, reason=reason, status=None)
        return
    builder.say(MessageRemoved(step.message_id))
    if answer.hidden_reasoning:
        builder.note(ReasoningLogged(message_id=step.message_id, text=answer.hidden_reasoning))
    builder.note(Progressed())


def break_off(builder: EntryBuilder, step: CallModel, answer: Answer, failure: Failure, table: ChatTools) -> Step:
    """Write the end of a stream that broke or never began (LOOP-8, LOOP-9). The complete calls of a broken answer are
    carried out nevertheless."""
    if not answer.calls or not step.with_tools:
        fail_run(builder, failure)
    else:
        say_error(builder, failure, fatal=False)
        _close(builder, step, answer, table, reason="error", status="error", failure=failure)
    return advance(builder, table)


def _close(
    builder: EntryBuilder,
    step: CallModel,
    answer: Answer,
    table: ChatTools,
    *,
    reason: str,
    status: str | None,
    failure: Failure | None = None,
) -> None:
    calls = public_calls(builder, answer.calls, table)
    model = answer.model or step.model
    keep_answer(builder, step.message_id, answer, model, reason=reason, calls=calls, status=status, failure=failure)


def keep_answer(
    builder: EntryBuilder,
    message_id: str,
    answer: Answer,
    model: str,
    *,
    reason: str = "stop",
    calls: Sequence[ToolCall] = (),
    status: str | None = None,
    failure: Failure | None = None,
    extra: JsonObject | None = None,
) -> None:
    """Finish the open message with its text so far and with the public `calls`. The parts of `answer` that only the
    server needs are stored as facts."""
    draft = builder.state.draft
    if draft is None:  # impossible: only the loop and an abort close drafts, and an abort stops the loop first
        return
    builder.say(StreamFinished(message_id=message_id, finish_reason=reason, usage=answer.usage, timings=answer.timings))
    message = with_failure(drafted_message(draft), failure)
    builder.add_message(
        replace(
            message,
            finish_reason=reason,
            tool_calls=list(calls),
            usage=answer.usage or draft.message.usage,
            model=model,
            status=status,
            extra={**message.extra, **(extra or {})},
        )
    )
    for call_id, provider_id in answer.provider_ids.items():
        builder.note(ProviderCallId(tool_call_id=call_id, provider_id=provider_id))
    if answer.hidden_reasoning:
        builder.note(ReasoningLogged(message_id=message_id, text=answer.hidden_reasoning))
    if answer.provider_data:
        echo = ProviderEcho(answer.provider, answer.provider_data)
        builder.note(ProviderDataKept(message_id=message_id, echo=echo))
    builder.note(Progressed())


def public_calls(builder: EntryBuilder, calls: list[ToolCall], table: ChatTools) -> list[ToolCall]:
    """Return the calls as clients see them. Hidden arguments are stored as facts (EVT-8)."""
    shown: list[ToolCall] = []
    for call in calls:
        is_hidden = hides(table, call.function.name)
        if is_hidden:
            builder.note(ArgumentsHidden(tool_call_id=call.id, arguments=call.function.arguments))
        shown.append(hidden_call(call) if is_hidden else call)
    return shown


def summarized(
    builder: EntryBuilder, step: Summarize, text: str, elapsed_ms: int, table: ChatTools, usage: Usage | None = None
) -> Step:
    """Store `text` as the summary of the history, and return the next step. `text` is '' if the summarizer failed."""
    keep_summary(builder, step, text, elapsed_ms, usage)
    return advance(builder, table)


def say_fallback(builder: EntryBuilder, model: str, window_tokens: int | None) -> None:
    """Report that `model` continues the open round in place of another model. `window_tokens` is the size of the
    context window of `model`, or None if unknown."""
    run = builder.state.private.run
    if run is not None:
        builder.note(RoundStarted(round=run.round, summarizing=run.summarizing, window_tokens=window_tokens))
    say_runtime(builder, "generating", status_text=f"asking {model} instead")


def tool_done(
    builder: EntryBuilder,
    call: ToolCall,
    result: ToolResult,
    elapsed_ms: int | None,
    table: ChatTools,
    attachments: list[JsonObject] | None = None,
    withheld: str | None = None,
    rest: tuple[RunTool, ...] = (),
) -> Step:
    """Write a tool's result: its message with `attachments`, its payloads (EVT-11), and its change of the thread's
    metadata (LOOP-12). The result of a preview's commit has no message, because only the model reads the result.
    `withheld` is the text that the model reads instead of the message's text (EVT-10). `rest` are the parallel calls
    whose results are not yet written. If `rest` is not empty, the returned step is its first call."""
    result = remember(builder, result)
    run = builder.state.private.run
    commits = run is not None and run.commit is not None
    tool = table.commit_tool(call.function.name) if commits else table.get(call.function.name)
    shown = shown_of(builder, call, tool, result, table)
    result = shown.result
    status = "error" if result.failed else "done"
    if commits:
        approval = "commit_failed" if result.failed else "committed"
        text = result.content if withheld is None else withheld
        if table.rules.is_untrusted(call.function.name):  # no message on the path shows this result
            note_untrusted(builder, [call.function.name])
        settle_commit(
            builder,
            approval,
            text,
            status=status,
            elapsed_ms=elapsed_ms,
            end_state=result.end_run,
            payloads=shown.payloads,
        )
    else:
        message_id = answer_call(
            builder,
            call,
            result.content,
            status=status,
            elapsed_ms=elapsed_ms,
            end_state=result.end_run,
            payloads=shown.payloads,
            attachments=attachments,
        )
        if withheld is not None:
            builder.note(ResultWithheld(message_id=message_id, content=withheld))
    if shown.preview is not None:
        for payload in shown.payloads:
            builder.note(PreviewShown(payload_id=payload.payload_id, preview=shown.preview))
    if result.metadata_patch:
        metadata = {**(builder.state.thread.metadata or {}), **result.metadata_patch}
        if len(msgspec.json.encode(metadata)) <= OBJECT_MAX_BYTES:
            builder.say(ThreadUpdated(metadata=metadata))
        else:
            sentence = f"The tool's metadata was not kept: the chat's would exceed {OBJECT_MAX_BYTES} bytes."
            builder.say(ErrorHappened(code="too_large", message=sentence, fatal=False))
    return replace(rest[0], beside=rest[1:]) if rest else advance(builder, table)
