"""One owned chat: take the next command, decide, append; start and stop the run (DISPATCH §5).

An actor lives from a claim until it gives the chat back. It fences before it reads, so that nobody else's append can
follow on what it folds. Its one loop takes commands in the order of the inbox, while the run goes on beside it: abort,
decisions and parameters never wait for a model. When there is nothing to do, or only a person can go on, it releases
the chat and is gone; a paused run is a fact in the log.
"""

import time
from collections.abc import Awaitable, Callable
from enum import Enum

import anyio
import structlog
from anyio.abc import TaskGroup

from protocol.commands import BeginSubchat
from protocol.entries import Fence, RawEntry
from protocol.errors import ModelFailed
from protocol.failures import CRASH_LOOP
from protocol.ids import Head
from protocol.ledger import Ledger
from protocol.reducer import Gap
from protocol.runs import fail_run
from protocol.state import ChatState, empty_state
from server.actor.intake import command_of, decide_safely, give_up
from server.actor.mail import Postman
from server.actor.orphans import leave_no_orphan
from server.actor.patience import Patience
from server.actor.processes import ChatProcesses, write_ends, write_lost
from server.actor.run import Turn
from server.actor.sources import source_of
from server.actor.titling import Titling
from server.actor.upkeep import Upkeep
from server.actor.workplace import Workplace
from server.actor.writer import Writer
from server.agent.answer.final import say_final_word
from server.agent.place.profile import ChatTools
from server.agent.plan import advance, carry_out, next_deadline_ms, stops, wanted_model
from server.agent.recovery import recover
from server.agent.steps import Step, Wait
from server.store.load import NewerVersion, fold_checked, load_folded
from server.store.port import Fenced, InboxEntry, Lost, Released, Taken

__all__ = ["Actor", "End"]

_log = structlog.get_logger()

COMMANDS_AT_ONCE = 8  # in one reply of the store: a part of an import has 2 MiB, a client's command up to 16 MiB
POISON_ATTEMPTS = 3
"""Takeovers without progress before somebody is blamed (DESIGN §4.7)."""

DRAIN_TOOL_SECONDS = 0.7
"""How long a running tool may go on when the worker drains: a planned hand-over takes ≤ 1 s (DESIGN §4.6)."""

NEWER_VERSION_DELAY_MS = 1_000
"""A chat written by a newer worker is offered again after this, not at once (DISPATCH trap 14)."""


class End(Enum):
    """How an ownership ended."""

    RELEASED = "released"
    HANDED_OVER = "handed_over"
    LOST = "lost"
    NEWER_VERSION = "newer_version"
    UNFOLDABLE = "unfoldable"


class Actor:
    """Owns `chat_id` for `place.worker`. `previous` is who held it before and did not give it back."""

    def __init__(self, place: Workplace, chat_id: str, previous: str) -> None:
        self.chat_id = chat_id
        self._place = place
        self._why = "takeover" if previous not in ("", place.worker) else "wake"
        self._wake = anyio.Event()
        self._has_mail = True
        self._is_draining = False
        self._is_lost = False
        self._is_fenced = False
        self._was_cut = False
        self._writer: Writer | None = None
        self._turn: Turn | None = None
        self._patience = Patience(place.metrics)
        self._titling = Titling(place, self._end_turn)
        self._processes = ChatProcesses(place, chat_id, self._look)

    def notify(self) -> None:
        """A command lies in the inbox."""
        self._has_mail = True
        self._wake.set()

    def drain(self) -> None:
        """Give the chat to another worker at the next safe point."""
        self._is_draining = True
        self._wake.set()

    def lose(self) -> None:
        """The lease went to somebody else, or the worker ends: nothing of this chat is waited for any more."""
        self._is_lost = True
        self._patience.give_up()
        if self._writer is not None:
            self._writer.give_up()
        self._wake.set()

    def stop_effects(self) -> None:
        """The store has not answered for too long: a tool that must not run twice is cancelled now, whatever else this
        actor waits for (DESIGN §4.8)."""
        turn = self._turn
        step = turn.running_tool if turn is not None else None
        if turn is None or step is None:
            return
        tool = turn.tools().get(step.call.function.name)
        if tool is not None and tool.retry == "once":
            turn.cancel()
            self._was_cut = True
            self._wake.set()

    async def run(self) -> End:
        """Own the chat until it is given back or lost; its processes end with that."""
        try:
            return await self._run()
        finally:
            with anyio.CancelScope(shield=True):
                await self._processes.aclose()

    async def _run(self) -> End:
        while True:
            try:
                return await self._own()
            except Lost:
                return End.LOST
            except Fenced:
                if self._is_lost:
                    return End.LOST
                _log.warning("actor.fenced", chat_id=self.chat_id)
                self._why, self._has_mail, self._turn = "retake", True, None
                self._is_fenced = self._was_cut = False
            except NewerVersion as newer:
                _log.warning("chat.newer_version", chat_id=self.chat_id, error=str(newer))
                await self._hand_over(NEWER_VERSION_DELAY_MS)
                return End.NEWER_VERSION
            except Gap as hole:
                _log.error("chat.unfoldable", chat_id=self.chat_id, error=str(hole))
                return End.UNFOLDABLE

    async def _own(self) -> End:
        """From a fence to the end of this ownership. Raises Lost, Fenced, Gap, NewerVersion."""
        writer = self._writer = await self._open()
        if self._is_lost:  # said while there was no writer yet that could have been told
            raise Lost
        postman = Postman(self._place.store, self._patience, writer, self._look)
        over: Fenced | Lost
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._beside, writer.flush_forever)
            tasks.start_soon(self._beside, postman.deliver_forever)
            try:
                await self._settle(writer, tasks)
                return await self._work(writer, tasks, postman)
            except (Fenced, Lost) as reason:
                over = reason
            finally:
                tasks.cancel_scope.cancel()
        raise over

    async def _beside(self, work: Callable[[], Awaitable[None]]) -> None:
        """What goes on for as long as the chat is owned."""
        try:
            await work()
        except Fenced:
            self._end_turn(True)
        except Lost:
            self.lose()

    async def _open(self) -> Writer:
        """Fence, then read (DESIGN §4.1)."""
        place = self._place
        # A fence whose answer was lost may stand; of one takeover only one may count against the chat (DISPATCH §5).
        why = self._why

        async def take() -> Taken:
            nonlocal why
            said, why = why, "retake" if why == "takeover" else why
            taken = await place.store.take(self.chat_id, place.worker, said)
            why = said
            return taken

        taken = await self._patience.until_answered(take)
        if self._why == "takeover":
            place.metrics.takeovers.inc()
            _log.info("chat.taken_over", chat_id=self.chat_id)
        cached = place.cache.pop(self.chat_id, taken.previous)
        if taken.previous == "" or cached is not None:
            state, upkeep = cached or (empty_state(self.chat_id), Upkeep())
            fence = RawEntry(
                entry_id=Head.parse(taken.head).entry_id,
                head=taken.head,
                before=taken.previous,
                position=state.position,
                time_ms=taken.time_ms,
                version=0,
                fence=Fence(place.worker, why),
            )
            state, _ = fold_checked(state, fence, with_facts=True)
            return self._new_writer(taken, state, upkeep)
        folded = await self._patience.until_answered(lambda: load_folded(place.store, self.chat_id, with_facts=True))
        if folded.state.head != taken.head:
            raise Fenced
        return self._new_writer(taken, folded.state, Upkeep.of(folded.extent))

    def _new_writer(self, taken: Taken, state: ChatState, upkeep: Upkeep) -> Writer:
        return Writer(
            self._place.store,
            self._place.worker,
            state,
            owner=taken.owner,
            new_id=self._place.new_id,
            metrics=self._place.metrics,
            upkeep=upkeep,
            profile_params=self._place.profiles.params_of,
            before_end=lambda ledger: say_final_word(ledger, self._place.profiles.tools_of(ledger.state)),
            clock_ahead_ms=taken.time_ms - int(time.time() * 1000),
            traces=self._place.traces,
            pace=self._place.pace,
        )

    async def _settle(self, writer: Writer, tasks: TaskGroup) -> None:
        """Go with a deleted parent; blame who killed its owners; mend what the last one left broken, and go on."""
        await leave_no_orphan(self._place.store, self._patience, writer)
        if writer.state.private.attempts >= POISON_ATTEMPTS:
            await self._blame(writer)
        if lost := self._processes.lost(writer.state):
            self._start(writer, tasks, await writer.commit(lambda ledger: self._write_down(ledger, lost)))
        elif writer.state.private.run is not None:
            self._start(writer, tasks, await writer.commit(self._mend))

    def _write_down(self, ledger: Ledger, lost: list[str]) -> Step:
        """What became of a predecessor's processes, and then of its run."""
        write_lost(ledger, lost)
        return self._mend(ledger)

    async def _blame(self, writer: Writer) -> None:
        self._place.metrics.poisoned.inc()
        if writer.state.private.run is not None:
            _log.error("run.crash_loop", chat_id=self.chat_id)
            await writer.commit(lambda ledger: fail_run(ledger, CRASH_LOOP))
            return
        waiting = await self._patience.until_answered(lambda: self._place.store.read_inbox(self.chat_id, 1))
        if not waiting:
            return
        entry = waiting[0]
        _log.error("command.poisoned", chat_id=self.chat_id, client_request_id=entry.request_id)
        await self._patience.until_answered(lambda: self._place.store.dead_letter(self.chat_id, entry, "poison"))
        command, by = command_of(entry)
        sentence = "The command was given up: its server died three times while carrying it out."
        await writer.commit(lambda ledger: give_up(ledger, command, entry, by, "poison", sentence), (entry,))

    def _mend(self, ledger: Ledger) -> Step:
        tools = self._place.profiles.tools_of(ledger.state)
        recover(ledger, tools, can_continue=self._can_continue(ledger, tools))
        return advance(ledger, tools)

    def _can_continue(self, ledger: Ledger, tools: ChatTools) -> bool:
        try:
            provider, model = self._place.models.resolve(wanted_model(ledger, tools))
        except ModelFailed:
            return False
        return provider.prefills(model)

    async def _work(self, writer: Writer, tasks: TaskGroup, postman: Postman) -> End:
        while True:
            wake = self._wake = anyio.Event()
            if self._is_lost:
                raise Lost
            if self._is_fenced:
                raise Fenced
            if self._is_draining:
                await self._stop_at_safe_point(writer)
                return End.HANDED_OVER
            if self._was_cut:
                await self._mend_cut(writer, tasks)
            elif self._has_mail:
                self._has_mail = False
                await self._take_commands(writer, tasks)
            elif self._processes.has_ended:
                await self._end_processes(writer, tasks)
            elif self._turn is not None and not self._turn.is_done:
                await wake.wait()
            elif self._titling.begins(writer.state):
                tasks.start_soon(self._titling.run, writer)
            elif self._titling.goes_on:
                await wake.wait()
            elif (deadline := next_deadline_ms(writer.state)) is not None and deadline <= writer.now_ms():
                self._start(writer, tasks, await writer.commit(self._mend))
            elif postman.is_busy or self._processes.is_busy:
                seconds = None if deadline is None else (deadline - writer.now_ms()) / 1000
                with anyio.move_on_after(seconds):
                    await wake.wait()
            elif await self._release(writer, deadline):
                return End.RELEASED
            else:
                self._has_mail = True

    async def _take_commands(self, writer: Writer, tasks: TaskGroup) -> None:
        entries = await self._patience.until_answered(
            lambda: self._place.store.read_inbox(self.chat_id, COMMANDS_AT_ONCE)
        )
        for entry in entries:
            await self._carry_out(writer, tasks, entry)
        if len(entries) == COMMANDS_AT_ONCE:
            self._has_mail = True

    async def _carry_out(self, writer: Writer, tasks: TaskGroup, entry: InboxEntry) -> None:
        """One command: its effect and its consumption in one append (DESIGN §4.5)."""
        command, by = command_of(entry)
        laid_in_at = int(entry.inbox_id.partition("-")[0]) / 1000
        self._place.metrics.inbox_wait_seconds.observe(max(0.0, time.time() - laid_in_at))
        source = await source_of(self._place.store, self._patience, self.chat_id, command, by)
        is_stopped = stops(command, writer.state) and self._turn is not None
        if is_stopped and self._turn is not None:
            await self._turn.stop()

        def write(ledger: Ledger) -> Step:
            tools = self._place.profiles.tools_of(ledger.state)
            return carry_out(
                ledger, tools, lambda it: decide_safely(it, command, entry, by, source), is_stopped=is_stopped
            )

        step = await writer.commit(write, (entry,))
        if isinstance(command, BeginSubchat):
            await leave_no_orphan(self._place.store, self._patience, writer)
        self._start(writer, tasks, step)

    def _start(self, writer: Writer, tasks: TaskGroup, step: Step) -> None:
        if not isinstance(step, Wait):
            self._turn = Turn(self._place, writer, self._processes, self._end_turn)
            tasks.start_soon(self._turn.run, step)

    def _end_turn(self, is_fenced: bool) -> None:
        self._is_fenced = self._is_fenced or is_fenced
        self._wake.set()

    def _look(self) -> None:
        """Something outside changed that the loop waits for."""
        self._wake.set()

    async def _end_processes(self, writer: Writer, tasks: TaskGroup) -> None:
        """Processes are over: an event each, and for a waiting model a run."""
        views = self._processes.take_ended()

        def write(ledger: Ledger) -> Step:
            tools = self._place.profiles.tools_of(ledger.state)
            return carry_out(ledger, tools, lambda it: write_ends(it, views), is_stopped=False)

        try:
            step = await writer.commit(write)
        except Fenced:
            self._processes.put_back(views)
            raise
        self._processes.settle(views)
        self._start(writer, tasks, step)

    async def _mend_cut(self, writer: Writer, tasks: TaskGroup) -> None:
        self._was_cut = False
        if self._turn is not None:
            await self._turn.stop()
            self._start(writer, tasks, await writer.commit(self._mend))

    async def _release(self, writer: Writer, when_ms: int | None) -> bool:
        """Give the chat back, to be looked at again at `when_ms`; False when a command came in the meantime."""
        store, head = self._place.store, writer.state.head
        answer = await self._patience.until_answered(
            lambda: store.release(self.chat_id, self._place.worker, head, when_ms)
        )
        if answer is Released.MORE:
            return False
        self._place.cache.put(writer.state, writer.upkeep)
        return True

    async def _stop_at_safe_point(self, writer: Writer) -> None:
        """Within a second, whatever runs (DESIGN §4.6): processes end beside a tool that may still finish."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._processes.aclose)
            if self._turn is not None and not self._turn.is_done:
                tasks.start_soon(self._turn.reach_safe_point, DRAIN_TOOL_SECONDS)
        await self._processes.aclose()  # what that tool has started meanwhile
        views = self._processes.take_ended()
        await writer.commit(lambda ledger: write_ends(ledger, views))
        self._processes.settle(views)
        await self._hand_over(0)

    async def _hand_over(self, delay_ms: int) -> None:
        """Another worker may have it, now or after a while. Losing it meanwhile comes to the same."""
        place = self._place
        try:
            await self._patience.until_answered(lambda: place.store.handover(self.chat_id, place.worker, delay_ms))
        except Lost:
            return
