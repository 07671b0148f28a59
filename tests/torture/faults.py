"""Draws a schedule of faults from a seed before the run, and carries it out during the run.

The schedule is a pure function of seed, length, rate and kinds, so it can be repeated. The programs' reactions still
differ from run to run. A network fault strikes one proxy, any other fault one process. At least one web process and one
worker always run, because without them the run would only test waiting.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import redis

from tests.torture.harness import Harness, Member
from tests.torture.proxy import Proxy

__all__ = ["KINDS", "Fault", "Injector", "draw_schedule"]


class Kind(NamedTuple):
    """A kind of fault. `weight` is the kind's share of all faults, `seconds` the range of a fault's duration, and
    `meaning` the kind's text in --help."""

    weight: float
    seconds: tuple[float, float]
    meaning: str


KINDS: dict[str, Kind] = {
    "cut": Kind(14, (0, 0), "every connection of a line ends in order (FIN)"),
    "reset": Kind(14, (0, 0), "every connection of a line is reset (RST)"),
    "delay": Kind(11, (0.5, 2.5), "every chunk waits for up to 0.25 s"),
    "half-open": Kind(7, (2, 6), "what either side writes is swallowed, and nobody is told"),
    "half-closed": Kind(7, (2, 6), "the far side sees every connection reset, and the near side is not told"),
    "drop-reply": Kind(26, (0, 0), "the next one to three requests go through, their replies do not"),
    "throttle": Kind(7, (1, 4), "20 to 100 kB a second"),
    "refuse": Kind(5, (0.5, 2.5), "nobody gets through"),
    "kill-worker": Kind(2, (0.1, 1.5), "kill -9 of a worker; another is started after that time"),
    "kill-web": Kind(1.2, (0.1, 1.0), "kill -9 of a web process, likewise"),
    "kill-store": Kind(1, (0.05, 1.0), "kill -9 of the store, likewise"),
    "kick": Kind(6, (0, 0), "the store closes one connection of channels, or half of the time all of them"),
    "stop-worker": Kind(2, (3.8, 6.5), "SIGSTOP of a worker for longer than its lease, then SIGCONT"),
    "stop-web": Kind(1.2, (1, 4), "SIGSTOP and SIGCONT of a web process"),
    "stop-store": Kind(1.5, (0.3, 3), "SIGSTOP and SIGCONT of the store"),
    "end-worker": Kind(1.2, (0, 0.5), "SIGTERM of a worker, and its replacement"),
    "end-web": Kind(0.8, (0, 0.5), "SIGTERM of a web process, and its replacement"),
}

# Faults that restart a process are rare: a start costs more CPU than a hundred commands.

CLIENTS_ONE_IN = 8
"""A network fault affects one in this many client connections; hundreds of clients still reconnect at once. A process
has a handful of connections to the store, which are all affected."""

KICK_SECONDS = 1.0
"""Maximum seconds for each answer of the store to a kick; a stopped store does not answer."""

CLIENT_SHARE = 0.35
"""The share of network faults between clients and web processes; the others are between processes and the store."""


class Fault(NamedTuple):
    """`number` chooses among the processes or proxies that can be struck at that moment; `amount` is a share of the
    kind's strength."""

    at_seconds: float
    kind: str
    number: int
    amount: float
    seconds: float


def draw_schedule(seed: str, seconds: float, per_second: float, kinds: Sequence[str] = ()) -> list[Fault]:
    """Return faults in the order of their times. `kinds`: only these."""
    rng = random.Random(f"{seed} faults")
    names = [name for name in KINDS if not kinds or name in kinds]
    weights = [KINDS[name].weight for name in names]
    times: list[float] = []
    while (at := (times[-1] if times else 0.0) + rng.expovariate(per_second)) < seconds:
        times.append(at)
    drawn = rng.choices(names, weights, k=len(times))
    if len(drawn) >= 2 * len(names):  # in a long run, each kind occurs, even a rare kind
        for place, name in zip(rng.sample(range(len(drawn)), len(names)), names, strict=True):
            drawn[place] = name
    return [
        Fault(at, name, rng.randrange(10**6), rng.random(), rng.uniform(*KINDS[name].seconds))
        for at, name in zip(times, drawn, strict=True)
    ]


class Injector:
    """Carries a schedule out. `struck` counts the faults by kind, and `passed` counts the faults that found no
    target."""

    def __init__(self, harness: Harness) -> None:
        self.struck: Counter[str] = Counter()
        self.passed: Counter[str] = Counter()
        self.log: list[tuple[float, str, str]] = []
        self._harness = harness
        self._busy: set[str] = set()

    async def run(self, schedule: Sequence[Fault], seconds: float) -> None:
        """Carry the whole schedule out. After `seconds` repair every connection, then start or continue every stopped
        process."""
        clock = asyncio.get_running_loop().time
        began_at = clock()
        try:
            async with asyncio.TaskGroup() as tasks:
                for fault in schedule:
                    await asyncio.sleep(max(0.0, began_at + fault.at_seconds - clock()))
                    tasks.create_task(self._strike(fault, round(clock() - began_at, 2)))
                await asyncio.sleep(max(0.0, began_at + seconds - clock()))
                self._heal_lines()
        finally:
            self._heal_lines()

    def _heal_lines(self) -> None:
        for proxy in self._harness.proxies:
            proxy.heal()

    async def _strike(self, fault: Fault, at_seconds: float) -> None:
        what, _, whom = fault.kind.partition("-")
        if what in ("kill", "stop", "end"):
            name = await self._strike_process(fault, what, whom)
        elif what == "kick":
            name = await self._kick(fault)
        else:
            name = self._strike_line(fault)
        (self.struck if name else self.passed)[fault.kind] += 1
        if name:
            self.log.append((at_seconds, fault.kind, name))

    def _strike_line(self, fault: Fault) -> str:
        to_webs = [web.to_me for web in self._harness.webs if web.to_me is not None]
        to_store = [member.to_store for member in self._harness.members]
        lines = to_webs if fault.amount < CLIENT_SHARE else to_store
        proxy = lines[fault.number % len(lines)]
        _strike_proxy(proxy, fault, CLIENTS_ONE_IN if proxy in to_webs else 1)
        return proxy.name

    async def _strike_process(self, fault: Fault, what: str, whom: str) -> str:
        if whom == "store":
            return await self._strike_store(fault, what)
        among = self._harness.webs if whom == "web" else self._harness.workers
        ready = [member for member in among if member.is_up and member.name not in self._busy]
        if len(ready) < 2:
            return ""
        member = ready[fault.number % len(ready)]
        self._busy.add(member.name)
        try:
            await _strike_member(member, what, fault.seconds)
        finally:
            self._busy.discard(member.name)
        return member.name

    async def _strike_store(self, fault: Fault, what: str) -> str:
        store = self._harness.store
        if "store" in self._busy:
            return ""
        self._busy.add("store")
        try:
            if what == "kill":
                await store.kill()
                await asyncio.sleep(fault.seconds)
                await store.start()
            else:
                store.stop()
                try:
                    await asyncio.sleep(fault.seconds)
                finally:
                    store.go_on()
        finally:
            self._busy.discard("store")
        return "store"

    async def _kick(self, fault: Fault) -> str:
        """Close connections that wait for messages: the store closes such connections when their output is too long."""
        store = self._harness.store
        if "store" in self._busy or not store.is_up:
            return ""
        try:
            return await asyncio.to_thread(_kick_listeners, str(store.server.path), fault.number)
        except redis.RedisError:  # another fault has struck the store meanwhile
            return ""


def _kick_listeners(path: str, number: int) -> str:
    with redis.Redis(unix_socket_path=path, socket_timeout=KICK_SECONDS) as client:
        listeners = client.client_list(_type="pubsub")
        if not listeners:
            return ""
        if number % 2:
            client.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
            return "all listeners"
        kicked = listeners[number // 2 % len(listeners)]["id"]
        client.execute_command("CLIENT", "KILL", "ID", kicked)
        return f"listener {kicked}"


async def _strike_member(member: Member, what: str, seconds: float) -> None:
    if what == "stop":
        member.stop()
        try:
            await asyncio.sleep(seconds)
        finally:
            member.go_on()
        return
    if what == "kill":
        await member.kill()
    else:
        await member.end()
    await asyncio.sleep(seconds)
    await member.start()


def _strike_proxy(proxy: Proxy, fault: Fault, one_in: int) -> None:
    share = fault.number % 1_000 / 1_000
    match fault.kind:
        case "cut":
            proxy.cut(one_in)
        case "reset":
            proxy.reset(one_in)
        case "delay":
            proxy.delay(0.02 + 0.23 * share, fault.seconds)
        case "half-open":
            proxy.swallow(fault.seconds, one_in)
        case "half-closed":
            proxy.sever(fault.seconds, one_in)
        case "drop-reply":
            proxy.drop_replies(1 + fault.number % 3)
        case "throttle":
            proxy.throttle(20_000 + 80_000 * share, fault.seconds)
        case "refuse":
            proxy.refuse(fault.seconds)
