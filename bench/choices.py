"""Compares the product's choices with the alternatives: uvloop and asyncio, sizes of send buffers, compression levels.

The variants of the product run at the same time, each with its own processes and store, under the same load. Their CPU
time is read over the same windows, so that other programs disturb all variants alike. Behind decision 0026. `python -m
bench.choices [loop] [buffer] [checkpoint]` measures all choices or the named ones. It takes about three minutes and
runs on Linux only.
"""

import argparse
import re
import selectors
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import msgspec
from tests.support.server import Process
from tests.support.store import running_store
from tests.unit.pure_chat import PureChat, say

from bench.altered import Altered
from bench.figures import Figure, Section, figure, progress, ratio, table
from bench.noise import noise
from bench.processes import cpu_seconds
from threadcast.chat.entry_codec import encode_state
from threadcast.store.compression import LEVEL, zstd
from threadcast_protocol.wire.deltas import AppendContent

__all__ = ["main"]

ROOT = Path(__file__).parents[1]
CHATS, READERS_OF_EACH = 8, 10
MODEL = "demo/essay?words=20000&rate=50"
WINDOWS, WINDOW_SECONDS = 9, 2.0
WARM_SECONDS = 3.0

BUFFERS = {"16 KiB": 16_384, "64 KiB, chosen": 65_536, "256 KiB": 262_144, "1 MiB": 1_048_576}
LONG_MESSAGES = 12
"""The number of messages of 90 kB each. Their snapshot of a megabyte is larger than every buffer except the largest."""
JOINS = 15
STALLED = 10

WAIT_SECONDS = 60.0


class Harness:
    """A web process and a worker of one variant. `events` is the number of events that its readers have received."""

    def __init__(self, stack: ExitStack, altered: Altered, store_url: str, directory: Path) -> None:
        data = ["--data-dir", str(directory), "--log-format", "json"]
        program = ["bench.altered", msgspec.json.encode(altered).decode()]
        web, worker = (
            stack.enter_context(
                closing(Process([*half, *data], directory / "log", {"REDIS_URL": store_url}, program))
            ).wait_ready()
            for half in (["web", "--port", "0"], ["worker"])
        )
        self.web, self.worker, self.url = web.pid, worker.pid, web.url
        self.events = 0

    def post(self, chat_id: str, text: str, model: str) -> None:
        body = {"type": "user_message", "client_request_id": "a", "content": text, "params": {"model": model}}
        answer = httpx2.post(f"{self.url}/v1/chats/{chat_id}/commands", json=body, timeout=WAIT_SECONDS)
        assert answer.status_code == 202, answer.text

    def joined(self, chat_id: str, receive_bytes: int = 0) -> socket.socket:
        """Open a stream and send the request."""
        parts = urlsplit(self.url)
        stream = socket.socket()
        if receive_bytes:
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        stream.settimeout(WAIT_SECONDS)
        stream.connect((parts.hostname, parts.port))
        stream.sendall(f"GET /v1/chats/subscribe?chat_id={chat_id} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        return stream


@contextmanager
def _reading(harnesses: Sequence[Harness]) -> Iterator[None]:
    """The readers of all variants, in one thread that counts events."""
    selector = selectors.DefaultSelector()
    over = threading.Event()
    with ExitStack() as stack:
        for harness in harnesses:
            for number in range(CHATS * READERS_OF_EACH):
                stream = stack.enter_context(harness.joined(f"c{number % CHATS}"))
                stream.setblocking(False)
                selector.register(stream, selectors.EVENT_READ, harness)

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


def _streaming(harnesses: dict[str, Harness]) -> dict[str, dict[str, list[float]]]:
    """Measure the CPU time of web process and worker for each received event. Returns microseconds for each window, by
    variant."""
    found: dict[str, dict[str, list[float]]] = {name: {"web": [], "worker": [], "events": []} for name in harnesses}
    with _reading(list(harnesses.values())):
        for harness in harnesses.values():
            for number in range(CHATS):
                harness.post(f"c{number}", "write", MODEL)
        time.sleep(WARM_SECONDS)
        for number in range(WINDOWS):
            progress(f"window {number + 1} of {WINDOWS}")
            before = {name: _now(harness) for name, harness in harnesses.items()}
            time.sleep(WINDOW_SECONDS)
            for name, harness in harnesses.items():
                events, web, worker = (b - a for a, b in zip(before[name], _now(harness), strict=True))
                found[name]["events"].append(events / WINDOW_SECONDS)
                found[name]["web"].append(web / events * 1e6)
                found[name]["worker"].append(worker / (events / READERS_OF_EACH) * 1e6)
    progress("")
    return found


def _now(harness: Harness) -> tuple[float, float, float]:
    return harness.events, cpu_seconds(harness.web), cpu_seconds(harness.worker)


@contextmanager
def _harnesses(variants: dict[str, Altered]) -> Iterator[dict[str, Harness]]:
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        harnesses: dict[str, Harness] = {}
        for number, (name, altered) in enumerate(variants.items()):
            mine = directory / str(number)
            mine.mkdir()
            store = stack.enter_context(running_store(mine))
            harnesses[name] = Harness(stack, altered, store.url, mine)
        yield harnesses


def loop() -> Section:
    with _harnesses({"uvloop": Altered(), "asyncio": Altered(loop="asyncio")}) as harnesses:
        found = _streaming(harnesses)
    figures = []
    for half, what in (("web", "an event at a reader, web"), ("worker", "an event, worker")):
        for name in harnesses:
            figures.append(figure(f"{half} {name}", f"CPU of {what}, {name}", found[name][half], "us"))
        figures.append(ratio(half, f"asyncio / uvloop, {half}", found["asyncio"][half], found["uvloop"][half]))
    for name in harnesses:
        figures.append(figure(f"events {name}", f"events received by readers, {name}", found[name]["events"], "/s"))
    return Section("loop", "uvloop, chosen, beside asyncio", "python -m bench.choices loop", figures)


def buffer() -> Section:
    """Measure the CPU time that a larger send buffer saves, with readers that keep up and readers that join a long
    chat, and the memory that it costs with readers that stall."""
    with _harnesses({name: Altered(send_buffer_bytes=size) for name, size in BUFFERS.items()}) as harnesses:
        joins = _joins(harnesses)
        stalls = {name: _kernel_bytes_of_stalled(harness) for name, harness in harnesses.items()}
        found = _streaming(harnesses)
    figures = [figure(f"web {name}", f"CPU of an event, {name}", found[name]["web"], "us") for name in harnesses]
    figures += [figure(f"join {name}", f"CPU of a snapshot of 1.1 MB, {name}", joins[name], "ms") for name in harnesses]
    stalled = "kernel memory of a stalled reader"
    figures += [figure(f"stall {name}", f"{stalled}, {name}", stalls[name], "kB") for name in harnesses]
    return Section("buffer", "SO_SNDBUF", "python -m bench.choices buffer", figures)


def _joins(harnesses: dict[str, Harness]) -> dict[str, list[float]]:
    """Measure the variants in turn. Returns milliseconds of the web process's CPU time."""
    for harness in harnesses.values():
        for number in range(LONG_MESSAGES):
            answer = httpx2.post(
                f"{harness.url}/v1/chats/long/commands",
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
    found: dict[str, list[float]] = {name: [] for name in harnesses}
    for number in range(JOINS):
        progress(f"join {number + 1} of {JOINS}")
        for name, harness in harnesses.items():
            before = cpu_seconds(harness.web)
            with harness.joined("long") as stream:
                _read_until(stream, b"\n: hb ")
            found[name].append((cpu_seconds(harness.web) - before) * 1e3)
    return found


def _read_until(stream: socket.socket, wanted: bytes) -> None:
    tail = b""
    while wanted not in tail:
        received = stream.recv(262_144)
        assert received, "it ended"
        tail = tail[-len(wanted) :] + received


def _kernel_bytes_of_stalled(harness: Harness) -> list[float]:
    """Return the kB of the server's socket buffers in the kernel for each reader that opens a long chat and reads
    nothing (ss, skmem)."""
    port = urlsplit(harness.url).port
    with ExitStack() as stack:
        for _ in range(STALLED):
            stack.enter_context(harness.joined("long", receive_bytes=8_192))
        return _settled(lambda: _send_memory(port))


def _settled(look: Callable[[], list[float]]) -> list[float]:
    """Call `look` until its values have not grown for a second, and return them."""
    last: list[float] = []
    for _ in range(int(WAIT_SECONDS)):
        time.sleep(1.0)
        now = look()
        if len(now) == STALLED and now == last:
            return now
        last = now
    raise TimeoutError("the kernel memory of stalled readers does not stop growing; run it again on a quieter machine")


def _send_memory(port: int | None) -> list[float]:
    told = subprocess.run(["ss", "-tmnH", f"sport = :{port}"], capture_output=True, text=True, check=True).stdout
    return sorted(int(size) / 1e3 for size in re.findall(r"skmem:\(.*?,w(\d+),", told) if int(size) > 0)


def checkpoint() -> Section:
    """Compress the checkpoints of a chat with one exchange and of a chat with forty, at each level, without and with a
    dictionary. The dictionary is made from other chats about another subject and is loaded once."""
    pages = ("docs/design.md", "docs/tools.md")
    words, other_words = (" ".join((ROOT / page).read_text().split()) for page in pages)
    others = [_state(other_words, at * 301, 1 + at % 3) for at in range(200)]
    dictionary = zstd.train_dict(others, 16_384)
    ways: dict[str, Callable[[bytes], bytes]] = {
        f"level {level}{', chosen' if level == LEVEL else ''}": partial(zstd.compress, level=level)
        for level in (1, 3, 6)
    }
    ways[f"level {LEVEL}, dictionary"] = partial(zstd.compress, level=LEVEL, zstd_dict=dictionary)
    figures: list[Figure] = []
    for what, state in (("one exchange", _state(words, 77, 1)), ("forty", _state(words, 77, 40))):
        spent: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(15):
            for name, way in ways.items():
                repeats = max(1, 300_000 // len(state))
                before = time.process_time()
                for _ in range(repeats):
                    way(state)
                spent[name].append((time.process_time() - before) / repeats * 1e6)
        for name, way in ways.items():
            kept = len(way(state)) / len(state)
            note = f"{len(state) / 1e3:.1f} kB to {kept:.0%}"
            figures.append(
                figure(f"{what} {name}", f"CPU time to compress {what}, {name}", spent[name], "us", note=note)
            )
    return Section("checkpoint", "zstd", "python -m bench.choices checkpoint", figures)


def _state(words: str, offset: int, exchanges: int) -> bytes:
    """Return a chat as it is in a checkpoint. Its texts are cut from the pages of this project."""
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
    parser.add_argument("rows", nargs="*", choices=[*ROWS, []], default=list(ROWS), help="the choices to measure (all)")
    for name in parser.parse_args().rows:
        print(table(ROWS[name]()), end="\n\n", flush=True)
    print(f"the machine's noise: {noise()}")


if __name__ == "__main__":
    main()
