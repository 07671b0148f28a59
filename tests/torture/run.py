"""Carries out one torture run: load with faults for a time, then load without faults, then the checks.

    start everything · readers and drivers begin · faults run · faults end · commands settle · readers catch up ·
    evidence is collected · verdict · report

Every phase has a deadline. A phase that misses its deadline is reported as a violation that lists the missing results,
so no run hangs.
"""

import asyncio
import re
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
from redis.asyncio import Redis

from tests.torture.audit import Archive, read_tool_runs
from tests.torture.driver import Driver, Pace
from tests.torture.evidence import Asked, Evidence, Mishap, ReaderEnd
from tests.torture.faults import Injector, draw_schedule
from tests.torture.fold import ChatFold
from tests.torture.harness import Harness, open_harness, store_binary
from tests.torture.mortal import Mortal
from tests.torture.poster import Poster
from tests.torture.reader import Reader
from tests.torture.real_client import RealDriver, open_clients
from tests.torture.report import Report, keep_evidence
from tests.torture.tabs import Tabs
from tests.torture.verdict import judge
from tests.torture.wire import Broken, Lines
from threadcast.store.redis.store import RedisStore
from threadcast_client import Client
from threadcast_protocol.framing.codec import decode_snapshot, encode
from threadcast_protocol.wire.errors import ThreadcastError

__all__ = ["Options", "torture"]

SETTLE_SECONDS = 180.0
"""Maximum seconds until all accepted commands have ended; this covers leases, three takeovers of a poisoned command and
a queue of essays."""

CATCH_UP_SECONDS = 120.0
"""Maximum seconds until all readers have caught up: the relay's position check finds a lost publication within 20 s
(DESIGN §5), and this may happen twice. Both deadlines are long, so that a slow machine does not look like a hang; a
healthy run takes far less time."""

CHATS_OF_MANY = 8
METRIC_SECONDS = 5.0
PROGRESS_SECONDS = 5.0


class Options(msgspec.Struct, kw_only=True):
    """The options of one run. `subscribers` is the number of readers besides each chat's own driver; one reader in six
    watches several chats."""

    seed: str
    directory: Path
    store: str = "valkey"
    seconds: float = 180.0
    chats: int = 240
    subscribers: int = 150
    real_clients: int = 20
    mortals: int = 24
    tabs: int = 24
    webs: int = 2
    workers: int = 3
    commands_per_second: float = 70.0
    faults_per_second: float = 2.1
    faults: tuple[str, ...] = ()


async def torture(options: Options, say: Callable[[str], None], stop: asyncio.Event) -> Report:
    """`stop` ends the faults early; the final checks still run.

    Raises:
        LookupError: the store that was asked for is not installed.
    """
    binary = store_binary(options.store)
    async with open_harness(options.directory, binary, webs=options.webs, workers=options.workers) as harness:
        say(f"{len(harness.members)} processes are ready")
        url = harness.store.server.url
        async with (
            RedisStore(url) as store,
            Redis.from_url(url) as plain,
            open_clients(harness.web_ports) as clients,
        ):
            mishaps: list[Mishap] = []
            archive = Archive(store, plain, mishaps)
            return await _Torture(options, binary, harness, archive, mishaps, clients, say, stop).run()


class _Torture:
    """Owns the parts of one run."""

    def __init__(
        self,
        options: Options,
        binary: Path,
        harness: Harness,
        archive: Archive,
        mishaps: list[Mishap],
        clients: Sequence[Client],
        say: Callable[[str], None],
        stop: asyncio.Event,
    ) -> None:
        self._binary = binary
        self._options, self._harness, self._say, self._stop = options, harness, say, stop
        self._mishaps = mishaps
        self._counts: Counter[str] = Counter()
        self._archive = archive
        self._injector = Injector(harness)
        self._pace = Pace(options.commands_per_second)
        self._settled = asyncio.Event()
        self._metrics: dict[tuple[str, int], Counter[str]] = {}
        ports, seed = harness.web_ports, options.seed
        poster = Poster(ports, f"{seed} poster", self._mishaps, self._counts)
        self._drivers = [
            Driver(number, ports, seed, poster, self._pace, self._settled, self._mishaps, self._counts)
            for number in range(options.chats)
        ]
        self._real = [
            RealDriver(number, clients[number % len(clients)], seed, self._pace, self._mishaps, self._counts)
            for number in range(options.real_clients)
        ]
        self._children: list[str] = []
        self._mortals = [
            Mortal(number, ports, seed, poster, self._pace, self._mishaps, self._counts)
            for number in range(options.mortals)
        ]
        self._askers: list[Driver | RealDriver | Mortal] = [*self._drivers, *self._real, *self._mortals]
        self._tabs = [self._window(number) for number in range(options.tabs)]
        self._readers = [*(self._reader(number) for number in range(options.subscribers)), *self._tabs]

    def _reader(self, number: int) -> Reader:
        chats = len(self._drivers)
        count = CHATS_OF_MANY if number % 6 == 5 else 1
        chat_ids = [self._drivers[(number * 7 + at * 13) % chats].chat_id for at in range(min(count, chats))]
        ports, seed = self._harness.web_ports, f"{self._options.seed} reader {number}"
        return Reader(f"reader-{number}", list(dict.fromkeys(chat_ids)), ports, seed, self._mishaps, self._counts)

    def _window(self, number: int) -> Tabs:
        chats = len(self._drivers)
        chat_ids = [self._drivers[(number * 5 + at * 11) % chats].chat_id for at in range(min(CHATS_OF_MANY, chats))]
        seed = self._options.seed
        unique = list(dict.fromkeys(chat_ids))
        return Tabs(number, unique, self._harness.web_ports, seed, self._mishaps, self._counts)

    @property
    def _chat_ids(self) -> list[str]:
        """Return the ids of all chats that are not deleted."""
        living = (d.chat_id for d in self._askers if not (isinstance(d, Mortal) and d.is_dead))
        return [*living, *self._children]

    @property
    def _commands(self) -> list[Asked]:
        return [asked for driver in self._askers for asked in driver.seen.commands.values()]

    async def run(self) -> Report:
        options, began_at = self._options, time.monotonic()
        schedule = draw_schedule(options.seed, options.seconds, options.faults_per_second, options.faults)
        async with asyncio.TaskGroup() as tasks:
            lasting = [
                *(driver.reader.run() for driver in self._drivers),
                *(driver.run() for driver in self._askers),
                *(reader.run() for reader in self._readers),
                *(window.change() for window in self._tabs),
                *(reader.run() for mortal in self._mortals for reader in mortal.readers),
                self._archive.watch([d.chat_id for d in self._drivers if d.kind in ("bulk", "essay")]),
                self._report_progress(began_at),
                self._scrape(),
            ]
            background = [tasks.create_task(work) for work in lasting]
            faults = asyncio.create_task(self._injector.run(schedule, options.seconds))
            await self._wait_for_the_end(faults)
            struck_seconds = time.monotonic() - began_at
            self._pace.has_ended = True
            self._say(f"the faults are over after {struck_seconds:.0f} s; waiting for everything to come to rest")
            await self._settle()
            settled_seconds = time.monotonic() - began_at - struck_seconds
            await self._catch_up()
            self._settled.set()
            for task in background:
                task.cancel()
        return await self._reckon(struck_seconds, settled_seconds)

    async def _wait_for_the_end(self, faults: asyncio.Task[None]) -> None:
        ended = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait([ended, faults], return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended.cancel()
            if self._stop.is_set():
                faults.cancel()
            with suppress(asyncio.CancelledError):
                await faults
        if self._stop.is_set():
            await self._bring_all_back()
        for member in self._harness.members:
            if member.has_died():
                self._mishaps.append(Mishap("died", "", f"{member.name} ended by itself; see {member.log}"))

    async def _bring_all_back(self) -> None:
        """Start the processes that a fault had stopped when the run was ended early."""
        if not self._harness.store.server.is_alive:
            await self._harness.store.start()
        for member in self._harness.members:
            if not member.is_up:
                await member.kill()
                await member.start()

    async def _settle(self) -> None:
        """Wait until every command is answered and seen and every chat rests."""
        deadline = time.monotonic() + SETTLE_SECONDS
        while time.monotonic() < deadline and not all(mortal.is_done for mortal in self._mortals):
            await asyncio.sleep(0.5)
        waiting = set(self._chat_ids)
        kept: list[str] = []
        while time.monotonic() < deadline:
            kept = [a.request_id for d in self._askers for a in d.seen.kept]
            with suppress(ThreadcastError):
                chat_ids = sorted(waiting) if waiting else self._chat_ids
                done = await asyncio.gather(*(self._archive.is_settled(name) for name in chat_ids))
                was_last = not waiting
                waiting = {chat_id for chat_id, is_settled in zip(chat_ids, done, strict=True) if not is_settled}
                if was_last and not waiting and not kept:
                    if await self._meet_children():
                        return
                    waiting = set(self._children)
            await asyncio.sleep(0.5)
        for chat_id in sorted(waiting):
            self._mishaps.append(Mishap("restless", chat_id, f"not at rest after {SETTLE_SECONDS:.0f} s of peace"))
        if kept:
            words = f"{len(kept)} commands not seen after {SETTLE_SECONDS:.0f} s of peace: {kept[:5]}"
            self._mishaps.append(Mishap("unseen", "", words))

    async def _meet_children(self) -> bool:
        """Read the new sub-chats; returns True if their number has not grown, which means that all chats rest. Raises
        Unavailable."""
        families = [driver.chat_id for driver in self._drivers if driver.kind == "family"]
        families += [mortal.chat_id for mortal in self._mortals if mortal.kind == "family" and not mortal.is_dead]
        known, self._children = self._children, await self._archive.children(families)
        return len(known) == len(self._children)

    async def _catch_up(self) -> None:
        """Wait until every reader has the last event; the verdict finds readers that are late."""
        mortals = [reader for mortal in self._mortals for reader in mortal.readers]
        for reader in (*self._readers, *mortals, *(each for driver in self._drivers for each in driver.followers)):
            reader.is_calm = True
        deadline = time.monotonic() + CATCH_UP_SECONDS
        while time.monotonic() < deadline:
            with suppress(ThreadcastError):
                positions = await self._archive.positions(sorted({fold.chat_id for _, fold in self._folds()}))
                if all(fold.position == positions[fold.chat_id] for _, fold in self._folds()):
                    return
            await asyncio.sleep(0.5)

    def _folds(self) -> Iterator[tuple[str, ChatFold]]:
        """Yield each subscriber's name with each of its folds."""
        followers = (reader for driver in self._drivers for reader in driver.followers)
        mortals = (reader for mortal in self._mortals if not mortal.is_dead for reader in mortal.readers)
        for reader in (*(driver.reader for driver in self._drivers), *followers, *mortals, *self._readers):
            for fold in reader.folds.values():
                yield reader.name, fold
        for real in self._real:
            yield f"client of {real.chat_id}", real.fold

    # The reckoning.

    async def _reckon(self, struck_seconds: float, settled_seconds: float) -> Report:
        self._say("reading all logs and judging them")
        for real in self._real:
            real.settle()
        evidence = Evidence(
            chats=await self._archive.evidence(self._chat_ids, await self._snapshots()),
            commands=self._commands,
            readers=[
                ReaderEnd(name=name, chat_id=fold.chat_id, position=fold.position, snapshot=fold.snapshot)
                for name, fold in self._folds()
            ],
            tool_runs=read_tool_runs(self._harness.runs_file),
            blobs=await self._blobs(),
            buried=[asked for mortal in self._mortals for asked in mortal.buried],
            brought={mortal.chat_id: mortal.brought for mortal in self._mortals},
            mishaps=self._mishaps,
        )
        verdict = await asyncio.to_thread(judge, evidence)
        kept = self._options.directory / "evidence"
        if not verdict.is_good:
            keep_evidence(kept, evidence, verdict)
        options, metrics = self._options, Counter[str]()
        for counted in self._metrics.values():
            metrics.update(counted)
        return Report(
            seed=options.seed,
            store=self._store_version(),
            seconds=struck_seconds,
            settled_seconds=settled_seconds,
            processes={"webs": options.webs, "workers": options.workers, "chats": len(self._chat_ids)},
            is_good=verdict.is_good,
            faults=dict(self._injector.struck),
            faults_passed=dict(self._injector.passed),
            counts=verdict.counts,
            codes=verdict.codes,
            load=dict(self._counts),
            metrics=dict(metrics),
            violations=[msgspec.structs.asdict(violation) for violation in verdict.violations],
            evidence="" if verdict.is_good else str(options.directory),
        )

    async def _snapshots(self) -> dict[str, bytes]:
        """Return each chat's snapshot from HTTP, as bytes that can be compared with a fold."""
        found: dict[str, bytes] = {}
        lines = Lines()
        for number, chat_id in enumerate(self._chat_ids):
            port = self._harness.web_ports[number % len(self._harness.web_ports)]
            with suppress(Broken, msgspec.DecodeError):
                answer = await lines.request(port, "GET", f"/v1/chats/{chat_id}")
                found[chat_id] = encode(decode_snapshot(answer.body))
        return found

    async def _blobs(self) -> dict[str, bytes]:
        """Return all attached files, as HTTP serves them."""
        found: dict[str, bytes] = {}
        lines = Lines()
        for driver in self._drivers:
            if driver.kind != "files":
                continue
            for name in sorted(self._archive.files(driver.chat_id)):
                port = self._harness.web_ports[len(found) % len(self._harness.web_ports)]
                with suppress(Broken):
                    answer = await lines.request(port, "GET", f"/v1/chats/{driver.chat_id}/blobs/{name}")
                    if answer.status == 200:
                        found[f"{driver.chat_id}/{name}"] = answer.body
        return found

    def _store_version(self) -> str:
        said = subprocess.run([self._binary, "--version"], capture_output=True, text=True, check=True).stdout
        return " ".join(said.split()[:3])

    # Progress and metrics, while the run goes on.

    async def _report_progress(self, began_at: float) -> None:
        while True:
            await asyncio.sleep(PROGRESS_SECONDS)
            commands = self._commands
            accepted = sum(asked.is_accepted for asked in commands)
            kept = sum(len(driver.seen.kept) for driver in self._askers)
            struck = sum(self._injector.struck.values())
            up = sum(member.is_up for member in self._harness.members)
            self._say(
                f"{time.monotonic() - began_at:4.0f} s  {struck} faults, {accepted} commands accepted, {kept} not seen"
                f" yet; {up} of {len(self._harness.members)} processes up; {len(self._mishaps)} mishaps"
            )

    async def _scrape(self) -> None:
        """Keep reading the metrics of the web processes that answer, until cancelled."""
        lines = Lines()
        while True:
            for web in self._harness.webs:
                if web.is_up and web.to_me is not None and isinstance(web.to_me.target, tuple):
                    with suppress(Broken):
                        answer = await lines.request(web.to_me.target[1], "GET", "/metrics", seconds=2.0)
                        self._metrics[web.name, web.lives] = _read_metrics(answer.body.decode())
            await asyncio.sleep(METRIC_SECONDS)


def _read_metrics(text: str) -> Counter[str]:
    """Return the counters of the readers' connections and frames."""
    wanted = re.compile(
        r"^threadcast_((?:resyncs|relay_reloads|streams_ended|store_errors)_total\S*) (\S+)$", re.MULTILINE
    )
    return Counter({match[1]: int(float(match[2])) for match in wanted.finditer(text)})
