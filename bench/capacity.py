"""Computes how many processes, store shards, memory and network a number of readers needs.

The model is pure: measured coefficients (`COEFFICIENTS`) times a described load (`Load`) give a demand of CPU time and
memory, and `plan` returns the fewest processes that carry it. `python -m bench.capacity` prints the tables of
docs/capacity.md, and `--write` renews them there; a test compares the page with the program.
"""

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from bench.figures import Section, figure, plain

__all__ = ["BUCKETS", "COEFFICIENTS", "LOADS", "Load", "Plan", "full_at", "measure", "plan", "written"]

PAGE = Path(__file__).parents[1] / "docs/capacity.md"
BEGIN, END = "<!-- begin: written by python -m bench.capacity -->", "<!-- end -->"

SIZES = 100, 10_000, 1_000_000

BUCKETS = 16
"""The buckets of a store, which are the most primaries of a Cluster (DISPATCH §7)."""

BUSY_SHARE = 0.6
"""The share of a core that a plan lets a process take. The pause between appends grows above it."""

STREAMS_MAX = 20_000
"""The default of `limits.streams_max`, for each web process."""

STREAMS_OF_A_BROWSER = 2
"""A browser opens the feed of its user and the stream of its chat."""

SHARD_MAX_BYTES = 16e9
"""The maximum bytes of data on a shard. A rewrite of the shard's append-only file may need as much memory again."""

SHARDS = f"shards, 0 if {BUCKETS} are too few"

SEARCH_MAX = 10**9
"""The number of readers at which `full_at` stops."""


class Coefficient(NamedTuple):
    """A measured cost. `source` is the program of `bench/` that measures it, with its argument."""

    value: float
    unit: str
    what: str
    source: str


COEFFICIENTS = {
    "worker_event": Coefficient(95.9, "us", "an event with 10 tokens, in the worker", "tokens 1500"),
    "web_event": Coefficient(27.4, "us", "an event, in each web process with a reader of its chat", "tokens 1500"),
    "web_reader": Coefficient(10.5, "us", "an event at each reader, in the web process", "fanout"),
    "store_event": Coefficient(19.2, "us", "an event, in the store", "tokens 1500"),
    "store_copy": Coefficient(1.54, "us", "an event for one more web process, in the store", "turns"),
    "worker_turn": Coefficient(1_925, "us", "a turn without its text, in the worker", "turns"),
    "web_turn": Coefficient(700, "us", "a turn without its text, in the web process", "turns"),
    "store_turn": Coefficient(383, "us", "a turn without its text, in the store", "turns"),
    "worker_rest": Coefficient(887, "us", "the compaction of a chat after a minute of rest, in the worker", "turns"),
    "store_rest": Coefficient(320, "us", "the compaction of a chat after a minute of rest, in the store", "turns"),
    "web_idle": Coefficient(3_862, "us/s", "an idle web process, in itself", "turns"),
    "worker_idle": Coefficient(4_481, "us/s", "an idle worker, in itself", "turns"),
    "store_idle": Coefficient(3_122, "us/s", "an idle worker and web process, in the store", "turns"),
    "web_idle_reader": Coefficient(5.37, "us/s", "an idle reader with its heartbeats, in the web process", "turns"),
    "store_watched": Coefficient(
        0.09, "us/s", "an idle chat, in the store, for each web process with a reader", "turns"
    ),
    "web_memory": Coefficient(52.0, "MB", "an idle web process", "turns"),
    "worker_memory": Coefficient(69.2, "MB", "an idle worker", "turns"),
    "browser_memory": Coefficient(27.3, "kB", "a feed and a stream, in the web process", "memory"),
    "running_memory": Coefficient(57.4, "kB", "a running chat, in its worker", "memory"),
    "resting_memory": Coefficient(7.1, "kB", "a chat at rest of 10 turns, in the store", "memory"),
    "turn_memory": Coefficient(
        4.5, "kB", "the log of a turn, in the store, for the hour after it (decision 0043)", "memory"
    ),
    "event_bytes": Coefficient(221, "B", "an event of one word at its reader", "fanout"),
}


@dataclass(frozen=True)
class Load:
    """What readers do. A reader is one browser with a feed and the stream of one chat."""

    readers: float
    readers_of_each_chat: float = 1.25
    turn_every_seconds: float = 60.0
    """The time from a question to the next question in a chat that has readers."""
    rest_share: float = 0.33
    """The share of turns after which the chat rests for a minute, so that its log is compacted (decision 0052)."""
    answer_tokens: float = 300.0
    tokens_per_second: float = 50.0
    pause_seconds: float = 0.15
    """The pause between two appends of a process that is busy, but not full (decision 0048)."""
    chats_kept: float = 20.0
    """The chats at rest for each reader."""
    token_bytes: float = 5.0
    buckets: int = BUCKETS
    is_routed: bool = False
    """Whether all readers of a chat connect to the same web process. This is not built."""

    @property
    def chats(self) -> float:
        return self.readers / self.readers_of_each_chat

    @property
    def streaming(self) -> float:
        """The number of chats with an answer that is being written."""
        return self.chats * min(1.0, self.answer_tokens / self.tokens_per_second / self.turn_every_seconds)

    @property
    def events(self) -> float:
        """The events a second."""
        return self.streaming * min(self.tokens_per_second, 1 / self.pause_seconds)

    @property
    def turns(self) -> float:
        return self.chats / self.turn_every_seconds

    @property
    def rests(self) -> float:
        return self.turns * self.rest_share

    def copies(self, web: int) -> float:
        """Return the web processes that fold each event: those with a reader, if readers choose processes at random."""
        return 1.0 if self.is_routed else web * (1 - (1 - 1 / web) ** self.readers_of_each_chat)


LOADS = {"own chats": Load(0), "shared chats": Load(0, readers_of_each_chat=50.0)}
"""Two loads: people who mostly watch their own chats, every fourth of them in a second tab or with a colleague; and
audiences of 50 readers."""


@dataclass(frozen=True)
class Plan:
    """The processes for a load. `shards` is 0 if as many shards as buckets are too few. Shares are of one core."""

    web: int
    workers: int
    shards: int
    web_share: float
    worker_share: float
    store_seconds: float
    """The CPU time of all shards together, in seconds per second."""
    store_share: float
    """The share of the fullest shard. If `shards` is 0, it is computed for one shard for each bucket."""
    web_mb: float
    worker_mb: float
    store_gb: float
    sent_mbit: float


def plan(load: Load) -> Plan:
    """Return the fewest processes for a load, without spare ones."""
    cost = {name: each.value for name, each in COEFFICIENTS.items()}
    by_streams = math.ceil(load.readers * STREAMS_OF_A_BROWSER / STREAMS_MAX)
    web = _fewest(lambda count: _web_seconds(load, count), by_streams)
    work = 1e-6 * (
        load.events * cost["worker_event"] + load.turns * cost["worker_turn"] + load.rests * cost["worker_rest"]
    )
    workers = _fewest(lambda count: work + 1e-6 * count * cost["worker_idle"])
    store_seconds = 1e-6 * (
        load.events * (cost["store_event"] + cost["store_copy"] * (load.copies(web) - 1))
        + load.turns * cost["store_turn"]
        + load.rests * cost["store_rest"]
        + load.chats * load.copies(web) * cost["store_watched"]
        + max(web, workers) * cost["store_idle"]
    )
    resting = load.readers * load.chats_kept * cost["resting_memory"]
    store_bytes = 1e3 * (resting + load.turns * 3_600 * cost["turn_memory"])
    shards = _shards(load.buckets, store_seconds, store_bytes)
    deliveries = load.events * load.readers_of_each_chat
    event_bytes = cost["event_bytes"] + load.token_bytes * load.tokens_per_second * load.pause_seconds
    return Plan(
        web,
        workers,
        shards,
        _web_seconds(load, web) / web,
        work / workers + 1e-6 * cost["worker_idle"],
        store_seconds,
        store_seconds * _fullest(load.buckets, shards or load.buckets),
        cost["web_memory"] + load.readers / web * cost["browser_memory"] / 1e3,
        cost["worker_memory"] + load.streaming / workers * cost["running_memory"] / 1e3,
        store_bytes / 1e9,
        deliveries * event_bytes * 8 / 1e6,
    )


def full_at(fits: Callable[[Plan], bool], load: Load) -> float:
    """Return the greatest number of readers, to 1 %, for which the plan fits; `load` describes what readers do. There
    must be one number up to which plans fit and above which none fits."""
    few, many = 1.0, float(SEARCH_MAX)
    while many / few > 1.01:
        middle = math.sqrt(few * many)
        few, many = (middle, many) if fits(plan(replace(load, readers=middle))) else (few, middle)
    return few


def _web_seconds(load: Load, web: int) -> float:
    """Return the CPU time of `web` web processes together, in seconds per second."""
    cost = {name: each.value for name, each in COEFFICIENTS.items()}
    folded = load.events * cost["web_event"] + load.turns * cost["web_turn"]
    delivered = load.events * load.readers_of_each_chat * cost["web_reader"]
    idle = load.readers * cost["web_idle_reader"] + web * cost["web_idle"]
    return 1e-6 * (folded * load.copies(web) + delivered + idle)


def _fewest(seconds: Callable[[int], float], least: int = 1) -> int:
    """Return the least number of processes, from `least` on, that take at most `BUSY_SHARE` of a core each.
    `seconds(count)` is the CPU time of `count` processes together, in seconds per second; it must not decrease when
    `count` grows."""
    count = max(1, least)
    while (needed := math.ceil(seconds(count) / BUSY_SHARE)) > count:
        count = needed
    return count


def _shards(buckets: int, seconds: float, data_bytes: float) -> int:
    """Return the fewest shards of a store, or 0 if a shard for each bucket is too few."""
    for shards in range(1, buckets + 1):
        share = _fullest(buckets, shards)
        if seconds * share <= BUSY_SHARE and data_bytes * share <= SHARD_MAX_BYTES:
            return shards
    return 0


def _fullest(buckets: int, shards: int) -> float:
    """Return the share of all chats on the shard that has the most buckets."""
    return math.ceil(buckets / shards) / buckets


WALLS: dict[str, Callable[[Plan], bool]] = {
    "one worker is full (CPU)": lambda p: p.workers == 1,
    "one web process is full (CPU, or its streams)": lambda p: p.web == 1,
    "a store without a Cluster is full: CPU": lambda p: p.store_seconds <= BUSY_SHARE,
    "a store without a Cluster is full: memory": lambda p: p.store_gb * 1e9 <= SHARD_MAX_BYTES,
    f"a Cluster of {BUCKETS} shards is full: CPU": lambda p: p.store_seconds <= BUSY_SHARE * BUCKETS,
    f"a Cluster of {BUCKETS} shards is full: memory": lambda p: p.store_gb * 1e9 <= SHARD_MAX_BYTES * BUCKETS,
}
"""Maps each bottleneck to a function that says whether a plan stays below it."""


def _steps(load: Load) -> dict[str, Load]:
    """Return the load for the server as it is built, and for each improvement that is not built."""
    routed = replace(load, is_routed=True)
    return {
        "as built": load,
        "readers routed by chat": routed,
        "more buckets": replace(load, buckets=_buckets(load)),
        "both": replace(routed, buckets=_buckets(routed)),
    }


def _buckets(load: Load) -> int:
    """Return the fewest buckets that suffice, as `BUCKETS` times a power of two."""
    buckets = load.buckets
    while not plan(replace(load, buckets=buckets)).shards:
        buckets *= 2
    return buckets


def written(page: str) -> str:
    """Return the page with its generated part renewed. Raises ValueError if the page has no marks."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"the page must have the lines {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{tables()}\n\n{END}{after}"


def tables() -> str:
    """Return the tables of the page: the coefficients, a plan for each size, the number of readers at which each part
    is full, and the improvements."""
    parts = ["### Coefficients", _lines(["what", "cost", "`python -m bench.…`"], _coefficient_rows())]
    for name, load in LOADS.items():
        of = f"{load.readers_of_each_chat:g} readers a chat"
        sizes = {f"{size:,}": replace(load, readers=float(size)) for size in SIZES}
        steps = _steps(replace(load, readers=float(SIZES[-1])))
        parts += [
            f"### Processes for {name} ({of})",
            _lines(["readers", *sizes], _plan_rows([*sizes.values()])),
            f"### What is full first with {name}",
            _lines(["what", "readers"], [[what, _rounded(full_at(fits, load))] for what, fits in _walls(load)]),
            f"### Steps at {SIZES[-1]:,} readers with {name}",
            _lines(["", *steps], _plan_rows([*steps.values()])),
        ]
    return "\n\n".join(parts)


def _walls(load: Load) -> list[tuple[str, Callable[[Plan], bool]]]:
    return sorted(WALLS.items(), key=lambda wall: full_at(wall[1], load))


def _coefficient_rows() -> list[list[str]]:
    return [[each.what, f"{plain(each.value)} {each.unit}", f"`{each.source}`"] for each in COEFFICIENTS.values()]


def _plan_rows(loads: list[Load]) -> list[list[str]]:
    plans = [(load, plan(load)) for load in loads]
    shown: dict[str, Callable[[Load, Plan], str]] = {
        "chats with readers, of which stream": lambda load, _: f"{load.chats:,.0f}, {load.streaming:,.0f}",
        "events a second": lambda load, _: f"{load.events:,.0f}",
        "web processes, CPU of each": lambda _, p: f"{p.web:,}, {p.web_share:.0%}",
        "workers, CPU of each": lambda _, p: f"{p.workers:,}, {p.worker_share:.0%}",
        "shards, CPU of the fullest": _shards_shown,
        "memory of a web process, of a worker": lambda _, p: f"{p.web_mb:,.0f} MB, {p.worker_mb:,.0f} MB",
        "data of the store": lambda _, p: f"{plain(p.store_gb)} GB",
        "sent to readers": lambda _, p: f"{plain(p.sent_mbit)} Mbit/s",
    }
    return [[what, *(show(load, p) for load, p in plans)] for what, show in shown.items()]


def _shards_shown(load: Load, found: Plan) -> str:
    if found.shards:
        return f"{found.shards} of {load.buckets}, {found.store_share:.0%}"
    return f"**more than {load.buckets}**: {found.store_share:.0%}"


def _rounded(readers: float) -> str:
    digits = 10 ** max(0, int(math.log10(readers)) - 1)
    return f"{readers // digits * digits:,.0f}" if readers < SEARCH_MAX / 1.02 else "never"


def _lines(head: list[str], rows: list[list[str]]) -> str:
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, rule, *rows])


def measure(small: bool) -> Section:
    """Return the processes for each size as figures; nothing is measured, and `small` changes nothing."""
    figures = []
    for name, load in LOADS.items():
        for size in SIZES:
            found = plan(replace(load, readers=float(size)))
            for kind, count in (("web processes", found.web), ("workers", found.workers), (SHARDS, found.shards)):
                key = f"{name} {size} {kind}"
                figures.append(figure(key, f"{size:,} readers, {name}: {kind}", [count], ""))
    return Section("capacity", "processes for readers, computed", "python -m bench.capacity", figures)


if __name__ == "__main__":
    if "--write" in sys.argv:
        PAGE.write_text(written(PAGE.read_text()))
    print(tables())
