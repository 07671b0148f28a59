"""Attacks by MCP servers that send too much data or none: over a pipe, over HTTP, in lists, in answers and in errors.

Each MCP server is a real process behind a real `threadcast serve`. While it floods, the server's memory and the time of
its answers are measured.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import httpx2
import pytest

from tests.bars import bar_seconds
from tests.integration.mcp_harness import offered, results, until_offered, wait_for_port
from tests.ports import free_port
from tests.resources.measures import PeakMemory
from tests.security.flooding_mcp import ANSWERS, STDIO_FLOODS
from tests.security.flooding_mcp_http import HTTP_FLOODS
from tests.support.server import DEADLINE_SECONDS, Process, started_server

pytest.importorskip("mcp", reason="the extra `mcp` is not installed")

pytestmark = pytest.mark.anyio

SCRIPT = Path(__file__).with_name("flooding_mcp.py")
GROWTH_MAX_BYTES = 50 * 1024 * 1024
LIVEZ_SECONDS = 0.25
"""The limits during a flood: the growth of the process's memory, and the longest time of an answer to /livez."""

PROBES = 60
"""The number of requests for /livez, 20 ms apart, after the flood is noticed."""

EXPECTED = {
    "a line of 100 MB": "message_max_bytes",
    "a line without end": "message_max_bytes",
    "large notifications": "mcp.slowed",
    "empty lines": "mcp.slowed",
    "lines that are no messages": "mcp.slowed",
    "notifications": "mcp.slowed",
    "requests whose answers nobody reads": "does not read their answers",
    "error output": "all is lost",
    "error output without lines": "",
    "a child that outlives its parent": "mcp.down",
    "ten thousand tools": '"left_out"',
    "descriptions of a megabyte": "",
    "a schema of a million lists": "message_max_values",
    "pages without end": "mcp.too_many_tools",
    "ever new names": "different tools",
    "an endless announcement of ten thousand tools": "mcp.slowed",
}
"""Maps each flood to the text that the log contains when the server has noticed the flood."""

HTTP_EXPECTED = {
    "a body without end": "message_max_bytes",
    "an event without end": "message_max_bytes",
    "an event of many lines": "message_max_values",
    "events without end": "mcp.slowed",
    "comments without end": "mcp.slowed",
    "a compressed body": "compressed an answer",
    "a redirect to another origin": "mcp.down",
    "redirects without end": "not followed",
    "a body of a million lists": "message_max_values",
}


NAMES = {flood: f"foe{number}" for number, flood in enumerate((*STDIO_FLOODS, *ANSWERS, "silence", *HTTP_FLOODS))}
"""Maps each flood to the name of the MCP server that sends it."""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("floods")


@pytest.fixture(scope="module")
def server(base: Path) -> Iterator[Process]:
    """Run a server with all these MCP servers, which have connected and do not attack yet."""
    port = free_port()
    web = subprocess.Popen([sys.executable, str(SCRIPT.with_name("flooding_mcp_http.py")), str(port), str(base)])
    config = '[models]\ndefault = "demo/tools?rate=0"\n'
    for flood, name in NAMES.items():
        if flood in HTTP_FLOODS:
            said = f'url = "http://127.0.0.1:{port}/mcp/{HTTP_FLOODS.index(flood)}"\n'
            said += 'headers = { Authorization = "Bearer ours" }'
        else:
            (base / name).mkdir()
            said = f'command = "{sys.executable}"\nargs = {json.dumps(["-IS", str(SCRIPT), flood, str(base / name)])}'
        config += f'\n[mcp.{name}]\n{said}\npolicy = "auto"\ntimeout_seconds = {2 if flood == "silence" else 20}\n'
    try:
        wait_for_port(port)
        with started_server(base, config=config) as process:
            process.wait_ready()
            for name in NAMES.values():
                anyio.run(until_offered, process, f"mcp__{name}__calm")
            yield process
    finally:
        web.kill()
        web.wait(DEADLINE_SECONDS)


@contextmanager
def flooding(base: Path, flood: str) -> Iterator[None]:
    """Let the MCP server attack while the block runs."""
    number = HTTP_FLOODS.index(flood) if flood in HTTP_FLOODS else None
    go = base / NAMES[flood] / "go" if number is None else base / f"go-{number}"
    go.touch()
    try:
        yield
    finally:
        go.unlink()


class Watch:
    """Requests /livez repeatedly, and records the longest time of an answer."""

    def __init__(self, server: Process) -> None:
        self._server = server
        self._memory = PeakMemory(server.pid)
        self._worst_seconds = 0.0

    async def until(self, is_noticed: Callable[[], bool]) -> None:
        """Make requests until the flood is noticed, and then `PROBES` more requests."""
        left = PROBES
        async with httpx2.AsyncClient(timeout=DEADLINE_SECONDS) as client:
            with anyio.fail_after(DEADLINE_SECONDS):
                while left:
                    began_at = time.perf_counter()
                    assert (await client.get(f"{self._server.url}/livez")).status_code == 200
                    self._worst_seconds = max(self._worst_seconds, time.perf_counter() - began_at)
                    left -= is_noticed()
                    await anyio.sleep(0.02)

    def check(self) -> None:
        """Check the bars of issue 16."""
        print(f"livez {self._worst_seconds * 1000:.0f} ms, memory {self._memory.growth_bytes / 1_048_576:.1f} MiB")
        assert self._memory.growth_bytes < GROWTH_MAX_BYTES
        # This check uses wall-clock time, since the promise is the time of an answer during a flood.
        assert self._worst_seconds < bar_seconds(LIVEZ_SECONDS)


@pytest.mark.row("SEC-4")
@pytest.mark.parametrize("flood", STDIO_FLOODS)
async def test_a_flood_over_a_pipe_costs_little_memory_and_delays_nobody(
    server: Process, base: Path, flood: str
) -> None:
    watch = Watch(server)
    since = len(server.log_text())
    name, wanted = NAMES[flood], EXPECTED[flood]

    def is_noticed() -> bool:
        if not wanted:
            return True  # the server throttles this flood and logs nothing
        lines = server.log_text()[since:].splitlines()
        return any(wanted in line and f'"{name}"' in line for line in lines)

    with flooding(base, flood):
        await watch.until(is_noticed)
    watch.check()


@pytest.mark.row("SEC-4")
async def test_long_descriptions_are_cut(server: Process, base: Path) -> None:
    name = NAMES["descriptions of a megabyte"]
    with flooding(base, "descriptions of a megabyte"):
        await until_offered(server, f"mcp__{name}__t0")
        found = await offered(server)
    assert [len(found[f"mcp__{name}__t{number}"]["description"]) for number in range(3)] == [8_192] * 3


@pytest.mark.row("SEC-4")
@pytest.mark.parametrize("flood", ANSWERS)
async def test_an_answer_that_is_made_to_be_slow_is_cut_or_refused(server: Process, flood: str) -> None:
    watch = Watch(server)
    found: list[tuple[str, bool]] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch.until, lambda: bool(found))
        found += await results(server, f"slow-answer-{NAMES[flood]}", f"mcp__{NAMES[flood]}__calm")
    watch.check()
    assert ANSWERS[flood].format(NAMES[flood]) in found[0][0]
    assert len(found[0][0]) < 1_000


@pytest.mark.row("SEC-4")
async def test_a_server_that_never_answers_again_is_given_up(server: Process, base: Path) -> None:
    name = NAMES["silence"]
    watch = Watch(server)
    found: list[tuple[str, bool]] = []
    with flooding(base, "silence"):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch.until, lambda: bool(found))
            found += await results(server, "silence-1", f"mcp__{name}__calm")
    assert found == [("The tool did not finish within 2 s.", True)]
    watch.check()


@pytest.mark.row("SEC-4")
@pytest.mark.parametrize("flood", HTTP_EXPECTED)
async def test_a_flood_over_http_costs_little_memory_and_delays_nobody(server: Process, base: Path, flood: str) -> None:
    watch = Watch(server)
    since = len(server.log_text())
    name, wanted = NAMES[flood], HTTP_EXPECTED[flood]
    elsewhere = base / f"elsewhere-{HTTP_FLOODS.index(flood)}"

    def is_noticed() -> bool:
        lines = server.log_text()[since:].splitlines()
        return any(wanted in line and f'"{name}"' in line for line in lines)

    with flooding(base, flood):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch.until, is_noticed)
            # After a failed call the server lists the tools again, and the attacker answers that request.
            assert (await results(server, f"http-{name}", f"mcp__{name}__calm"))[0][1]
    watch.check()
    assert not elsewhere.exists(), "a redirect led to another origin"


async def test_streams_that_end_at_once_are_not_opened_again_at_once(server: Process, base: Path) -> None:
    flood = "streams that end at once"
    opened = base / f"streams-{HTTP_FLOODS.index(flood)}"
    with flooding(base, flood):
        await Watch(server).until(lambda: True)
    assert opened.read_text().count("\n") < 100
