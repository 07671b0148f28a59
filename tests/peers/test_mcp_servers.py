"""MCP servers that others wrote, from npm and PyPI, behind a real `threadcast serve` (MCP-1, MCP-2, MCP-3, MCP-5).

Our own servers in `tests/integration/mcp_servers.py` cannot show that we read the protocol as others do.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import anyio
import pytest

from tests.integration.mcp_harness import answers_in, get, offered, results, until_offered, wait_for_port
from tests.peers.installed import node_package
from tests.ports import free_port
from tests.support.reader import Watcher, watching
from tests.support.server import DEADLINE_SECONDS, Process, command, start, user_message
from threadcast_protocol.wire.events import ToolStatus

pytest.importorskip("mcp", reason="the extra `mcp` is not installed")

pytestmark = pytest.mark.anyio

EVERYTHING = ("@modelcontextprotocol/server-everything", "dist/index.js")
LONG = "trigger-long-running-operation"


@contextmanager
def everything_over_http(port: int) -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen(
        [*node_package(*EVERYTHING), "streamableHttp"],
        env={**os.environ, "PORT": str(port)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for_port(port)
        yield child
    finally:
        child.kill()
        child.wait(DEADLINE_SECONDS)


def stdio(name: str, arguments: list[str]) -> str:
    program, *rest = arguments
    return f'[mcp.{name}]\ncommand = "{program}"\nargs = {json.dumps(rest)}\npolicy = "auto"\n'


@pytest.fixture(scope="module")
def http_port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("papers")


@pytest.fixture(scope="module")
def peers(tmp_path_factory: pytest.TempPathFactory, papers: Path, http_port: int) -> Iterator[Process]:
    """A server with all MCP servers of these tests; the MCP server over HTTP does not run at first."""
    base = tmp_path_factory.mktemp("peers")
    file = base / "threadcast.toml"
    memory = {"MEMORY_FILE_PATH": str(base / "memory.jsonl")}
    parts = [
        '[models]\ndefault = "demo/tools"\n',
        stdio("all", [*node_package(*EVERYTHING), "stdio"]),
        stdio(
            "files", [*node_package("@modelcontextprotocol/server-filesystem", "dist/index.js"), str(papers.resolve())]
        ),
        stdio("memory", node_package("@modelcontextprotocol/server-memory", "dist/index.js")),
        f'env = {{ MEMORY_FILE_PATH = "{memory["MEMORY_FILE_PATH"]}" }}\n',
        f'[mcp.web]\nurl = "http://127.0.0.1:{http_port}/mcp"\npolicy = "auto"\n',
    ]
    if find_spec("mcp_server_time") is not None:
        parts.append(stdio("time", [sys.executable, "-m", "mcp_server_time", "--local-timezone", "UTC"]))
    file.write_text("\n".join(parts))
    arguments = ["serve", "--port", "0", "--data-dir", str(base / "data"), "--config", str(file)]
    with start(*arguments, log=base / "log") as process:
        anyio.run(process.ready)
        anyio.run(until_offered, process, "mcp__all__echo")
        yield process


@pytest.fixture
async def web(peers: Process, http_port: int) -> AsyncIterator[Process]:
    with everything_over_http(http_port):
        await until_offered(peers, "mcp__web__echo")
        yield peers


@pytest.mark.row("MCP-1", "MCP-2")
async def test_the_reference_server_is_called_over_a_pipe_and_over_http(web: Process, chat_id: str) -> None:
    assert await results(web, chat_id, 'mcp__all__echo {"message":"hello"}', 'mcp__web__get-sum {"a":20,"b":22}') == [
        ("Echo: hello", False),
        ("The sum of 20 and 22 is 42.", False),
    ]
    ((structured, failed),) = await results(
        web, f"{chat_id}-2", 'mcp__all__get-structured-content {"location":"Chicago"}'
    )
    assert not failed and json.loads(structured)["conditions"]


@pytest.mark.row("MCP-2", "EVT-9")
@pytest.mark.parametrize("server", ["all", "web"])
async def test_progress_arrives_while_the_call_goes_on(web: Process, chat_id: str, server: str) -> None:
    async with watching(web.url, chat_id) as watcher:
        await command(web.url, chat_id, user_message("a", long_call(server, seconds=2, steps=4)))
        await watcher.until(progressed)
        assert not answers_in(watcher), "the first progress came before the result"
        await watcher.at_rest()
    told = [e.progress or 0.0 for e in watcher.events if isinstance(e, ToolStatus) and e.status == "progress"]
    assert told == sorted(told) and told[-1] == 1.0 and len(told) >= 2
    ((text, failed),) = answers_in(watcher)
    assert not failed and "completed" in text


@pytest.mark.row("MCP-2", "CMD-3")
async def test_an_abort_cancels_the_call_and_the_server_is_there_for_the_next(web: Process, chat_id: str) -> None:
    async with watching(web.url, chat_id) as watcher:
        await command(web.url, chat_id, user_message("a", long_call("web", seconds=60, steps=120)))
        await watcher.until(progressed)
        answer = await command(web.url, chat_id, {"type": "abort", "client_request_id": "stop"})
        assert answer.json()["status"] == "aborted"
        await watcher.at_rest()
        assert [frame["outcome"] for frame in watcher.frames if frame.get("outcome")] == ["aborted"]
    assert await results(web, f"{chat_id}-2", 'mcp__web__echo {"message":"still here"}') == [
        ("Echo: still here", False)
    ]


@pytest.mark.row("MCP-5", "LOOP-5")
async def test_a_server_killed_in_mid_call_is_an_error_result_and_comes_back(peers: Process, chat_id: str) -> None:
    async with watching(peers.url, chat_id) as watcher:
        await command(peers.url, chat_id, user_message("a", long_call("all", seconds=60, steps=120)))
        await watcher.until(progressed)
        os.kill(child_of(peers.pid, "server-everything"), signal.SIGKILL)
        await watcher.at_rest()
        assert watcher.frames[-1]["outcome"] == "complete", "the model read the error and answered"
    ((text, failed),) = answers_in(watcher)
    assert failed and "MCP server all" in text
    await until_offered(peers, "mcp__all__echo")
    assert await results(peers, f"{chat_id}-2", 'mcp__all__echo {"message":"again"}') == [("Echo: again", False)]


@pytest.mark.row("MCP-5")
async def test_a_server_over_http_that_is_restarted_brings_its_tools_back(
    peers: Process, http_port: int, chat_id: str
) -> None:
    with everything_over_http(http_port):
        await until_offered(peers, "mcp__web__echo")
    async with watching(peers.url, chat_id) as watcher:
        await command(peers.url, chat_id, user_message("a", 'call mcp__web__echo {"message":"nobody"}'))
        await watcher.at_rest()
    assert [failed for _, failed in answers_in(watcher)] == [True]
    with everything_over_http(http_port):
        await until_offered(peers, "mcp__web__echo")
        assert await results(peers, f"{chat_id}-2", 'mcp__web__echo {"message":"back"}') == [("Echo: back", False)]


@pytest.mark.row("MCP-3", "MCP-4")
async def test_its_resources_and_prompts_are_listed(peers: Process) -> None:
    resources = (await get(peers, "/v1/mcp/resources")).json()
    assert "demo://resource/static/document/features.md" in json.dumps(resources)
    prompts = (await get(peers, "/v1/mcp/prompts")).json()
    assert "args-prompt" in json.dumps(prompts)


@pytest.mark.row("MCP-1", "MCP-2")
async def test_the_file_server_writes_and_reads_inside_its_directory_only(
    peers: Process, chat_id: str, papers: Path
) -> None:
    place = papers.resolve()
    (written, read, outside) = await results(
        peers,
        chat_id,
        f'mcp__files__write_file {{"path":"{place}/note.txt","content":"kept"}}',
        f'mcp__files__read_text_file {{"path":"{place}/note.txt"}}',
        'mcp__files__read_text_file {"path":"/etc/hostname"}',
    )
    assert not written[1] and (place / "note.txt").read_text() == "kept"
    assert not read[1] and "kept" in read[0]
    assert outside[1] and "denied" in outside[0].lower()


@pytest.mark.row("MCP-1", "MCP-2")
async def test_the_memory_server_remembers_between_chats(peers: Process, chat_id: str) -> None:
    entity = '{"entities":[{"name":"Ada","entityType":"person","observations":["likes engines"]}]}'
    assert [
        failed for _, failed in await results(peers, chat_id, f"call mcp__memory__create_entities {entity}"[5:])
    ] == [False]
    ((found, failed),) = await results(peers, f"{chat_id}-2", 'mcp__memory__search_nodes {"query":"engines"}')
    assert not failed and "Ada" in found


@pytest.mark.row("MCP-1", "MCP-2")
async def test_the_time_server_from_pypi_answers(peers: Process, chat_id: str) -> None:
    if "mcp__time__get_current_time" not in await offered(peers):
        pytest.skip("mcp-server-time is not installed; it is in the group `test`")
    said = '{"source_timezone":"UTC","time":"12:00","target_timezone":"Asia/Tokyo"}'
    ((text, failed),) = await results(peers, chat_id, f"mcp__time__convert_time {said}")
    assert not failed and "21:00" in text


def long_call(server: str, *, seconds: int, steps: int) -> str:
    return f'call mcp__{server}__{LONG} {{"duration":{seconds},"steps":{steps}}}'


def progressed(watcher: Watcher) -> bool:
    return any(isinstance(e, ToolStatus) and e.status == "progress" for e in watcher.events)


def child_of(parent: int, word: str) -> int:
    """Return the process with `word` in its command line that `parent` started, directly or through another process."""
    parents: dict[int, int] = {}
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_text()
            line = (entry / "cmdline").read_bytes().decode(errors="replace")
        except OSError:  # the process ended during the check
            continue
        parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
        if word in line:
            found.append(int(entry.name))

    def descends(pid: int) -> bool:
        return pid == parent or (pid > 1 and descends(parents.get(pid, 0)))

    (child,) = [pid for pid in found if descends(pid) and pid != parent]
    return child
