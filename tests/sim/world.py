"""Runs one schedule: starts the real parts, causes the failures of the plan, and waits until the world has settled.

The world owns the loop, the store, the workers, the web nodes, and the history of the schedule. `checks.py` has the
conditions that must hold at the end. A failed check adds a sentence to `failures` and does not end the schedule. The
same seed gives the same history.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any
from zlib import crc32

import anyio

from tests.sim.book import Book
from tests.sim.cast import ScriptedModel, SimTool
from tests.sim.checks import check_end, unsettled
from tests.sim.clock import WALL_MS, Chance, current, decode_once
from tests.sim.loop import PROCESS, Process, Stuck, VirtualLoop
from tests.sim.people import CHAT, Client, Node, Reader
from tests.sim.plan import Plan, Said, Trouble
from tests.sim.silence import Silence
from tests.sim.store import Replica, SimStore, Way
from tests.sim.tally import COUNTS, METRICS
from tests.sim.troubles import cause, deploy, place_of
from tests.sim.versions import MixedWay
from tests.sim.worker import Worker
from threadcast.chat.entries import RawEntry
from threadcast.chat.entry_codec import decode_acks
from threadcast.providers.registry import Providers
from threadcast.store.bounds import LOG_PAGE_BYTES
from threadcast_protocol.wire.events import PauseRequired

__all__ = ["World"]

SETTLE_SECONDS = 90.0
"""Seconds of virtual time after the last fault. A schedule that takes longer is stuck: a correct schedule waits less
than half as long."""

LATE_SECONDS = 4.0
"""Maximum virtual seconds for which a command waits in the inbox after the last fault, so that the three takeovers
after which it counts as poison fit in."""

POLL_SECONDS = 0.1

EXPECTED_ERRORS = ("run.crash_loop", "command.poisoned")
"""The log events by which the product reports work whose owners died three times. With many failures, it may also
report a harmless command."""
TAKEN_AFTER = 0.3
"""Seconds that a person thinks before a decision."""


class World:
    """`failures` is empty if every check passed. `lines` is the history, which is recorded only with `with_history`."""

    def __init__(self, plan: Plan, *, with_history: bool = False, page_bytes: int = LOG_PAGE_BYTES) -> None:
        self.plan = plan
        self.with_history = with_history
        self.lines: list[str] = []
        self.failures: list[str] = []
        self.loop = VirtualLoop()
        self.loop.set_exception_handler(self._take_exception)
        self.chance = Chance(plan.seed, self.loop)
        self._draws = random.Random(f"faults {plan.seed}")
        self._outside = Context()
        self._call_faults = list(plan.mix.calls.items())
        self._call_total = sum(plan.mix.calls.values())
        self.is_quiet = False
        self.is_full = False
        self.is_closing = False
        self.clock_offset_ms = 0
        self.rollbacks = 0
        self.metrics = METRICS
        self.store = SimStore(self)
        self.store.page_bytes = page_bytes
        self.models = Providers([ScriptedModel(self, can_continue=plan.can_continue)])
        self.tool_runs: Counter[tuple[str, str]] = Counter()
        self.untold = 0
        self.poison: set[str] = {said.request_id for said in plan.said if said.kind == "poison"}
        self.nonces_kept: set[str] = set()
        self.nonces = 0
        self.clients: dict[str, Client] = {}
        self.lost_to_rollback: set[str] = set()
        self.workers: list[Worker] = []
        self.dead: list[Process] = []
        self.nodes: list[Node] = []
        self.newer = {"w1"} if plan.mix.has_versions else set()  # the places whose process has the next version
        self.readers: list[Reader] = []
        self.replica: Replica | None = None
        self.book = Book(self)
        self.silence = Silence(self)
        self.has_new_code = False
        self.deletes = 0
        self.hangs = any(said.script == "hang" for said in plan.said)
        self._late_aborts = 0
        self._generations = [0, 0, 0]

    # These methods receive the events of the schedule.

    def note(self, who: str, call: str, what: str, fault: str, answer: str) -> None:
        if self.with_history:
            now = self.loop.now * 1000
            self.lines.append(f"{now:9.2f} ms  {who:<14} {call:<10} {what:<34} {fault:<8} {answer}".rstrip())

    def fail(self, sentence: str) -> None:
        self.failures.append(sentence)
        self.note("CHECK", "failed", "", "", sentence)

    def _take_exception(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:  # Any: asyncio's own
        self.fail(f"{context['message']}: {context.get('exception')!r}")

    # chance

    def dice(self, probability: float) -> bool:
        return probability > 0 and self._draws.random() < probability

    def draw_between(self, low: float, high: float) -> float:
        return low + (high - low) * self._draws.random()

    def latency(self) -> float:
        """The delay is usually tiny, and sometimes long enough for other tasks to run in between."""
        drawn = self._draws.random()
        return 0.0002 + drawn * 0.0008 if drawn < 0.8 else drawn * 0.02

    def draw(self, call: str) -> str:
        """Draw the fate of a call: '' or a fault."""
        if self.is_quiet or not self._call_total:
            return ""
        drawn = self._draws.random()
        if drawn >= self._call_total:
            return ""
        for fault, share in self._call_faults:
            drawn -= share
            if drawn < 0:
                COUNTS[f"call {fault}"] += 1
                return fault
        return ""

    def loses(self, kind: str) -> bool:
        share = self.plan.mix.lost.get(kind)
        return share is not None and not self.is_quiet and self._draws.random() < share

    def any_node(self) -> Node:
        return self._draws.choice(self.nodes)

    def new_nonce(self) -> str:
        self.nonces += 1
        return f"n{self.nonces}"

    def store_ms(self) -> int:
        return WALL_MS + int(self.loop.now * 1000) + self.clock_offset_ms

    def later(self, seconds: float, call: Callable[..., None], *args: Any) -> None:  # Any: what `call` takes
        """Run outside of every process, so that it happens even if a process dies or sleeps."""
        self.loop.later(seconds, self._outside, call, args)

    def background(self, coroutine: Coroutine[Any, Any, Any], process: Process | None = None) -> asyncio.Task[Any]:
        context = self._outside if process is None else process.context
        task = self.loop.create_task(coroutine, context=context)
        task.add_done_callback(self._ended, context=self._outside)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        """A process that died without a report would look like a planned failure, and would hide the bug that the
        search looks for."""
        if not task.cancelled() and (trouble := task.exception()) is not None:
            self.fail(f"{getattr(task.get_coro(), '__qualname__', 'a task')} died: {trouble!r}")

    # what the parts report

    def hear(self, request_id: str) -> None:
        client = self.clients.get(request_id)
        if client is not None and not client.heard:
            client.hear()

    def tell_soon(self, entry: RawEntry) -> None:
        """Without readers, clients read the log now and then; the world has not settled before such a read."""
        self.untold += 1
        self.later(self.latency(), self._read_entry, entry)

    def _read_entry(self, entry: RawEntry) -> None:
        self.untold -= 1
        for ack in decode_acks(entry.acks):
            self.hear(ack.request_id)
        for event in decode_once(entry.events):
            if isinstance(event, PauseRequired):
                self.decide_soon([reason.tool_call_id for reason in event.reasons])

    def decide_soon(self, call_ids: list[str]) -> None:
        """A person looks at each question once, and later at an agent's chat than at a model's chat."""
        for call_id in call_ids:
            name = f"d-{call_id}".replace(".", "_")
            if name not in self.clients and call_id.startswith(("call_", "ask-")):
                mood = crc32(call_id.encode()) if self.plan.mix.agents else 0
                answer = "reject" if mood % 5 == 1 else ""
                self._add_client(Said(TAKEN_AFTER + mood % 3, name, "decide", answer, call_id))

    def tool_began(self, name: str, call_id: str) -> None:
        who = PROCESS.get()
        self.tool_runs[name, call_id] += 1
        self.note(who.name if who else "", "tool", f"{name} {call_id}", "", "began")

    # processes start and end

    def way_of(self, process: Process, *, has_clients: bool = False) -> Way:
        if not self.plan.mix.has_versions:
            return Way(self, process, has_clients=has_clients)
        return MixedWay(self, process, is_newer=place_of(process) in self.newer, has_clients=has_clients)

    def lose_channels(self, process: Worker | Node, told_after: float, back_after: float) -> None:
        if not process.is_dead:
            process.way.lose_channels(told_after, back_after)

    def kill(self, process: Process) -> None:
        """kill -9, now."""
        if process.is_dead:
            return
        COUNTS["process killed"] += 1
        self.note("outside", "kill", process.name, "", "")
        self.loop.kill(process)
        self.dead.append(process)
        if isinstance(process, Worker):
            process.way.hang_up()
            self.later(self.draw_between(0.05, 0.4), self._start_worker, self.workers.index(process))
        elif isinstance(process, Node):
            process.way.hang_up()
            self.later(self.draw_between(0.05, 0.4), self._start_node, self.nodes.index(process))

    def kill_here(self, why: str) -> None:
        """The running code kills its own process, so no further line of it is run."""
        who = PROCESS.get()
        if who is not None and not who.is_dead:
            self.note(who.name, "dies", why, "", "")
            self.kill(who)
            raise asyncio.CancelledError

    def _start_worker(self, slot: int) -> None:
        self._generations[slot] += 1
        worker = Worker(self, f"w{slot}-{self._generations[slot]}")
        self.workers[slot] = worker
        self.note("outside", "start", worker.name, "", "")
        self.background(worker.run(), worker)

    def _start_node(self, slot: int) -> None:
        """Start a web node in the place of another; its reader reconnects and resumes at the last position."""
        node = self.nodes[slot] = Node(self, f"{place_of(self.nodes[slot])}-{len(self.dead)}")
        self.note("outside", "start", node.name, "", "")
        if self.readers:
            self.readers[slot].node = node
            self._read(node, self.readers[slot])

    def _read(self, node: Node, reader: Reader) -> None:
        self.background(node.run(), node)
        self.background(reader.run(), node)

    # the schedule

    def _add_client(self, said: Said) -> None:
        client = Client(self, said)
        self.clients[said.request_id] = client
        self.background(client.run())

    def run(self) -> None:
        """Runs the schedule from the first command until everything rests, and then runs the checks."""
        asyncio.set_event_loop(None)
        SimTool.world = self
        self.note("outside", "begins", "", "", "")
        with current(self.chance):
            try:
                self.loop.run_until_complete(self._main())
            except Stuck as stuck:
                self.fail(f"nothing is left that could happen, and the world has not settled: {stuck}")

    async def _main(self) -> None:
        self.nodes = [Node(self, f"web{number}") for number in range(1, self.plan.mix.nodes + 1)]
        self.readers = [Reader(self, node) for node in self.nodes if self.plan.is_watched]
        self.workers = [Worker(self, f"w{slot}-0") for slot in range(self.plan.mix.workers)]
        for worker in self.workers:
            self.background(worker.run(), worker)
        for reader in self.readers:
            self._read(reader.node, reader)
        for said in self.plan.said:
            self._add_client(said)
        for trouble in self.plan.troubles:
            self.later(trouble.at, cause, self, trouble)
        if self.plan.mix.is_behind:
            self.later(0.5, cause, self, Trouble(0.5, "back", 0, 0.0))
        self.later(self.plan.quiet_at, self._be_quiet)
        await anyio.sleep(self.plan.quiet_at)
        while unsettled(self):
            if self.loop.now > self.plan.quiet_at + SETTLE_SECONDS:
                self.fail(f"not settled after {SETTLE_SECONDS:.0f} quiet seconds: {unsettled(self)}")
                break
            self._watch()
            await anyio.sleep(POLL_SECONDS)
        for error in self.chance.errors:
            if error not in EXPECTED_ERRORS:
                self.fail(f"the product logged: {error}")
        if not self.failures:
            check_end(self)

    def _be_quiet(self) -> None:
        self.is_quiet = True
        self.is_full = False
        # if the clock stayed behind, every score would stay late by the difference
        self.clock_offset_ms = 0
        self.note("outside", "quiet", "", "", "")
        if self.plan.mix.has_versions:  # the deploy ends; before its end perhaps no process can continue the chat
            for process in (*self.workers, *self.nodes):
                deploy(self, process, is_newer=True)

    def _watch(self) -> None:
        """A command must not wait for long once all failures are over, and a run that would hang for ever is
        aborted."""
        quiet_for = self.loop.now - self.plan.quiet_at
        inbox = self.store.chat(CHAT).inbox
        if quiet_for > LATE_SECONDS and not self.failures:
            late = self.store_ms() - int(1000 * LATE_SECONDS)
            for entry in inbox.values():
                if int(entry.inbox_id.partition("-")[0]) < late:
                    self.fail(f"{entry.request_id} lies in the inbox for more than {LATE_SECONDS:.0f} quiet seconds")
        if quiet_for > 2 * LATE_SECONDS * (1 + self._late_aborts) and self.hangs:
            self._late_aborts += 1
            self._add_client(Said(0.0, f"late{self._late_aborts}", "abort"))
