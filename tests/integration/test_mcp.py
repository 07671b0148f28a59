"""MCP servers, real ones, behind a real `threadcast serve`: tools, failures, resources, prompts, attachments."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import anyio
import httpx2
import pytest

from protocol.events import PauseRequired, ToolStatus
from protocol.messages import JsonObject
from server.store.server_process import ServerProcess
from tests.integration.fake_openai import DONE, STOP, Reply, serve_fake_openai, text
from tests.integration.harness import DEADLINE_SECONDS, Process, Watcher, command, start, user_message, watching

pytest.importorskip("mcp", reason="the extra `mcp` is not installed")

pytestmark = pytest.mark.anyio

SERVERS = Path(__file__).with_name("mcp_servers.py")
STDIO = f'command = "{sys.executable}"\nargs = ["{SERVERS}", "stdio"]'


def config(base: Path, shop_port: int) -> Path:
    """Servers of every kind: child processes, one over HTTP with sessions, one that does not exist."""
    file = base / "threadcast.toml"
    file.write_text(
        f"""
[models]
default = "demo/tools"

[mcp.desk]
{STDIO}
env = {{ DESK_KEY = "of the desk" }}
policy = "auto"

[mcp.brittle]
{STDIO}
policy = "auto"

[mcp.careful]
{STDIO}

[mcp.shop]
url = "http://127.0.0.1:{shop_port}/mcp"
policy = "auto"

[mcp.dead]
command = "{base}/no-such-program"

[tools.mcp__desk__wait]
timeout_seconds = 0.5

[tools.mcp__desk__refuse]
policy = "deny"

[tools.mcp__careful__refuse]
enabled = false
"""
    )
    return file


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for_port(port: int) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        assert time.monotonic() < deadline, "the MCP server over HTTP did not start"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def shop_port() -> Iterator[int]:
    """An MCP server over HTTP that speaks the protocol with sessions."""
    port = free_port()
    child = subprocess.Popen([sys.executable, str(SERVERS), "http", str(port), "legacy"])
    try:
        wait_for_port(port)
        yield port
    finally:
        child.kill()
        child.wait(DEADLINE_SECONDS)


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory, shop_port: int) -> Iterator[Process]:
    base = tmp_path_factory.mktemp("mcp")
    arguments = ["serve", "--port", "0", "--data-dir", str(base / "data"), "--config", str(config(base, shop_port))]
    with start(*arguments, log=base / "log") as process:
        anyio.run(process.ready)
        anyio.run(until_offered, process, "mcp__careful__add")
        yield process


async def get(server: Process, path: str) -> httpx2.Response:
    async with httpx2.AsyncClient(timeout=DEADLINE_SECONDS) as client:
        return await client.get(f"{server.url}{path}")


async def offered(server: Process) -> dict[str, JsonObject]:
    return {tool["name"]: tool for tool in (await get(server, "/v1/tools")).json()}


async def until_offered(server: Process, name: str, is_there: bool = True) -> None:
    with anyio.fail_after(DEADLINE_SECONDS):
        while (name in await offered(server)) is not is_there:
            await anyio.sleep(0.05)


async def results(server: Process, chat_id: str, *calls: str, **more: object) -> list[tuple[str, bool]]:
    """What a new chat's tools answered to these calls, as (text, failed)."""
    async with watching(server.url, chat_id) as watcher:
        text = "\n".join(f"call {one}" for one in calls)
        answer = await command(server.url, chat_id, user_message("a", text, **more))
        assert answer.status_code == 202, answer.text
        await watcher.at_rest()
    assert watcher.frames[-1]["outcome"] == "complete"
    return answers_in(watcher)


def answers_in(watcher: Watcher) -> list[tuple[str, bool]]:
    assert watcher.state is not None
    path = [watcher.state.nodes[key] for key in watcher.state.path]
    return [(str(m.content), bool(m.tool_failed)) for m in path if m.role == "tool"]


@pytest.mark.row("MCP-1", "MCP-2", "TOOL-6", "TOOL-12")
async def test_tools_of_all_servers_are_offered_under_their_servers_names_and_called(
    house: Process, chat_id: str
) -> None:
    tools = await offered(house)
    assert tools["mcp__desk__add"]["source"] == "mcp" and tools["mcp__desk__add"]["policy"] == "auto"
    assert tools["mcp__careful__add"]["policy"] == "ask", "nobody said that the server may be trusted"
    assert "mcp__desk__count_steps" in tools, "a name that models would refuse is made one that they take"
    assert "mcp__careful__refuse" not in tools, "switched off by the operator"
    assert await results(
        house,
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
async def test_two_tools_that_would_have_one_name_are_both_left_out_and_it_is_said(house: Process) -> None:
    assert not [name for name in await offered(house) if "same" in name]
    assert "mcp.tools_left_out" in house.log_text() and "same.name" in house.log_text()


@pytest.mark.row("MCP-2", "EVT-9")
async def test_progress_of_a_server_is_progress_of_the_call(house: Process, chat_id: str) -> None:
    async with watching(house.url, chat_id) as watcher:
        await command(house.url, chat_id, user_message("a", "call mcp__desk__count_steps"))
        await watcher.at_rest()
    progress = [e for e in watcher.events if isinstance(e, ToolStatus) and e.status == "progress"]
    assert progress and progress[-1].message == "step 3" and progress[-1].progress == 1
    assert answers_in(watcher) == [("counted", False)]


@pytest.mark.row("MCP-2", "LOOP-5")
async def test_an_error_result_is_a_failed_result_and_the_run_goes_on(house: Process, chat_id: str) -> None:
    ((text, failed),) = await results(house, chat_id, "mcp__brittle__refuse")
    assert failed and "this cannot be done" in text


@pytest.mark.row("MCP-2", "LOOP-15")
async def test_a_call_that_takes_too_long_is_answered_and_cancelled_at_the_server(house: Process, chat_id: str) -> None:
    late, after = await results(house, chat_id, 'mcp__desk__wait {"seconds":60}', "mcp__desk__last_wait")
    assert late == ("The tool did not finish within 0.5 s.", True)
    assert after == ("cancelled", False)


@pytest.mark.row("MCP-2")
@pytest.mark.parametrize("server", ["desk", "shop"])
async def test_a_tool_that_a_server_announces_can_be_called_at_once(house: Process, chat_id: str, server: str) -> None:
    assert f"mcp__{server}__learnt" not in await offered(house)
    assert await results(house, chat_id, f"mcp__{server}__learn") == [("ok", False)]
    await until_offered(house, f"mcp__{server}__learnt")
    assert await results(house, f"{chat_id}-2", f"mcp__{server}__learnt") == [("learnt", False)]


@pytest.mark.row("MCP-5")
async def test_a_server_that_dies_takes_only_its_tools_with_it_and_comes_back(house: Process, chat_id: str) -> None:
    dead, alive = await results(house, chat_id, "mcp__brittle__crash", 'mcp__desk__add {"a":1,"b":1}')
    assert dead[1] and "brittle" in dead[0]
    assert alive == ("2", False)
    await until_offered(house, "mcp__brittle__add")
    assert await results(house, f"{chat_id}-2", 'mcp__brittle__add {"a":2,"b":2}') == [("4", False)]


@pytest.mark.row("MCP-5")
async def test_an_expired_session_is_replaced_and_the_call_made_once_more(
    house: Process, chat_id: str, shop_port: int
) -> None:
    async with httpx2.AsyncClient(timeout=DEADLINE_SECONDS) as client:
        await client.post(f"http://127.0.0.1:{shop_port}/forget")
    assert await results(house, chat_id, 'mcp__shop__add {"a":4,"b":5}') == [("9", False)]


@pytest.mark.row("MCP-1")
@pytest.mark.parametrize(("servers", "failed"), [([], True), (["shop"], True), (["desk"], False), (None, False)])
async def test_a_chat_says_which_servers_it_wants(
    house: Process, chat_id: str, servers: list[str] | None, failed: bool
) -> None:
    patch = {} if servers is None else {"mcp_servers": servers}
    if patch:
        body = {"type": "set_params", "client_request_id": "p", "patch": patch}
        assert (await command(house.url, chat_id, body)).status_code == 200
    ((text, has_failed), (own, own_failed)) = await results(
        house, chat_id, 'mcp__desk__add {"a":1,"b":2}', 'calculator {"expression":"6*7"}'
    )
    assert has_failed is failed and (not failed or "There is no tool" in text)
    assert (own, own_failed) == ("42", False), "tools of our own are no server's"


@pytest.mark.row("MCP-2", "CMD-13")
async def test_a_server_can_be_allowed_as_a_whole(house: Process, chat_id: str) -> None:
    async with watching(house.url, chat_id) as watcher:
        await command(house.url, chat_id, user_message("a", 'call mcp__careful__add {"a":1,"b":2}'))
        await watcher.until(lambda w: any(isinstance(e, PauseRequired) for e in w.events))
        assert watcher.state is not None
        (asked,) = watcher.state.runtime.pause_reasons
        await command(
            house.url,
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
        await command(house.url, chat_id, user_message("b", 'call mcp__careful__whose {"name":"DESK_KEY"}'))
        await watcher.at_rest(2)
    assert answers_in(watcher) == [("3", False), ("not there", False)]
    assert len([e for e in watcher.events if isinstance(e, PauseRequired)]) == 1


@pytest.mark.row("MCP-3", "MCP-4", "MCP-5")
async def test_resources_and_prompts_are_listed_and_dead_servers_named(house: Process) -> None:
    resources = (await get(house, "/v1/mcp/resources")).json()
    packing = {
        "server": "desk",
        "uri": "notes://packing",
        "name": "packing",
        "description": "What to take along",
        "mime_type": "text/plain",
    }
    assert packing in resources["resources"]
    assert {item["server"] for item in resources["resources"]} == {"desk", "brittle", "careful", "shop"}
    (error,) = resources["errors"]
    assert error["server"] == "dead" and "not connected" in error["error"]
    prompts = (await get(house, "/v1/mcp/prompts")).json()
    assert {
        "server": "shop",
        "name": "greet",
        "description": "Greet somebody.",
        "arguments": [{"name": "name", "description": "", "required": True}],
    } in prompts["prompts"]
    assert [error["server"] for error in prompts["errors"]] == ["dead"]


@pytest.mark.row("ATT-3", "MCP-3", "MCP-4")
async def test_resources_and_prompts_are_attached_with_their_content(house: Process, chat_id: str) -> None:
    attachments = [
        {"type": "mcp_resource", "server": "desk", "uri": "notes://packing"},
        {"type": "mcp_resource", "server": "desk", "uri": "notes://pixel"},
        {"type": "mcp_prompt", "server": "shop", "name": "greet", "args": {"name": "Bo"}},
    ]
    async with watching(house.url, chat_id) as watcher:
        answer = await command(house.url, chat_id, user_message("a", "Look", attachments=attachments))
        assert answer.status_code == 202, answer.text
        await watcher.at_rest()
    message = next(frame["message"] for frame in watcher.frames if frame["type"] == "message_added")
    text, packing, label, image, prompt = message["content"]
    assert text == {"type": "text", "text": "Look"}
    assert packing == {"type": "file", "name": "desk: notes://packing", "mime": "text/plain", "text": "socks, map"}
    assert label["text"] == "[desk: notes://pixel]"
    assert image["image_url"]["url"].startswith("data:image/png;base64,")
    assert prompt["text"] == "[prompt shop: greet]\nSay hello to Bo."


@pytest.mark.row("ATT-3")
@pytest.mark.parametrize(
    ("attachment", "words"),
    [
        ({"type": "mcp_resource", "server": "desk", "uri": "notes://none"}, "notes://none"),
        ({"type": "mcp_resource", "server": "nobody", "uri": "x"}, "there is no MCP server 'nobody'"),
        ({"type": "mcp_prompt", "server": "dead", "name": "greet"}, "not connected"),
        ({"type": "mcp_prompt", "server": "desk", "name": "greet"}, "greet"),
        ({"type": "mcp_prompt", "server": "desk"}, "name"),
    ],
)
async def test_what_cannot_be_fetched_refuses_the_command_with_the_reason(
    house: Process, chat_id: str, attachment: JsonObject, words: str
) -> None:
    answer = await command(house.url, chat_id, user_message("a", "Look", attachments=[attachment]))
    assert answer.status_code == 400
    assert answer.json()["code"] == "invalid_content" and words in answer.json()["detail"]
    assert answer.json()["path"].startswith("/attachments/0")
    assert (await get(house, f"/v1/chats/{chat_id}")).status_code == 404, "nothing was kept"


@pytest.mark.row("ATT-3")
async def test_more_attachments_than_ten_are_not_fetched(house: Process, chat_id: str) -> None:
    many = [{"type": "mcp_resource", "server": "desk", "uri": "notes://packing"}] * 11
    answer = await command(house.url, chat_id, user_message("a", "Look", attachments=many))
    assert answer.status_code == 400 and "at most 10" in answer.json()["detail"]


@pytest.mark.row("MCP-1")
@pytest.mark.parametrize("is_killed", [False, True])
async def test_no_child_process_outlives_the_server(tmp_path: Path, chat_id: str, is_killed: bool) -> None:
    file = tmp_path / "threadcast.toml"
    file.write_text(f'[models]\ndefault = "demo/tools"\n[mcp.desk]\n{STDIO}\npolicy = "auto"\n')
    arguments = ["serve", "--port", "0", "--data-dir", str(tmp_path / "data"), "--config", str(file)]
    with start(*arguments, log=tmp_path / "log") as process:
        await process.ready()
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


@pytest.mark.row("MCP-3")
async def test_a_web_process_alone_connects_when_it_is_asked(tmp_path: Path, valkey_server: ServerProcess) -> None:
    file = tmp_path / "threadcast.toml"
    file.write_text(f"[mcp.desk]\n{STDIO}\n")
    environment = {"REDIS_URL": valkey_server.url}
    arguments = ["web", "--port", "0", "--config", str(file)]
    with start(*arguments, log=tmp_path / "log", environment=environment) as process:
        await process.ready()
        assert "mcp.connected" not in process.log_text()
        resources = (await get(process, "/v1/mcp/resources")).json()
    assert resources["errors"] == []
    assert [item["uri"] for item in resources["resources"]] == ["notes://packing", "notes://pixel"]


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
async def test_the_doctor_has_a_line_for_every_server(house: Process, tmp_path: Path) -> None:
    port = house.url.rpartition(":")[2]
    file = tmp_path / "threadcast.toml"
    file.write_text(f'[server]\nport = {port}\n[mcp.desk]\n{STDIO}\n[mcp.dead]\ncommand = "no-such-program"\n')

    async def lines() -> list[str]:
        asked = [sys.executable, "-m", "server.cli", "doctor", "--config", str(file)]
        done = await anyio.run_process(asked, check=False)
        return [line for line in done.stdout.decode().splitlines() if line.split()[1] in ("mcp.desk", "mcp.dead")]

    desk, dead = await lines()
    assert desk.startswith("ok") and "answers the server" in desk
    assert dead.startswith("fail") and "not connected" in dead
    file.write_text(file.read_text().replace(f"port = {port}", f"port = {free_port()}"))
    desk, dead = await lines()
    assert desk.startswith("ok") and sys.executable in desk
    assert dead.startswith("fail") and "no-such-program" in dead
