"""Agents of pydantic-ai behind a server: text, tools, approvals, questions, structured output, and the state after a
crash."""

from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from tests.integration.test_durable_agents_http import answered, asked, decide, effects, error_of, paused
from tests.support.fleet import FAST, fleet_on_new_store
from tests.support.reader import Watcher, watching
from tests.support.server import DEADLINE_SECONDS, ROOT, Process, command, start, user_message
from tests.unit.pictures import data_url, png_of
from threadcast_protocol.wire.events import PayloadAdded, Question
from threadcast_protocol.wire.messages import Message

pytestmark = [pytest.mark.anyio, pytest.mark.row("AGT-6")]

APP = ROOT / "tests/agents/pyd_app.py"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    directory = tmp_path_factory.mktemp("pydantic_ai")
    line = ["serve", "--port", "0", "--memory", "--app", str(APP)]
    environment = {"EFFECTS": str(directory / "effects"), "PYTHONPATH": str(ROOT)}
    with start(*line, log=directory / "log", environment=environment) as process:
        yield process.wait_ready()


def nodes(watcher: Watcher) -> list[Message]:
    state = watcher.state
    assert state is not None
    return [state.nodes[key] for key in state.path]


async def test_text_calls_an_approval_and_dependencies(server: Process) -> None:
    async with asked(server, "bank") as (chat_id, watcher):
        [reason] = await paused(watcher)
        assert (reason.tool_name, reason.input) == ("charge", {"dollars": 7})
        assert effects(server).count("balance of Ada") == 1
        await decide(server, chat_id, reason, True, edited_input={"dollars": 5})
        await watcher.at_rest()
    first, last = nodes(watcher)[1], nodes(watcher)[-1]
    assert [each.role for each in nodes(watcher)] == ["user", "assistant", "tool", "tool", "assistant"]
    assert first.reasoning_content == "I think."
    assert [call.function.name for call in first.tool_calls] == ["balance", "charge"]
    assert first.usage is not None
    assert first.usage.completion_tokens > 0
    assert "word19 balance of Ada | charged 5 in bank of 3 messages, I bank." in str(last.content)
    assert effects(server)[-2:] == ["charge 5", "charged 5 in bank"]


async def test_a_denied_call_is_told_to_the_model_and_the_next_run_reads_the_same_history(server: Process) -> None:
    async with asked(server, "bank") as (chat_id, watcher):
        [reason] = await paused(watcher)
        await decide(server, chat_id, reason, False, note="too much")
        await watcher.at_rest()
        assert "balance of Ada | The tool call was denied. Note: too much of 3 messages" in watcher.messages[-1][1]
        await command(server.url, chat_id, user_message("b", "again", params={"mode": "bank"}))
        [reason] = await paused(watcher)
        await decide(server, chat_id, reason, True)
        await watcher.at_rest()
    assert "of 7 messages" in watcher.messages[-1][1]


async def test_a_tool_asks_for_an_approval_itself(server: Process) -> None:
    watcher = await answered(server, "clerk", "transfer 5")
    assert watcher.messages[-1][1] == "transfer 5 "
    async with asked(server, "clerk", "transfer 50") as (chat_id, watcher):
        [reason] = await paused(watcher)
        assert "transfer 50" not in effects(server), "a person is asked before the effect"
        await decide(server, chat_id, reason, True)
        await watcher.at_rest()
    assert watcher.messages[-1][1] == "transfer 50 "
    assert effects(server).count("transfer 50") == 1


async def test_retries_unknown_tools_and_wrong_arguments_are_shown(server: Process) -> None:
    watcher = await answered(server, "clerk", "guess")
    first, second = [each for each in nodes(watcher) if each.role == "tool"]
    assert (first.content, first.tool_failed) == ("Guess higher.", True)
    assert (second.content, second.tool_failed) == ("right", False)
    watcher = await answered(server, "clerk", "missing")
    unknown = next(each for each in nodes(watcher) if each.role == "tool")
    assert unknown.tool_failed
    assert "Unknown tool name: 'missing'" in str(unknown.content)
    watcher = await answered(server, "clerk", "transfer")
    assert '"loc":["dollars"],"msg":"Field required"' in watcher.messages[2][1]


async def test_a_tool_that_raises_ends_the_run(server: Process) -> None:
    watcher = await answered(server, "clerk", "fatal")
    assert error_of(watcher).message == "The agent failed: KeyError: 'the end'"
    assert nodes(watcher)[2].tool_failed


async def test_values_with_content_and_images_reach_the_model(server: Process) -> None:
    watcher = await answered(server, "clerk", "whole")
    assert watcher.messages[-1][1] == '[1,{"a":"b"}] | and More. '
    watcher = await answered(server, "clerk", "drawing")
    assert watcher.messages[-2] == ("tool", "[image/png]")
    assert watcher.messages[-1][1].startswith("BinaryImage(data=b'\\x89PNG'")


async def test_a_deferred_call_is_a_question(server: Process) -> None:
    async with asked(server, "clerk", "wait") as (chat_id, watcher):
        [reason] = await paused(watcher)
        assert isinstance(reason.question, Question)
        assert reason.question.text == 'wait waits for an answer: {"why": "the post"}'
        await decide(server, chat_id, reason, True, edited_input={"answer": "a letter"})
        await watcher.at_rest()
    assert watcher.messages[-1][1] == "a letter "


async def test_an_external_tool_is_a_client_s(server: Process) -> None:
    async with asked(server, "clerk", "look") as (chat_id, watcher):
        await watcher.until(lambda w: w.state is not None and bool(w.state.runtime.ide_calls))
        assert watcher.state is not None
        [open_call] = watcher.state.runtime.ide_calls
        result = {"tool_call_id": open_call.tool_call_id, "content": "a blue sky"}
        await command(server.url, chat_id, {"type": "ide_tool_result", "client_request_id": "r", **result})
        await watcher.at_rest()
    assert watcher.messages[-1][1] == "a blue sky "


async def test_structured_output_is_a_payload_and_a_wrong_one_is_asked_for_again(server: Process) -> None:
    async with asked(server, "weather") as (chat_id, watcher):
        await watcher.at_rest()
        last = [event for event in watcher.events if isinstance(event, PayloadAdded)][-1]
        assert (last.payload_type, last.data) == ("Weather", {"city": "Ulm", "degrees": 7})
        assert [(each.role, each.tool_calls) for each in nodes(watcher)] == [("user", []), ("assistant", [])]
        assert watcher.state is not None
        shown = [each.data for each in watcher.state.payloads if each.message_id in watcher.state.path]
        assert shown == [last.data], "the message of the refused one is removed"
        await command(server.url, chat_id, user_message("b", "again", params={"mode": "weather"}))
        await watcher.at_rest(runs=2)
    assert watcher.state is not None
    assert watcher.state.runtime.state != "error"


async def test_limits_and_a_failed_model_have_clear_errors(server: Process) -> None:
    error = error_of(await answered(server, "endless"))
    assert error.code == "limit"
    assert "request_limit of 3" in error.message
    error = error_of(await answered(server, "lost"))
    assert error.message == "The agent failed (ConnectionError)."


async def test_tools_of_an_mcp_server_run_under_the_policies(server: Process) -> None:
    async with asked(server, "reader") as (chat_id, watcher):
        [reason] = await paused(watcher)
        assert (reason.tool_name, reason.input) == ("add", {"a": 2, "b": 3})
        await decide(server, chat_id, reason, True)
        await watcher.at_rest()
    assert "sum 5" in watcher.messages[-1][1]


async def test_stop_ends_the_run_and_keeps_the_text(server: Process) -> None:
    async with asked(server, "unending") as (chat_id, watcher):
        await watcher.until(
            lambda w: w.state is not None and w.state.draft is not None and "word2" in str(w.state.draft.content)
        )
        await command(server.url, chat_id, {"type": "abort", "client_request_id": "stop"})
        await watcher.at_rest()
    assert "word2" in watcher.messages[1][1]
    assert len(watcher.messages) == 2


async def test_kill_9_in_a_response_a_pause_and_a_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "effects"
    for name, value in {"EFFECTS": str(file), "PYTHONPATH": str(ROOT), "CHARGE_SECONDS": "5"}.items():
        monkeypatch.setenv(name, value)
    with fleet_on_new_store(tmp_path, "--app", str(APP), limits=FAST) as fleet:
        await fleet.open()
        async with watching(fleet.url, "killed") as watcher:
            await command(fleet.url, "killed", user_message("a", "go", params={"mode": "bank"}))
            await watcher.until(lambda w: w.state is not None and w.state.draft is not None and w.state.draft.content)
            fleet.kill_owner("killed")
            await fleet.add_worker()
            [reason] = await paused(watcher)
            fleet.kill_owner("killed")
            await fleet.add_worker()
            decision = {"tool_call_id": reason.tool_call_id, "accepted": True, "input_hash": reason.input_hash}
            body = {"type": "tool_decisions", "client_request_id": "yes", "decisions": [decision]}
            await command(fleet.url, "killed", body)
            with anyio.fail_after(DEADLINE_SECONDS):
                while "charge 7" not in file.read_text():
                    await anyio.sleep(0.02)
            fleet.kill_owner("killed")
            await fleet.add_worker()
            await watcher.at_rest()
    lines = file.read_text().splitlines()
    assert (lines.count("balance of Ada"), lines.count("charge 7"), lines.count("charged 7 in kill")) == (1, 1, 0)
    assert "the outcome of 'charge' is unknown" in watcher.messages[-1][1]


async def test_an_image_reaches_the_model_whole(server: Process) -> None:
    image = png_of(50_000)
    content = [{"type": "text", "text": "what?"}, {"type": "image_url", "image_url": {"url": data_url(image)}}]
    async with watching(server.url, "picture") as watcher:
        asking = user_message("a", "", params={"mode": "eyes"}) | {"content": content}
        await command(server.url, "picture", asking)
        await watcher.at_rest()
    assert watcher.messages[-1][1] == f"image/png {len(image)}, what? "
