"""Processes that start before their store wait, log that they wait, and answer probes; an error that waiting cannot
resolve ends them."""

import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import TypeAlias

import anyio
import anyio.abc
import httpx2
import pytest
from structlog.testing import capture_logs

from tests.ports import free_port
from tests.support.fleet import Fleet
from tests.support.reader import watching
from tests.support.server import DEADLINE_SECONDS, command, user_message
from tests.support.store import running_store
from threadcast.settings.sources import BadSettings, load_settings
from threadcast.store.embedded.server_process import socket_path, unix_url
from threadcast.store.redis.store import check_url
from threadcast.wiring.store import SAY_AGAIN_SECONDS, _Waiting
from threadcast_protocol.wire.messages import JsonObject

pytestmark = pytest.mark.anyio

Start: TypeAlias = Callable[[], object]
END_SECONDS = 15.0
"""Maximum seconds until a process ends on a busy machine; a process that waits for its store never ends by itself."""

LINE = {"event": "store.waiting", "level": "warning"}


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    """Processes over a store that is not running yet."""
    directory = tmp_path / "store"
    directory.mkdir()
    with ExitStack() as stack:
        yield Fleet(stack, unix_url(socket_path(directory)), tmp_path)


@pytest.fixture
def start_store(tmp_path: Path) -> Iterator[Callable[[], object]]:
    """`start_store()` starts the store of the fleet."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(running_store(tmp_path / "store"))


async def look(port: int, path: str) -> tuple[int, JsonObject]:
    """Return the first answer to a request to this port."""
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=DEADLINE_SECONDS) as client:
        with anyio.fail_after(DEADLINE_SECONDS):
            while True:
                try:
                    answer = await client.get(path)
                except httpx2.ConnectError:
                    await anyio.sleep(0.02)
                    continue
                return answer.status_code, answer.json()


async def waits(port: int) -> None:
    """Wait until the process is alive, is not ready, and reports that the store is away."""
    with anyio.fail_after(DEADLINE_SECONDS):
        while (told := await look(port, "/readyz"))[1]["status"] == "starting":
            await anyio.sleep(0.02)
    assert told[0] == 503 and told[1]["status"] == "unavailable"
    assert "the store cannot be reached" in told[1]["detail"]
    assert await look(port, "/livez") == (200, {"status": "ok"})


@asynccontextmanager
async def hanging_up() -> AsyncIterator[tuple[int, list[int]]]:
    """Open a port that accepts and closes connections; yields the port and the count of connections."""
    tries = [0]

    async def hang_up(connection: anyio.abc.SocketStream) -> None:
        tries[0] += 1
        await connection.aclose()

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, hang_up)
        yield listener.extra(anyio.abc.SocketAttribute.local_port), tries
        tasks.cancel_scope.cancel()


async def test_web_and_worker_wait_for_their_store_and_then_work(fleet: Fleet, start_store: Start) -> None:
    web_port, worker_port = free_port(), free_port()
    web = fleet.start("web", "--port", str(web_port))
    worker = fleet.start("worker", metrics_port=worker_port)
    await waits(web_port)
    await waits(worker_port)
    status, said = await look(web_port, "/v1/caps")
    assert (status, said["code"]) == (503, "unavailable")
    assert not web.has_ended and not worker.has_ended
    start_store()
    await web.ready()
    await worker.ready()
    async with watching(web.url, "c1") as watcher:
        assert (await command(web.url, "c1", user_message("a", "hello"))).status_code == 202
        await watcher.at_rest()
    assert len(fleet.logged("store.reached")) == 2
    assert await web.stop() == 0
    assert await worker.stop() == 0


async def test_serve_with_a_store_of_its_own_name_waits_too(fleet: Fleet, start_store: Start) -> None:
    port = free_port()
    server = fleet.start("serve", "--port", str(port))
    await waits(port)
    start_store()
    await server.ready()
    assert (await look(port, "/readyz"))[0] == 200


@pytest.mark.parametrize("half", ["web", "worker"])
async def test_several_processes_of_one_command_wait_and_are_ready_together(
    fleet: Fleet, start_store: Start, half: str
) -> None:
    probes, port = free_port(), free_port()
    where = ["--port", str(port)] if half == "web" else []
    several = fleet.start(half, *where, "--processes", "2", metrics_port=probes)
    await waits(probes)
    await waits(probes + 1)
    if half == "web":  # clients use the public port
        await waits(port)
    start_store()
    await several.ready()
    assert len(fleet.logged("process.died")) == 0
    assert await several.stop() == 0


async def test_it_tries_often_and_says_so_seldom(fleet: Fleet) -> None:
    async with hanging_up() as (port, tries):
        web = fleet.start("web", "--port", "0", store_url=f"redis://127.0.0.1:{port}")
        with anyio.fail_after(DEADLINE_SECONDS):
            while tries[0] < 12:
                await anyio.sleep(0.02)
        (first, *more) = fleet.logged("store.waiting")
        assert first.items() >= {**LINE, "address": f"127.0.0.1:{port}", "waited_seconds": 0}.items()
        assert all(line["waited_seconds"] >= SAY_AGAIN_SECONDS for line in more)
        assert await web.stop() == 0


async def test_one_line_is_written_in_ten_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(anyio, "current_time", lambda: now[0])
    told: list[str] = []
    waiting = _Waiting("redis://ann:secret@127.0.0.1:1", told.append)
    with capture_logs() as logs:
        for at in (100.0, 100.5, 109.9, 110.0, 110.5, 119.0, 125.0):
            now[0] = at
            waiting._say("it is away")
    assert [line["waited_seconds"] for line in logs] == [0, 10, 25]
    assert len(told) == 7
    assert "secret" not in str(logs)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("arguments", [["web", "--port", "0"], ["worker"], ["worker", "--processes", "2"]])
async def test_who_waits_for_the_store_ends_at_once_when_told_to(
    fleet: Fleet, arguments: list[str], number: signal.Signals
) -> None:
    process = fleet.start(*arguments)
    await fleet.until_logged("store.waiting", 2 if "--processes" in arguments else 1)
    with anyio.fail_after(END_SECONDS):
        assert await process.stop(number) == 0


@pytest.mark.parametrize(
    "url",
    [
        "redis://store.invalid:6379",  # in compose, a name may resolve later
        "redis+sentinel://127.0.0.1:{port}/mymaster",
        "redis+cluster://127.0.0.1:{port}",
    ],
)
async def test_any_kind_of_store_is_waited_for(fleet: Fleet, url: str) -> None:
    web = fleet.start("web", "--port", "0", store_url=url.format(port=free_port()))
    await fleet.until_logged("store.waiting")
    assert not web.has_ended
    with anyio.fail_after(END_SECONDS):
        assert await web.stop() == 0
    assert len(fleet.logged("store.waiting")) == 1 and not fleet.logged("store.lost")


@pytest.mark.parametrize("scheme", ["unix", "redis", "redis+cluster"])
async def test_a_password_that_is_refused_ends_the_start(fleet: Fleet, tmp_path: Path, scheme: str) -> None:
    with running_store(tmp_path / "store", port=free_port()) as server:
        server.ask("CONFIG", "SET", "requirepass", "right")
        url = (
            f"unix://:wrong@{server.process.path}" if scheme == "unix" else f"{scheme}://:wrong@127.0.0.1:{server.port}"
        )
        for arguments in (["web", "--port", "0"], ["worker", "--processes", "2"]):
            process = fleet.start(*arguments, store_url=url)
            with anyio.fail_after(END_SECONDS):
                assert await process.ended() == 1
    said = fleet.log.read_text()
    assert said.count("threadcast: ") >= 3 and "the store refuses the user or password" in said
    assert "wrong@" not in said


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("http://127.0.0.1", "write it as redis://"),
        ("redis://127.0.0.1:port", "port is not a number"),
        ("redis://127.0.0.1:70000", "port is not a number"),
        ("redis://:pa/ss@127.0.0.1:6379", "port is not a number"),
        ("redis://127.0.0.1/first", "number of the database"),
        ("unix://", "a path is missing"),
    ],
)
async def test_a_url_that_cannot_be_read_ends_the_start(fleet: Fleet, url: str, sentence: str) -> None:
    process = fleet.start("worker", store_url=url)
    with anyio.fail_after(END_SECONDS):
        assert await process.ended() == 2
    assert sentence in fleet.log.read_text()
    with pytest.raises(BadSettings, match=sentence):
        load_settings({"REDIS_URL": url}, {}, None)


@pytest.mark.parametrize("scheme", ["redis", "redis+sentinel", "redis+cluster"])
async def test_an_option_that_nobody_knows_ends_the_start(fleet: Fleet, scheme: str) -> None:
    path = "/mymaster" if scheme == "redis+sentinel" else ""
    url = f"{scheme}://127.0.0.1:1{path}?colour=green"
    process = fleet.start("worker", store_url=url)
    with anyio.fail_after(END_SECONDS):
        assert await process.ended() == 1
    assert "threadcast: store.url: an option in it is unknown" in fleet.log.read_text()
    with pytest.raises(ValueError, match="colour"):
        check_url(url)
