"""Traces of runs over HTTP: which runs of a chat have one, and what one run asked, heard and did (DIAG-1).

It reads records as workers laid them down and puts them in order; nothing is computed from the log. Who may see them is
decided here: the chat's owner, and only with the permission `diagnostics`. The one rule: system prompts leave the
server by this way alone.
"""

import time
from collections.abc import Container

import anyio
import anyio.to_thread
import structlog
from starlette.requests import Request
from starlette.responses import Response

from protocol.errors import Forbidden, NotFound, Unavailable
from protocol.ids import check_chat_id, check_id
from protocol.messages import JsonObject
from protocol.principal import Principal
from server.actor.traces import decompose
from server.api.edge import Edge, edge_of
from server.api.errors import answer
from server.store.port import TraceRecord

__all__ = ["diagnostics_within", "may_diagnose", "run_diagnostics", "traced_runs"]

_log = structlog.get_logger()

LOOK_FIRST_SECONDS = 0.05
"""While the last record of a run that has just ended is on its way: it is laid down within milliseconds of the end."""


async def run_diagnostics(request: Request) -> Response:
    """`GET /v1/chats/{chat_id}/runs/{run_id}/diagnostics`."""
    edge, chat_id, principal = await _allowed(request)
    run_id = check_id(request.path_params["run_id"], "run_id")
    records = await _records(edge, chat_id, principal, run_id)
    if not records:
        raise NotFound("there is no trace of such a run: it is not known, not begun, or its trace is not kept any more")
    return answer(200, _trace_of(chat_id, run_id, records))


async def traced_runs(request: Request) -> Response:
    """`GET /v1/chats/{chat_id}/runs`: the runs that have a trace, newest first."""
    edge, chat_id, principal = await _allowed(request)
    runs: dict[str, list[JsonObject]] = {}
    for record in await _records(edge, chat_id, principal, None, _SUMMARISED):
        runs.setdefault(str(record["run_id"]), []).append(record)
    shown = [_trace_of(chat_id, run_id, records) for run_id, records in reversed(runs.items())]
    return answer(200, {"runs": [_summary(trace) for trace in shown]})


def may_diagnose(principal: Principal) -> bool:
    return "diagnostics" in principal.permissions


async def diagnostics_within(
    edge: Edge, principal: Principal, chat_id: str, run_id: str, within_seconds: float
) -> JsonObject | None:
    """The trace of a run that has ended, waited for; without its end when that does not come in time. None: there is
    nothing, or it cannot be read."""
    until = time.monotonic() + within_seconds
    pause = LOOK_FIRST_SECONDS
    while True:
        try:
            records = await _records(edge, chat_id, principal, run_id)
        except Unavailable as trouble:
            _log.warning("trace.not_read", chat_id=chat_id, run_id=run_id, error=trouble.message)
            return None
        if any(record["kind"] == "end" for record in records) or time.monotonic() >= until:
            return _trace_of(chat_id, run_id, records) if records else None
        await anyio.sleep(pause)
        pause *= 2  # each look reads all that the chat has


async def _allowed(request: Request) -> tuple[Edge, str, Principal]:
    """Raises NotFound for a chat that is not the caller's, Forbidden for a caller without the permission."""
    edge = edge_of(request)
    principal = edge.principal(request.scope)
    chat_id = check_chat_id(request.path_params["chat_id"])
    await edge.own(chat_id, principal)
    if not may_diagnose(principal):
        raise Forbidden("this token may not see diagnostics; the operator gives it the permission `diagnostics`")
    return edge, chat_id, principal


async def _records(
    edge: Edge, chat_id: str, principal: Principal, run_id: str | None, keys: Container[str] | None = None
) -> list[JsonObject]:
    """`keys`: of each record, those that are wanted; a whole chat's records may be hundreds of megabytes."""
    found = await edge.store.read_traces(chat_id, principal.id)
    wanted = [record for record in found if run_id is None or record.run_id == run_id]
    return await anyio.to_thread.run_sync(_read, wanted, keys) if wanted else []


def _read(records: list[TraceRecord], keys: Container[str] | None) -> list[JsonObject]:
    read: list[JsonObject] = []
    for record in records:
        try:
            whole = decompose(record.data)
            read.append(whole if keys is None else {key: value for key, value in whole.items() if key in keys})
        except ValueError as wrong:
            _log.error("trace.unreadable", run_id=record.run_id, error=str(wrong))
    return read


def _trace_of(chat_id: str, run_id: str, records: list[JsonObject]) -> JsonObject:
    """One run's records as one body: its rounds in their order, each with the calls that it made."""
    rounds: list[JsonObject] = []
    run: JsonObject = {}
    end: JsonObject = {}
    strays: list[JsonObject] = []
    summaries: list[JsonObject] = []
    for record in records:
        rest = {key: value for key, value in record.items() if key not in ("kind", "run_id")}
        if record["kind"] == "round":
            of_run = {key: rest.pop(key) for key in _OF_RUN if key in rest}
            run = run or of_run
            rounds.append({**rest, "tool_runs": []})
        elif record["kind"] == "end":
            end = rest
        elif record["kind"] == "summary":
            summaries.append(rest)
        else:
            asking = next((each for each in reversed(rounds) if each["round"] == rest["round"]), None)
            (strays if asking is None else asking["tool_runs"]).append(rest)
    return {
        "chat_id": chat_id,
        "run_id": run_id,
        "outcome": end.get("outcome"),
        "error": end.get("error"),
        "principal": run.get("principal"),
        "scope": run.get("scope", []),
        "context": run.get("context", {}),
        "params": run.get("run_params", {}),
        "started_at": run.get("run_started_at_ms") or end.get("started_at_ms"),
        "ended_at": end.get("ended_at_ms"),
        "rounds": rounds,
        "other_tool_runs": strays,
        "summaries": summaries,
        "raw_answers": end.get("raw_answers", {}),
    }


_SUMMARISED = ("kind", "run_id", "round", "outcome", "error", "run_started_at_ms", "started_at_ms", "ended_at_ms")
"""Of a record: what the list of runs is made of."""

_OF_RUN = ("principal", "scope", "context", "run_params", "run_started_at_ms")


def _summary(trace: JsonObject) -> JsonObject:
    shown = {key: trace[key] for key in ("run_id", "outcome", "error", "started_at", "ended_at")}
    calls = sum(len(each["tool_runs"]) for each in trace["rounds"]) + len(trace["other_tool_runs"])
    return {**shown, "rounds_count": len(trace["rounds"]), "tool_runs_count": calls}
