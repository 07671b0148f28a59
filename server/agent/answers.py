"""What becomes of a finished step: a model's whole or broken answer, a tool's result. Pure; the loop commits it.

Each function says what happened and then asks the plan for the next step, so that the entry which ends one step
announces the next. Tests drive the same functions without any model.
"""

import msgspec
from msgspec.structs import replace

from protocol.events import ErrorHappened, PayloadAdded, StreamFinished, ThreadUpdated
from protocol.facts import Progressed, ProviderCallId, ProviderDataKept, ReasoningLogged, ResultWithheld
from protocol.ledger import Ledger
from protocol.messages import JsonObject, ToolCall, Usage
from protocol.reducer import drafted_message
from protocol.runs import answer_call, fail_run
from protocol.state import ProviderEcho
from protocol.thread import OBJECT_MAX_BYTES
from server.agent.calls import ToolTable
from server.agent.plan import advance
from server.agent.steps import CallModel, Step
from server.tools.base import ToolResult

__all__ = ["Answer", "break_off", "finish", "tool_done"]


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a model call left besides the streamed text. `calls`: those that came whole. `hidden_reasoning` is for the
    server's log only."""

    calls: list[ToolCall] = []
    finish_reason: str | None = None
    usage: Usage | None = None
    timings: JsonObject | None = None
    model: str | None = None
    provider_ids: dict[str, str] = {}
    hidden_reasoning: str = ""
    provider_data: list[JsonObject] = []


def finish(ledger: Ledger, step: CallModel, answer: Answer, table: ToolTable) -> Step:
    """The final word on an answer that came whole (EVT-14, LOOP-14)."""
    reason = "tool_calls" if answer.calls else answer.finish_reason or "stop"
    _close(ledger, step, answer, reason=reason, status=None)
    return advance(ledger, table)


def break_off(ledger: Ledger, step: CallModel, answer: Answer, code: str, sentence: str, table: ToolTable) -> Step:
    """The stream broke or never began (LOOP-8, LOOP-9). Calls that came whole are carried out all the same."""
    if not answer.calls or not step.with_tools:
        fail_run(ledger, code, sentence)
    else:
        ledger.say(ErrorHappened(code=code, message=sentence, fatal=False, run_id=step.run_id))
        _close(ledger, step, answer, reason="error", status="error")
    return advance(ledger, table)


def _close(ledger: Ledger, step: CallModel, answer: Answer, *, reason: str, status: str | None) -> None:
    draft = ledger.state.draft
    if draft is None:  # cannot be: only the loop and an abort close drafts, and an abort stops the loop first
        return
    ledger.say(
        StreamFinished(message_id=step.message_id, finish_reason=reason, usage=answer.usage, timings=answer.timings)
    )
    ledger.add_message(
        replace(
            drafted_message(draft),
            finish_reason=reason,
            tool_calls=answer.calls,
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
        echo = ProviderEcho(step.model.partition("/")[0], answer.provider_data)
        ledger.note(ProviderDataKept(message_id=step.message_id, echo=echo))
    ledger.note(Progressed())


def tool_done(
    ledger: Ledger,
    call: ToolCall,
    result: ToolResult,
    elapsed_ms: int | None,
    table: ToolTable,
    attachments: list[JsonObject] | None = None,
    withheld: str | None = None,
) -> Step:
    """A tool's result: its message with `attachments`, its payloads (EVT-11), its change of the thread's metadata
    (LOOP-12). `withheld` is what the model reads in place of the message's text (EVT-10)."""
    payload_ids = [ledger.new_id("pl") for _ in result.payloads]
    message_id = answer_call(
        ledger,
        call,
        result.content,
        status="error" if result.failed else "done",
        elapsed_ms=elapsed_ms,
        end_state=result.end_run,
        payloads=payload_ids,
        attachments=attachments,
    )
    if withheld is not None:
        ledger.note(ResultWithheld(message_id=message_id, content=withheld))
    for payload_id, payload in zip(payload_ids, result.payloads, strict=True):
        ledger.say(
            PayloadAdded(
                payload_id=payload_id,
                payload_type=payload.type,
                data=payload.data,
                summary=payload.summary,
                source="tool",
                message_id=message_id,
                tool_call_id=call.id,
            )
        )
    if result.metadata_patch:
        metadata = {**(ledger.state.thread.metadata or {}), **result.metadata_patch}
        if len(msgspec.json.encode(metadata)) <= OBJECT_MAX_BYTES:
            ledger.say(ThreadUpdated(metadata=metadata))
        else:
            sentence = f"The tool's metadata was not kept: the chat's would exceed {OBJECT_MAX_BYTES} bytes."
            ledger.say(ErrorHappened(code="too_large", message=sentence, fatal=False))
    return advance(ledger, table)
