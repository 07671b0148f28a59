"""Graphs of LangGraph in chats over HTTP: streams, tools, approvals, interrupts, parallel nodes, and kill -9."""

from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from tests.integration.test_durable_agents_http import asked, decide, effects, error_of, paused
from tests.support.fleet import FAST, fleet_on_new_store
from tests.support.reader import Watcher, watching
from tests.support.server import DEADLINE_SECONDS, ROOT, Process, command, start, user_message
from threadcast_protocol.wire.events import AgentData

pytestmark = [pytest.mark.anyio, pytest.mark.row("AGT-7")]

APP = ROOT / "tests/agents/lg_app.py"
WORDS = "".join(f"word{number} " for number in range(20))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    directory = tmp_path_factory.mktemp("langgraph")
    line = ["serve", "--port", "0", "--memory", "--app", str(APP)]
    with start(*line, log=directory / "log", environment={"EFFECTS": str(directory / "effects")}) as process:
        yield process.wait_ready()


async def question(watcher: Watcher, server: Process, chat_id: str, text: str, answer: object) -> None:
    """Wait for a question and answer it."""
    await watcher.until(
        lambda w: w.state is not None and any(each.command == text for each in w.state.runtime.pause_reasons)
    )
    [reason] = await paused(watcher)
    await decide(server, chat_id, reason, True, edited_input={"answer": answer})


async def test_an_agent_of_langchain_streams_and_its_tools_are_under_the_policies(server: Process) -> None:
    async with asked(server, "bank") as (chat_id, watcher):
        [reason] = await paused(watcher)
        assert (reason.tool_name, reason.input) == ("pay", {"dollars": 7})
        assert "paid 7" not in effects(server)
        await decide(server, chat_id, reason, True, edited_input={"dollars": 5})
        await watcher.at_rest()
        assert watcher.messages[1:] == [("assistant", WORDS), ("tool", "paid 5"), ("assistant", f"{WORDS}paid 5 ")]
        state = watcher.state
        assert state is not None
        usage = state.nodes[state.path[1]].usage
        assert usage is not None
        assert usage.total_tokens == 10
        await command(server.url, chat_id, user_message("b", "once more", params={"mode": "bank"}))
        await watcher.until(lambda w: w.state is not None and bool(w.state.runtime.pause_reasons))
        [reason] = await paused(watcher)
        await decide(server, chat_id, reason, False, note="no more")
        await watcher.at_rest(2)
    assert "no more" in watcher.messages[-1][1], "the model reads why"
    assert effects(server).count("paid 7") == 0


async def test_requests_of_the_middleware_are_approvals(server: Process) -> None:
    async with asked(server, "guarded") as (chat_id, watcher):
        [reason] = await paused(watcher)
        assert (reason.tool_name, reason.input) == ("guarded_pay", {"dollars": 7})
        await decide(server, chat_id, reason, True, edited_input={"dollars": 4})
        await watcher.at_rest()
    assert "paid 4" in watcher.messages[-1][1]
    assert watcher.messages[-1][1].endswith("end slow ")
    assert effects(server).count("paid 4") == 1


async def test_a_rejected_request_is_told_to_the_model(server: Process) -> None:
    async with asked(server, "guarded") as (chat_id, watcher):
        [reason] = await paused(watcher)
        await decide(server, chat_id, reason, False, note="too dear")
        await watcher.at_rest()
    assert "too dear" in watcher.messages[-1][1]


async def test_a_question_inside_a_tool(server: Process) -> None:
    async with asked(server, "asker") as (chat_id, watcher):
        await question(watcher, server, chat_id, "Really go?", "yes")
        await watcher.at_rest()
    assert watcher.messages[-1] == ("assistant", f"{WORDS}confirmed go: yes ")
    assert effects(server).count("confirmed go: yes") == 1


async def test_parallel_nodes_questions_custom_events_and_state_that_the_next_run_has(server: Process) -> None:
    async with asked(server, "trip") as (chat_id, watcher):
        await question(watcher, server, chat_id, "Which name?", "Ada")
        await question(watcher, server, chat_id, "Which age?", "7")
        await watcher.at_rest()
        assert watcher.messages[-1] == ("assistant", "['Ada 7', 'Graz', 'Linz', 'plan'] 1")
        assert [text for role, text in watcher.messages if role == "assistant"][:2] == [WORDS, WORDS]
        assert [effects(server).count(f"visit {place}") for place in ("Graz", "Linz")] == [1, 1]
        assert effects(server).count("plan") == 1
        data = [event.data for event in watcher.events if isinstance(event, AgentData)]
        assert data == [{"planned": True}]
        await command(server.url, chat_id, user_message("b", "again", params={"mode": "trip"}))
        await question(watcher, server, chat_id, "Which name?", "Bo")
        await question(watcher, server, chat_id, "Which age?", "8")
        await watcher.at_rest(2)
    assert watcher.messages[-1][1].endswith("'plan', 'plan'] 2"), "the graph's own state is kept"


async def test_errors_name_their_class_alone_and_subgraphs_speak(server: Process) -> None:
    async with asked(server, "failing") as (_, watcher):
        await watcher.at_rest()
    assert (error_of(watcher).code, error_of(watcher).message) == ("llm_error", "The graph failed (KeyError).")
    async with asked(server, "nested") as (_, watcher):
        await watcher.at_rest()
    assert watcher.messages[-1] == ("assistant", "From within.")


async def test_stop_ends_the_run_and_keeps_the_text(server: Process) -> None:
    async with asked(server, "unending") as (chat_id, watcher):
        await watcher.until(lambda w: w.state is not None and w.state.draft is not None and bool(w.state.draft.content))
        await command(server.url, chat_id, {"type": "abort", "client_request_id": "stop"})
        await watcher.at_rest()
    assert watcher.messages[-1][1].startswith("word0 ")
    assert len(watcher.messages) == 2


async def test_kill_9_in_a_message_a_call_and_a_pause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EFFECTS", str(tmp_path / "effects"))
    file = tmp_path / "effects"
    with fleet_on_new_store(tmp_path, "--app", str(APP), limits=FAST) as fleet:
        await fleet.open()
        async with watching(fleet.url, "c1") as watcher:
            await command(fleet.url, "c1", user_message("a", "go", params={"mode": "killed"}))
            await watcher.until(
                lambda w: w.state is not None and w.state.draft is not None and bool(w.state.draft.content)
            )
            fleet.kill_owner("c1")
            await fleet.add_worker()
            with anyio.fail_after(DEADLINE_SECONDS):
                while not (file.exists() and "begin slow" in file.read_text()):
                    await anyio.sleep(0.01)
            fleet.kill_owner("c1")
            await fleet.add_worker()
            [reason] = await paused(watcher)
            fleet.kill_owner("c1")
            decision = {"tool_call_id": reason.tool_call_id, "accepted": True, "input_hash": reason.input_hash}
            await command(fleet.url, "c1", {"type": "tool_decision", "client_request_id": "d", **decision})
            await watcher.at_rest()
            text = watcher.messages[-1][1]
            assert text.startswith(WORDS)
            assert "unknown" in text
            assert text.endswith("paid 7 ")
            lines = file.read_text().splitlines()
            assert (lines.count("begin slow"), lines.count("paid 7")) == (1, 1)


async def test_a_node_that_may_run_once_asks_before_it_runs_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EFFECTS", str(tmp_path / "effects"))
    monkeypatch.setenv("CHARGE_SECONDS", "3")
    file = tmp_path / "effects"
    with fleet_on_new_store(tmp_path, "--app", str(APP), limits=FAST) as fleet:
        await fleet.open()
        async with watching(fleet.url, "c1") as watcher:
            await command(fleet.url, "c1", user_message("a", "go", params={"mode": "charging"}))
            with anyio.fail_after(DEADLINE_SECONDS):
                while not (file.exists() and "begin charge" in file.read_text()):
                    await anyio.sleep(0.01)
            fleet.kill_owner("c1")
            await fleet.add_worker()
            [reason] = await paused(watcher)
            assert reason.type == "question"
            assert "may or may not have had its effect" in reason.command
            assert file.read_text().count("begin charge") == 1
            decision = {"tool_call_id": reason.tool_call_id, "accepted": True, "input_hash": reason.input_hash}
            answer = {"edited_input": {"answer": "Run it again"}}
            await command(fleet.url, "c1", {"type": "tool_decision", "client_request_id": "d", **decision, **answer})
            await watcher.at_rest()
            assert watcher.messages[-1] == ("assistant", "Charged.")
            assert file.read_text().count("begin charge") == 2
