"""The endpoints for traces of runs: lists the runs of a chat that have a trace, and returns the trace of one run
(DIAG-1).

A trace is put together from the records that workers have stored, not from the log. Only the chat's owner may read a
trace, and only with the permission `diagnostics`. System prompts leave the server through traces only.
"""

import time
from collections.abc import Container, Mapping
from typing import Literal, TypeVar

import anyio
import anyio.to_thread
import msgspec
import structlog
from starlette.requests import Request
from starlette.responses import Response

from threadcast.api.edge import Edge, caller_and_chat_of
from threadcast.api.errors import answer
from threadcast.api.operation import BAD_ID, NOT_FOUND, UNAVAILABLE, Answer, Operation
from threadcast.api.reading import read_chat_as
from threadcast.api.trace_messages import has_references, with_messages
from threadcast.chat.owner_state import RawAnswer
from threadcast.store.ports import TraceRecord
from threadcast.store.trace_records import decompose
from threadcast_protocol.wire.errors import Forbidden, NotFound, Unavailable
from threadcast_protocol.wire.ids import check_id
from threadcast_protocol.wire.messages import JsonObject, Message, ToolCall, Usage
from threadcast_protocol.wire.principal import Principal

__all__ = [
    "RunTrace",
    "TraceAttempt",
    "TraceOperation",
    "TraceRound",
    "TraceSummary",
    "TraceToolRun",
    "TracedRun",
    "TracedRuns",
    "diagnostics_within",
    "may_diagnose",
    "run_diagnostics",
    "traced_runs",
]

_log = structlog.get_logger()
_T = TypeVar("_T")

LOOK_FIRST_SECONDS = 0.05
"""Seconds before the second attempt to read the last record of a run that has just ended. This record is stored within
milliseconds of the end. Each further attempt waits twice as long."""


class TracedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that has a trace. `outcome` and `ended_at` are null while the run is open, and if the end of the run was
    not stored. Times are Unix milliseconds."""

    run_id: str
    outcome: str | None
    error: str | None
    started_at: int | None
    ended_at: int | None
    rounds_count: int
    tool_runs_count: int
    operations_count: int = 0


class TracedRuns(msgspec.Struct, frozen=True):
    """The runs of a chat that have a trace, newest first."""

    runs: list[TracedRun]


class TraceAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt to call a model. A failed attempt has a `code`; `detail` is the provider's explanation."""

    provider: str
    model: str
    asked_at_ms: int
    first_delta_ms: int | None = None
    total_ms: int | None = None
    code: str | None = None
    detail: str = ""


class TraceToolRun(msgspec.Struct, frozen=True, kw_only=True):
    """One tool call as it was executed. `input` is the JSON text that the tool received, `output` the text that the
    model reads. An aborted call has no output, though it may have had effects. If `is_abandoned` is true, the tool was
    cancelled but did not end. `cut` names the fields whose middle was left out. If it contains `all`, only numbers were
    stored, and all texts have their default values."""

    round: int
    is_abandoned: bool
    elapsed_ms: int
    ended_at_ms: int
    tool_call_id: str = ""
    name: str = ""
    input: str = ""
    output: str = ""
    outcome: Literal["done", "error", "aborted"] | None = None
    cut: list[str] = []


class TraceOperation(msgspec.Struct, frozen=True, kw_only=True):
    """An operation of a durable agent that has ended: `kind` is `step`, `call`, `chat`, `ask`, `sleep` or `answer`, and
    `outcome` is `done`, `failed`, `unknown` or `cancelled`. `step_id` equals the `step_id` of the event `agent_step`.
    `value` is the result as JSON text, at most 2,000 characters of it. `error` is the bare name of the error, and
    `detail` its message."""

    step_id: str = ""
    kind: str = ""
    name: str = ""
    outcome: str = ""
    value: str = ""
    elapsed_ms: int = 0
    ended_at_ms: int = 0
    error: str | None = None
    detail: str = ""


class TraceSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A call of the summarizer before `round`, which summarized the first `covered` messages. A failed call has a
    `code`."""

    round: int
    covered: int
    elapsed_ms: int
    ended_at_ms: int
    model: str = ""
    text: str = ""
    code: str | None = None
    detail: str = ""
    usage: Usage | None = None
    cut: list[str] = []


class TraceRound(msgspec.Struct, frozen=True, kw_only=True):
    """One model call: the request, and the answer as it was before the server cleaned it. Attachments are shown as
    references, as in the log; `left_out` names the attachments that the model cannot read. `settings` are the
    parameters that have been set, each as `{value, layer}`. `cut` also contains `messages` if a message of the request
    has been changed or removed in the chat since the call."""

    round: int
    message_id: str = ""
    model: str = ""
    settings: dict[str, JsonObject] = {}
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


class RunTrace(msgspec.Struct, frozen=True, kw_only=True):
    """The trace of a run. `scope` is the run's scope in its profile, and `params` are the parameters of its command.
    `raw_answers` has the answers as the model wrote them, by message id, each with the number of suggested actions that
    were dropped."""

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
    operations: list[TraceOperation] = []


_NOT_ALLOWED = {403: "`forbidden`: this token may not see diagnostics."}


@Operation(
    "GET",
    "/v1/chats/{chat_id}/runs/{run_id}/diagnostics",
    "readRunTrace",
    "Read the trace of a run. Needs the permission `diagnostics`.",
    tag="chats",
    answers={200: Answer("The trace of the run so far.", RunTrace)},
    errors=BAD_ID | _NOT_ALLOWED | {404: "`not_found`: no such chat, or no trace of such a run."} | UNAVAILABLE,
)
async def run_diagnostics(request: Request) -> Response:
    """`GET /v1/chats/{chat_id}/runs/{run_id}/diagnostics`: returns the trace of a run."""
    edge, chat_id, principal = await _allowed(request)
    run_id = check_id(request.path_params["run_id"], "run_id")
    records = await _records(edge, chat_id, principal, run_id)
    if not records:
        raise NotFound("there is no trace of such a run: the run is unknown or has not begun, or its trace was deleted")
    return answer(200, await _whole_trace(edge, chat_id, run_id, records))


@Operation(
    "GET",
    "/v1/chats/{chat_id}/runs",
    "listRuns",
    "List the runs that have a trace, newest first. Needs the permission `diagnostics`.",
    tag="chats",
    answers={200: Answer("The runs.", TracedRuns)},
    errors=BAD_ID | _NOT_ALLOWED | NOT_FOUND | UNAVAILABLE,
)
async def traced_runs(request: Request) -> Response:
    """`GET /v1/chats/{chat_id}/runs`: lists the runs that have a trace, newest first."""
    edge, chat_id, principal = await _allowed(request)
    runs: dict[str, list[JsonObject]] = {}
    for record in await _records(edge, chat_id, principal, None, _SUMMARISED):
        runs.setdefault(str(record["run_id"]), []).append(record)
    return answer(200, TracedRuns([_summary(run_id, records) for run_id, records in reversed(runs.items())]))


def may_diagnose(principal: Principal) -> bool:
    return "diagnostics" in principal.permissions


async def diagnostics_within(
    edge: Edge, principal: Principal, chat_id: str, run_id: str, within_seconds: float
) -> RunTrace | None:
    """Return the trace of a run that has ended, once its last record is stored. After `within_seconds` the trace is
    returned without the record of the run's end. Returns None if there is no trace, or if the trace cannot be read."""
    until = time.monotonic() + within_seconds
    pause = LOOK_FIRST_SECONDS
    while True:
        try:
            records = await _records(edge, chat_id, principal, run_id)
            if any(record["kind"] == "end" for record in records) or time.monotonic() >= until:
                return await _whole_trace(edge, chat_id, run_id, records) if records else None
        except Unavailable as trouble:
            _log.warning("trace.not_read", chat_id=chat_id, run_id=run_id, error=trouble.message)
            return None
        await anyio.sleep(pause)
        pause *= 2  # each read returns all records of the chat


async def _allowed(request: Request) -> tuple[Edge, str, Principal]:
    """Return the request's dependencies, chat id and principal. Raises NotFound for a chat that is not the caller's,
    and Forbidden for a caller without the permission."""
    edge, principal, chat_id = caller_and_chat_of(request)
    await edge.own(chat_id, principal)
    if not may_diagnose(principal):
        raise Forbidden("this token may not see diagnostics; the operator gives it the permission `diagnostics`")
    return edge, chat_id, principal


async def _records(
    edge: Edge, chat_id: str, principal: Principal, run_id: str | None, keys: Container[str] | None = None
) -> list[JsonObject]:
    """Read the records of one run, or of all runs if `run_id` is None. Of each record only `keys` are kept, because the
    records of a chat may be hundreds of megabytes."""
    found = await edge.store.read_traces(chat_id, principal.id)
    wanted = [stored for stored in found if run_id is None or stored.run_id in ("", run_id)]
    return await anyio.to_thread.run_sync(_read, wanted, run_id, keys) if wanted else []


def _read(wanted: list[TraceRecord], run_id: str | None, keys: Container[str] | None) -> list[JsonObject]:
    read: list[JsonObject] = []
    for stored in wanted:
        try:
            records = decompose(stored.data)
        except ValueError as wrong:
            _log.error("trace.unreadable", run_id=stored.run_id, error=str(wrong))
            continue
        for whole in records:
            if run_id is None or whole.get("run_id") == run_id:
                read.append(whole if keys is None else {key: value for key, value in whole.items() if key in keys})
    return read


async def _whole_trace(edge: Edge, chat_id: str, run_id: str, records: list[JsonObject]) -> RunTrace:
    """Return the trace made of one run's records, with the chat's messages to which they refer. Raises Unavailable."""
    nodes: Mapping[str, Message] = {}
    if any(has_references(record) for record in records):
        nodes = await read_chat_as(edge.store, chat_id, lambda state: state.nodes)
    return await anyio.to_thread.run_sync(_trace_of, chat_id, run_id, records, nodes)


def _trace_of(chat_id: str, run_id: str, records: list[JsonObject], nodes: Mapping[str, Message]) -> RunTrace:
    """Return the trace made of one run's records: the rounds in their order, each with the tool calls that it made.
    `nodes` are the chat's messages, to which rounds refer."""
    rounds: list[JsonObject] = []
    run: JsonObject = {}
    end: JsonObject = {}
    strays: list[JsonObject] = []
    summaries: list[JsonObject] = []
    operations: list[JsonObject] = []
    for record in records:
        if record["kind"] == "round":
            run = run or record
            rounds.append({**with_messages(record, nodes), "tool_runs": []})
        elif record["kind"] == "end":
            end = record
        elif record["kind"] == "summary":
            summaries.append(record)
        elif record["kind"] == "operations":
            run = run or record
            operations += [each for each in record.get("operations", ()) if isinstance(each, dict)]
        else:
            asking = next((each for each in reversed(rounds) if each["round"] == record["round"]), None)
            (strays if asking is None else asking["tool_runs"]).append(record)
    return RunTrace(
        chat_id=chat_id,
        run_id=run_id,
        outcome=end.get("outcome"),
        error=end.get("error"),
        principal=run.get("principal"),
        scope=run.get("scope", []),
        context=run.get("context", {}),
        params=run.get("run_params", {}),
        started_at=run.get("run_started_at_ms") or end.get("started_at_ms"),
        ended_at=end.get("ended_at_ms"),
        rounds=_converted(rounds, TraceRound),
        other_tool_runs=_converted(strays, TraceToolRun),
        summaries=_converted(summaries, TraceSummary),
        raw_answers=msgspec.convert(end.get("raw_answers", {}), dict[str, RawAnswer]),
        operations=_converted(operations, TraceOperation),
    )


def _converted(records: list[JsonObject], kind: type[_T]) -> list[_T]:
    """Convert records to structs. If another version of the server wrote a record in another form, only its numbers are
    kept."""
    converted: list[_T] = []
    for record in records:
        try:
            converted.append(msgspec.convert(record, kind))
        except msgspec.ValidationError as wrong:
            _log.error("trace.unreadable", run_id=record.get("run_id"), error=str(wrong))
            numbers = {key: value for key, value in record.items() if isinstance(value, int)}
            converted.append(msgspec.convert({**numbers, "cut": ["all"]}, kind))
    return converted


_SUMMARISED = (
    "kind",
    "run_id",
    "round",
    "outcome",
    "error",
    "run_started_at_ms",
    "started_at_ms",
    "ended_at_ms",
    "operations_count",
)
"""The keys of a record that the list of runs needs."""


def _summary(run_id: str, records: list[JsonObject]) -> TracedRun:
    of_kind: dict[object, list[JsonObject]] = {}
    for record in records:
        of_kind.setdefault(record["kind"], []).append(record)
    rounds = of_kind.get("round", [])
    operations = of_kind.get("operations", [])
    end = of_kind.get("end", [{}])[-1]
    return TracedRun(
        run_id=run_id,
        outcome=end.get("outcome"),
        error=end.get("error"),
        started_at=([*rounds, *operations] or [{}])[0].get("run_started_at_ms") or end.get("started_at_ms"),
        ended_at=end.get("ended_at_ms"),
        rounds_count=len(rounds),
        tool_runs_count=len(of_kind.get("tool", [])),
        operations_count=sum(int(each.get("operations_count", 0)) for each in operations),
    )
