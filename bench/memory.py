"""Measures the memory of an idle reader, and of a browser with a feed and a stream. `bench.resting` measures chats at
rest and running chats, `bench.talked` chats at rest after many turns, `bench.stalls` stalled readers.

The figure is the growth of a process's private memory (`rss_bytes`), divided by the number of readers. The baseline is
an idle reader of a plain Starlette application under uvicorn. To repeat: `python -m bench.memory [--small]`. Before
each measurement the same operation is done some hundred times, so that caches and lazily imported modules do not count.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from tests.support.fleet import fleet_on_new_store
from tests.support.tokens import bearer, tokens

from bench.figures import Figure, Section, announce, figure, progress, ratio, table
from bench.plain_app import plain_server
from bench.processes import rss_bytes
from bench.resting import chat_figures
from bench.stalls import stalled_figures
from bench.streams import GREETED, Streams, allow_open_files, get, open_files_max
from bench.talked import talked_figures

__all__ = ["measure"]

IDLE_MAX_BYTES = 16_000
"""The allowed memory of an idle reader: 10,000 readers in 160 MB."""

BROWSER_MAX_BYTES = 35_000
"""The allowed memory of a browser: the feed of a caller and the stream of a chat that nobody else reads."""

WARM = 300
"""The number of streams that are opened before the measurement."""

SETTLE_SECONDS = 1.0
"""The time that ending tasks, and work after the beginning of a stream, may take."""

SPARE_FILES = 2_000
"""Open files beside those of `many` browsers, which have two connections each. Where fewer files are allowed, the row
has as many readers as fit, in thousands."""

LIMITS = {"STREAMS_PER_PRINCIPAL": "20000", "RUNS_PER_PRINCIPAL": "20000"}
"""The limit of streams for each caller; all readers are one caller."""


def measure(small: bool) -> Section:
    """Measure all kinds of readers; `small` has about a tenth of the numbers."""
    few, many, chats, active = (300, 1_000, 300, 60) if small else (1_000, 10_000, 10_000, 200)
    announce("memory", 90 if small else 220)
    many = min(many, (open_files_max() - SPARE_FILES) // 2_000 * 1_000)
    allow_open_files(2 * many + SPARE_FILES)
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        figures += asyncio.run(_idle(stack, Path(directory), few, many))
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        figures += asyncio.run(_browsers(stack, Path(directory), few, many))
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        figures += asyncio.run(chat_figures(stack, Path(directory), chats, active))
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        figures += asyncio.run(talked_figures(stack, Path(directory), 3 if small else 10))
    figures += stalled_figures(30 if small else 100, rounds=1 if small else 3)
    return Section(
        "memory", "memory of waiting readers and chats", f"python -m bench.memory{' --small' * small}", figures
    )


async def _idle(stack: ExitStack, directory: Path, few: int, many: int) -> list[Figure]:
    """Measure readers of one chat, readers of one chat each, and readers of Starlette. Starlette's figure does not
    depend on the number of readers."""
    fleet = stack.enter_context(fleet_on_new_store(directory))
    ours: dict[str, Callable[[int], bytes]] = {
        "one": lambda _: get("/v1/chats/subscribe?chat_id=one"),
        "own": lambda number: get(f"/v1/chats/subscribe?chat_id=own-{number}"),
    }
    found: dict[tuple[str, int], float] = {}
    for count in (few, many):
        for kind, request in ours.items():
            progress(f"memory: {count:,} idle readers, {kind}")
            web = await fleet.add_web(limits=LIMITS)
            found[kind, count] = _per_stream(web.url, web.pid, [request(number) for number in range(WARM + count)])
            await web.stop()
    plain: dict[str, float] = {}
    for kind in ("bare", "queue"):
        progress(f"memory: {few:,} idle readers of Starlette, {kind}")
        with plain_server() as (url, pid):
            plain[kind] = _per_stream(url, pid, [get(f"/{kind}")] * (WARM + few))
    return [
        _bytes("one_few", f"idle reader, {few:,} of one chat", [found["one", few]], IDLE_MAX_BYTES),
        _bytes("one_many", f"idle reader, {many:,} of one chat", [found["one", many]], IDLE_MAX_BYTES),
        _bytes("own_few", f"idle reader, {few:,} of a chat each", [found["own", few]]),
        _bytes("own_many", f"idle reader, {many:,} of a chat each", [found["own", many]]),
        _bytes("bare", f"uvicorn and Starlette, {few:,} that only wait", [plain["bare"]]),
        _bytes("queue", f"uvicorn and Starlette, {few:,} with a queue", [plain["queue"]]),
        ratio(
            "one_to_queue", "idle reader of one chat / Starlette's with a queue", [found["one", few]], [plain["queue"]]
        ),
    ]


async def _browsers(stack: ExitStack, directory: Path, few: int, many: int) -> list[Figure]:
    """Measure browsers: each has the feed of another caller and the stream of another chat. With HTTP/1.1 each browser
    needs two connections."""
    config = directory / "threadcast.toml"
    config.write_text(tokens(**{f"caller-{number}": "" for number in range(WARM + many)}))
    fleet = stack.enter_context(fleet_on_new_store(directory, "--config", str(config)))

    def requests(count: int, *paths: str) -> list[bytes]:
        return [
            get(path.format(number), headers=bearer(f"caller-{number}"))
            for number in range(WARM + count)
            for path in paths
        ]

    feed, stream = "/v1/chats/feed", "/v1/chats/subscribe?chat_id=own-{}"
    figures: list[Figure] = []
    for key, what, count, paths, bar in (
        ("feed", "feed of a caller each", few, [feed], None),
        ("browser_few", "browser, a feed and a stream", few, [feed, stream], BROWSER_MAX_BYTES),
        ("browser_many", "browser, a feed and a stream", many, [feed, stream], BROWSER_MAX_BYTES),
    ):
        progress(f"memory: {count:,} of {what}")
        web = await fleet.add_web(limits=LIMITS)
        used = _per_stream(web.url, web.pid, requests(count, *paths), len(paths))
        await web.stop()
        figures.append(_bytes(key, f"{what}, {count:,}", [used], bar))
    return figures


def _per_stream(url: str, pid: int, requests: Sequence[bytes], of_each: int = 1) -> float:
    """Return the bytes that each reader, who has `of_each` streams, adds to a new process. The first readers stay open,
    so that the process reuses no memory that they freed."""
    with Streams(url) as streams:
        streams.open(requests[: WARM * of_each], GREETED)
        time.sleep(SETTLE_SECONDS)
        before = rss_bytes(pid)
        streams.open(requests[WARM * of_each :], GREETED)
        time.sleep(SETTLE_SECONDS)
        return (rss_bytes(pid) - before) / (len(requests) / of_each - WARM)


def _bytes(key: str, what: str, values: Sequence[float], bar: float | None = None) -> Figure:
    return figure(key, what, [value / 1_000 for value in values], "kB", bar=None if bar is None else bar / 1_000)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.memory", description=__doc__)
    parser.add_argument("--small", action="store_true", help="measure a tenth of the numbers")
    section = measure(parser.parse_args().small)
    progress("")
    print(table(section))
    sys.exit(any(each.holds is False for each in section.figures))
