"""Measures the CPU time of a token on its whole path: model bytes, provider, assembler, append, relay, SSE bytes.

A scripted model server streams 10 or 50 tokens a second into each of 1 to 1,500 chats of one worker, and each chat has
one reader of one web process. The figures are the CPU seconds of worker, web process and store over a window, divided
by the number of tokens, and by the number of events (`stream_delta`), that reached the readers; whether all streams
keep pace; and the age of a token at its reader. The pause between appends follows the load, so the costs of a token and
of an event mean something only beside the number of tokens in an event. The floor is the time to read the same model
bytes with httpx2 and with bare asyncio. One process (`threadcast serve`) is measured at 50, 100 and 200 chats, too.

The bars (DESIGN §13): up to 200 chats a token is at most 40 ms old at the median while worker, web process and store
are each less than 60 % busy; at 200 chats an event costs at most 140 us in all processes together, 110 us with `serve`;
at 500 chats, where the pause between appends is longer, a token costs at most 60 us in all processes together; at 1,500
chats a token is at most 250 ms old, or the worker has left chats to other workers; and all streams keep pace. `python
-m bench.tokens [chats[xtokens a second] ...]` runs it.
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
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

__all__ = ["ENDLESS", "Running", "Window", "measure", "post_all", "running", "wait_for"]


class Setting(NamedTuple):
    """The number of chats that stream at once, and the tokens a second of each."""

    chats: int
    pace: int = TOKENS_PER_SECOND

    @classmethod
    def parse(cls, text: str) -> "Setting":
        """Read `200` or `200x10`. Raises ValueError."""
        return cls(*map(int, text.split("x", 1)))

    @property
    def key(self) -> str:
        return f"split{self.chats}" + (f"x{self.pace}" if self.pace != TOKENS_PER_SECOND else "")

    def __str__(self) -> str:
        return f"{self.chats} chats" + (f" x {self.pace} tokens/s" if self.pace != TOKENS_PER_SECOND else "")


SETTINGS = tuple(map(Setting.parse, ["1", "50x10", "100x10", "200x10", "50", "100", "200", "500", "1500"]))
SETTINGS_SMALL = tuple(map(Setting.parse, ["200x10", "50", "200", "500"]))
SETTINGS_SERVE = tuple(map(Setting.parse, ["50", "100", "200"]))
SETTINGS_SERVE_SMALL = (Setting(200),)
CHATS_OF_AGE, CHATS_OF_COST, CHATS_OF_LOAD = 200, 500, 1_500
"""The numbers of chats at which the bars apply. An idle process appends often, so that tokens are young; a busy one
collects them, so that they are cheap."""

AGE_MAX_MS = 40.0
"""The allowed age of a token at its reader, at the median (DESIGN §13)."""

AGE_FULL_MAX_MS = 250.0
"""The allowed median age of a token if one worker owns all of 1,500 chats."""

BUSY_SHARE = 0.6
"""The share of a core below which a process is not busy, so that tokens must not wait for it."""

US_MAX = 60.0
"""The allowed CPU time of a token in microseconds: web process, worker and store together (DESIGN §13)."""

EVENT_US_MAX, EVENT_US_MAX_SERVE = 140.0, 110.0
"""The allowed CPU time of an event in microseconds, with web process and worker and in `serve`, each with the store
(DESIGN §13)."""

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
    readers, in which `stamps` is the number of tokens."""

    seconds: float
    cpu: dict[str, float]
    sent: int
    seen: Count

    def us(self, name: str) -> float:
        """Return the microseconds of a process for each token that reached its reader."""
        return self.cpu[name] / max(1, self.seen.stamps) * 1e6

    def busy(self, name: str) -> float:
        """Return the share of a core that a process took."""
        return self.cpu[name] / self.seconds

    @property
    def total_us(self) -> float:
        return sum(self.us(name) for name in self.cpu)

    def event_us(self, *names: str) -> float:
        """Return the microseconds of these processes for each event that reached its reader."""
        return sum(self.cpu[name] for name in names) / max(1, self.seen.events) * 1e6


class Running(NamedTuple):
    """A server with its store. `pids` maps the names in the figures to process ids."""

    url: str
    pids: dict[str, int]
    store_url: str
    log: Path


@contextmanager
def running(
    directory: Path, base_url: str, kind: Kind = "both", worker_environment: Mapping[str, str] | None = None
) -> Iterator[Running]:
    """Start web process and worker, or `serve`, or only the web half, with a private store without persistence and the
    models of `base_url`. `worker_environment` has additional environment variables for the worker."""
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

        def started(*arguments: str, **more: str) -> Process:
            process = start(*arguments, log=log, environment={**environment, **more})
            return stack.enter_context(process).wait_ready()

        front = started("serve" if kind == "serve" else "web", "--port", "0")
        pids = {"serve" if kind == "serve" else "web": front.pid}
        if kind == "both":
            pids["worker"] = started("worker", **(worker_environment or {})).pid
        yield Running(front.url, {**pids, "store": store.pid}, store.url, log)


async def post_all(url: str, chat_ids: list[str]) -> None:
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


def _windows(server: Running, models: ModelServer, setting: Setting, *, small: bool) -> tuple[int, list[Window]]:
    """Open chats with one reader each, start an answer in each chat, measure some windows, and end all answers. Returns
    the number of answers that were streaming in all windows, and the windows."""
    chats_count = setting.chats
    models.answer_with(ENDLESS, setting.pace)
    path = "/v1/chats/subscribe?chat_id=chat-%d"
    with opened_readers(server.url, path, "-m", str(chats_count), "-t", STAMP) as readers:
        readers.open(chats_count)
        anyio.run(post_all, server.url, [f"chat-{number}" for number in range(chats_count)])
        wait_for(lambda: models.streaming_count() >= chats_count)
        time.sleep(SETTLE_SECONDS)
        begun = models.streaming_count()
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
        wait_for(lambda: not models.streaming_count())
    return min(begun, chats_count), windows


def wait_for(is_so: Callable[[], bool]) -> None:
    """Wait for a condition or a deadline. If the deadline comes first, the figures show it."""
    give_up_at = time.monotonic() + BEGIN_SECONDS
    while not is_so() and time.monotonic() < give_up_at:
        time.sleep(0.05)


def _age_bar(setting: Setting, windows: list[Window]) -> float | None:
    """Return the allowed age of a token, or None if the setting has no bar or a process is so busy that tokens may wait
    for it."""
    if setting.chats == CHATS_OF_LOAD:
        return AGE_FULL_MAX_MS
    is_busy = any(statistics.median(w.busy(name) for w in windows) >= BUSY_SHARE for name in windows[0].cpu)
    return AGE_MAX_MS if setting.chats <= CHATS_OF_AGE and not is_busy else None


def _figures(
    key: str, what: str, windows: list[Window], setting: Setting, *, begun: int = 0, is_serve: bool = False
) -> list[Figure]:
    """Return the figures of one setting; `begun` is the number of its chats that were streaming. The notes have the
    number of tokens in an event, and each process's share of a core. The figures have the bars of the setting; with
    `is_serve`, only the bar of an event."""
    has_bars = not is_serve
    per_event = sum(w.seen.stamps for w in windows) / max(1, sum(w.seen.events for w in windows))
    begun = begun or setting.chats
    sent = sum(w.sent / w.seconds for w in windows) / len(windows) / (begun * setting.pace)
    left = f"; {setting.chats - begun} chats left to other workers" if begun < setting.chats else ""
    busy = ", ".join(f"{name} {statistics.median(w.busy(name) for w in windows):.0%}" for name in windows[0].cpu)
    total = figure(
        f"{key}.total",
        f"{what}: in all",
        [w.total_us for w in windows],
        "us",
        bar=US_MAX if has_bars and setting.chats == CHATS_OF_COST else None,
        note=f"{per_event:.2f} tokens an event",
    )
    parts = [figure(f"{key}.{name}", f"{what}: {name}", [w.us(name) for w in windows], "us") for name in windows[0].cpu]
    events_each_second = sum(w.seen.events / w.seconds for w in windows) / len(windows)
    has_event_bar = setting == Setting(CHATS_OF_AGE)
    event = figure(
        f"{key}.event",
        f"{what}: an event, in all",
        [w.event_us(*w.cpu) for w in windows],
        "us",
        bar=(EVENT_US_MAX_SERVE if is_serve else EVENT_US_MAX) if has_event_bar else None,
        note=f"{per_event:.2f} tokens an event, {events_each_second:,.0f} events/s",
    )
    event_parts = [
        figure(f"{key}.event.{name}", f"{what}: an event, {name}", [w.event_us(name) for w in windows], "us")
        for name in windows[0].cpu
    ]
    pace = figure(
        f"{key}.pace",
        f"{what}: tokens read / sent",
        [w.seen.stamps / max(1, w.sent) for w in windows],
        "x",
        bar=PACE_LEAST if has_bars and setting.chats in (CHATS_OF_AGE, CHATS_OF_COST) else None,
        at_most=False,
        note=f"the model sent {sent:.2f} of the planned tokens{left}",
    )
    ages = [
        figure(
            f"{key}.age_p50",
            f"{what}: age of a token at its reader, p50",
            [w.seen.p50_us / 1_000 for w in windows],
            "ms",
            bar=_age_bar(setting, windows) if has_bars else None,
            note=f"busy: {busy}",
        ),
        figure(
            f"{key}.age_p99",
            f"{what}: age of a token at its reader, p99",
            [w.seen.p99_us / 1_000 for w in windows],
            "ms",
        ),
    ]
    return [total, *parts, event, *event_parts, pace, *ages]


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


def measure(small: bool, settings: tuple[Setting, ...] = (), *, split: bool = True, whole: bool = True) -> Section:
    """Measure the row `tokens`. `settings` replaces the usual settings. `split` measures web process and worker,
    `whole` measures `serve`."""
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory() as directory, model_server() as models:
        for name in FLOORS:
            progress(f"tokens: floor {name}")
            figures.append(_floor(models, name, small=small))
        for setting in (settings or (SETTINGS_SMALL if small else SETTINGS)) if split else ():
            progress(f"tokens: {setting}")
            with running(Path(directory) / setting.key, models.url) as server:
                begun, windows = _windows(server, models, setting, small=small)
            figures += _figures(setting.key, str(setting), windows, setting, begun=begun)
        for setting in (settings or (SETTINGS_SERVE_SMALL if small else SETTINGS_SERVE)) if whole else ():
            key = setting.key.replace("split", "serve")
            progress(f"tokens: {setting}, serve")
            with running(Path(directory) / key, models.url, "serve") as server:
                begun, windows = _windows(server, models, setting, small=small)
            figures += _figures(key, f"{setting}, serve", windows, setting, begun=begun, is_serve=True)
    progress("")
    return Section(
        row="tokens",
        title="CPU time of a token and of an event from the model's bytes to the reader's, one reader for each chat",
        command="python -m bench.tokens",
        figures=figures,
        remarks=["A token's age includes the wait for the next append; appends are 30 to 250 ms apart, by the load."],
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m bench.tokens", description="Measure the CPU time of a token on its whole way."
    )
    parser.add_argument(
        "settings",
        nargs="*",
        type=Setting.parse,
        help="chats that stream at once, as in 200 or 200x10 (tokens a second)",
    )
    parser.add_argument("--small", action="store_true", help="measure in less time")
    parser.add_argument("--split-only", action="store_true", help="not `threadcast serve`")
    options = parser.parse_args()
    print(table(measure(options.small, tuple(options.settings), whole=not options.split_only)))
    sys.exit(0)
