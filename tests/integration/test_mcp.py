"""Real MCP servers behind a real `threadcast serve`: their tools, and the state of these tools when servers fail."""

import os
import sys
from pathlib import Path

import anyio
import httpx2
import pytest

from tests.integration.fake_openai import DONE, STOP, Reply, serve_fake_openai, text
from tests.integration.mcp_harness import (
    STDIO,
    answers_in,
    harness,
    offered,
    results,
    shop_port,
    until_offered,
)
from tests.ports import free_port
from tests.support.reader import watching
from tests.support.server import DEADLINE_SECONDS, Process, command, serving, start, user_message
from threadcast_protocol.wire.events import PauseRequired, ToolStatus

__all__ = ["harness", "shop_port"]

pytest.importorskip("mcp", reason="the extra `mcp` is not installed")

pytestmark = pytest.mark.anyio


@pytest.mark.row("MCP-1", "MCP-2", "TOOL-6", "TOOL-12")
async def test_tools_of_all_servers_are_offered_under_their_servers_names_and_called(
    harness: Process, chat_id: str
) -> None:
    tools = await offered(harness)
    assert tools["mcp__desk__add"]["source"] == "mcp" and tools["mcp__desk__add"]["policy"] == "auto"
    assert tools["mcp__careful__add"]["policy"] == "ask", "nobody said that the server may be trusted"
    assert "mcp__desk__count_steps" in tools, "a name that models would refuse is made one that they take"
    assert "mcp__careful__refuse" not in tools, "switched off by the operator"
    assert await results(
        harness,
        chat_id,
        'mcp__desk__add {"a":20,"b":22}',
        'mcp__shop__add {"a":1,"b":2}',
        'mcp__desk__whose {"name":"DESK_KEY"}',
        "mcp__desk__table",
        "mcp__desk__refuse",
    ) == [
        ("42", False),
        ("3", False),
        ("of the desk", False),
        ('{"rows":[1,2]}', False),
        ("The tool mcp__desk__refuse is denied by policy.", True),
    ]


@pytest.mark.row("MCP-2")
async def test_two_tools_that_would_have_one_name_are_both_left_out_and_it_is_said(harness: Process) -> None:
    assert not [name for name in await offered(harness) if "same" in name]
    assert "mcp.tools_left_out" in harness.log_text() and "same.name" in harness.log_text()


@pytest.mark.row("MCP-2", "EVT-9")
async def test_progress_of_a_server_is_progress_of_the_call(harness: Process, chat_id: str) -> None:
    async with watching(harness.url, chat_id) as watcher:
        await command(harness.url, chat_id, user_message("a", "call mcp__desk__count_steps"))
        await watcher.at_rest()
    progress = [e for e in watcher.events if isinstance(e, ToolStatus) and e.status == "progress"]
    assert progress and progress[-1].message == "step 3" and progress[-1].progress == 1
    assert answers_in(watcher) == [("counted", False)]


@pytest.mark.row("MCP-2", "LOOP-5")
async def test_an_error_result_is_a_failed_result_and_the_run_goes_on(harness: Process, chat_id: str) -> None:
    ((text, failed),) = await results(harness, chat_id, "mcp__brittle__refuse")
    assert failed and "this cannot be done" in text


async def test_a_failure_without_its_reason_says_where_the_reason_is(harness: Process, chat_id: str) -> None:
    ((text, failed),) = await results(harness, chat_id, "mcp__brittle__stumble")
    assert failed and "mcp.stderr" in text
    with anyio.fail_after(DEADLINE_SECONDS):
        while "ValueError: a stone in the way" not in harness.log_text():
            await anyio.sleep(0.02)


@pytest.mark.row("MCP-2", "LOOP-15")
async def test_a_call_that_takes_too_long_is_answered_and_cancelled_at_the_server(
    harness: Process, chat_id: str
) -> None:
    late, after = await results(harness, chat_id, 'mcp__desk__wait {"seconds":60}', "mcp__desk__last_wait")
    assert late == ("The tool did not finish within 0.5 s.", True)
    assert after == ("cancelled", False)


@pytest.mark.row("MCP-2")
@pytest.mark.parametrize("server", ["desk", "shop"])
async def test_a_tool_that_a_server_announces_can_be_called_at_once(
    harness: Process, chat_id: str, server: str
) -> None:
    assert f"mcp__{server}__learnt" not in await offered(harness)
    assert await results(harness, chat_id, f"mcp__{server}__learn") == [("ok", False)]
    await until_offered(harness, f"mcp__{server}__learnt")
    assert await results(harness, f"{chat_id}-2", f"mcp__{server}__learnt") == [("learnt", False)]


@pytest.mark.row("MCP-5")
async def test_a_server_that_dies_takes_only_its_tools_with_it_and_comes_back(harness: Process, chat_id: str) -> None:
    dead, alive = await results(harness, chat_id, "mcp__brittle__crash", 'mcp__desk__add {"a":1,"b":1}')
    assert dead[1] and "brittle" in dead[0]
    assert alive == ("2", False)
    await until_offered(harness, "mcp__brittle__add")
    assert await results(harness, f"{chat_id}-2", 'mcp__brittle__add {"a":2,"b":2}') == [("4", False)]


@pytest.mark.row("MCP-5")
async def test_an_expired_session_is_replaced_and_the_call_made_once_more(
    harness: Process, chat_id: str, shop_port: int
) -> None:
    async with httpx2.AsyncClient(timeout=DEADLINE_SECONDS) as client:
        await client.post(f"http://127.0.0.1:{shop_port}/forget")
    assert await results(harness, chat_id, 'mcp__shop__add {"a":4,"b":5}') == [("9", False)]


@pytest.mark.row("MCP-1")
@pytest.mark.parametrize(("servers", "failed"), [([], True), (["shop"], True), (["desk"], False), (None, False)])
async def test_a_chat_says_which_servers_it_wants(
    harness: Process, chat_id: str, servers: list[str] | None, failed: bool
) -> None:
    patch = {} if servers is None else {"mcp_servers": servers}
    if patch:
        body = {"type": "set_params", "client_request_id": "p", "patch": patch}
        assert (await command(harness.url, chat_id, body)).status_code == 200
    ((text, has_failed), (own, own_failed)) = await results(
        harness, chat_id, 'mcp__desk__add {"a":1,"b":2}', 'calculator {"expression":"6*7"}'
    )
    assert has_failed is failed and (not failed or "There is no tool" in text)
    assert (own, own_failed) == ("42", False), "tools of our own are no server's"


@pytest.mark.row("MCP-2", "CMD-13")
async def test_a_server_can_be_allowed_as_a_whole(harness: Process, chat_id: str) -> None:
    async with watching(harness.url, chat_id) as watcher:
        await command(harness.url, chat_id, user_message("a", 'call mcp__careful__add {"a":1,"b":2}'))
        await watcher.until(lambda w: any(isinstance(e, PauseRequired) for e in w.events))
        assert watcher.state is not None
        (asked,) = watcher.state.runtime.pause_reasons
        await command(
            harness.url,
            chat_id,
            {
                "type": "tool_decision",
                "client_request_id": "yes",
                "tool_call_id": asked.tool_call_id,
                "accepted": True,
                "remember": "server",
            },
        )
        await watcher.at_rest()
        await command(harness.url, chat_id, user_message("b", 'call mcp__careful__whose {"name":"DESK_KEY"}'))
        await watcher.at_rest(2)
    assert answers_in(watcher) == [("3", False), ("not there", False)]
    assert len([e for e in watcher.events if isinstance(e, PauseRequired)]) == 1


@pytest.mark.row("MCP-1")
@pytest.mark.parametrize("is_killed", [False, True])
async def test_no_child_process_outlives_the_server(tmp_path: Path, chat_id: str, is_killed: bool) -> None:
    async with serving(
        tmp_path,
        is_durable=True,
        config=f'[models]\ndefault = "demo/tools"\n[mcp.desk]\n{STDIO}\npolicy = "auto"\n',
    ) as process:
        await until_offered(process, "mcp__desk__process")
        ((number, _),) = await results(process, chat_id, "mcp__desk__process")
        if is_killed:
            process.kill()
        else:
            assert await process.stop() == 0
        with anyio.fail_after(DEADLINE_SECONDS):
            while is_running(int(number)):
                await anyio.sleep(0.05)


def is_running(number: int) -> bool:
    try:
        os.kill(number, 0)
        state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return False
    return state != "Z"


async def _offered(url: str, name: str) -> None:
    """Wait for a tool of an MCP server, whose connection is opened while the server starts."""
    async with httpx2.AsyncClient(base_url=url, timeout=DEADLINE_SECONDS) as client:
        with anyio.fail_after(DEADLINE_SECONDS):
            while name not in (await client.get("/v1/tools")).text:
                await anyio.sleep(0.05)


@pytest.mark.row("MCP-6")
@pytest.mark.parametrize("servers", [["desk"], []])
async def test_a_request_names_no_tools_when_there_are_none(tmp_path: Path, servers: list[str]) -> None:
    file = tmp_path / "threadcast.toml"
    file.write_text(f'[mcp.desk]\n{STDIO}\n[profiles.agent]\ntools = ["mcp__desk__add", "mcp__gone__*"]\n')
    arguments = ["serve", "--port", "0", "--data-dir", str(tmp_path / "data"), "--config", str(file)]
    with serve_fake_openai() as model:
        model.replies = [Reply([text("hello"), STOP, DONE])]
        environment = {"OPENAI_BASE_URL": model.base_url, "OPENAI_API_KEY": "k", "OPENAI_MODEL": "tiny"}
        with start(*arguments, log=tmp_path / "log", environment=environment) as process:
            await process.ready()
            await _offered(process.url, "mcp__desk__add")
            body = {"type": "set_params", "client_request_id": "p", "patch": {"mcp_servers": servers}}
            await command(process.url, "c1", body)
            async with watching(process.url, "c1") as watcher:
                await command(process.url, "c1", user_message("a", "hi"))
                await watcher.at_rest()
    asked = model.asked[0].body
    if servers:
        assert [tool["function"]["name"] for tool in asked["tools"]] == ["mcp__desk__add"]
    else:
        assert not {"tools", "tool_choice", "parallel_tool_calls"} & asked.keys()


@pytest.mark.row("MCP-5")
async def test_the_doctor_has_a_line_for_every_server(harness: Process, tmp_path: Path) -> None:
    port = harness.url.rpartition(":")[2]
    file = tmp_path / "threadcast.toml"
    file.write_text(f'[server]\nport = {port}\n[mcp.desk]\n{STDIO}\n[mcp.dead]\ncommand = "no-such-program"\n')

    async def lines() -> list[str]:
        asked = [sys.executable, "-m", "threadcast.cli", "doctor", "--config", str(file)]
        user = {"THREADCAST_SERVER__PROGRAMS_USER": "root"} if os.geteuid() == 0 else {}  # as the harness
        done = await anyio.run_process(asked, env={**os.environ, **user}, check=False)
        return [line for line in done.stdout.decode().splitlines() if line.split()[1] in ("mcp.desk", "mcp.dead")]

    desk, dead = await lines()
    assert desk.startswith("ok") and "answers the running Threadcast server" in desk
    assert dead.startswith("fail") and "not connected" in dead
    file.write_text(file.read_text().replace(f"port = {port}", f"port = {free_port()}"))
    desk, dead = await lines()
    assert desk.startswith("ok") and sys.executable in desk
    assert dead.startswith("fail") and "no-such-program" in dead
