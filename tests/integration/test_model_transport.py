"""The transport that reads from models' servers: its answers and errors equal httpx2's, over real sockets, byte by
byte.

A server of a few lines sends the bytes that the test gives, so that every framing and every kind of break occurs.
"""

import asyncio
import gzip
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import anyio
import httpx2
import pytest

from tests.ports import free_port
from threadcast.base.append_pace import PACE, Ticks
from threadcast.providers import model_http
from threadcast.providers.model_connection import AT_ONCE_COUNT, SLICE_BYTES, ModelConnection
from threadcast.providers.model_http import ModelTransport, model_transport

pytestmark = pytest.mark.anyio


@pytest.fixture(
    params=[("asyncio", {"use_uvloop": True}), ("asyncio", {"use_uvloop": False})], ids=["uvloop", "asyncio"]
)
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    """The product runs on uvloop if it is installed."""
    backend: tuple[str, dict[str, bool]] = request.param
    return backend


DEADLINE_SECONDS = 20.0

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


class Wire:
    """A server that reads a request's head and then calls `answer`. `heads` holds the heads that the server has read,
    and `connections` is the number of connections."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.heads: list[bytes] = []
        self.connections = 0
        self.gone = anyio.Event()
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.heads.append(head)
                length = next((x for x in head.lower().split(b"\r\n") if x.startswith(b"content-length:")), b":0")
                await reader.readexactly(int(length.partition(b":")[2]))
                await self._answer(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            self.gone.set()
        finally:
            writer.close()


@asynccontextmanager
async def wire(answer: Answer, tls: ssl.SSLContext | None = None) -> AsyncIterator[Wire]:
    served = Wire(answer)
    server = await asyncio.start_server(served.serve, "127.0.0.1", 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    served.url = f"http{'s' if tls else ''}://localhost:{port}/v1"
    try:
        with anyio.fail_after(DEADLINE_SECONDS):
            yield served
    finally:
        server.close()


@asynccontextmanager
async def client(tls: ssl.SSLContext | None = None, read_seconds: float = 10) -> AsyncIterator[httpx2.AsyncClient]:
    timeout = httpx2.Timeout(10, read=read_seconds)
    async with httpx2.AsyncClient(transport=ModelTransport(tls), timeout=timeout) as opened:
        yield opened


def saying(*pieces: bytes, then_close: bool = False) -> Answer:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
            await asyncio.sleep(0.002)  # most pieces are then separate reads; the result must not depend on reads
        if then_close:
            writer.close()

    return answer


@pytest.mark.parametrize(
    ("pieces", "closes", "body"),
    [
        ((CHUNKED, b"3\r\nabc\r\n", b"2\r\nde\r\n0\r\n\r\n"), False, b"abcde"),
        ((b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab", b"cde"), False, b"abcde"),
        ((b"HTTP/1.1 200 OK\r\n\r\nab", b"cde"), True, b"abcde"),
        ((b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",), False, b""),
        ((b"HTTP/1.1 103 Early\r\nLink: x\r\n\r\n", CHUNKED, b"1\r\na\r\n0\r\n\r\n"), False, b"a"),
        (tuple(bytes([each]) for each in CHUNKED + b"3\r\nabc\r\n0\r\n\r\n"), False, b"abc"),
    ],
    ids=["chunked", "length", "until the end", "empty", "after an interim answer", "byte by byte"],
)
async def test_body_is_whole_whatever_its_framing(pieces: tuple[bytes, ...], closes: bool, body: bytes) -> None:
    async with wire(saying(*pieces, then_close=closes)) as server, client() as asked:
        answer = await asked.post(server.url, json={"a": 1})
        assert (answer.status_code, answer.content) == (200, body)
        assert "link" not in answer.headers


class Written(asyncio.Transport):
    """Records the size of each write, and how many turns another task had before the write."""

    def __init__(self) -> None:
        super().__init__()
        self.data = b""
        self.sizes: list[int] = []
        self.turns_before: list[int] = []
        self.turns = 0

    def writelines(self, pieces: Iterable[bytes | bytearray | memoryview]) -> None:
        data = b"".join(pieces)
        self.data += data
        self.sizes.append(len(data))
        self.turns_before.append(self.turns)

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


async def test_other_tasks_run_between_the_slices_of_a_large_request() -> None:
    connection, written = ModelConnection(lambda: 0.0, Ticks()), Written()
    connection.connection_made(written)
    pieces = [b"head", b"a" * (2 * SLICE_BYTES), b"b" * 10, b"c" * SLICE_BYTES]

    async def other() -> None:
        while True:
            written.turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(other())
    asking = asyncio.create_task(connection.ask(pieces, None))
    with anyio.fail_after(DEADLINE_SECONDS):
        while len(written.data) < sum(map(len, pieces)):
            await asyncio.sleep(0)
    connection.data_received(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    assert (await asking).status == 200
    beside.cancel()
    assert written.data == b"".join(pieces)
    assert max(written.sizes) <= SLICE_BYTES
    assert written.turns_before == sorted({*written.turns_before}), "a turn between any two writes"


async def test_compressed_body_is_read_as_httpx2_reads_it() -> None:
    packed = gzip.compress(b"plain")
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed)
    async with wire(saying(head + packed)) as server, client() as asked:
        assert (await asked.get(server.url)).content == b"plain"


async def test_connection_is_used_again_only_after_a_whole_answer_and_with_leave() -> None:
    closing = CHUNKED.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    heads = [CHUNKED, CHUNKED, closing, CHUNKED]

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(heads.pop(0) + b"1\r\na\r\n0\r\n\r\n")

    async with wire(answer) as server, client() as asked:
        seen = []
        for _ in range(4):
            await asked.get(server.url)
            seen.append(server.connections)
        assert seen == [1, 1, 1, 2]


async def test_what_follows_an_answer_unasked_is_no_part_of_it() -> None:
    unasked = b"HTTP/1.1 500 No\r\nContent-Length: 6\r\n\r\nsecond"
    for after in (unasked, b"no HTTP at all\r\n\r\n"):
        both = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfirst" + after
        async with wire(saying(both)) as server, client() as asked:
            for _ in range(2):
                answer = await asked.get(server.url)
                assert (answer.status_code, answer.content) == (200, b"first")
            assert server.connections == 2, "such a connection is not used again"


async def test_trailers_are_left_out() -> None:
    async with wire(saying(CHUNKED + b"1\r\na\r\n0\r\nx-late: 1\r\n\r\n")) as server, client() as asked:
        answer = await asked.get(server.url)
    assert answer.content == b"a"
    assert "x-late" not in answer.headers


async def test_address_that_leads_nowhere_gives_way_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server at the first address never accepts, and its accept queue is full, so new connections are dropped."""
    monkeypatch.setattr(model_http, "ADDRESS_SECONDS", 0.1)
    with socket.socket() as full, socket.socket() as good, ExitStack() as held, anyio.fail_after(DEADLINE_SECONDS):
        good.bind(("127.0.0.1", 0))
        good.listen()
        port = good.getsockname()[1]
        full.bind(("127.0.0.2", port))
        full.listen(0)
        for _ in range(4):
            waiting = held.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        addresses = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (f"127.0.0.{n}", port)) for n in (2, 1)]
        with await model_http.first_to_answer(addresses) as connected:
            assert connected.getpeername() == ("127.0.0.1", port)
        with pytest.raises(ConnectionRefusedError):
            await model_http.first_to_answer([(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", free_port()))])


async def test_idle_connection_that_the_server_closed_is_not_used() -> None:
    async with wire(saying(CHUNKED + b"1\r\na\r\n0\r\n\r\n", then_close=True)) as server, client() as asked:
        await asked.get(server.url)
        await server.gone.wait()
        assert (await asked.get(server.url)).status_code == 200
        assert server.connections == 2


@pytest.mark.parametrize(
    ("pieces", "wrong"),
    [
        ((), httpx2.RemoteProtocolError),
        ((b"HTTP/1.1 200",), httpx2.RemoteProtocolError),
        ((b"SSH-2.0-x\r\n\r\n",), httpx2.RemoteProtocolError),
        ((CHUNKED, b"3\r\nab"), httpx2.RemoteProtocolError),
        ((CHUNKED, b"zz\r\nab"), httpx2.RemoteProtocolError),
        ((b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab",), httpx2.RemoteProtocolError),
    ],
    ids=["nothing", "half a head", "another protocol", "cut in a chunk", "bad chunk", "too short"],
)
async def test_broken_answer_is_an_error_of_the_protocol(pieces: tuple[bytes, ...], wrong: type[Exception]) -> None:
    async with wire(saying(*pieces, then_close=True)) as server, client() as asked:
        with pytest.raises(wrong):
            await asked.get(server.url)


async def test_head_without_an_end_is_refused() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nx: " + b"y" * 300_000)
        await reader.readexactly(1)

    async with wire(answer) as server, client() as asked:
        with pytest.raises(httpx2.RemoteProtocolError, match="head of the answer"):
            await asked.get(server.url)
        await server.gone.wait()


async def test_silence_ends_in_a_read_timeout_before_the_head_and_inside_the_body() -> None:
    for said in (b"", CHUNKED + b"1\r\na\r\n"):

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, said: bytes = said) -> None:
            writer.write(said)
            await reader.readexactly(1)

        async with wire(answer) as server, client(read_seconds=0.05) as asked:
            with pytest.raises(httpx2.ReadTimeout):
                await asked.get(server.url)
            await server.gone.wait()


async def test_each_answer_has_its_own_time_also_on_a_connection_that_is_used_again() -> None:
    pieces = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(CHUNKED + b"1\r\na\r\n")
        if server.heads[1:]:
            await reader.readexactly(1)
        writer.write(b"0\r\n\r\n")

    async with wire(answer) as server, client(read_seconds=3_600) as asked:
        assert (await asked.get(server.url)).content == b"a"
        async with asked.stream("GET", server.url, timeout=0.1) as streamed:
            with pytest.raises(httpx2.ReadTimeout):
                async for _ in streamed.aiter_bytes():
                    pieces += 1
    assert (pieces, server.connections) == (1, 1)


async def test_port_without_a_server_is_a_connect_error() -> None:
    async with wire(saying()) as server, client() as asked:
        url = server.url
    async with client() as asked:
        with pytest.raises(httpx2.ConnectError):
            await asked.get(url)
        with pytest.raises(httpx2.ConnectError):
            await asked.get("http://no-such-host.invalid/")


async def test_leaving_an_answer_early_closes_its_connection() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(CHUNKED + b"1\r\na\r\n")
        await reader.readexactly(1)

    async with wire(answer) as server, client() as asked:
        async with asked.stream("GET", server.url) as streamed:
            async for piece in streamed.aiter_bytes():
                assert piece == b"a"
                break
        await server.gone.wait()


async def test_cancelling_a_call_closes_its_connection() -> None:
    asked_for = anyio.Event()

    async def answer(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        asked_for.set()
        await reader.readexactly(1)

    async with wire(answer) as server, client() as asked, anyio.create_task_group() as tasks:
        tasks.start_soon(asked.get, server.url)
        await asked_for.wait()
        tasks.cancel_scope.cancel()
    await server.gone.wait()


async def test_headers_cannot_break_out_of_their_line() -> None:
    async with wire(saying(CHUNKED)) as server, client() as asked:
        with pytest.raises(httpx2.LocalProtocolError):
            await asked.get(server.url, headers={"x": "a\r\ny: b"})
        assert server.heads == []


async def test_first_pieces_come_at_once_and_later_ones_gather(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pause between reads never ends: each of the first pieces is sent when the previous one has been received, and
    later pieces are not read."""
    monkeypatch.setattr(PACE, "seconds", lambda _: 3_600.0)
    came = asyncio.Semaphore(0)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(CHUNKED)
        while True:
            writer.write(b"1\r\na\r\n")
            await came.acquire()

    pieces = 0
    async with wire(answer) as server, client() as asked, asked.stream("GET", server.url) as streamed:
        with anyio.move_on_after(0.5):
            async for _ in streamed.aiter_bytes():
                pieces += 1
                came.release()
    assert AT_ONCE_COUNT <= pieces <= AT_ONCE_COUNT + 1  # the head may have been a separate read


async def test_what_a_pace_has_left_in_the_kernel_is_read_before_silence_is_judged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(PACE, "seconds", lambda _: 3_600.0)
    came = asyncio.Semaphore(0)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(CHUNKED)
        for _ in range(AT_ONCE_COUNT + 3):
            writer.write(b"1\r\na\r\n")
            await came.acquire()
        await reader.read()  # silence

    pieces = 0
    async with wire(answer) as server, client(read_seconds=0.2) as asked, asked.stream("GET", server.url) as streamed:
        with pytest.raises(httpx2.ReadTimeout):
            async for _ in streamed.aiter_bytes():
                pieces += 1
                came.release()
    assert pieces == AT_ONCE_COUNT + 3


async def test_tls_is_checked_against_the_name(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    made = f"req -x509 -newkey rsa:2048 -nodes -keyout {key} -out {certificate} -days 2 -subj /CN=localhost"
    subprocess.run(
        ["openssl", *made.split(), "-addext", "subjectAltName=DNS:localhost"], check=True, capture_output=True
    )
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(certificate, key)
    async with wire(saying(CHUNKED + b"1\r\na\r\n0\r\n\r\n"), served) as server:
        async with client(ssl.create_default_context(cafile=certificate)) as asked:
            assert (await asked.get(server.url)).content == b"a"
            with pytest.raises(httpx2.ConnectError):
                await asked.get(server.url.replace("localhost", "127.0.0.1"))
        async with client(ssl.create_default_context()) as distrustful:
            with pytest.raises(httpx2.ConnectError):
                await distrustful.get(server.url)


def test_proxy_in_the_environment_leaves_the_way_to_httpx2(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    assert isinstance(model_transport("http://127.0.0.1/v1"), ModelTransport)
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    assert model_transport("http://127.0.0.1/v1") is None
