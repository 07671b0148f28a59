"""Runs over real HTTP: tools and their failures, approvals, aborts, model errors, many chats at once."""

import os
import signal
import time
from pathlib import Path

import anyio
import httpx2
import pytest

from tests.support.reader import Watcher, watching
from tests.support.server import DEADLINE_SECONDS, Process, command, serving, start, user_message
from threadcast_protocol.wire.events import ErrorHappened, StreamStarted, ToolStatus
from threadcast_protocol.wire.messages import JsonObject

pytestmark = pytest.mark.anyio

TOOLS_MODEL: JsonObject = {"model": "demo/tools"}
ABORT_SECONDS = 5.0
"""CMD-3 allows one second; a busy machine gets more time. The limit still distinguishes a delay from a run that hangs
for ever."""


def call(name: str, arguments: str = "{}") -> str:
    """Return the words that make the demo model call a tool."""
    return f"call {name} {arguments}"


def tool_messages(watcher: Watcher) -> list[tuple[str, bool]]:
    assert watcher.state is not None
    path = [watcher.state.nodes[key] for key in watcher.state.path]
    return [(str(m.content), bool(m.tool_failed)) for m in path if m.role == "tool"]


async def ask(server: Process, chat_id: str, text: str, request_id: str = "a") -> None:
    await command(server.url, chat_id, user_message(request_id, text, params=TOOLS_MODEL))


@pytest.mark.row("LOOP-1", "LOOP-3", "EVT-8", "EVT-10", "DIAG-3")
async def test_tools_run_in_call_order_and_the_model_goes_on(server: Process, chat_id: str) -> None:
    text = "\n".join([call("calculator", '{"expression":"6*7"}'), call("clock")])
    async with watching(server.url, chat_id) as watcher:
        await ask(server, chat_id, text)
        await watcher.at_rest()
    (first, failed), (second, _) = tool_messages(watcher)
    assert first == "42" and not failed and "+0000" in second
    statuses = [(e.name, e.status, e.index) for e in watcher.events if isinstance(e, ToolStatus)]
    assert statuses == [
        ("calculator", "running", 0),
        ("clock", "running", 1),
        ("calculator", "done", 0),
        ("clock", "done", 1),
    ]
    running = next(e for e in watcher.events if isinstance(e, ToolStatus) and e.status == "running")
    assert running.input == {"expression": "6*7"}
    done = [e for e in watcher.events if isinstance(e, ToolStatus) and e.status == "done"]
    assert all(e.elapsed_ms is not None for e in done)
    assert [e.round for e in watcher.events if isinstance(e, StreamStarted)] == [0, 1]
    assert watcher.frames[-1]["tools_used"] == ["calculator", "clock"]


@pytest.mark.row("EVT-9", "TOOL-4", "FE-5")
async def test_progress_of_a_tool_is_live_and_before_its_result(server: Process, chat_id: str) -> None:
    async with watching(server.url, chat_id) as watcher:
        await ask(server, chat_id, call("countdown", '{"start":3,"interval_seconds":0.4}'))
        await watcher.until(lambda w: any(isinstance(e, ToolStatus) and e.status == "progress" for e in w.events))
        async with watching(server.url, chat_id) as late:
            assert late.state is not None
            (shown,) = late.state.runtime.tools
            assert (shown.name, shown.status, shown.stage) == ("countdown", "progress", "counting")
            heard = [e for e in watcher.events if isinstance(e, ToolStatus) and e.status == "progress"]
            assert shown.message in ("3", "2", "1") and shown.progress == 1 - int(shown.message) / 3
            assert int(shown.message) <= int(heard[0].message or 0), "the latest one"
        await watcher.at_rest()
    statuses = [e.status for e in watcher.events if isinstance(e, ToolStatus)]
    assert statuses[0] == "running" and statuses[-1] == "done" and "progress" in statuses
    assert watcher.state is not None and watcher.state.runtime.tools == []


@pytest.mark.row("LOOP-5", "LOOP-6", "LOOP-7", "LOOP-15")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (call("fail"), "RuntimeError"),
        (call("too_slow"), "0.2 s"),
        (call("no_such_tool"), "calculator"),
        (call("calculator", "[1]"), "not a JSON object"),
        (call("calculator", '{"expression":7}'), "expression"),
        (call("forbidden"), "denied by policy"),
    ],
)
async def test_whatever_a_tool_does_wrong_the_model_is_told_and_the_run_goes_on(
    server: Process, chat_id: str, text: str, expected: str
) -> None:
    async with watching(server.url, chat_id) as watcher:
        await ask(server, chat_id, text)
        await watcher.at_rest()
    ((content, failed),) = tool_messages(watcher)
    assert failed and expected in content
    assert "a private detail" not in content
    assert watcher.frames[-1]["outcome"] == "complete"


@pytest.mark.row("CMD-3", "EVT-16")
@pytest.mark.parametrize(
    "text", [call("hang"), call("hang_in_thread"), call("swallows_cancellation"), call("countdown", '{"start":30}')]
)
async def test_an_abort_ends_within_a_second_whatever_the_tool_does(server: Process, chat_id: str, text: str) -> None:
    async with watching(server.url, chat_id) as watcher:
        await ask(server, chat_id, text + "\n" + call("clock"))
        await watcher.until(lambda w: any(isinstance(e, ToolStatus) and e.status == "running" for e in w.events))
        asked_at = time.monotonic()
        answer = await command(server.url, chat_id, {"type": "abort", "client_request_id": "stop"})
        assert time.monotonic() - asked_at < 2 * ABORT_SECONDS
        assert answer.json()["status"] == "aborted"
        await watcher.at_rest(seconds=ABORT_SECONDS)
        assert watcher.state is not None and watcher.state.runtime.outcome == "aborted"
        assert [failed for _, failed in tool_messages(watcher)] == [True, True]
        await command(server.url, chat_id, user_message("b", "go on"))
        await watcher.at_rest(2)
    assert watcher.messages[-1] == ("assistant", "You said: go on")


@pytest.mark.parametrize("model", ["demo/hang", "demo/slow", "demo/essay?words=4000&rate=50"])
async def test_an_abort_ends_a_model_that_does_not(server: Process, chat_id: str, model: str) -> None:
    async with watching(server.url, chat_id) as watcher:
        await command(server.url, chat_id, user_message("a", "write", params={"model": model}))
        await watcher.until(lambda w: "stream_started" in w.types())
        answer = await command(server.url, chat_id, {"type": "abort", "client_request_id": "stop"})
        assert answer.json()["status"] == "aborted"
        await watcher.at_rest(seconds=ABORT_SECONDS)
    assert "stream_finished" in watcher.types()


@pytest.mark.row("CMD-5", "TREE-3")
async def test_regenerate_answers_again_as_a_sibling(server: Process, chat_id: str) -> None:
    async with watching(server.url, chat_id) as watcher:
        await command(server.url, chat_id, user_message("a", "hi"))
        await watcher.at_rest()
        assert watcher.state is not None
        old = watcher.state.path[-1]
        body = {"type": "regenerate", "client_request_id": "r", "model": "demo/essay?words=5&rate=0"}
        await command(server.url, chat_id, body, {"Prefer": "wait=5"})
        await watcher.until(lambda w: w.state is not None and w.state.is_at_rest and w.state.path[-1] != old)
        assert watcher.state.nodes[watcher.state.path[-1]].sibling_ids[0] == old
    assert "messages_truncated" in watcher.types()
    assert len(watcher.messages) == 2


@pytest.mark.row("GATE-1", "GATE-8", "CMD-13")
async def test_a_pause_survives_a_restart_and_any_instance_may_decide(tmp_path: Path) -> None:
    tools = str(Path(__file__).with_name("misbehaving_tools.py"))
    arguments = ["serve", "--port", "0", "--data-dir", str(tmp_path / "data"), "--app", tools]
    with start(*arguments, log=tmp_path / "log") as first:
        await first.ready()
        async with watching(first.url, "c1") as watcher:
            await ask(first, "c1", call("asks", '{"text":"one"}') + "\n" + call("asks", '{"text":"two"}'))
            await watcher.until(lambda w: w.state is not None and w.state.runtime.paused)
            await command(first.url, "c1", user_message("b", "and then?"))
            await watcher.until(lambda w: w.state is not None and w.state.runtime.queue_size == 1)
        first.kill()
    with start(*arguments, log=tmp_path / "log") as second:
        await second.ready()
        async with watching(second.url, "c1") as again:
            assert again.snapshot == watcher.snapshot
            assert again.state is not None
            one, two = again.state.runtime.pause_reasons
            yes = {"type": "tool_decision", "client_request_id": "d1", "tool_call_id": one.tool_call_id}
            await command(second.url, "c1", {**yes, "accepted": True, "edited_input": {"text": "edited"}})
            await again.until(lambda w: w.state is not None and len(w.state.runtime.pause_reasons) == 1)
            no: JsonObject = {"type": "tool_decisions", "client_request_id": "d2", "decisions": []}
            assert (await command(second.url, "c1", no)).status_code == 400
            no["decisions"] = [{"tool_call_id": two.tool_call_id, "accepted": False, "note": "not this"}]
            await command(second.url, "c1", no)
            await again.at_rest(2)
            late = await command(second.url, "c1", {**yes, "client_request_id": "d3", "accepted": True}, _WAIT)
            assert late.json()["result"]["code"] == "no_pending_decision"
        assert tool_messages(again) == [
            ("allowed: edited", False),
            ("The call was denied by user. Note: not this", True),
        ]
        assert "pause_cleared" in again.types()


_WAIT = {"Prefer": "wait=5"}


async def test_a_remembered_decision_is_not_asked_for_again(server: Process, chat_id: str) -> None:
    async with watching(server.url, chat_id) as watcher:
        await ask(server, chat_id, call("asks"))
        await watcher.until(lambda w: w.state is not None and w.state.runtime.paused)
        assert watcher.state is not None
        (reason,) = watcher.state.runtime.pause_reasons
        decision = {"tool_call_id": reason.tool_call_id, "accepted": True, "remember": "tool"}
        body = {"type": "tool_decision", "client_request_id": "d", "input_hash": reason.input_hash, **decision}
        await command(server.url, chat_id, body)
        await watcher.at_rest()
        await ask(server, chat_id, call("asks"), "b")
        await watcher.at_rest(2)
    assert watcher.types().count("pause_required") == 1


@pytest.mark.row("LOOP-8", "ERR-4", "ERR-3")
async def test_an_unknown_model_ends_in_error_with_a_clear_text_and_the_next_command_runs(
    server: Process, chat_id: str
) -> None:
    async with watching(server.url, chat_id) as watcher:
        for number, model in enumerate(["demo/nonexistent", "nowhere/x"], start=1):
            body = user_message(f"a{number}", "hi", params={"model": model})
            await command(server.url, chat_id, body)
            await watcher.at_rest(number)
            assert watcher.state is not None
            assert watcher.state.runtime.state == "error"
            assert model.partition("/")[2] in str(watcher.state.runtime.error) or "nowhere" in str(
                watcher.state.runtime.error
            )
        await command(server.url, chat_id, user_message("b", "better"))
        await watcher.at_rest(3)
        assert watcher.state is not None and watcher.state.runtime.error is None
    errors = [e for e in watcher.events if isinstance(e, ErrorHappened)]
    assert [(e.code, e.fatal) for e in errors] == [("llm_error", True)] * 2
    assert [role for role, _ in watcher.messages] == ["user", "user", "user", "assistant"]


@pytest.mark.row("LOOP-9", "ERR-3")
async def test_an_answer_that_breaks_in_the_middle_keeps_its_text(server: Process, chat_id: str) -> None:
    async with watching(server.url, chat_id) as watcher:
        await command(server.url, chat_id, user_message("a", "hi", params={"model": "demo/error?after=5"}))
        await watcher.at_rest()
    assert watcher.state is not None
    last = watcher.state.nodes[watcher.state.path[-1]]
    assert last.role == "assistant" and last.content and last.status == "error"
    assert [e.code for e in watcher.events if isinstance(e, ErrorHappened)] == ["stream_error"]
    assert watcher.state.runtime.state == "error"


@pytest.mark.row("SES-7")
async def test_chats_do_not_wait_for_each_other_and_an_abort_leaves_others_alone(server: Process, chat_id: str) -> None:
    async with watching(server.url, chat_id) as one, watching(server.url, f"{chat_id}-b") as two:
        await command(server.url, chat_id, user_message("a", "x", params={"model": "demo/hang"}))
        essay = user_message("a", "x", params={"model": "demo/essay?words=40&rate=80"})
        await command(server.url, f"{chat_id}-b", essay)
        await two.until(lambda w: "stream_delta" in w.types())
        await command(server.url, chat_id, {"type": "abort", "client_request_id": "stop"})
        await one.at_rest()
        await two.at_rest()
    assert (one.frames[-2]["outcome"], two.frames[-1]["outcome"]) == ("aborted", "complete")


async def test_200_chats_at_once_all_finish_and_nothing_is_left_behind(tmp_path: Path) -> None:
    count = 200
    async with serving(tmp_path, is_durable=True) as process:

        async def one(number: int, client: httpx2.AsyncClient) -> None:
            body = user_message("a", "x", params={"model": "demo/essay?words=60&rate=30"})
            answer = await client.post(f"{process.url}/v1/chats/many-{wave}-{number}/commands", json=body)
            assert answer.status_code == 202

        async def shown(client: httpx2.AsyncClient, metric: str) -> None:
            with anyio.fail_after(DEADLINE_SECONDS):
                while metric not in (await client.get(f"{process.url}/metrics")).text:
                    await anyio.sleep(0.2)

        resident = []
        async with httpx2.AsyncClient(timeout=DEADLINE_SECONDS) as client:
            for wave in range(3):
                async with anyio.create_task_group() as tasks:
                    for number in range(count):
                        tasks.start_soon(one, number, client)
                await shown(client, f'threadcast_runs_finished_total{{outcome="complete"}} {count * (wave + 1)}.0')
                await shown(client, "threadcast_chats_active 0.0")  # an owner releases the chat once the run is stored
                resident.append(_resident_bytes(process.pid))
        # The first wave fills pools and imports modules; growth in later waves comes from chats.
        assert resident[2] - resident[1] < 0.15 * resident[1], resident
        process.send(signal.SIGTERM)


async def test_a_stopping_server_brings_its_runs_to_a_safe_point_before_its_streams_end(tmp_path: Path) -> None:
    async with serving(tmp_path, is_durable=True, app=Path(__file__).with_name("misbehaving_tools.py")) as process:
        async with watching(process.url, "c") as watcher:
            await ask(process, "c", call("leaves_a_mark", '{"seconds": 0.3}'))
            await watcher.until(lambda w: any(e.status == "running" for e in w.events if isinstance(e, ToolStatus)))
            process.send(signal.SIGTERM)
            await watcher.until(lambda w: w.has_ended)
        assert await process.ended() == 0
    assert [e.status for e in watcher.events if isinstance(e, ToolStatus)] == ["running", "done"]


def _resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
