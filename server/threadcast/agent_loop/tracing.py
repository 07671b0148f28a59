"""Builds the trace of a run: records of its requests, answers and calls (DIAG-1).

`RoundTrace` measures one model call and makes its record. `tool_trace`, `operation_trace`, `summary_trace` and
`end_trace` make the other records, and `actor/traces.py` stores all records. A record refers to large parts by their
hashes, as the log does. A run never waits for its trace and does not depend on the trace.
"""

import time
from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec.structs import replace

from threadcast.agent_loop.outcomes import Answer
from threadcast.agent_loop.steps import Summarize
from threadcast.chat.agent_steps import NAME_MAX_CHARACTERS, step_id_of
from threadcast.chat.journal import Operation
from threadcast.chat.owner_state import OwnerState, RawAnswer, Run
from threadcast.chat.params import all_set
from threadcast.chat.scopes import Scope
from threadcast.profiles.context import context_of
from threadcast.providers.base import Delta, ModelParams, ReasoningDelta, Request, TextDelta
from threadcast.providers.complete import Completion
from threadcast.providers.unchanged import Unchanged
from threadcast.tools.base import ToolResult
from threadcast.tools.runner import ToolRun
from threadcast_protocol.wire.errors import ModelFailed
from threadcast_protocol.wire.events import RuntimeUpdated
from threadcast_protocol.wire.messages import JsonObject, Message, ToolCall, Usage, text_of

__all__ = [
    "Attempt",
    "EndTrace",
    "MessagesRef",
    "OperationTrace",
    "OperationsTrace",
    "RoundRecord",
    "RoundTrace",
    "SummaryTrace",
    "ToolTrace",
    "Trace",
    "aborted_trace",
    "characters_of",
    "end_trace",
    "operation_trace",
    "referred",
    "summary_trace",
    "tool_trace",
]


class Attempt(msgspec.Struct, kw_only=True):
    """One attempt to ask one model. `code` is the error code, or None if the model answered. `detail` is the provider's
    own message."""

    provider: str
    model: str
    asked_at_ms: int
    first_delta_ms: int | None = None
    total_ms: int | None = None
    code: str | None = None
    detail: str = ""


class MessagesRef(msgspec.Struct, frozen=True):
    """A reference to messages of a request that the chat stores in the form in which they were sent. The reference
    covers `count` messages, each of which is the parent of the next. `last` is the id of the last message. `characters`
    is the total length of their texts. If the chat's texts have another length, a message was changed after the
    request."""

    last: str
    count: int
    characters: int


class _Record(msgspec.Struct, kw_only=True):
    run_id: str
    round: int


class RoundRecord(_Record, kw_only=True, tag_field="kind", tag="round"):
    """The model call of a round: the request, the models that were asked, and the raw answer before cleaning.

    `scope` is the scope whose tools and prompt were used, as a list of names that begins with the outermost. `context`
    is the request context. `params` are the request's parameters. `settings` has all parameters, each with the layer
    that sets it. `left_out` lists the attachments that the model does not accept. `messages` has the messages that the
    chat does not store in the form in which they were sent. All other messages are references, so that a trace does not
    repeat the conversation.
    """

    message_id: str
    principal: str
    scope: list[str]
    context: JsonObject
    run_params: JsonObject
    run_started_at_ms: int
    settings: dict[str, JsonObject]
    model: str
    attempts: list[Attempt] = []
    system: str = ""
    messages: list[Message | MessagesRef] = []
    tools: list[str] = []
    params: ModelParams = ModelParams()
    prefix: str = ""
    left_out: list[str] = []
    text: str = ""
    reasoning: str = ""
    calls: list[ToolCall] = []
    finish_reason: str | None = None
    answered_model: str | None = None
    usage: Usage | None = None
    timings: JsonObject | None = None
    cut: list[str] = []


class ToolTrace(_Record, kw_only=True, tag_field="kind", tag="tool"):
    """One executed tool call. `input` is the arguments with which the tool ran, and `output` is the text that the model
    reads. An aborted call has no output, but may have had effects."""

    tool_call_id: str
    name: str
    input: str
    output: str
    outcome: Literal["done", "error", "aborted"]
    is_abandoned: bool
    elapsed_ms: int
    ended_at_ms: int
    cut: list[str] = []


class OperationTrace(msgspec.Struct, frozen=True, kw_only=True):
    """An ended operation of a durable agent. `step_id` is the id of the operation in the event `agent_step`. `value` is
    the result as JSON text, cut after `VALUE_MAX_CHARACTERS` characters."""

    step_id: str
    kind: str
    name: str
    outcome: str
    value: str
    elapsed_ms: int
    ended_at_ms: int
    error: str | None = None
    detail: str = ""


class OperationsTrace(_Record, kw_only=True, tag_field="kind", tag="operations"):
    """Operations of a durable agent in the order in which they ended. One record has many operations, because a
    separate record would cost more than a short step."""

    principal: str
    run_started_at_ms: int
    operations: list[OperationTrace]
    operations_count: int = 1
    cut: list[str] = []


class SummaryTrace(_Record, kw_only=True, tag_field="kind", tag="summary"):
    """The call of the summarizer before `round` (HIST-4). `text` is the summary of `covered` messages. `code` is the
    error code, or None if the summarizer answered. The request is not stored, because it would repeat these
    messages."""

    model: str
    covered: int
    text: str
    elapsed_ms: int
    ended_at_ms: int
    code: str | None = None
    detail: str = ""
    usage: Usage | None = None
    cut: list[str] = []


class EndTrace(_Record, kw_only=True, tag_field="kind", tag="end"):
    """The end of a run. `raw_answers` has, by message id, each answer before its cleaning (DIAG-2) and the number of
    suggested actions that were dropped from the answer (PAY-6)."""

    outcome: str
    error: str | None
    started_at_ms: int
    ended_at_ms: int
    tools_used: list[str]
    raw_answers: dict[str, RawAnswer] = {}
    cut: list[str] = []


Trace = RoundRecord | ToolTrace | OperationsTrace | SummaryTrace | EndTrace

VALUE_MAX_CHARACTERS = 2_000
"""The maximum characters of an operation's result in a trace. The journal has the whole result while the run is
open."""


class RoundTrace:
    """Measures one model call and fills in the `record` of the call."""

    def __init__(
        self, state: OwnerState, message_id: str, model: str, profile_params: JsonObject, scope: Scope
    ) -> None:
        run = state.private.run
        self.record = RoundRecord(
            run_id=run.run_id if run else "",
            round=max(0, run.round) if run else 0,
            message_id=message_id,
            principal=run.principal.id if run else "",
            scope=[*scope],
            context=context_of(state, profile_params),
            run_params=run.params if run else {},
            run_started_at_ms=run.started_at_ms if run else 0,
            settings={
                key: {"value": value, "layer": layer} for key, (value, layer) in all_set(state, profile_params).items()
            },
            model=model,
        )
        self._asked_at = time.monotonic()
        self._text: list[str] = []
        self._reasoning: list[str] = []

    @property
    def left_out(self) -> list[str]:
        return self.record.left_out

    def ask(self, provider: str, request: Request, state: OwnerState) -> None:
        """Record that `request` is about to be sent to `provider`. The attachments of `request` should not be resolved
        yet. `state` is the state from which the request was built."""
        record = self.record
        record.attempts = [
            *record.attempts,
            Attempt(provider=provider, model=request.model, asked_at_ms=time.time_ns() // 1_000_000),
        ]
        record.left_out.clear()
        record.system, record.params = request.system, request.params
        record.messages = referred(request.messages, state, request.unchanged)
        record.tools, record.prefix = [tool.name for tool in request.tools], request.prefix
        self._asked_at = time.monotonic()

    def feed(self, delta: Delta) -> None:
        """Record the next delta of the answer."""
        attempt = self.record.attempts[-1]
        if attempt.first_delta_ms is None:
            attempt.first_delta_ms = self._elapsed_ms()
        if isinstance(delta, TextDelta):
            self._text.append(delta.text)
        elif isinstance(delta, ReasoningDelta):
            self._reasoning.append(delta.text)

    def fail(self, failure: ModelFailed, model: str) -> None:
        """Record that `model`, which was asked last, has failed or could not be asked."""
        if not self.record.attempts or self.record.attempts[-1].code is not None:
            provider, _, model = model.partition("/")
            asked = Attempt(provider=provider, model=model, asked_at_ms=time.time_ns() // 1_000_000)
            self.record.attempts = [*self.record.attempts, asked]
        attempt = self.record.attempts[-1]
        attempt.code, attempt.detail, attempt.total_ms = failure.code, failure.detail, self._elapsed_ms()

    def end(self, answer: Answer) -> RoundRecord:
        """Return the finished record."""
        record = self.record
        record.text, record.reasoning = "".join(self._text), "".join(self._reasoning)
        record.calls, record.finish_reason = answer.calls, answer.finish_reason
        record.answered_model, record.usage, record.timings = answer.model, answer.usage, answer.timings
        if record.attempts and record.attempts[-1].total_ms is None:
            record.attempts[-1].total_ms = self._elapsed_ms()
        return record

    def timings(self, usage: Usage | None) -> JsonObject:
        """Return our own measurements, for a provider that reports no times (DIAG-5). The keys begin with `measured_`,
        to distinguish these measurements from the provider's times."""
        first_ms, total_ms = self.record.attempts[-1].first_delta_ms, self._elapsed_ms()
        timings: JsonObject = {"measured_total_ms": total_ms}
        if first_ms is not None:
            timings["measured_first_delta_ms"] = first_ms
            if usage is not None and usage.completion_tokens and total_ms > first_ms:
                speed = 1_000 * usage.completion_tokens / (total_ms - first_ms)
                timings["measured_tokens_per_second"] = round(speed, 1)
        return timings

    def _elapsed_ms(self) -> int:
        return round((time.monotonic() - self._asked_at) * 1_000)


def referred(
    messages: Sequence[Message], state: OwnerState, unchanged: Unchanged | None = None
) -> list[Message | MessagesRef]:
    """Return `messages`, with references in place of the messages that `state` stores in the same form. Consecutive
    messages share a reference."""

    def add(before: list[Message | MessagesRef], more: Sequence[Message]) -> list[Message | MessagesRef]:
        found = before.copy()
        for message in more:
            last, held = found[-1] if found else None, state.nodes.get(message.message_id)
            if held is not message and held != message:
                found.append(message)
            elif isinstance(last, MessagesRef) and message.parent_id == last.last:
                characters = last.characters + characters_of(message)
                found[-1] = MessagesRef(message.message_id, last.count + 1, characters)
            else:
                found.append(MessagesRef(message.message_id, 1, characters_of(message)))
        return found

    if unchanged is None:
        return add([], messages)
    return add(unchanged.fold("references", messages, [], add), messages[unchanged.count :])


def characters_of(message: Message) -> int:
    """Return the length of the message's text, which is the total length of its text parts."""
    return len(text_of(message.content))


def tool_trace(state: OwnerState, call: ToolCall, arguments: str, done: ToolRun) -> ToolTrace:
    """Return the record of a call that was carried out with `arguments`."""
    run = state.private.run
    return ToolTrace(
        run_id=run.run_id if run else "",
        round=max(0, run.round) if run else 0,
        tool_call_id=call.id,
        name=call.function.name,
        input=arguments,
        output=done.result.content,
        outcome="error" if done.result.failed else "done",
        is_abandoned=done.is_abandoned,
        elapsed_ms=done.elapsed_ms,
        ended_at_ms=time.time_ns() // 1_000_000,
    )


def aborted_trace(
    state: OwnerState, call: ToolCall, arguments: str, elapsed_ms: int, *, is_abandoned: bool
) -> ToolTrace:
    """Return the record of a call that was ended before it had a result."""
    done = ToolRun(ToolResult(content=""), elapsed_ms, is_abandoned)
    return replace(tool_trace(state, call, arguments, done), outcome="aborted")


def operation_trace(run: Run, key: str, operation: Operation, now_ms: int) -> OperationsTrace:
    """Return the record of an operation that has ended."""
    restarts = run.agent.restarts if run.agent is not None else 0
    value = operation.value or ""
    error = operation.error
    ended = OperationTrace(
        step_id=step_id_of(restarts, key),
        kind=operation.kind,
        name=operation.name[:NAME_MAX_CHARACTERS],
        outcome=operation.status,
        value=value if len(value) <= VALUE_MAX_CHARACTERS else f"{value[:VALUE_MAX_CHARACTERS]}…",
        elapsed_ms=max(0, now_ms - operation.at_ms) if operation.at_ms else 0,
        ended_at_ms=now_ms,
        error=error.kind if error is not None else None,
        detail=error.message if error is not None else "",
    )
    return OperationsTrace(
        run_id=run.run_id,
        round=max(0, run.round),
        principal=run.principal.id,
        run_started_at_ms=run.started_at_ms,
        operations=[ended],
    )


def summary_trace(
    state: OwnerState, step: Summarize, done: Completion, elapsed_ms: int, failure: ModelFailed | None
) -> SummaryTrace:
    """Return the record of a call of the summarizer. `failure` is None if the summarizer answered."""
    run = state.private.run
    return SummaryTrace(
        run_id=step.run_id,
        round=run.round + 1 if run else 0,
        model=step.model,
        covered=step.covered,
        text=done.text,
        elapsed_ms=elapsed_ms,
        ended_at_ms=time.time_ns() // 1_000_000,
        code=failure.code if failure is not None else None,
        detail=failure.detail if failure is not None else "",
        usage=done.usage,
    )


def end_trace(before: OwnerState, after: OwnerState, end: RuntimeUpdated, now_ms: int) -> EndTrace:
    """Return the record of the end of the run that was open in `before`. `end` is the event that ended the run."""
    run = before.private.run
    first_index = run.first_index if run is not None else len(after.path)
    raw = after.private.raw_answers
    return EndTrace(
        run_id=end.run_id or "",
        round=end.round or 0,
        outcome=end.outcome or "",
        error=end.error,
        started_at_ms=run.started_at_ms if run is not None else now_ms,
        ended_at_ms=now_ms,
        tools_used=end.tools_used,
        raw_answers={key: raw[key] for key in after.path[first_index:] if key in raw},
    )
