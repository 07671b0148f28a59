"""What the traces of runs look like (PROTOCOL §1), as structs that exist to be described; see `answers.py`."""

from typing import Literal

import msgspec

from protocol.messages import JsonObject, Message, ToolCall, Usage
from protocol.state import RawAnswer

__all__ = ["RunTrace", "TraceAttempt", "TraceRound", "TraceToolRun", "TracedRun", "TracedRuns"]


class TracedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that has a trace. `outcome` and `ended_at` null: it goes on, or its end was not kept. Times are Unix
    milliseconds."""

    run_id: str
    outcome: str | None
    error: str | None
    started_at: int | None
    ended_at: int | None
    rounds_count: int
    tool_runs_count: int


class TracedRuns(msgspec.Struct, frozen=True):
    """Newest first."""

    runs: list[TracedRun]


class TraceAttempt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One try at one model. `code` is there when it failed, `detail` is what the provider said of it."""

    provider: str
    model: str
    asked_at_ms: int
    first_delta_ms: int | None = None
    total_ms: int | None = None
    code: str | None = None
    detail: str = ""


class TraceToolRun(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One call as it was carried out. `input` is JSON text as executed, `output` what the model reads; a call that was
    aborted has none, and may have had effects. `is_abandoned`: it was told to end and did not. `cut` names the fields
    whose middles were left out."""

    round: int
    tool_call_id: str
    name: str
    input: str
    output: str
    outcome: Literal["done", "error", "aborted"]
    is_abandoned: bool
    elapsed_ms: int
    ended_at_ms: int
    cut: list[str] = []


class TraceSummary(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The summarizer was asked before `round`, for so many messages in one. `code` is there when it failed."""

    round: int
    model: str
    covered: int
    text: str
    elapsed_ms: int
    ended_at_ms: int
    code: str | None = None
    detail: str = ""
    usage: Usage | None = None
    cut: list[str] = []


class TraceRound(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One model call: what was asked and what came back, before anything was cleaned. Attachments are shown as the
    log refers to them; `left_out` names those that the model cannot take. `settings` are the parameters that somebody
    has set, each `{value, layer}`."""

    round: int
    message_id: str
    model: str
    settings: dict[str, JsonObject]
    attempts: list[TraceAttempt] = []
    system: str = ""
    messages: list[Message] = []
    tools: list[str] = []
    params: JsonObject = {}
    prefix: str = ""
    left_out: list[str] = []
    text: str = ""
    reasoning: str = ""
    calls: list[ToolCall] = []
    finish_reason: str | None = None
    answered_model: str | None = None
    usage: Usage | None = None
    timings: JsonObject | None = None
    tool_runs: list[TraceToolRun] = []
    cut: list[str] = []


class RunTrace(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a run asked, heard and did. `scope` is the place in the profile that it was in, `params` are the command's
    own, `raw_answers` answers as the model wrote them, by message id, with the number of suggested actions that were
    dropped."""

    chat_id: str
    run_id: str
    outcome: str | None
    error: str | None
    principal: str | None
    scope: list[str]
    context: JsonObject
    params: JsonObject
    started_at: int | None
    ended_at: int | None
    rounds: list[TraceRound]
    other_tool_runs: list[TraceToolRun]
    summaries: list[TraceSummary]
    raw_answers: dict[str, RawAnswer]
