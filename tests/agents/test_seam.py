"""The seam for agents of other frameworks over HTTP: its operations, its pauses, and the state after a crash."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from tests.integration.test_durable_agents_http import asked, decide, effects, error_of, paused
from tests.support.fleet import FAST, Fleet, fleet_on_new_store
from tests.support.reader import Watcher, watching
from tests.support.server import ROOT, Process, command, start, user_message
from threadcast_protocol.wire.events import AgentData, PayloadAdded, ToolStatus

pytestmark = pytest.mark.anyio

APP = ROOT / "tests/agents/seam_app.py"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    directory = tmp_path_factory.mktemp("seam")
    line = ["serve", "--port", "0", "--memory", "--app", str(APP)]
    with start(*line, log=directory / "log", environment={"EFFECTS": str(directory / "effects")}) as process:
        yield process.wait_ready()


def words(watcher: Watcher) -> str:
    return watcher.messages[-1][1].rpartition("word19 ")[2]


async def test_parallel_calls_of_a_framework_run_under_the_policies_and_replay_with_their_values(
    server: Process,
) -> None:
    async with asked(server, "parallel") as (chat_id, watcher):
        [reason] = await paused(watcher)
        assert reason.tool_name == "pay"
        assert [line for line in effects(server) if "call_a" in line] == ["begin call_a", "end call_a"]
        await decide(server, chat_id, reason, True, edited_input={"what": "c"})
        await watcher.at_rest()
    assert words(watcher) == "a c"
    state = watcher.state
    assert state is not None
    first = state.nodes[state.path[1]]
    assert [call.function.name for call in first.tool_calls] == ["work", "pay"]
    assert first.reasoning_content == "I think. "
    assert first.extra["speaker"] == "Ada"
    assert [role for role, _ in watcher.messages] == ["user", "assistant", "tool", "tool", "assistant"]
    assert watcher.messages[3][1] == "did c", "the edited arguments"
    assert effects(server).count("begin call_a") == 1


async def test_a_denied_call_is_told_to_the_framework(server: Process) -> None:
    async with asked(server, "parallel") as (chat_id, watcher):
        [reason] = await paused(watcher)
        await decide(server, chat_id, reason, False, note="no")
        await watcher.at_rest()
    assert words(watcher) == "a denied(no)"


async def test_failed_calls_late_approvals_payloads_and_silent_messages(server: Process) -> None:
    async with asked(server, "failing") as (chat_id, watcher):
        [reason] = await paused(watcher)
        assert (reason.tool_name, effects(server).count("careful")) == ("ask_first", 0)
        await decide(server, chat_id, reason, True)
        await watcher.at_rest()
    assert watcher.messages[-1][1] == "Try another. careful"
    assert effects(server).count("careful") == 1
    [payload] = [event for event in watcher.events if isinstance(event, PayloadAdded)]
    assert (payload.payload_type, payload.data, payload.source) == ("report", {"total": 3}, "llm")
    assert watcher.state is not None
    assert [role for role, _ in watcher.messages] == ["user", "assistant", "tool", "tool", "assistant"]


async def test_calls_that_the_framework_carries_out_itself(server: Process) -> None:
    async with asked(server, "own_calls") as (chat_id, watcher):
        [reason] = await paused(watcher)
        assert (reason.tool_name, reason.input) == ("edit", {"path": "a"})
        await decide(server, chat_id, reason, True, edited_input={"path": "b"})
        await watcher.until(lambda w: bool(w.state and [r for r in w.state.runtime.pause_reasons if r.question]))
        [question] = await paused(watcher)
        await decide(server, chat_id, question, True, edited_input={"answer": "blue"})
        await watcher.at_rest()
    assert watcher.messages[-1][1] == "True  True blue 2"
    assert [text for role, text in watcher.messages if role == "tool"] == ["edited {'path': 'b'}", "seen", "news"]
    progress = [event for event in watcher.events if isinstance(event, ToolStatus) and event.status == "progress"]
    assert [event.message for event in progress] == ["half"]
    [data] = [event for event in watcher.events if isinstance(event, AgentData)]
    assert (data.data_type, data.data) == ("done", {"colour": "blue"})


async def test_a_denied_call_of_the_framework_is_answered_at_once(server: Process) -> None:
    async with asked(server, "own_calls") as (chat_id, watcher):
        [reason] = await paused(watcher)
        await decide(server, chat_id, reason, False, note="later")
        [question] = await paused_with_question(watcher)
        await decide(server, chat_id, question, False)
        await watcher.at_rest()
    assert next(text for role, text in watcher.messages if role == "tool") == "The call was denied by user. Note: later"
    assert error_of(watcher).code == "llm_error", "the function does not handle Rejected"


async def paused_with_question(watcher: Watcher) -> list:  # type: ignore[type-arg]
    await watcher.until(
        lambda w: w.state is not None and [each.type for each in w.state.runtime.pause_reasons] == ["question"]
    )
    assert watcher.state is not None
    return watcher.state.runtime.pause_reasons


async def test_an_agent_that_stays_is_asked_while_it_runs(server: Process) -> None:
    async with asked(server, "staying") as (chat_id, watcher):
        await watcher.until(lambda w: w.state is not None and bool(w.state.runtime.pause_reasons))
        assert watcher.state is not None
        [reason] = watcher.state.runtime.pause_reasons
        assert reason.tool_name == "edit"
        await decide(server, chat_id, reason, True)
        [question] = await paused_with_question(watcher)
        await decide(server, chat_id, question, True, edited_input={"answer": "Bo"})
        await watcher.at_rest()
    assert watcher.messages[-1][1].startswith("True Bo word0")
    assert effects(server).count("connected") == 1


async def test_a_model_call_that_the_framework_gives_up_leaves_its_text(server: Process) -> None:
    async with asked(server, "cancelling") as (_, watcher):
        await watcher.at_rest()
    assert [role for role, _ in watcher.messages] == ["user", "assistant", "assistant"]
    assert watcher.messages[1][1].startswith("word0 ")
    assert watcher.messages[2][1] == "the other"


@asynccontextmanager
async def asked_in_fleet(directory: Path, mode: str, chat_id: str) -> AsyncIterator[tuple[Fleet, Watcher]]:
    with fleet_on_new_store(directory, "--app", str(APP), limits=FAST) as fleet:
        await fleet.open()
        async with watching(fleet.url, chat_id) as watcher:
            await command(fleet.url, chat_id, user_message("a", "go", params={"mode": mode}))
            yield fleet, watcher


async def test_kill_9_in_a_message_a_call_and_a_pause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EFFECTS", str(tmp_path / "effects"))
    async with asked_in_fleet(tmp_path, "parallel", "killed") as (fleet, watcher):
        await watcher.until(lambda w: w.state is not None and w.state.draft is not None and w.state.draft.content)
        fleet.kill_owner("killed")
        await fleet.add_worker()
        [reason] = await paused(watcher)
        fleet.kill_owner("killed")
        decision = {"tool_call_id": reason.tool_call_id, "accepted": True, "input_hash": reason.input_hash}
        await command(
            fleet.url,
            "killed",
            {
                "type": "tool_decision",
                "client_request_id": "d",
                **decision,
                "edited_input": {"what": "b", "seconds": 3},
            },
        )
        effects_file = tmp_path / "effects"
        while "begin call_b" not in effects_file.read_text():
            await anyio.sleep(0.02)
        fleet.kill_owner("killed")
        await fleet.add_worker()
        await watcher.at_rest()
        assert words(watcher) == "a unknown"
        lines = effects_file.read_text().split("\n")
        assert [lines.count(f"{what} call_{which}") for what in ("begin", "end") for which in "ab"] == [1, 1, 1, 0]


async def test_kill_9_of_an_agent_that_stays_interrupts_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EFFECTS", str(tmp_path / "effects"))
    async with asked_in_fleet(tmp_path, "staying", "stays") as (fleet, watcher):
        await watcher.until(lambda w: w.state is not None and bool(w.state.runtime.pause_reasons))
        fleet.kill_owner("stays")
        await watcher.at_rest()
        assert watcher.state is not None
        assert watcher.state.runtime.outcome == "interrupted"
        assert not watcher.state.runtime.pause_reasons
        assert watcher.messages[1] == ("assistant", "one ")
        assert error_of(watcher).code == "interrupted"
        assert (tmp_path / "effects").read_text().count("connected") == 1
