"""Measures the CPU time of a token on its whole way: model bytes, provider, assembler, append, relay, SSE bytes.

A scripted model server streams 50 tokens a second into each of 1, 50, 200 and 500 chats of one worker, and each chat
has one reader of one web process. The figures are the CPU seconds of worker, web process and store over a window,
divided by the number of tokens that reached the readers; whether all streams keep pace; and the age of a token at its
reader. The floor is the time to read the same model bytes with httpx2 and with bare asyncio. One process (`threadcast
serve`) is measured at 200 chats, too. The bars (DESIGN §13): at 200 chats a token is at most 40 ms old at the median;
at 500 chats, where the pause between appends is longer, it costs at most 60 us in all processes together; and all
streams keep pace. `python -m bench.tokens [chats ...]` runs it.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import anyio
import httpx2
import uvloop
from tests.support.server import Process, start, user_message
from tests.support.store import running_store

from bench.figures import Figure, Section, figure, progress, table
from bench.model_server import STAMP, TOKENS_PER_SECOND, ModelServer, model_server
from bench.processes import cpu_seconds
from bench.readers import Count, opened_readers

__all__ = ["Window", "measure", "running"]

CHATS = (1, 50, 200, 500)
CHATS_SMALL = (50, 200, 500)
CHATS_OF_AGE, CHATS_OF_COST = 200, 500
"""The settings of the two bars. An idle process appends often, so that tokens are young; a busy one collects them, so
that they are cheap."""

AGE_MAX_MS = 40.0
"""The allowed age of a token at its reader, at the median (DESIGN §13)."""

US_MAX = 60.0
"""The allowed CPU time of a token in microseconds: web process, worker and store together (DESIGN §13)."""

PACE_LEAST = 0.99
"""The least fraction of the sent tokens that must reach the readers in a window. A stream that cannot keep pace falls
further behind each second."""

WINDOWS, WINDOW_SECONDS = 5, 4.0
WINDOWS_SMALL, WINDOW_SMALL_SECONDS = 3, 2.0

SETTLE_SECONDS = 1.5
"""The wait after the last stream has begun, because the first appends contain more than deltas."""

BEGIN_SECONDS = 30.0
"""Time limit for all answers to begin, and again to end. After the limit, the measurement continues."""

ENDLESS = 1_000_000
"""The number of tokens of an answer; `stop_answers` ends the answers earlier."""

POSTS_AT_ONCE = 20


Kind: TypeAlias = Literal["both", "serve", "web"]


class Window(NamedTuple):
    """One window: the CPU seconds of each process by its name, the number of sent tokens, and the counts of the
    readers, in which a stamp is a token."""

    seconds: float
    cpu: dict[str, float]
    sent: int
    seen: Count

    def us(self, name: str) -> float:
        """Return the microseconds of a process for each token that reached its reader."""
        return self.cpu[name] / max(1, self.seen.stamps) * 1e6

    @property
    def total_us(self) -> float:
        return sum(self.us(name) for name in self.cpu)


class Running(NamedTuple):
    """A server with its store. `pids` maps the names in the figures to process ids."""

    url: str
    pids: dict[str, int]
    store_url: str
    log: Path


@contextmanager
def running(directory: Path, base_url: str, kind: Kind = "both") -> Iterator[Running]:
    """Start web process and worker, or `serve`, or only the web half, with a private store without persistence and the
    models of `base_url`."""
    with ExitStack() as stack:
        store = stack.enter_context(running_store(directory / "store"))
        environment = {
            "REDIS_URL": store.url,
            "OPENAI_BASE_URL": base_url,
            "OPENAI_API_KEY": "none",
            "THREADCAST_MODELS__DEMO": "true",
            "THREADCAST_STORE__DATA_DIR": str(directory / "data"),
            "THREADCAST_LIMITS__STREAMS_PER_PRINCIPAL": "10000",
            "THREADCAST_LIMITS__RUNS_PER_PRINCIPAL": "10000",
            "THREADCAST_SERVER__METRICS_PORT": "0",
        }
        log = directory / "log"

        def started(*arguments: str) -> Process:
            return stack.enter_context(start(*arguments, log=log, environment=environment)).wait_ready()

        front = started("serve" if kind == "serve" else "web", "--port", "0")
        pids = {"serve" if kind == "serve" else "web": front.pid}
        if kind == "both":
            pids["worker"] = started("worker").pid
        yield Running(front.url, {**pids, "store": store.pid}, store.url, log)


async def _post_all(url: str, chat_ids: list[str]) -> None:
    """Post a question in each chat, several at a time."""
    limit = anyio.CapacityLimiter(POSTS_AT_ONCE)
    async with httpx2.AsyncClient(timeout=30) as client, anyio.create_task_group() as tasks:

        async def post(chat_id: str) -> None:
            async with limit:
                body = user_message(f"ask-{chat_id}", "go", params={"model": "openai/bench"})
                answer = await client.post(f"{url}/v1/chats/{chat_id}/commands", json=body)
                if answer.status_code != 202:
                    raise RuntimeError(f"a command was answered {answer.status_code}: {answer.text}")

        for chat_id in chat_ids:
            tasks.start_soon(post, chat_id)


def _windows(server: Running, models: ModelServer, chats_count: int, *, small: bool) -> list[Window]:
    """Open chats with one reader each, start an answer in each chat, measure some windows, and end all answers."""
    models.answer_with(ENDLESS)
    path = "/v1/chats/subscribe?chat_id=chat-%d"
    with opened_readers(server.url, path, "-m", str(chats_count), "-t", STAMP) as readers:
        readers.open(chats_count)
        anyio.run(_post_all, server.url, [f"chat-{number}" for number in range(chats_count)])
        _wait(lambda: models.streaming_count() >= chats_count)
        time.sleep(SETTLE_SECONDS)
        windows = []
        for _ in range(WINDOWS_SMALL if small else WINDOWS):
            readers.reset()
            began, sent = time.monotonic(), models.sent_count()
            before = {name: cpu_seconds(pid) for name, pid in server.pids.items()}
            time.sleep(WINDOW_SMALL_SECONDS if small else WINDOW_SECONDS)
            seen = readers.count()
            cpu = {name: cpu_seconds(pid) - before[name] for name, pid in server.pids.items()}
            windows.append(Window(time.monotonic() - began, cpu, models.sent_count() - sent, seen))
        models.stop_answers()
        _wait(lambda: not models.streaming_count())
    return windows


def _wait(is_so: Callable[[], bool]) -> None:
    """Wait for a condition or a deadline. If the deadline comes first, the figures show it."""
    give_up_at = time.monotonic() + BEGIN_SECONDS
    while not is_so() and time.monotonic() < give_up_at:
        time.sleep(0.05)


def _figures(key: str, what: str, windows: list[Window], chats_count: int, *, has_bars: bool = True) -> list[Figure]:
    """Return the figures of one setting. A note has the number of tokens in an event. With `has_bars`, they have the
    bars of that number of chats."""
    per_event = sum(w.seen.stamps for w in windows) / max(1, sum(w.seen.events for w in windows))
    sent = sum(w.sent / w.seconds for w in windows) / len(windows) / (chats_count * TOKENS_PER_SECOND)
    total = figure(
        f"{key}.total",
        f"{what}: in all",
        [w.total_us for w in windows],
        "us",
        bar=US_MAX if has_bars and chats_count == CHATS_OF_COST else None,
        note=f"{per_event:.2f} tokens an event",
    )
    parts = [figure(f"{key}.{name}", f"{what}: {name}", [w.us(name) for w in windows], "us") for name in windows[0].cpu]
    pace = figure(
        f"{key}.pace",
        f"{what}: tokens read / sent",
        [w.seen.stamps / max(1, w.sent) for w in windows],
        "x",
        bar=PACE_LEAST if has_bars and chats_count in (CHATS_OF_AGE, CHATS_OF_COST) else None,
        at_most=False,
        note=f"the model sent {sent:.2f} of the planned tokens",
    )
    ages = [
        figure(
            f"{key}.age_p50",
            f"{what}: age of a token at its reader, p50",
            [w.seen.p50_us / 1_000 for w in windows],
            "ms",
            bar=AGE_MAX_MS if has_bars and chats_count == CHATS_OF_AGE else None,
        ),
        figure(
            f"{key}.age_p99",
            f"{what}: age of a token at its reader, p99",
            [w.seen.p99_us / 1_000 for w in windows],
            "ms",
        ),
    ]
    return [total, *parts, pace, *ages]


# the floor

_BODY = {"model": "bench", "messages": [], "stream": True}


async def _read_httpx2(base_url: str, streams_count: int) -> None:
    limits = httpx2.Limits(max_connections=None)
    async with httpx2.AsyncClient(limits=limits, timeout=30) as client:

        async def read() -> None:
            async with client.stream("POST", f"{base_url}/chat/completions", json=_BODY) as answer:
                async for _ in answer.aiter_bytes():
                    pass

        await asyncio.gather(*(read() for _ in range(streams_count)))


async def _read_bare(base_url: str, streams_count: int) -> None:
    host, _, port = base_url.removeprefix("http://").partition("/")[0].partition(":")
    body = json.dumps(_BODY).encode()
    request = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body

    async def read() -> None:
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(request)
        while not (await reader.read(65_536)).endswith(b"\r\n0\r\n\r\n"):
            pass
        writer.close()

    await asyncio.gather(*(read() for _ in range(streams_count)))


FLOORS: dict[str, Callable[[str, int], Awaitable[None]]] = {"httpx2": _read_httpx2, "bare": _read_bare}


def _floor(models: ModelServer, name: str, *, small: bool) -> Figure:
    """Return the CPU time for each token of a loop that only reads."""
    tokens_count = int((WINDOW_SMALL_SECONDS if small else WINDOW_SECONDS) * TOKENS_PER_SECOND)
    spent = []
    for _ in range(3):
        models.answer_with(tokens_count)
        began = time.process_time()

        async def read() -> None:
            await FLOORS[name](models.url, CHATS_OF_AGE)

        uvloop.run(read())
        spent.append((time.process_time() - began) / (tokens_count * CHATS_OF_AGE) * 1e6)
    what = {"httpx2": "httpx2 only reads the model's bytes", "bare": "bare asyncio only reads them"}[name]
    return figure(f"floor.{name}", f"floor: {what}", spent, "us", note=f"{CHATS_OF_AGE} streams, a chunk a read")


def measure(small: bool, chats: tuple[int, ...] = (), *, split: bool = True, whole: bool = True) -> Section:
    """Measure the row `tokens`, with all settings. `chats`: the numbers of chats, instead of the usual ones. `split`:
    measure web process and worker. `whole`: measure `serve`, too."""
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory() as directory, model_server() as models:
        for name in FLOORS:
            progress(f"tokens: floor {name}")
            figures.append(_floor(models, name, small=small))
        for chats_count in (chats or (CHATS_SMALL if small else CHATS)) if split else ():
            progress(f"tokens: {chats_count} chats")
            with running(Path(directory) / f"split{chats_count}", models.url) as server:
                windows = _windows(server, models, chats_count, small=small)
            figures += _figures(f"split{chats_count}", f"{chats_count} chats", windows, chats_count)
        if whole:
            progress("tokens: serve")
            with running(Path(directory) / "serve", models.url, "serve") as server:
                windows = _windows(server, models, CHATS_OF_AGE, small=small)
            figures += _figures(
                f"serve{CHATS_OF_AGE}", f"{CHATS_OF_AGE} chats, serve", windows, CHATS_OF_AGE, has_bars=False
            )
    progress("")
    return Section(
        row="tokens",
        title="CPU time of a token from the model's bytes to the reader's, one reader for each chat",
        command="python -m bench.tokens",
        figures=figures,
        remarks=["A token's age includes the wait for the next append; appends are 30 to 150 ms apart, by the load."],
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m bench.tokens", description="Measure the CPU time of a token on its whole way."
    )
    parser.add_argument("chats", nargs="*", type=int, help="numbers of chats that stream at once (1 50 200 500)")
    parser.add_argument("--small", action="store_true", help="measure in less time")
    parser.add_argument("--split-only", action="store_true", help="not `threadcast serve`")
    options = parser.parse_args()
    print(table(measure(options.small, tuple(options.chats), whole=not options.split_only)))
    sys.exit(0)
