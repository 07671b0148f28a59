"""Operations of durable agents share records of the trace, which would otherwise cost more than a short step."""

from collections.abc import Sequence

import anyio
import pytest
from msgspec.structs import replace

from threadcast.actor.agent_operations import tell_operations
from threadcast.actor.traces import OPERATIONS_MAX_COUNT, Traces
from threadcast.agent_loop.tracing import EndTrace, OperationsTrace, operation_trace
from threadcast.base.redaction import Redactor
from threadcast.base.telemetry import Metrics
from threadcast.chat.journal import DurableRun, Operation, OperationRecorded
from threadcast.chat.owner_state import OwnerState, Run, empty_owner_state
from threadcast.store.ports import TraceRecord
from threadcast.store.trace_records import decompose
from threadcast_protocol.wire.principal import LOCAL

pytestmark = [pytest.mark.anyio, pytest.mark.row("DIAG-1")]

RUN = Run(run_id="r", principal=LOCAL, request_ids=["a"], started_at_ms=5, agent=DurableRun(name="x", path_length=1))
END = EndTrace(run_id="r", round=0, outcome="complete", error=None, started_at_ms=5, ended_at_ms=9, tools_used=[])


class Store:
    """Keeps the records that arrive."""

    def __init__(self) -> None:
        self.records: list[TraceRecord] = []
        self.has_end = anyio.Event()

    async def put_traces(
        self, chat_id: str, owner: str, records: Sequence[TraceRecord], ttl_seconds: int, replaces: Sequence[str] = ()
    ) -> bool:
        self.records = [each for each in self.records if each.key not in replaces] + [*records]
        if any(each["kind"] == "end" for stored in records for each in decompose(stored.data)):
            self.has_end.set()
        return True

    async def newest_traces(self, chat_id: str, owner: str, count: int) -> list[TraceRecord]:
        return self.records[-count:]

    async def read_traces(self, chat_id: str, owner: str) -> list[TraceRecord]:
        return self.records


def step(number: int, run: Run = RUN) -> OperationsTrace:
    return operation_trace(run, str(number), Operation(kind="step", name=f"s{number}", value="7", at_ms=6), 8)


async def test_operations_of_a_run_share_records_in_their_order() -> None:
    store = Store()
    traces = Traces(store, Metrics(), Redactor(), ttl_seconds=60)
    for number in range(2 * OPERATIONS_MAX_COUNT + 50):
        traces.offer("c", "me", step(number))
    traces.offer("c", "me", step(0, replace(RUN, run_id="other")))
    traces.offer("c", "me", END)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(traces.run)
            await store.has_end.wait()
            tasks.cancel_scope.cancel()
    found = [each for stored in store.records for each in decompose(stored.data)]
    counts = [(each["run_id"], each["operations_count"], len(each["operations"])) for each in found[:-1]]
    assert counts == [("r", 100, 100), ("r", 100, 100), ("r", 50, 50), ("other", 1, 1)]
    names = [operation["name"] for each in found[:3] for operation in each["operations"]]
    assert names == [f"s{number}" for number in range(2 * OPERATIONS_MAX_COUNT + 50)]
    assert found[0]["operations"][0]["elapsed_ms"] == 2


def test_an_entry_tells_what_it_has_ended_and_the_end_of_a_run_what_it_has_cut() -> None:
    begun = {
        "0": Operation(kind="step", name="first", status="begun", at_ms=1),
        "1": Operation(kind="sleep", status="begun", at_ms=2),
        "2": Operation(kind="now", status="begun"),
    }
    agent = DurableRun(name="x", path_length=1, journal=begun, restarts=3)
    before = _with_run(replace(RUN, agent=agent))
    facts = [OperationRecorded(key="0", operation=Operation(kind="step", name="first"))]
    metrics = Metrics()
    traces = Traces(Store(), metrics, Redactor(), ttl_seconds=60)
    tell_operations(traces, metrics, "me", before, before, facts, 9)
    tell_operations(traces, metrics, "me", before, _with_run(None), facts, 9)
    [(_, _, record)] = traces._queue
    assert isinstance(record, OperationsTrace)
    told = [(each.step_id, each.kind, each.outcome, each.elapsed_ms) for each in record.operations]
    assert told == [("3:0", "step", "done", 8), ("3:0", "step", "done", 8), ("3:1", "sleep", "cancelled", 7)]


def _with_run(run: Run | None) -> OwnerState:
    state = empty_owner_state("c")
    return replace(state, private=replace(state.private, run=run))
