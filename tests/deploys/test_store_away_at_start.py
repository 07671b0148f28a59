"""Processes that start before their store: they wait, say so, and answer probes; what waiting cannot mend ends them."""

import json
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import anyio
import anyio.abc
import httpx2
import pytest
from structlog.testing import capture_logs

from protocol.messages import JsonObject
from server.assembly.store import SAY_AGAIN_SECONDS, _Waiting
from server.settings.sources import BadSettings, load_settings
from server.store.embedded import VOLATILE
from server.store.redis_store import check_url
from server.store.server_process import ServerProcess, ask, find_binary, socket_path, start_server, unix_url
from tests.integration.harness import DEADLINE_SECONDS, Process, command, start, user_message, watching
from tests.integration.store_fixtures import running_server
from tests.ports import free_port

pytestmark = pytest.mark.anyio

END_SECONDS = 15.0
"""For a process that ends at once, on a busy machine; none that waits would end by itself."""

LINE = {"event": "store.waiting", "level": "warning"}


class House:
    """Processes over a store that is not there yet."""

    def __init__(self, stack: ExitStack, directory: Path) -> None:
        self.directory = directory / "store"
        self.directory.mkdir()
        self.log = directory / "log"
        self.url = unix_url(socket_path(self.directory))
        self._stack = stack

    def start(self, *arguments: str, url: str = "", metrics_port: int = 0) -> Process:
        environment = {
            "REDIS_URL": url or self.url,
            "THREADCAST_STORE__DATA_DIR": str(self.log.parent / "data"),
            "THREADCAST_SERVER__METRICS_PORT": str(metrics_port),
        }
        return self._stack.enter_context(start(*arguments, log=self.log, environment=environment))

    def start_store(self) -> ServerProcess:
        return self._stack.enter_context(contextmanager(running_server)(find_binary(), self.directory))

    def lines(self, event: str) -> list[JsonObject]:
        lines = [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]
        return [line for line in lines if line["event"] == event]

    async def until(self, event: str, count: int = 1) -> None:
        with anyio.fail_after(DEADLINE_SECONDS):
            while len(self.lines(event)) < count:
                await anyio.sleep(0.02)


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with ExitStack() as stack:
        yield House(stack, tmp_path)


async def look(port: int, path: str) -> tuple[int, JsonObject]:
    """What the probe at this port is answered, once it is answered at all."""
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
    """Alive, not ready, and says why."""
    with anyio.fail_after(DEADLINE_SECONDS):
        while (told := await look(port, "/readyz"))[1]["status"] == "starting":
            await anyio.sleep(0.02)
    assert told[0] == 503 and told[1]["status"] == "unavailable"
    assert "the store cannot be reached" in told[1]["detail"]
    assert await look(port, "/livez") == (200, {"status": "ok"})


@asynccontextmanager
async def hanging_up() -> AsyncIterator[tuple[int, list[int]]]:
    """A port where connections are accepted and closed, and how many were."""
    tries = [0]

    async def hang_up(connection: anyio.abc.SocketStream) -> None:
        tries[0] += 1
        await connection.aclose()

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, hang_up)
        yield listener.extra(anyio.abc.SocketAttribute.local_port), tries
        tasks.cancel_scope.cancel()


async def test_web_and_worker_wait_for_their_store_and_then_work(house: House) -> None:
    web_port, worker_port = free_port(), free_port()
    web = house.start("web", "--port", str(web_port))
    worker = house.start("worker", metrics_port=worker_port)
    await waits(web_port)
    await waits(worker_port)
    status, said = await look(web_port, "/v1/caps")
    assert (status, said["code"]) == (503, "unavailable")
    assert not web.has_ended and not worker.has_ended
    house.start_store()
    await web.ready()
    await worker.ready()
    async with watching(web.url, "c1") as watcher:
        assert (await command(web.url, "c1", user_message("a", "hello"))).status_code == 202
        await watcher.at_rest()
    assert len(house.lines("store.reached")) == 2
    assert await web.stop() == 0
    assert await worker.stop() == 0


async def test_serve_with_a_store_of_its_own_name_waits_too(house: House) -> None:
    port = free_port()
    server = house.start("serve", "--port", str(port))
    await waits(port)
    house.start_store()
    await server.ready()
    assert (await look(port, "/readyz"))[0] == 200


@pytest.mark.parametrize("half", ["web", "worker"])
async def test_several_processes_of_one_command_wait_and_are_ready_together(house: House, half: str) -> None:
    probes, port = free_port(), free_port()
    where = ["--port", str(port)] if half == "web" else []
    several = house.start(half, *where, "--processes", "2", metrics_port=probes)
    await waits(probes)
    await waits(probes + 1)
    if half == "web":  # also where clients ask
        await waits(port)
    house.start_store()
    await several.ready()
    assert len(house.lines("process.died")) == 0
    assert await several.stop() == 0


async def test_it_tries_often_and_says_so_seldom(house: House) -> None:
    async with hanging_up() as (port, tries):
        web = house.start("web", "--port", "0", url=f"redis://127.0.0.1:{port}")
        with anyio.fail_after(DEADLINE_SECONDS):
            while tries[0] < 12:
                await anyio.sleep(0.02)
        (first, *more) = house.lines("store.waiting")
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
    house: House, arguments: list[str], number: signal.Signals
) -> None:
    process = house.start(*arguments)
    await house.until("store.waiting", 2 if "--processes" in arguments else 1)
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
async def test_any_kind_of_store_is_waited_for(house: House, url: str) -> None:
    web = house.start("web", "--port", "0", url=url.format(port=free_port()))
    await house.until("store.waiting")
    assert not web.has_ended
    with anyio.fail_after(END_SECONDS):
        assert await web.stop() == 0
    assert len(house.lines("store.waiting")) == 1 and not house.lines("store.lost")


@pytest.mark.parametrize("scheme", ["unix", "redis", "redis+cluster"])
async def test_a_password_that_is_refused_ends_the_start(house: House, scheme: str) -> None:
    port = free_port()
    server = start_server(find_binary(), house.directory, [*VOLATILE, "--requirepass", "right", "--port", str(port)])
    try:
        with anyio.fail_after(DEADLINE_SECONDS):
            while not ask(server.path).startswith(b"-NOAUTH"):
                await anyio.sleep(0.02)
        url = f"unix://:wrong@{server.path}" if scheme == "unix" else f"{scheme}://:wrong@127.0.0.1:{port}"
        for arguments in (["web", "--port", "0"], ["worker", "--processes", "2"]):
            process = house.start(*arguments, url=url)
            with anyio.fail_after(END_SECONDS):
                assert await process.ended() == 1
        said = house.log.read_text()
        assert said.count("threadcast: ") >= 3 and "the store refuses the user or password" in said
        assert "wrong@" not in said
    finally:
        server.stop_blocking()


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("http://127.0.0.1", "write it as redis://"),
        ("redis://127.0.0.1:port", "port is no number"),
        ("redis://127.0.0.1:70000", "port is no number"),
        ("redis://:pa/ss@127.0.0.1:6379", "port is no number"),
        ("redis://127.0.0.1/first", "number of the database"),
        ("unix://", "a path is missing"),
    ],
)
async def test_a_url_that_cannot_be_read_ends_the_start(house: House, url: str, sentence: str) -> None:
    process = house.start("worker", url=url)
    with anyio.fail_after(END_SECONDS):
        assert await process.ended() == 2
    assert sentence in house.log.read_text()
    with pytest.raises(BadSettings, match=sentence):
        load_settings({"REDIS_URL": url}, {}, None)


@pytest.mark.parametrize("scheme", ["redis", "redis+sentinel", "redis+cluster"])
async def test_an_option_that_nobody_knows_ends_the_start(house: House, scheme: str) -> None:
    path = "/mymaster" if scheme == "redis+sentinel" else ""
    url = f"{scheme}://127.0.0.1:1{path}?colour=green"
    process = house.start("worker", url=url)
    with anyio.fail_after(END_SECONDS):
        assert await process.ended() == 1
    assert "threadcast: store.url: an option in it is unknown" in house.log.read_text()
    with pytest.raises(ValueError, match="colour"):
        check_url(url)
