"""A process that was stopped and continued reads all bytes that arrived in the meantime before it counts a model as
silent.

A real process is stopped by SIGSTOP for longer than its limit, while a model writes an answer into the socket; then the
process is continued.
"""

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path

import anyio
import pytest

from tests.integration.fake_openai import DONE, STOP, text
from tests.integration.test_mended_streams import google
from tests.integration.test_native_adapters import anthropic_stop, anthropic_text
from tests.support.reader import watching
from tests.support.server import DEADLINE_SECONDS, Process, command, start, user_message

pytestmark = pytest.mark.anyio

IDLE_SECONDS = 1.0
STOPPED_SECONDS = 2.5

KINDS = {
    "openai_chat": ([text("Hel")], [text("lo")], [STOP, DONE]),
    "anthropic": ([anthropic_text("Hel")], [anthropic_text("lo")], [anthropic_stop("end_turn")]),
    "google": ([google({"text": "Hel"})], [google({"text": "lo"})], [google({}, finishReason="STOP")]),
}


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


class Model:
    """A model server that answers in three parts, the second after `go_on` and the third after `finish`; `is_sent` is
    set once the second part was passed to the network."""

    def __init__(self, parts: tuple[list[bytes], list[bytes], list[bytes]]) -> None:
        self._parts = parts
        self.is_asked = anyio.Event()
        self.go_on = anyio.Event()
        self.is_sent = anyio.Event()
        self.finish = anyio.Event()
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if head.startswith(b"GET "):  # a request for the list of models, which this server does not have
            writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            writer.close()
            return
        length = next(x for x in head.lower().split(b"\r\n") if x.startswith(b"content-length:"))
        await reader.readexactly(int(length.partition(b":")[2]))
        self.is_asked.set()
        first, second, third = self._parts
        if first:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + b"".join(first))
        await writer.drain()
        await self.go_on.wait()
        if not first:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        writer.write(b"".join(second))
        await writer.drain()
        self.is_sent.set()
        await self.finish.wait()
        writer.write(b"".join(third))
        writer.close()


@pytest.fixture
async def model(request: pytest.FixtureRequest) -> AsyncIterator[Model]:
    made = Model(request.param)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    yield made
    server.close()


def serving(stack: ExitStack, tmp_path: Path, kind: str, url: str) -> Process:
    config = tmp_path / "threadcast.toml"
    base_url = f"{url}/v1" if kind == "openai_chat" else url
    config.write_text(
        f'[models]\ndefault = "m/tiny"\n[models.providers.m]\nkind = "{kind}"\nbase_url = "{base_url}"\n'
        f'api_key = "k"\nidle_timeout_seconds = {IDLE_SECONDS}\n'
    )
    arguments = ["serve", "--port", "0", "--memory", "--config", str(config)]
    return stack.enter_context(start(*arguments, log=tmp_path / "log"))


async def stopped(server: Process, model: Model) -> None:
    """Stop the process for longer than its limit, while the model sends more."""
    server.send(signal.SIGSTOP)
    try:
        model.go_on.set()
        with anyio.fail_after(20):
            await model.is_sent.wait()
        await anyio.sleep(STOPPED_SECONDS)  # the stop must outlast the process's limit
    finally:
        server.send(signal.SIGCONT)


@pytest.mark.row("LOOP-9", "PROV-7")
@pytest.mark.parametrize(
    ("model", "kind"), [(KINDS[kind], kind) for kind in KINDS], indirect=["model"], ids=list(KINDS)
)
async def test_an_answer_that_came_while_the_process_stood_still_is_whole(
    model: Model, kind: str, tmp_path: Path, stack: ExitStack
) -> None:
    server = serving(stack, tmp_path, kind, model.url)
    await server.ready()
    async with watching(server.url, "c1") as watcher:
        await command(server.url, "c1", user_message("a", "hi"))
        await watcher.until(lambda w: "stream_delta" in w.types())
        await stopped(server, model)
        await watcher.until(lambda w: w.messages[-1] == ("assistant", "Hello"))
        model.finish.set()
        await watcher.at_rest()
    assert watcher.messages == [("user", "hi"), ("assistant", "Hello")]
    assert "error" not in watcher.types()


@pytest.mark.parametrize("model", [([], [text("Hello")], [STOP, DONE])], indirect=True)
async def test_the_first_byte_that_came_while_the_process_stood_still_is_read_too(
    model: Model, tmp_path: Path, stack: ExitStack
) -> None:
    server = serving(stack, tmp_path, "openai_chat", model.url)
    await server.ready()
    async with watching(server.url, "c1") as watcher:
        await command(server.url, "c1", user_message("a", "hi"))
        with anyio.fail_after(DEADLINE_SECONDS):
            await model.is_asked.wait()
        await stopped(server, model)
        await watcher.until(lambda w: w.messages[-1] == ("assistant", "Hello"))
        model.finish.set()
        await watcher.at_rest()
    assert watcher.messages == [("user", "hi"), ("assistant", "Hello")]
