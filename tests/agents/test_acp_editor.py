"""An editor that watches the chat serves the files and the commands of a coding agent."""

import json
import sys
from collections.abc import Iterator

import pytest

from tests.agents.test_acp_http import AGENT, IMAGE, settings, texts
from tests.integration.test_durable_agents_http import asked
from tests.support.reader import Watcher, watching
from tests.support.server import Process, command, start, user_message
from threadcast_protocol.wire.events import IdeCall
from threadcast_protocol.wire.messages import JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.row("AGT-9")]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    directory = tmp_path_factory.mktemp("acp-editor")
    agent = json.dumps([sys.executable, str(AGENT), str(directory)])
    away = f'[agents.away]\nkind = "acp"\ncommand = {agent}\nfiles = "client"\nworkspace = "{directory}/away"'
    extra = f'files = "client"\n{away}\n[tools.away_read_file]\ntimeout_seconds = 0.2'
    config = settings(directory, extra=extra)
    line = ["serve", "--port", "0", "--memory", "--config", str(config)]
    with start(*line, log=directory / "log", environment={"SHARED": "yes"}) as process:
        yield process.wait_ready()


async def called(watcher: Watcher, name: str) -> IdeCall:
    """Wait until the agent calls this tool of the client."""

    def found(watcher: Watcher) -> list[IdeCall]:
        return (
            []
            if watcher.state is None
            else [each for each in watcher.state.runtime.ide_calls if each.tool_name == name]
        )

    await watcher.until(lambda w: bool(found(w)))
    return found(watcher)[0]


async def answer(server: Process, chat_id: str, call: IdeCall, content: str, **more: object) -> None:
    result: JsonObject = {"tool_call_id": call.tool_call_id, "content": content, **more}
    await command(
        server.url, chat_id, {"type": "ide_tool_result", "client_request_id": f"r-{call.tool_call_id}", **result}
    )


async def test_files_and_commands_are_those_of_the_editor(server: Process) -> None:
    async with asked(server, "coder", "editor") as (chat_id, watcher), watching(server.url, chat_id) as second_tab:
        read = await called(watcher, "coder_read_file")
        assert read.args == {"path": "src/a.txt", "line": 2, "limit": 1}
        await answer(server, chat_id, read, "not saved yet")
        write = await called(second_tab, "coder_write_file")
        assert write.args == {"path": "src/a.txt", "content": "new"}
        await answer(server, chat_id, write, "written")
        run = await called(watcher, "coder_run_command")
        assert run.args == {"command": "make", "args": ["-j2"]}
        await answer(server, chat_id, run, "2 warnings", tool_failed=True)
        await watcher.at_rest()
    assert "".join(texts(watcher)) == "I look. READ not saved yet MADE 1 2 warningsDone."
    folder = server.log.parent / "workspaces" / chat_id
    assert not list(folder.rglob("*")), "nothing is written on the server"


async def test_a_refused_write_is_an_error_of_the_agent_s_request(server: Process) -> None:
    async with asked(server, "coder", "editor") as (chat_id, watcher):
        await answer(server, chat_id, await called(watcher, "coder_read_file"), "text")
        write = await called(watcher, "coder_write_file")
        await answer(server, chat_id, write, "the file is locked", tool_failed=True)
        await watcher.at_rest()
    assert "FAILED" in texts(watcher)[-1]
    assert "the file is locked" in texts(watcher)[-1]


async def test_a_command_that_nobody_waits_for_is_answered_at_the_end_of_the_prompt(server: Process) -> None:
    async with asked(server, "coder", "editor leave") as (chat_id, watcher):
        await answer(server, chat_id, await called(watcher, "coder_read_file"), "text")
        await answer(server, chat_id, await called(watcher, "coder_write_file"), "written")
        await watcher.at_rest()
        assert watcher.state is not None
        assert not watcher.state.runtime.ide_calls
    assert texts(watcher)[-1] == "Done."


async def test_stop_takes_the_requests_back(server: Process) -> None:
    async with asked(server, "coder", "editor") as (chat_id, watcher):
        await called(watcher, "coder_read_file")
        await command(server.url, chat_id, {"type": "abort", "client_request_id": "stop"})
        await watcher.at_rest()
        assert watcher.state is not None
        assert not watcher.state.runtime.ide_calls


@pytest.mark.parametrize("text", ["x" * 256_001, f"one\ndata:image/png;base64,{IMAGE}\ntwo"])
async def test_a_text_that_the_chat_does_not_keep_whole_is_no_file(server: Process, text: str) -> None:
    async with asked(server, "coder", "copies 1") as (chat_id, watcher):
        await answer(server, chat_id, await called(watcher, "coder_read_file"), text)
        await watcher.at_rest()
    assert "FAILED" in texts(watcher)[-1]
    assert "ask for fewer lines" in texts(watcher)[-1]


async def test_a_write_of_more_than_a_call_may_have_fails_alone(server: Process) -> None:
    async with asked(server, "coder", "copies 256000") as (chat_id, watcher):
        await answer(server, chat_id, await called(watcher, "coder_read_file"), "text")
        await watcher.at_rest()
    assert "FAILED" in texts(watcher)[-1]
    assert "at most 256,000 characters" in texts(watcher)[-1]


async def test_a_client_that_goes_away_is_waited_for_until_the_deadline_of_its_call(server: Process) -> None:
    async with watching(server.url, "away") as editor:
        await command(server.url, "away", user_message("a", "editor", params={"mode": "away"}))
        await called(editor, "away_read_file")
    async with watching(server.url, "away") as second_tab:
        await second_tab.at_rest()
    assert "FAILED No client answered this call within 0.2 s." in texts(second_tab)[-1]


async def test_a_call_of_the_client_has_ten_minutes_by_default(server: Process) -> None:
    async with asked(server, "coder", "editor") as (chat_id, watcher):
        read = await called(watcher, "coder_read_file")
        assert watcher.state is not None
        asking = watcher.state.nodes[watcher.state.path[-1]]
        assert read.deadline_at is not None
        assert asking.created_at is not None
        assert 590_000 < read.deadline_at - asking.created_at < 660_000
        await command(server.url, chat_id, {"type": "abort", "client_request_id": "stop"})
        await watcher.at_rest()
