"""Tools that panic, hang or fork, in real processes: a tool neither ends its server nor keeps the server from
ending."""

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import anyio
import pytest

from tests.ports import free_port
from tests.support.fleet import fleet_on_new_store
from tests.support.reader import watching
from tests.support.server import DEADLINE_SECONDS, Process, command, logged, start, user_message
from threadcast.process.lifecycle import STOP_SPARE_SECONDS

pytestmark = pytest.mark.anyio

APP = Path(__file__).parents[1] / "integration/ending_tools.py"
DRAIN_SECONDS = 0.5
END_SECONDS = 15.0
"""Maximum seconds until a process has ended: far above the usual time on a busy machine (3 s), far below the running
time of the tools (600 s)."""


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def left() -> Iterator[list[int]]:
    """Process ids of children that tools leave behind; the fixture ends them."""
    pids: list[int] = []
    yield pids
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


async def serving(stack: ExitStack, directory: Path, port: int = 0) -> Process:
    arguments = ["serve", "--port", str(port), "--data-dir", str(directory / "data"), "--app", str(APP)]
    environment = {"THREADCAST_LIMITS__DRAIN_SECONDS": str(DRAIN_SECONDS), "THREADCAST_LIMITS__RETIRE_SECONDS": "0"}
    return await stack.enter_context(start(*arguments, log=directory / "log", environment=environment)).ready()


async def ask(url: str, tool: str, chat_id: str = "c1") -> None:
    answer = await command(url, chat_id, user_message("a", f"call {tool} {{}}", params={"model": "demo/tools?rate=0"}))
    assert answer.status_code == 202


async def result_of(url: str, tool: str, chat_id: str = "c1") -> str:
    async with watching(url, chat_id) as watcher:
        await ask(url, tool, chat_id)
        await watcher.at_rest()
        return dict(watcher.messages)["tool"]


async def running(url: str, tool: str, chat_id: str = "c1") -> None:
    """Return once the tool runs."""
    async with watching(url, chat_id) as watcher:
        await ask(url, tool, chat_id)
        await watcher.until(lambda w: "tool_status" in w.types())


def takes_connections(port: int) -> bool:
    with socket.socket() as caller:
        return caller.connect_ex(("127.0.0.1", port)) == 0


def files_of(pid: int) -> str:
    """Name the open files of a process, for the message of a failed test."""
    links = sorted(Path(f"/proc/{pid}/fd").iterdir(), key=lambda link: int(link.name))
    return " ".join(f"{link.name}:{link.readlink()}" for link in links)


def is_pending(pid: int, number: signal.Signals) -> bool:
    """Return whether the kernel has not delivered this signal to the process yet."""
    masks = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return bool(int(masks["ShdPnd"], 16) & 1 << number - 1)


@pytest.mark.row("LOOP-5")
async def test_a_tool_that_panics_is_a_failed_result_and_the_server_goes_on(stack: ExitStack, tmp_path: Path) -> None:
    server = await serving(stack, tmp_path)
    for tool in ("panics", "panics_in_a_thread", "panics_in_a_generator"):
        assert await result_of(server.url, tool, tool) == "The tool failed: PanicException."
    assert await result_of(server.url, "interrupts", "interrupts") == "The tool failed: KeyboardInterrupt."
    assert [line["tool"] for line in logged(tmp_path / "log", "tool.failed")] == [
        "panics",
        "panics_in_a_thread",
        "panics_in_a_generator",
        "interrupts",
    ]
    assert await server.stop() == 0


async def test_whatever_ends_a_process_stands_in_its_log_and_in_its_status(stack: ExitStack, tmp_path: Path) -> None:
    """The server cannot catch this exception inside asyncio."""
    server = await serving(stack, tmp_path)
    await ask(server.url, "exits_in_a_task")
    assert await server.ended() == 1
    (line,) = logged(tmp_path / "log", "process.failed")
    assert line["level"] == "critical" and "SystemExit" in line["exception"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(
    "tool", ["hangs_in_a_thread", "hangs_in_the_executor", "swallows_every_cancellation", "hangs_in_a_child"]
)
async def test_a_tool_that_does_not_end_does_not_keep_its_server(
    stack: ExitStack, tmp_path: Path, tool: str, number: signal.Signals
) -> None:
    server = await serving(stack, tmp_path)
    if tool == "hangs_in_a_child":
        await result_of(server.url, tool)
    else:
        await running(server.url, tool)
    with anyio.fail_after(END_SECONDS):
        assert await server.stop(number) == 0
    said = logged(tmp_path / "log", "process.left_behind") + logged(tmp_path / "log", "process.ended_by_force")
    assert len(said) == 1, "it says what it left"
    again = await serving(stack, tmp_path)  # the store was closed in order, and its directory is free
    assert await again.stop() == 0


async def test_a_worker_ends_although_a_tool_hangs_in_a_thread(stack: ExitStack, tmp_path: Path) -> None:
    fleet = stack.enter_context(fleet_on_new_store(tmp_path))
    web = await fleet.add_web()
    worker = await fleet.add_worker(APP, {"DRAIN_SECONDS": str(DRAIN_SECONDS)})
    await running(web.url, "hangs_in_a_thread")
    with anyio.fail_after(END_SECONDS):
        assert await worker.stop() == 0
        assert await web.stop() == 0


async def test_several_workers_end_although_tools_hang_in_threads(stack: ExitStack, tmp_path: Path) -> None:
    fleet = stack.enter_context(fleet_on_new_store(tmp_path))
    web = await fleet.add_web()
    limits = {"DRAIN_SECONDS": str(DRAIN_SECONDS)}
    workers = await fleet.start("worker", "--processes", "2", "--app", str(APP), limits=limits).ready()
    for number in range(4):
        await running(web.url, "hangs_in_a_thread", f"c{number}")
    with anyio.fail_after(END_SECONDS):
        assert await workers.stop() == 0


async def test_a_second_signal_ends_a_process_whose_event_loop_is_blocked(stack: ExitStack, tmp_path: Path) -> None:
    server = await serving(stack, tmp_path)
    await ask(server.url, "blocks_the_loop")
    with anyio.fail_after(DEADLINE_SECONDS):
        while not logged(tmp_path / "log", "loop.is_blocked"):
            await anyio.sleep(0.05)
    server.send(signal.SIGINT)
    with anyio.fail_after(DEADLINE_SECONDS):
        while is_pending(server.pid, signal.SIGINT):  # a second signal would merge with a pending one
            await anyio.sleep(0.01)
    with anyio.fail_after(END_SECONDS):
        assert await server.stop(signal.SIGINT) == 128 + signal.SIGINT


@pytest.mark.slow(30)
async def test_one_signal_ends_a_process_whose_event_loop_is_blocked_when_its_time_is_up(
    stack: ExitStack, tmp_path: Path
) -> None:
    server = await serving(stack, tmp_path)
    await ask(server.url, "blocks_the_loop")
    with anyio.fail_after(DEADLINE_SECONDS):
        while not logged(tmp_path / "log", "loop.is_blocked"):
            await anyio.sleep(0.05)
    assert await server.stop() == 1
    (line,) = logged(tmp_path / "log", "process.ended_by_force")
    assert line["why"] == f"it did not stop within {DRAIN_SECONDS + STOP_SPARE_SECONDS:g} s"


async def test_a_forked_child_keeps_neither_the_port_nor_the_data_nor_a_reader(
    stack: ExitStack, tmp_path: Path, left: list[int]
) -> None:
    port = free_port()
    server = await serving(stack, tmp_path, port)
    async with watching(server.url, "c1") as watcher:
        await ask(server.url, "forks")
        await watcher.at_rest()
        left.append(int(dict(watcher.messages)["tool"]))
        server.kill()
        with anyio.fail_after(DEADLINE_SECONDS):
            while not watcher.has_ended:
                await anyio.sleep(0.01)
    os.kill(left[0], 0)  # the child lives
    assert not takes_connections(port), files_of(left[0])
    again = await serving(stack, tmp_path, port)
    assert await again.stop() == 0


async def test_a_forked_child_of_a_worker_keeps_no_port_of_probes(
    stack: ExitStack, tmp_path: Path, left: list[int]
) -> None:
    fleet = stack.enter_context(fleet_on_new_store(tmp_path))
    web = await fleet.add_web()
    port = free_port()
    worker = await fleet.start("worker", "--app", str(APP), metrics_port=port).ready()
    left.append(int(await result_of(web.url, "forks")))
    assert takes_connections(port)
    worker.kill()
    assert not takes_connections(port), files_of(left[0])


async def test_a_child_that_a_tool_ends_with_sigterm_ends_alone(stack: ExitStack, tmp_path: Path) -> None:
    server = await serving(stack, tmp_path)
    assert await result_of(server.url, "terminates_a_child") == f"it ended with -{signal.SIGTERM:d}"
    assert await result_of(server.url, "panics", "c2") == "The tool failed: PanicException."
    assert logged(tmp_path / "log", "process.stopping") == []
    assert await server.stop() == 0
