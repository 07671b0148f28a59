"""The diagnostics of durable agents for operators: their operations in traces, metrics and the log."""

from collections.abc import Iterator

import anyio
import httpx2
import msgspec
import pytest

from tests.support.reader import watching
from tests.support.server import DEADLINE_SECONDS, ROOT, Process, command, logged, start, user_message
from threadcast.api.diagnostics import RunTrace, TracedRun, TracedRuns

pytestmark = [pytest.mark.anyio, pytest.mark.row("AGT-2", "DIAG-1")]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    directory = tmp_path_factory.mktemp("traced")
    app = str(ROOT / "tests/integration/durable_app.py")
    line = ["serve", "--port", "0", "--memory", "--app", app, "--log-format", "json"]
    with start(*line, log=directory / "log", environment={"EFFECTS": str(directory / "effects")}) as process:
        yield process.wait_ready()


async def told(server: Process, chat_id: str) -> tuple[TracedRun, RunTrace]:
    """Wait for the end of a chat's only run, and return its entry in the list of runs and its trace."""
    async with httpx2.AsyncClient(timeout=DEADLINE_SECONDS) as client:
        with anyio.fail_after(DEADLINE_SECONDS):
            while True:
                found = await client.get(f"{server.url}/v1/chats/{chat_id}/runs")
                runs = msgspec.convert(found.json(), TracedRuns).runs
                if runs and runs[0].outcome is not None:
                    break
                await anyio.sleep(0.02)
        whole = await client.get(f"{server.url}/v1/chats/{chat_id}/runs/{runs[0].run_id}/diagnostics")
        return runs[0], msgspec.convert(whole.json(), RunTrace)


async def test_a_trace_names_the_operations_of_a_durable_run(server: Process) -> None:
    async with watching(server.url, "steps") as watcher:
        await command(server.url, "steps", user_message("a", "tea", params={"mode": "steps"}))
        await watcher.at_rest()
    run, trace = await told(server, "steps")
    assert (run.outcome, run.operations_count, run.rounds_count) == ("complete", 4, 0)
    assert run.started_at is not None
    assert [(each.step_id, each.kind, each.name, each.outcome) for each in trace.operations] == [
        ("0", "step", "plan", "done"),
        ("1", "step", "number", "done"),
        ("2", "step", "fails", "failed"),
        ("3", "answer", "write", "done"),
    ]
    plan, _, fails, _ = trace.operations
    assert msgspec.json.decode(plan.value) == {"query": "tea", "steps": [1, 2]}
    assert (fails.error, fails.detail) == ("KeyError", "'gone'")
    assert all(run.started_at <= each.ended_at_ms and each.elapsed_ms >= 0 for each in trace.operations)
    finished = next(line for line in logged(server.log, "run.finished") if line["chat_id"] == "steps")
    assert finished["operations"] == 4


async def test_a_cut_operation_counts_as_cancelled_and_a_long_result_is_shortened(server: Process) -> None:
    async with watching(server.url, "cut") as watcher:
        await command(server.url, "cut", user_message("a", "swallow", params={"mode": "unruly"}))
        await watcher.until(lambda w: w.state is not None and bool(w.state.runtime.agent_steps))
        await command(server.url, "cut", {"type": "abort", "client_request_id": "b"})
        await watcher.at_rest()
    _, trace = await told(server, "cut")
    assert [(each.kind, each.name, each.outcome) for each in trace.operations][:1] == [("step", "sleep", "cancelled")]
    async with watching(server.url, "long") as watcher:
        await command(server.url, "long", user_message("a", "t" * 5_000, params={"mode": "steps"}))
        await watcher.at_rest()
    _, trace = await told(server, "long")
    assert len(trace.operations[0].value) == 2_001 and trace.operations[0].value.endswith("…")


async def test_metrics_count_the_operations_by_kind_and_outcome(server: Process) -> None:
    async with httpx2.AsyncClient(timeout=DEADLINE_SECONDS) as client:

        async def count(kind: str, outcome: str) -> float:
            shown = (await client.get(f"{server.url}/metrics")).text
            label = f'threadcast_agent_operations_total{{kind="{kind}",outcome="{outcome}"}} '
            return sum(float(line.removeprefix(label)) for line in shown.splitlines() if line.startswith(label))

        before = [await count("step", "failed"), await count("answer", "done")]
        async with watching(server.url, "counted") as watcher:
            await command(server.url, "counted", user_message("a", "tea", params={"mode": "steps"}))
            await watcher.at_rest()
        assert [await count("step", "failed"), await count("answer", "done")] == [each + 1 for each in before]
