"""Reports the operations of durable agents that have ended: counts them, and adds them to the run's trace."""

from collections.abc import Sequence

from msgspec.structs import replace

from threadcast.actor.traces import Traces
from threadcast.agent_loop.tracing import operation_trace
from threadcast.base.telemetry import Metrics
from threadcast.chat.facts import Fact
from threadcast.chat.journal import Operation, OperationRecorded
from threadcast.chat.owner_state import OwnerState

__all__ = ["TOLD_KINDS", "tell_operations"]

TOLD_KINDS = frozenset({"step", "call", "chat", "ask", "sleep", "answer"})
"""The kinds of operations that take time."""


def tell_operations(
    traces: Traces | None,
    metrics: Metrics,
    owner: str,
    before: OwnerState,
    after: OwnerState,
    facts: Sequence[Fact],
    now_ms: int,
) -> None:
    """Report the operations that have ended in an entry with these facts. Operations that the end of the run has
    interrupted count as cancelled."""
    run = before.private.run
    if run is None or run.agent is None:
        return
    journal = run.agent.journal
    recorded = {fact.key: fact.operation for fact in facts if isinstance(fact, OperationRecorded)}
    ended: list[tuple[str, Operation]] = []
    for key, operation in recorded.items():
        if operation.status != "begun":
            begun = journal.get(key, operation)
            ended.append((key, replace(operation, at_ms=operation.at_ms or begun.at_ms)))
    if after.private.run is None or after.private.run.run_id != run.run_id:
        open_ones = {
            key: operation for key, operation in {**journal, **recorded}.items() if operation.status == "begun"
        }
        ended += [(key, replace(operation, status="cancelled")) for key, operation in open_ones.items()]
    for key, operation in ended:
        if operation.kind not in TOLD_KINDS:
            continue
        metrics.agent_operations.labels(operation.kind, operation.status).inc()
        if traces is not None:
            traces.offer(before.chat_id, owner, operation_trace(run, key, operation, now_ms))
