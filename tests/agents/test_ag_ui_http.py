"""A chat whose agent is a remote server that speaks AG-UI: events, approvals, questions, tools of clients, failures."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import httpx2
import pytest

from tests.integration.test_durable_agents_http import asked, decide, error_of, paused
from tests.ports import free_port
from tests.support.fleet import FAST, fleet_on_new_store
from tests.support.reader import Watcher, watching
from tests.support.server import DEADLINE_SECONDS, ROOT, Process, command, start, user_message
from threadcast_protocol.wire.events import AgentData, IdeToolRequired, RuntimeUpdated

pytestmark = [pytest.mark.anyio, pytest.mark.row("AGT-10")]

WORDS = "".join(f"word{number} " for number in range(25))


@contextmanager
def remote(directory: Path, module: str = "tests.agents.ag_ui_server") -> Iterator[str]:
    """Run a remote agent, and yield its address."""
    port = free_port()
    environment = {**os.environ, "DIRECTORY": str(directory), "PYTHONPATH": str(ROOT)}
    with (
        (directory / "remote-log").open("wb") as log,
        subprocess.Popen([sys.executable, "-m", module, str(port)], env=environment, stderr=log) as process,
    ):
        try:
            url = f"http://127.0.0.1:{port}/"
            deadline = time.monotonic() + DEADLINE_SECONDS
            while time.monotonic() < deadline:
                try:
                    httpx2.get(url)
                    break
                except httpx2.TransportError:
                    assert process.poll() is None, (directory / "remote-log").read_text()
                    time.sleep(0.05)
            yield url
        finally:
            process.terminate()


def settings(directory: Path, url: str) -> Path:
    file = directory / "threadcast.toml"
    file.write_text(
        f'[agents.weather]\nkind = "ag_ui"\nurl = "{url}"\ntitle = "The weather"\n'
        'headers = { Authorization = "Bearer secret" }\npolicies = { deploy_now = "ask" }\n'
        + "".join(
            f'[agents.{name}]\nkind = "ag_ui"\nurl = "{url}"\npolicies = {{ pay = "{policy}" }}\n'
            for name, policy in (("trusted", "auto"), ("poor", "deny"))
        )
    )
    return file


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    directory = tmp_path_factory.mktemp("ag-ui")
    with remote(directory) as url:
        line = ["serve", "--port", "0", "--memory", "--config", str(settings(directory, url))]
        with start(*line, log=directory / "log") as process:
            yield process.wait_ready()


def lines(server: Process, file: str) -> list[str]:
    found = server.log.parent / file
    return found.read_text().splitlines() if found.exists() else []


def has_begun(watcher: Watcher) -> bool:
    """Return whether the text of an answer is shown."""
    return watcher.state is not None and watcher.state.draft is not None and bool(watcher.state.draft.content)


async def answered(server: Process, text: str) -> Watcher:
    async with asked(server, "weather", text) as (_, watcher):
        await watcher.at_rest()
        return watcher


async def test_text_reasoning_state_and_events_arrive_and_the_next_run_has_them(server: Process) -> None:
    async with asked(server, "weather", "hello") as (chat_id, watcher):
        await watcher.at_rest()
        assert watcher.messages[-1] == ("assistant", "Hello there")
        state = watcher.state
        assert state is not None
        message = state.nodes[state.path[-1]]
        assert message.reasoning_content == "A greeting. "
        assert message.usage is not None
        assert message.usage.total_tokens == 10
        data = {event.data_type: event.data for event in watcher.events if isinstance(event, AgentData)}
        assert data["ag_ui_state"] == {"state": {"greeted": 1, "names": ["Ada"]}}
        assert data["ag_ui_custom"] == {"name": "mood", "value": "good"}
        assert data["ag_ui_activity"]["content"] == {"found": 3}
        told = [event.status_text for event in watcher.events if isinstance(event, RuntimeUpdated)]
        assert "greeting" in told
        assert json.loads(lines(server, "asked")[-1])["authorization"] == "Bearer secret"

        await command(server.url, chat_id, user_message("b", "again", params={"mode": "weather"}))
        await watcher.at_rest(2)
    text = watcher.messages[-1][1]
    assert text.startswith("{'greeted': 1, 'names': ['Ada']} user:")
    assert "reasoning:thought assistant:m1" in text


async def test_tools_of_the_agent_are_calls_with_their_results(server: Process) -> None:
    watcher = await answered(server, "own tool")
    assert watcher.messages[1:] == [("assistant", "I look. "), ("tool", "rain"), ("assistant", "It rains.")]
    assert watcher.state is not None
    [call] = watcher.state.nodes[watcher.state.path[1]].tool_calls
    assert (call.function.name, json.loads(call.function.arguments)) == ("look_up", {"city": "Graz"})


@pytest.mark.parametrize("accepted", [True, False])
async def test_an_interrupt_of_a_call_is_an_approval(server: Process, accepted: bool) -> None:
    before = len(lines(server, "effects"))
    async with asked(server, "weather", "approval") as (chat_id, watcher):
        [reason] = await paused(watcher)
        assert (reason.tool_name, reason.input, reason.type) == ("pay", {"dollars": 7}, "confirmation")
        more = {"edited_input": {"dollars": 5}} if accepted else {"note": "too much"}
        await decide(server, chat_id, reason, accepted, **more)
        await watcher.at_rest()
    assert watcher.messages[-1][1] == f"{WORDS}{'True ' if accepted else 'False too much'}"
    assert lines(server, "effects")[before:] == (['pay {"dollars": 5}'] if accepted else [])
    assert [role for role, _ in watcher.messages] == ["user", "assistant", "tool", "assistant"]


@pytest.mark.parametrize(("name", "said", "paid"), [("trusted", "True ", 1), ("poor", "False ", 0)])
async def test_policies_answer_approvals_without_a_person(server: Process, name: str, said: str, paid: int) -> None:
    before = len(lines(server, "effects"))
    async with asked(server, name, "approval") as (_, watcher):
        await watcher.at_rest()
    assert watcher.messages[-1][1].startswith(f"{WORDS}{said}")
    assert len(lines(server, "effects")) - before == paid


async def test_other_interrupts_are_questions_and_approvals_without_a_call_are_shown_as_one(server: Process) -> None:
    async with asked(server, "weather", "two questions") as (chat_id, watcher):
        reasons = await paused(watcher, 2)
        question = next(each for each in reasons if each.type == "question")
        assert question.command == "How large?"
        await decide(server, chat_id, question, True, edited_input={"answer": {"size": 3}})
        [approval] = await paused(watcher, 1)
        assert approval.tool_name == "deploy_now"
        await decide(server, chat_id, approval, True)
        await watcher.at_rest()
    assert json.loads(watcher.messages[-1][1]) == {"i1": {"size": 3}, "i2": {"approved": True}}


async def test_a_rejected_question_is_cancelled(server: Process) -> None:
    async with asked(server, "weather", "two questions") as (chat_id, watcher):
        for reason in await paused(watcher, 2):
            await decide(server, chat_id, reason, False)
        await watcher.at_rest()
    assert json.loads(watcher.messages[-1][1]) == {"i1": None, "i2": {"approved": False}}


async def test_tools_of_the_message_are_carried_out_by_the_client(server: Process) -> None:
    chat_id = "ag-ui-client-tool"
    tool = {"name": "pick_colour", "description": "Picks.", "input_schema": {"type": "object"}}
    async with watching(server.url, chat_id) as watcher:
        body = user_message("a", "client tool", params={"mode": "weather"})
        await command(server.url, chat_id, {**body, "tools": [tool]})
        await watcher.until(lambda w: any(isinstance(event, IdeToolRequired) for event in w.events))
        call = next(event for event in watcher.events if isinstance(event, IdeToolRequired))
        assert call.args == {"of": "sky"}
        result = {"type": "ide_tool_result", "client_request_id": "done", "tool_call_id": call.tool_call_id}
        await command(server.url, chat_id, {**result, "content": "blue"})
        await watcher.at_rest()
    assert watcher.messages[-1] == ("assistant", "The sky is blue.")


async def test_a_snapshot_adds_only_what_was_not_streamed(server: Process) -> None:
    watcher = await answered(server, "snapshot")
    assert [text for role, text in watcher.messages if role == "assistant"] == ["Streamed. ", "Not streamed."]


@pytest.mark.parametrize(
    ("words", "text", "code", "sentence"),
    [
        ("fails", "I try. ", "llm_error", "The agent failed: No more money."),
        ("nonsense", "", "llm_error", "The agent sent what is no event of AG-UI."),
        ("short", "Hello there", "stream_error", "The agent's stream ended before its run."),
        ("moved", "", "llm_error", "The agent answered with the status 307."),
    ],
)
async def test_failures_are_told_and_what_was_said_stays(
    server: Process, words: str, text: str, code: str, sentence: str
) -> None:
    watcher = await answered(server, words)
    assert (error_of(watcher).code, error_of(watcher).message) == (code, sentence)
    assert [said for role, said in watcher.messages if role == "assistant"] == ([text] if text else [])


async def test_an_agent_that_is_busy_is_asked_again(server: Process) -> None:
    watcher = await answered(server, "busy")
    assert watcher.messages[-1] == ("assistant", "Hello there")


async def test_stop_closes_the_request(server: Process) -> None:
    before = lines(server, "effects").count("closed")
    async with asked(server, "weather", "hangs") as (chat_id, watcher):
        await watcher.until(has_begun)
        await command(server.url, chat_id, {"type": "abort", "client_request_id": "stop"})
        await watcher.at_rest()
        with anyio.fail_after(DEADLINE_SECONDS):
            while lines(server, "effects").count("closed") == before:
                await anyio.sleep(0.02)
    assert watcher.messages[-1] == ("assistant", "I wait. ")


async def test_the_agents_list_names_it(server: Process) -> None:
    async with httpx2.AsyncClient(base_url=server.url) as http:
        modes = (await http.get("/v1/chat-modes")).json()
    assert "weather" in json.dumps(modes)
    assert "secret" not in json.dumps(modes)


async def test_kill_9_in_a_run_of_the_agent_interrupts_and_in_a_pause_does_nothing(tmp_path: Path) -> None:
    with (
        remote(tmp_path) as url,
        fleet_on_new_store(tmp_path, "--config", str(settings(tmp_path, url)), limits=FAST) as fleet,
    ):
        await fleet.open()
        for chat_id in ("killed", "parked"):
            async with watching(fleet.url, chat_id) as watcher:
                await command(fleet.url, chat_id, user_message("a", "approval", params={"mode": "weather"}))
                if chat_id == "killed":
                    await watcher.until(
                        lambda w: w.state is not None and w.state.draft is not None and w.state.draft.content
                    )
                    fleet.kill_owner(chat_id)
                    await fleet.add_worker()
                    await watcher.at_rest()
                    assert watcher.state is not None
                    assert watcher.state.runtime.outcome == "interrupted"
                    assert watcher.messages[1][1].startswith("word0 ")
                    continue
                [reason] = await paused(watcher)
                fleet.kill_owner(chat_id)
                decision = {"tool_call_id": reason.tool_call_id, "accepted": True, "input_hash": reason.input_hash}
                await command(fleet.url, chat_id, {"type": "tool_decision", "client_request_id": "d", **decision})
                await watcher.at_rest()
                assert watcher.messages[-1][1] == f"{WORDS}True "
        assert (tmp_path / "effects").read_text() == 'pay {"dollars": 7}\n'


async def test_an_agent_of_pydantic_ai_behind_its_own_adapter(tmp_path: Path) -> None:
    with remote(tmp_path, "tests.agents.ag_ui_pydantic") as url:
        line = ["serve", "--port", "0", "--memory", "--config", str(settings(tmp_path, url))]
        with start(*line, log=tmp_path / "log") as process:
            await process.ready()
            async with asked(process, "weather", "go") as (chat_id, watcher):
                [reason] = await paused(watcher)
                assert (reason.tool_name, reason.input) == ("charge", {"dollars": 7})
                await decide(process, chat_id, reason, True, edited_input={"dollars": 5})
                await watcher.at_rest()
    assert watcher.messages[-1] == ("assistant", "The tool said: charged 5")
    assert ("tool", "charged 5") in watcher.messages
