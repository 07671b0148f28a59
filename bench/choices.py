"""What was chosen beside what was not: uvloop and asyncio, sizes of send buffers, ways to compress a checkpoint.

Variants of the product run at the same time, each with processes and a store of its own, under the same load, and
their CPU is read over the same windows: whatever disturbs one disturbs all. Behind decision 0026. To repeat:
`python -m bench.choices [loop] [buffer] [checkpoint]`, all unless some are named; some three minutes, Linux.
"""

import argparse
import os
import re
import selectors
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import msgspec
import zstandard

from bench.altered import Altered
from bench.figures import Figure, Section, figure, progress, ratio, table
from bench.noise import noise
from bench.processes import cpu_seconds
from protocol.codec import encode_state
from protocol.deltas import AppendContent
from server.store.checkpoint import LEVEL
from server.store.server_process import find_binary
from tests.integration.store_fixtures import running_server
from tests.unit.pure_chat import PureChat, say

__all__ = ["main"]

ROOT = Path(__file__).parents[1]
CHATS, READERS_OF_EACH = 8, 10
MODEL = "demo/essay?words=20000&rate=50"
WINDOWS, WINDOW_SECONDS = 9, 2.0
WARM_SECONDS = 3.0

BUFFERS = {"16 KiB": 16_384, "64 KiB, chosen": 65_536, "256 KiB": 262_144, "1 MiB": 1_048_576}
LONG_MESSAGES = 12
"""Of 90 kB each: a snapshot of a megabyte, larger than any of the buffers but the last."""
JOINS = 15
STALLED = 10

WAIT_SECONDS = 60.0


class House:
    """A web process and a worker of one variant. `events` counts what its readers have received."""

    def __init__(self, stack: ExitStack, altered: Altered, store_url: str, directory: Path) -> None:
        self.web, line = self._start(stack, altered, "web", store_url, directory)
        self.worker, _ = self._start(stack, altered, "worker", store_url, directory)
        found = re.search(r"http://\S+", line)
        assert found is not None, line
        self.url = found[0]
        self.events = 0

    def _start(self, stack: ExitStack, altered: Altered, half: str, store_url: str, directory: Path) -> tuple[int, str]:
        port = ["--port", "0"] if half == "web" else []
        words = [sys.executable, "-m", "bench.altered", msgspec.json.encode(altered).decode(), half, *port]
        words += ["--data-dir", str(directory), "--log-format", "json"]
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "REDIS_URL": store_url}
        process = stack.enter_context(
            _ended(
                subprocess.Popen(words, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            )
        )
        assert process.stdout is not None
        return process.pid, process.stdout.readline().decode()

    def post(self, chat_id: str, text: str, model: str) -> None:
        body = {"type": "user_message", "client_request_id": "a", "content": text, "params": {"model": model}}
        answer = httpx2.post(f"{self.url}/v1/chats/{chat_id}/commands", json=body, timeout=WAIT_SECONDS)
        assert answer.status_code == 202, answer.text

    def joined(self, chat_id: str, receive_bytes: int = 0) -> socket.socket:
        """A stream that was asked for."""
        parts = urlsplit(self.url)
        stream = socket.socket()
        if receive_bytes:
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        stream.settimeout(WAIT_SECONDS)
        stream.connect((parts.hostname, parts.port))
        stream.sendall(f"GET /v1/chats/subscribe?chat_id={chat_id} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        return stream


@contextmanager
def _ended(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    try:
        yield process
    finally:
        process.terminate()
        process.wait(WAIT_SECONDS)


@contextmanager
def _reading(houses: Sequence[House]) -> Iterator[None]:
    """All readers of all houses, in one thread that counts events."""
    selector = selectors.DefaultSelector()
    over = threading.Event()
    with ExitStack() as stack:
        for house in houses:
            for number in range(CHATS * READERS_OF_EACH):
                stream = stack.enter_context(house.joined(f"c{number % CHATS}"))
                stream.setblocking(False)
                selector.register(stream, selectors.EVENT_READ, house)

        def read() -> None:
            while not over.is_set():
                for key, _ in selector.select(0.1):
                    assert isinstance(key.fileobj, socket.socket)
                    key.data.events += key.fileobj.recv(262_144).count(b"\nid: ")

        thread = threading.Thread(target=read)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def _streaming(houses: dict[str, House]) -> dict[str, dict[str, list[float]]]:
    """CPU of web and worker in microseconds for each event that a reader received, by variant, window by window."""
    found: dict[str, dict[str, list[float]]] = {name: {"web": [], "worker": [], "events": []} for name in houses}
    with _reading(list(houses.values())):
        for house in houses.values():
            for number in range(CHATS):
                house.post(f"c{number}", "write", MODEL)
        time.sleep(WARM_SECONDS)
        for number in range(WINDOWS):
            progress(f"window {number + 1} of {WINDOWS}")
            before = {name: _now(house) for name, house in houses.items()}
            time.sleep(WINDOW_SECONDS)
            for name, house in houses.items():
                events, web, worker = (b - a for a, b in zip(before[name], _now(house), strict=True))
                found[name]["events"].append(events / WINDOW_SECONDS)
                found[name]["web"].append(web / events * 1e6)
                found[name]["worker"].append(worker / (events / READERS_OF_EACH) * 1e6)
    progress("")
    return found


def _now(house: House) -> tuple[float, float, float]:
    return house.events, cpu_seconds(house.web), cpu_seconds(house.worker)


@contextmanager
def _houses(variants: dict[str, Altered]) -> Iterator[dict[str, House]]:
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        houses: dict[str, House] = {}
        for number, (name, altered) in enumerate(variants.items()):
            mine = directory / str(number)
            mine.mkdir()
            store = stack.enter_context(contextmanager(running_server)(find_binary(), mine))
            houses[name] = House(stack, altered, store.url, mine)
        yield houses


def loop() -> Section:
    with _houses({"uvloop": Altered(), "asyncio": Altered(loop="asyncio")}) as houses:
        found = _streaming(houses)
    figures = []
    for half, what in (("web", "an event at a reader, web"), ("worker", "an event, worker")):
        for name in houses:
            figures.append(figure(f"{half} {name}", f"CPU of {what}, {name}", found[name][half], "us"))
        figures.append(ratio(half, f"asyncio / uvloop, {half}", found["asyncio"][half], found["uvloop"][half]))
    for name in houses:
        figures.append(figure(f"events {name}", f"events that came to readers, {name}", found[name]["events"], "/s"))
    return Section("loop", "uvloop, chosen, beside asyncio", "python -m bench.choices loop", figures)


def buffer() -> Section:
    """What a larger send buffer saves when readers keep up, when one joins a long chat, and what it costs when one
    stalls."""
    with _houses({name: Altered(send_buffer_bytes=size) for name, size in BUFFERS.items()}) as houses:
        joins = _joins(houses)
        stalls = {name: _kernel_bytes_of_stalled(house) for name, house in houses.items()}
        found = _streaming(houses)
    figures = [figure(f"web {name}", f"CPU of an event, {name}", found[name]["web"], "us") for name in houses]
    figures += [figure(f"join {name}", f"CPU of a snapshot of 1.1 MB, {name}", joins[name], "ms") for name in houses]
    stalled = "kernel memory of a stalled reader"
    figures += [figure(f"stall {name}", f"{stalled}, {name}", stalls[name], "kB") for name in houses]
    return Section("buffer", "SO_SNDBUF", "python -m bench.choices buffer", figures)


def _joins(houses: dict[str, House]) -> dict[str, list[float]]:
    """CPU ms of the web process; variants in turn."""
    for house in houses.values():
        for number in range(LONG_MESSAGES):
            answer = httpx2.post(
                f"{house.url}/v1/chats/long/commands",
                json={
                    "type": "user_message",
                    "client_request_id": f"n{number}",
                    "content": "a long text " * 7_500,
                    "params": {"model": "demo/essay?words=5&rate=0"},
                },
                headers={"Prefer": "wait=30"},
                timeout=WAIT_SECONDS,
            )
            assert answer.status_code in (200, 202), answer.text
    found: dict[str, list[float]] = {name: [] for name in houses}
    for number in range(JOINS):
        progress(f"join {number + 1} of {JOINS}")
        for name, house in houses.items():
            before = cpu_seconds(house.web)
            with house.joined("long") as stream:
                _read_until(stream, b"\n: hb ")
            found[name].append((cpu_seconds(house.web) - before) * 1e3)
    return found


def _read_until(stream: socket.socket, wanted: bytes) -> None:
    tail = b""
    while wanted not in tail:
        received = stream.recv(262_144)
        assert received, "it ended"
        tail = tail[-len(wanted) :] + received


def _kernel_bytes_of_stalled(house: House) -> list[float]:
    """kB that the kernel holds on the server's side for each reader of a long chat that reads nothing (ss, skmem)."""
    port = urlsplit(house.url).port
    with ExitStack() as stack:
        for _ in range(STALLED):
            stack.enter_context(house.joined("long", receive_bytes=8_192))
        return _settled(lambda: _send_memory(port))


def _settled(look: Callable[[], list[float]]) -> list[float]:
    """Once it has stopped growing for a second."""
    last: list[float] = []
    for _ in range(int(WAIT_SECONDS)):
        time.sleep(1.0)
        now = look()
        if len(now) == STALLED and now == last:
            return now
        last = now
    raise TimeoutError("kernel memory of stalled readers does not settle")


def _send_memory(port: int | None) -> list[float]:
    told = subprocess.run(["ss", "-tmnH", f"sport = :{port}"], capture_output=True, text=True, check=True).stdout
    return sorted(int(size) / 1e3 for size in re.findall(r"skmem:\(.*?,w(\d+),", told) if int(size) > 0)


def checkpoint() -> Section:
    """Of a chat with one exchange, and of one with forty: level by level, and with a dictionary of other chats
    (about something else), which is loaded once."""
    pages = ("docs/design.md", "docs/tools.md")
    words, other_words = (" ".join((ROOT / page).read_text().split()) for page in pages)
    others: list[bytes | bytearray | memoryview] = []
    others += [_state(other_words, at * 301, 1 + at % 3) for at in range(200)]
    dictionary = zstandard.train_dictionary(16_384, others)
    dictionary.precompute_compress(level=LEVEL)
    ways: dict[str, Callable[[], zstandard.ZstdCompressor]] = {
        f"level {level}{', chosen' if level == LEVEL else ''}": partial(zstandard.ZstdCompressor, level=level)
        for level in (1, 3, 6)
    }
    ways[f"level {LEVEL}, dictionary"] = partial(zstandard.ZstdCompressor, level=LEVEL, dict_data=dictionary)
    figures: list[Figure] = []
    for what, state in (("one exchange", _state(words, 77, 1)), ("forty", _state(words, 77, 40))):
        spent: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(15):
            for name, way in ways.items():
                repeats = max(1, 300_000 // len(state))
                before = time.process_time()
                for _ in range(repeats):
                    way().compress(state)
                spent[name].append((time.process_time() - before) / repeats * 1e6)
        for name, way in ways.items():
            kept = len(way().compress(state)) / len(state)
            note = f"{len(state) / 1e3:.1f} kB to {kept:.0%}"
            figures.append(figure(f"{what} {name}", f"CPU to compress {what}, {name}", spent[name], "us", note=note))
    return Section("checkpoint", "zstd", "python -m bench.choices checkpoint", figures)


def _state(words: str, offset: int, exchanges: int) -> bytes:
    """A chat as a checkpoint holds it, its texts cut from the pages of this project."""
    chat = PureChat(chat_id=f"chat-{offset}")
    for number in range(exchanges):
        at = (offset + number * 911) % (len(words) - 2_000)
        chat.command(say(f"r{number}", words[at : at + 120]))
        chat.stream(AppendContent(words[at + 120 : at + 1_000]))
        chat.finish()
    return encode_state(chat.state)


ROWS = {"loop": loop, "buffer": buffer, "checkpoint": checkpoint}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.choices", description=__doc__)
    parser.add_argument("rows", nargs="*", choices=[*ROWS, []], default=list(ROWS), help="all unless some are named")
    for name in parser.parse_args().rows:
        print(table(ROWS[name]()), end="\n\n", flush=True)
    print(f"the machine's noise: {noise()}")


if __name__ == "__main__":
    main()
