"""`--processes N` starts several processes on one port, which are one server for every client.

Each process has its own port for probes, so a test sees which process a connection has reached. The tests use real
processes and real HTTP.
"""

import fcntl
import os
import pty
import re
import signal
import subprocess
import sys
import termios
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import anyio
import anyio.to_thread
import httpx2
import pytest

from tests.integration.many import ManyWatcher, watching_many
from tests.ports import free_port
from tests.support.fleet import Fleet
from tests.support.reader import Watcher, watching
from tests.support.server import DEADLINE_SECONDS, ROOT, Process, ask, command, user_message

pytestmark = pytest.mark.anyio

PROCESSES = 3
LONG = "demo/essay?words=400&rate=100"


async def several(fleet: Fleet, half: str = "web", processes: int = PROCESSES) -> tuple[Process, int]:
    """Start this many processes with one command; returns the supervisor's process and the port of the first probe."""
    probes = free_port()
    where = ["--port", "0"] if half == "web" else []
    process = fleet.start(half, *where, "--processes", str(processes), metrics_port=probes)
    return await process.ready(), probes


def pids(fleet: Fleet, event: str = "process.ready") -> list[int]:
    return [int(str(line["pid"])) for line in fleet.logged(event)]


async def gone(pid: int) -> None:
    """Wait until the process has ended, or is a zombie."""
    with anyio.fail_after(DEADLINE_SECONDS), suppress(FileNotFoundError):
        while (await anyio.Path(f"/proc/{pid}/stat").read_text()).rpartition(")")[2].split()[0] != "Z":
            await anyio.sleep(0.02)


async def count(client: httpx2.AsyncClient, probes: int, number: int, metric: str) -> float:
    """Return the sum over all labels of a metric in one process."""
    told = (await client.get(f"http://127.0.0.1:{probes + number}/metrics")).text
    return sum(float(value) for value in re.findall(rf"^{metric}(?:{{.*}})? (\S+)$", told, re.MULTILINE))


@asynccontextmanager
async def one_line_to_each(url: str, probes: int) -> AsyncIterator[list[httpx2.AsyncClient]]:
    """Open clients that keep one connection each, to the first process, the second, and so on."""
    async with AsyncExitStack() as stack:
        prober = await stack.enter_async_context(httpx2.AsyncClient(timeout=DEADLINE_SECONDS))
        found: dict[int, httpx2.AsyncClient] = {}
        with anyio.fail_after(DEADLINE_SECONDS):
            while len(found) < PROCESSES:
                client = await stack.enter_async_context(httpx2.AsyncClient(base_url=url, timeout=DEADLINE_SECONDS))
                before = [await count(prober, probes, n, "threadcast_http_requests_total") for n in range(PROCESSES)]
                assert (await client.get("/v1/ping")).text == "pong"
                after = [await count(prober, probes, n, "threadcast_http_requests_total") for n in range(PROCESSES)]
                (reached,) = [n for n in range(PROCESSES) if after[n] > before[n]]
                found.setdefault(reached, client)
        yield [found[number] for number in range(PROCESSES)]


async def test_three_processes_are_one_server_to_whoever_comes(fleet: Fleet) -> None:
    web, probes = await several(fleet)
    await fleet.add_worker()
    assert len(pids(fleet)) == PROCESSES
    async with one_line_to_each(web.url, probes) as lines:
        # Each process has a separate port for requests about itself.
        refused = await lines[0].get("/metrics")
        assert refused.status_code == 404 and "set server.metrics_port" in refused.json()["detail"]
        for number in range(PROCESSES):
            assert (await lines[0].get(f"http://127.0.0.1:{probes + number}/readyz")).json()["status"] == "ready"
            assert (await lines[number].get("/readyz")).json()["status"] == "ready"

        # One process holds a named stream, and every process can change it.
        async with watching_many(web.url, ["c0"], query="stream_id=tab&presence=1") as stream:
            for number, line in enumerate(lines):
                answer = await line.post("/v1/streams/tab", json={"add": [{"chat_id": f"c{number + 1}"}]})
                assert answer.json() == {"status": "applied"}, f"through process {number + 1}"
                await stream.until(lambda w, n=number: f"c{n + 1}" in w.chats)  # type: ignore[misc] # mypy and defaults
            for number, line in enumerate(lines):
                posted = await line.post(f"/v1/chats/c{number + 1}/commands", json=user_message(f"r{number}", "hello"))
                assert posted.status_code == 202
            await stream.at_rest([f"c{number + 1}" for number in range(PROCESSES)])
            for number, line in enumerate(lines):
                assert (await line.post(f"/v1/chats/c{number + 1}/typing", json={"typing": True})).status_code == 204
                await stream.until(lambda w, n=number: w.said("typing", f"c{n + 1}"))  # type: ignore[misc] # as above
            for number, line in enumerate(lines):
                assert (await line.post("/v1/streams/tab", json={"remove": [f"c{number + 1}"]})).status_code == 200
                await stream.until(lambda w, n=number: w.said("chat_removed", f"c{n + 1}"))  # type: ignore[misc] # as above
            await _is_taken_over_by_newer_ones(web.url, stream)

        # The same command, posted to each process, takes effect once.
        said = [(await line.post("/v1/chats/c9/commands", json=user_message("r", "hello"))).json() for line in lines]
        assert [answer["status"] for answer in said] == ["accepted", "duplicate", "duplicate"]

        # A blob that one process received can be read from all of them.
        picture = b"\x89PNG\r\n\x1a\n" + bytes(64)
        stored = await lines[0].post("/v1/chats/c9/blobs", content=picture, headers={"content-type": "image/png"})
        for line in lines:
            assert (await line.get(stored.json()["url"])).content == picture

        await _everybody_is_counted(web.url)
    assert await web.stop() == 0


async def _is_taken_over_by_newer_ones(url: str, stream: ManyWatcher) -> None:
    """Open six newer streams of the same name, so that almost certainly one of them reaches another process than the
    first stream did."""
    async with AsyncExitStack() as stack:
        for _ in range(6):
            newer = await stack.enter_async_context(watching_many(url, ["c0"], query="stream_id=tab"))
            await stream.until(lambda w: w.has_ended)
            stream = newer
        await stream.until(lambda w: "c0" in w.chats)


async def _everybody_is_counted(url: str) -> None:
    """The kernel spreads twelve readers of one chat over the processes, and each reader receives the count twelve."""
    async with AsyncExitStack() as stack:
        readers = [await stack.enter_async_context(watching_many(url, ["c9"], query="presence=1")) for _ in range(12)]
        for reader in readers:
            await reader.until(lambda w: any(body["count"] == 12 for body in w.said("presence", "c9")))


async def test_readers_of_a_killed_process_come_back_and_go_on_exactly_there(fleet: Fleet) -> None:
    web, _ = await several(fleet)
    await fleet.add_worker()
    readers = [Watcher("c1") for _ in range(9)]
    broken = 0

    async def read(reader: Watcher) -> None:
        nonlocal broken
        headers = None
        while True:
            async with watching(web.url, "c1", watcher=reader, headers=headers):
                try:
                    await reader.at_rest()
                except AssertionError:
                    assert reader.broke is not None, "the server ended it"
                    broken += 1
                    headers = {"Last-Event-ID": reader.last_id}
                else:
                    return

    async with anyio.create_task_group() as tasks:
        for reader in readers:
            tasks.start_soon(read, reader)
        await ask(web.url, "c1", "write", LONG)
        for reader in readers:
            await reader.until(lambda w: w.types().count("stream_delta") > 3)
        for pid in pids(fleet)[:2]:
            os.kill(pid, signal.SIGKILL)
    assert broken > 0
    assert [reader.snapshots for reader in readers] == [1] * len(readers), "nobody was thrown back to a snapshot"
    assert len({reader.snapshot for reader in readers}) == 1
    await fleet.until_logged("process.ready", PROCESSES + 2)
    assert [line["fate"] for line in fleet.logged("process.died")] == ["SIGKILL", "SIGKILL"]
    assert await web.stop() == 0


async def test_ctrl_c_ends_all_of_them_politely(fleet: Fleet) -> None:
    web, _ = await several(fleet, processes=2)
    async with watching_many(web.url, ["c1"]) as reader:
        await reader.until(lambda w: "c1" in w.chats)
        os.killpg(web.pid, signal.SIGINT)  # a terminal, too, signals every process in its foreground
        assert await web.ended() == 0
        await reader.until(lambda w: w.has_ended)
        assert reader.has_goodbye, "it was told when to come back"
    for pid in pids(fleet):
        await gone(pid)
    assert "Traceback" not in fleet.log.read_text()
    assert [line["signal"] for line in fleet.logged("process.stopping")] == ["SIGINT", "lifeline", "lifeline"]


async def test_a_signal_that_reaches_all_of_them_is_one_signal(fleet: Fleet) -> None:
    """systemd sends the signal to every process of the service."""
    web, _ = await several(fleet, processes=2)
    async with watching_many(web.url, ["c1"]) as reader:
        await reader.until(lambda w: "c1" in w.chats)
        for pid in (*pids(fleet), web.pid):
            os.kill(pid, signal.SIGTERM)
        await reader.until(lambda w: w.has_ended)
        assert reader.has_goodbye
    assert await web.ended() == 0


async def test_none_outlives_a_supervisor_that_is_killed(fleet: Fleet) -> None:
    web, _ = await several(fleet, processes=2)
    web.kill()
    for pid in pids(fleet):
        await gone(pid)
    assert [line["signal"] for line in fleet.logged("process.stopping")] == ["lifeline", "lifeline"]
    port = web.url.rpartition(":")[2]
    again = await fleet.start("web", "--port", port, "--processes", "2").ready()
    assert again.url == web.url
    for others in (["--processes", "2"], []):
        words = [sys.executable, "-m", "threadcast.cli", "web", "--port", port, *others]
        environment = {**os.environ, "REDIS_URL": fleet.store.url}
        refused = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=30)
        assert refused.returncode == 1
        assert refused.stderr.splitlines()[-1] == (
            f"threadcast: cannot listen on 127.0.0.1:{port}: Address already in use; "
            "stop the program that uses it, or choose another: --port"
        )


async def test_a_closed_terminal_stops_all(fleet: Fleet, tmp_path: Path) -> None:
    """A terminal that closes sends SIGHUP, which in this case must stop the server and not replace its processes."""
    ours, theirs = pty.openpty()
    words = [sys.executable, "-m", "threadcast.cli", "web", "--port", "0", "--processes", "2"]
    with (tmp_path / "log").open("wb") as log:
        begun = subprocess.Popen(
            words,
            cwd=ROOT,
            env={**os.environ, "REDIS_URL": fleet.store.url},
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
    os.close(theirs)
    assert begun.stdout is not None
    with begun, anyio.fail_after(DEADLINE_SECONDS):
        assert b"2 processes" in await anyio.to_thread.run_sync(begun.stdout.readline)
        os.close(ours)
        assert await anyio.to_thread.run_sync(begun.wait) == 0
    said = (tmp_path / "log").read_text()
    assert "processes.replaced" not in said
    assert said.count('"process.started"') == 2


async def test_sighup_replaces_all_and_refuses_no_connection(fleet: Fleet) -> None:
    web, probes = await several(fleet, processes=2)
    before = pids(fleet)
    refused: list[Exception] = []
    async with anyio.create_task_group() as tasks:

        async def come_and_go() -> None:
            while True:
                # Loading certificates would block this event loop between a connection and its request.
                async with httpx2.AsyncClient(timeout=DEADLINE_SECONDS, verify=False) as client:
                    try:
                        assert (await client.get(f"{web.url}/v1/ping")).text == "pong"
                    except httpx2.TransportError as trouble:
                        refused.append(trouble)

        for _ in range(4):
            tasks.start_soon(come_and_go)
        web.send(signal.SIGHUP)
        await fleet.until_logged("processes.replaced")
        tasks.cancel_scope.cancel()
    assert refused == []
    assert len(pids(fleet)) == 4
    for pid in before:
        await gone(pid)
    async with httpx2.AsyncClient(timeout=DEADLINE_SECONDS) as client:
        for number in range(2):
            assert (await client.get(f"http://127.0.0.1:{probes + number}/readyz")).json()["status"] == "ready"
    assert await web.stop() == 0


async def test_several_workers_share_the_work_and_stand_in_for_each_other(fleet: Fleet) -> None:
    web = await fleet.add_web()
    workers, probes = await several(fleet, "worker", 2)
    assert workers.url == ""
    async with watching(web.url, "c1") as chat, httpx2.AsyncClient(timeout=DEADLINE_SECONDS) as client:
        await ask(web.url, "c1", "write", LONG)
        await chat.until(lambda w: w.types().count("stream_delta") > 3)
        owns = [await count(client, probes, number, "threadcast_chats_active") for number in range(2)]
        assert sum(owns) == 1
        os.kill(pids(fleet)[owns.index(1.0)], signal.SIGKILL)
        await command(web.url, "c1", {"type": "abort", "client_request_id": "stop"})
        await chat.at_rest()
    assert await workers.stop() == 0
