"""What a run leaves for those who look into it: its requests, answers and calls, as records (DIAG-1).

Pure building of records from what the loop has at hand; where they are kept is not known here. `RoundTrace` goes along
with one model call and measures it, `tool_trace` and `end_trace` tell the rest. A record refers to large parts as the
log does, by their hashes. The one rule: a trace costs a run no waiting, and nothing of a run depends on it.
"""

import time
from typing import Literal

import msgspec
from msgspec.structs import replace

from protocol.errors import ModelFailed
from protocol.events import RuntimeUpdated
from protocol.messages import JsonObject, Message, ToolCall, Usage
from protocol.params import all_set
from protocol.state import ChatState, RawAnswer
from server.agent.outcomes import Answer
from server.agent.place.context import context_of
from server.agent.steps import Summarize
from server.providers.base import Delta, ModelParams, ReasoningDelta, Request, TextDelta
from server.providers.complete import Completion
from server.tools.base import ToolResult
from server.tools.runner import ToolRun
from server.tools.traits import Scope

__all__ = [
    "Attempt",
    "EndTrace",
    "RoundRecord",
    "RoundTrace",
    "SummaryTrace",
    "ToolTrace",
    "Trace",
    "aborted_trace",
    "end_trace",
    "summary_trace",
    "tool_trace",
]


class Attempt(msgspec.Struct, kw_only=True):
    """One try at one model. `code` None: it answered. `detail` is in the provider's own words."""

    provider: str
    model: str
    asked_at_ms: int
    first_delta_ms: int | None = None
    total_ms: int | None = None
    code: str | None = None
    detail: str = ""


class _Record(msgspec.Struct, kw_only=True):
    run_id: str
    round: int


class RoundRecord(_Record, kw_only=True, tag_field="kind", tag="round"):
    """One round's model call: what was asked, of whom, and what came back before anything was cleaned.

    `scope` is the place in the profile whose tools and prompt it had, as names from the outside in, `context` the
    request context. `params` are the request's own, `settings` all parameters by the layer they come from. `left_out`
    are attachments that the model cannot take.
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
    messages: list[Message] = []
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
    """One call as it was carried out: `input` as executed, `output` as the model reads it. One that was aborted has no
    output, and may have had effects."""

    tool_call_id: str
    name: str
    input: str
    output: str
    outcome: Literal["done", "error", "aborted"]
    is_abandoned: bool
    elapsed_ms: int
    ended_at_ms: int
    cut: list[str] = []


class SummaryTrace(_Record, kw_only=True, tag_field="kind", tag="summary"):
    """The summarizer was asked before `round` (HIST-4). `code` None: it answered `text`, which covers so many messages.
    The request is not kept: it is those messages once more."""

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
    """The run's end. `raw_answers`: by message id, answers before they were cleaned (DIAG-2), with the number of
    suggested actions that were dropped (PAY-6)."""

    outcome: str
    error: str | None
    started_at_ms: int
    ended_at_ms: int
    tools_used: list[str]
    raw_answers: dict[str, RawAnswer] = {}
    cut: list[str] = []


Trace = RoundRecord | ToolTrace | SummaryTrace | EndTrace


class RoundTrace:
    """Goes along with one model call; `record` is what to keep of it."""

    def __init__(self, state: ChatState, message_id: str, model: str, profile_params: JsonObject, scope: Scope) -> None:
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
            settings=_settings(state, profile_params),
            model=model,
        )
        self._asked_at = time.monotonic()
        self._text: list[str] = []
        self._reasoning: list[str] = []

    @property
    def left_out(self) -> list[str]:
        return self.record.left_out

    def ask(self, provider: str, request: Request) -> None:
        """`provider` is about to be asked. Its attachments should still be references here."""
        record = self.record
        record.attempts = [
            *record.attempts,
            Attempt(provider=provider, model=request.model, asked_at_ms=time.time_ns() // 1_000_000),
        ]
        record.left_out.clear()
        record.system, record.messages, record.params = request.system, request.messages, request.params
        record.tools, record.prefix = [tool.name for tool in request.tools], request.prefix
        self._asked_at = time.monotonic()

    def feed(self, delta: Delta) -> None:
        """What the model says, in the order in which it says it."""
        attempt = self.record.attempts[-1]
        if attempt.first_delta_ms is None:
            attempt.first_delta_ms = self._elapsed_ms()
        if isinstance(delta, TextDelta):
            self._text.append(delta.text)
        elif isinstance(delta, ReasoningDelta):
            self._reasoning.append(delta.text)

    def fail(self, failure: ModelFailed, model: str) -> None:
        """`model` was asked last and has failed, or could not be asked."""
        if not self.record.attempts or self.record.attempts[-1].code is not None:
            provider, _, model = model.partition("/")
            asked = Attempt(provider=provider, model=model, asked_at_ms=time.time_ns() // 1_000_000)
            self.record.attempts = [asked]
        attempt = self.record.attempts[-1]
        attempt.code, attempt.detail, attempt.total_ms = failure.code, failure.detail, self._elapsed_ms()

    def end(self, answer: Answer) -> RoundRecord:
        """The record, when there is nothing more to come."""
        record = self.record
        record.text, record.reasoning = "".join(self._text), "".join(self._reasoning)
        record.calls, record.finish_reason = answer.calls, answer.finish_reason
        record.answered_model, record.usage, record.timings = answer.model, answer.usage, answer.timings
        if record.attempts and record.attempts[-1].total_ms is None:
            record.attempts[-1].total_ms = self._elapsed_ms()
        return record

    def timings(self, usage: Usage | None) -> JsonObject:
        """What we measured ourselves, for a provider that tells no times (DIAG-5). Keys begin with `measured_`, so
        that nobody takes them for the provider's own."""
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


def tool_trace(state: ChatState, call: ToolCall, arguments: str, done: ToolRun) -> ToolTrace:
    """One call that was carried out with `arguments`."""
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
    state: ChatState, call: ToolCall, arguments: str, elapsed_ms: int, *, is_abandoned: bool
) -> ToolTrace:
    """One call that was ended before it had a result."""
    done = ToolRun(ToolResult(content=""), elapsed_ms, is_abandoned)
    return replace(tool_trace(state, call, arguments, done), outcome="aborted")


def summary_trace(
    state: ChatState, step: Summarize, done: Completion, elapsed_ms: int, failure: ModelFailed | None
) -> SummaryTrace:
    """What the summarizer was asked for and said. `failure`: how it failed."""
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


def end_trace(before: ChatState, after: ChatState, end: RuntimeUpdated, now_ms: int) -> EndTrace:
    """The end of the run that was open in `before`, as `end` tells it."""
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


def _settings(state: ChatState, profile_params: JsonObject) -> dict[str, JsonObject]:
    """Every parameter that somebody has set, and the layer it comes from."""
    found = all_set(state, profile_params)
    return {key: {"value": value, "layer": layer} for key, (value, layer) in found.items()}
