"""Runs one owned chat: takes commands, decides them, appends the results, and starts and stops the run (DISPATCH §5).

An actor lives from a claim until it releases the chat. It appends a fence before it reads the log, so that no other
worker can append to the log that the actor folds. Its loop takes commands in the order of the inbox, while the run
continues in a separate task. Therefore aborts, decisions and parameters never wait for a model. When the chat has no
work, or only a person can continue the run, the actor releases the chat and ends; the log contains the paused run.
"""

import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

import anyio
import structlog
from anyio.abc import TaskGroup

from threadcast.actor import intake
from threadcast.actor.beside import running_beside
from threadcast.actor.checkpoint_policy import CheckpointPolicy
from threadcast.actor.compaction import is_compacted
from threadcast.actor.end import LONG_MISSING_DELAY_MS, NEWER_VERSION_DELAY_MS, End
from threadcast.actor.former_owner import FormerOwner
from threadcast.actor.orphans import leave_no_orphan
from threadcast.actor.outbox_sender import OutboxSender
from threadcast.actor.processes import ChatProcesses, write_ends, write_lost
from threadcast.actor.rests import LEFT_SECONDS, Rest
from threadcast.actor.retry_policy import RetryPolicy
from threadcast.actor.run_slots import RunSlot
from threadcast.actor.run_task import RunTask
from threadcast.actor.sources import source_of
from threadcast.actor.state_cache import Cached
from threadcast.actor.titling import Titling
from threadcast.actor.worker_context import WorkerContext
from threadcast.actor.writer import Writer
from threadcast.agent_loop.answer.final import say_final_word
from threadcast.agent_loop.durable.inputs import durable_agent, lacks_agent
from threadcast.agent_loop.durable.plan import MISSING_MS, say_missing
from threadcast.agent_loop.history.kept_view import KeptView
from threadcast.agent_loop.plan import is_worked_on, next_deadline_ms, stops, wanted_model
from threadcast.agent_loop.recovery import can_continue, recover
from threadcast.agent_loop.steps import RunAgent, Step, Wait
from threadcast.chat.entries import Fence, RawEntry
from threadcast.chat.entry_builder import EntryBuilder
from threadcast.chat.internal_commands import BeginSubchat
from threadcast.chat.owner_state import empty_owner_state
from threadcast.chat.runs import fail_run
from threadcast.store.load import NewerVersion, fold_checked, load_folded
from threadcast.store.ports import Fenced, Lost, Released, Taken
from threadcast_protocol.fold.reducer import Gap
from threadcast_protocol.wire.failures import CRASH_LOOP
from threadcast_protocol.wire.ids import Head

__all__ = ["Actor"]

_log = structlog.get_logger()

COMMANDS_AT_ONCE = 8  # read in one call; most parts of an import have 512 KiB, and other commands 1 MiB
POISON_ATTEMPTS = 3
"""Takeovers without progress after which the open run or the next command is given up as their cause (DESIGN §4.7)."""

DRAIN_TOOL_SECONDS = 0.7
"""Seconds that a running tool may continue when the worker drains: a planned hand-over takes ≤ 1 s (DESIGN §4.6)."""


class Actor:
    """Owns the chat `chat_id` for `context.worker`."""

    def __init__(self, context: WorkerContext, chat_id: str, former: FormerOwner) -> None:
        self.chat_id = chat_id
        self._context = context
        self._former = former
        self._why = "takeover" if former.is_taken_over_by(context.worker) else "wake"
        self._wake = anyio.Event()
        self._has_inbox_signal = True
        self._is_draining = self._is_lost = self._is_fenced = self._was_cut = False
        self._writer: Writer | None = None
        self._run_task: RunTask | None = None
        self._retry_policy = RetryPolicy(context.metrics)
        self._titling = Titling(context, self._on_task_end)
        self._processes = ChatProcesses(context, chat_id, lambda: self._wake.set())
        self._slot = RunSlot(context.slots, chat_id)

    def notify(self) -> None:
        """Tell the actor that its inbox has a command."""
        self._has_inbox_signal = True
        self._wake.set()

    def drain(self) -> None:
        """Give the chat to another worker at the next safe point."""
        self._is_draining = True
        self._wake.set()

    def lose(self) -> None:
        """Tell the actor that another worker has the lease, or that this worker ends. The actor stops waiting for the
        store and for its tasks."""
        self._is_lost = True
        self._retry_policy.give_up()
        if self._writer is not None:
            self._writer.give_up()
        self._wake.set()

    def stop_effects(self) -> None:
        """Cancel a running tool or step that must not run twice, because the store has not answered for too long. It is
        cancelled even while this actor waits for a call to the store (DESIGN §4.8)."""
        run_task = self._run_task
        if run_task is not None and run_task.has_single_effect:
            run_task.cancel()
            self._was_cut = True
            self._wake.set()

    async def run(self) -> End:
        """Own the chat until it is released or lost. The processes of the chat end with the ownership."""
        try:
            while True:
                try:
                    writer = self._writer = await self._open()
                    if self._is_lost:  # `lose` was called before there was a writer
                        return End.LOST
                    sender = OutboxSender(self._context.store, self._retry_policy, writer, lambda: self._wake.set())
                    endless = (writer.flush_forever, sender.deliver_forever)
                    async with running_beside(endless, lambda: self._on_task_end(True), self.lose) as tasks:
                        await self._settle(writer, tasks)
                        return await self._work(writer, tasks, sender)
                except Lost:
                    return End.LOST
                except Fenced:
                    if self._is_lost:
                        return End.LOST
                    _log.warning("actor.fenced", chat_id=self.chat_id)
                    self._why, self._has_inbox_signal, self._run_task = "retake", True, None
                    self._is_fenced = self._was_cut = False
                except NewerVersion as newer:
                    _log.warning("chat.newer_version", chat_id=self.chat_id, error=str(newer))
                    await self._hand_over(NEWER_VERSION_DELAY_MS)
                    return End.NEWER_VERSION
                except Gap as hole:
                    _log.error("chat.unfoldable", chat_id=self.chat_id, error=str(hole))
                    return End.UNFOLDABLE
        finally:
            with anyio.CancelScope(shield=True):
                await self._processes.aclose()

    async def _open(self) -> Writer:
        """Append the fence, then read the log, and return the writer (DESIGN §4.1)."""
        context = self._context
        # A repeated fence is a "retake", because one takeover must count against the chat only once (DISPATCH §5).
        why = self._why

        async def take() -> Taken:
            nonlocal why
            said, why = why, "retake" if why == "takeover" else why
            taken = await context.store.take(self.chat_id, context.worker, said)
            why = said
            return taken

        taken = await self._retry_policy.until_answered(take)
        if self._why == "takeover":
            context.metrics.takeovers.inc()
            _log.info("chat.taken_over", chat_id=self.chat_id)
        cached = context.cache.pop(self.chat_id, taken.previous)
        if taken.previous == "" or cached is not None:
            cached = cached or Cached(empty_owner_state(self.chat_id), CheckpointPolicy(), KeptView())
            fence = RawEntry(
                entry_id=Head.parse(taken.head).entry_id,
                head=taken.head,
                before=taken.previous,
                position=cached.state.position,
                time_ms=taken.time_ms,
                version=0,
                fence=Fence(context.worker, why),
            )
            state, _ = fold_checked(cached.state, fence, with_facts=True)
            return self._new_writer(taken, cached._replace(state=state))
        folded = await self._retry_policy.until_answered(
            lambda: load_folded(context.store, self.chat_id, with_facts=True)
        )
        if folded.state.head != taken.head:
            raise Fenced
        return self._new_writer(taken, Cached(folded.state, CheckpointPolicy.of(folded.extent), KeptView()))

    def _new_writer(self, taken: Taken, opened: Cached) -> Writer:
        self._slot.begin(taken.owner)
        return Writer(
            self._context.store,
            self._context.worker,
            opened.state,
            owner=taken.owner,
            new_id=self._context.new_id,
            metrics=self._context.metrics,
            checkpoint_policy=opened.checkpoint_policy,
            profile_params=self._context.profiles.params_of,
            before_end=lambda builder: say_final_word(builder, self._context.profiles.tools_of(builder.state)),
            clock_ahead_ms=taken.time_ms - int(time.time() * 1000),
            traces=self._context.traces,
            append_group=self._context.append_group,
            kept_view=opened.kept_view,
        )

    async def _settle(self, writer: Writer, tasks: TaskGroup) -> None:
        """Delete the chat if its parent was deleted, drop a copy that is not complete, end a run or command that has
        killed too many owners, recover the previous owner's unfinished work, and continue the run."""
        await leave_no_orphan(self._context.store, self._retry_policy, writer)
        await intake.end_unfinished_copy(writer)
        if not await self._outlast_former_owner(writer):
            return  # `_work` ends the actor
        if writer.state.private.attempts >= POISON_ATTEMPTS:
            self._context.metrics.poisoned.inc()
            if writer.state.private.run is not None:
                _log.error("run.crash_loop", chat_id=self.chat_id)
                await writer.commit(lambda builder: fail_run(builder, CRASH_LOOP))
            else:
                await intake.give_up_first(self._context.store, self._retry_policy, writer)
        lost = self._processes.lost(writer.state)
        if lost or writer.state.private.run is not None:
            self._start(writer, tasks, await writer.commit(lambda builder: self._mend(builder, lost)))

    async def _outlast_former_owner(self, writer: Writer) -> bool:
        """Wait until the former owner has stopped its tools and steps that may not run twice. Returns False if this
        actor has to end."""
        while seconds := self._former_wait_seconds(writer):
            wake = self._wake = anyio.Event()
            if self._is_lost or self._is_fenced or self._is_draining:
                return False
            with anyio.move_on_after(seconds):
                await wake.wait()
        self._former.forget()
        return True

    def _former_wait_seconds(self, writer: Writer) -> float:
        tools = self._context.profiles.tools_of(writer.state)
        return self._former.wait_seconds(writer.state, tools, self._processes)

    def _mend(self, builder: EntryBuilder, lost: Sequence[str] = ()) -> Step:
        """Write how the previous owner's processes (`lost`) and its run ended, and return the run's next step."""
        write_lost(builder, lost)
        tools = self._context.profiles.tools_of(builder.state)
        recover(builder, tools, can_continue=can_continue(self._context.models, wanted_model(builder, tools)))
        return self._slot.advance(builder, tools)

    async def _work(self, writer: Writer, tasks: TaskGroup, sender: OutboxSender) -> End:
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
            elif self._has_inbox_signal:
                self._has_inbox_signal = False
                await self._take_commands(writer, tasks)
            elif self._processes.has_ended:
                await self._end_processes(writer, tasks)
            elif lacks_agent(self._context.models, writer.state):
                return await self._pass_on(writer)
            elif self._is_working or self._titling.goes_on:
                await wake.wait()
            elif self._titling.begins(writer.state, self._slot):
                tasks.start_soon(self._titling.run, writer)
            elif (deadline := next_deadline_ms(writer.state)) is not None and deadline <= writer.now_ms():
                self._start(writer, tasks, await writer.commit(self._mend))
            elif sender.is_busy or self._processes.is_busy:
                seconds = None if deadline is None else (deadline - writer.now_ms()) / 1000
                with anyio.move_on_after(seconds):
                    await wake.wait()
            elif await self._is_left(writer, wake):
                if await self._release(writer, deadline):
                    return End.RELEASED
                self._has_inbox_signal = True

    async def _take_commands(self, writer: Writer, tasks: TaskGroup) -> None:
        """Carry out the waiting commands. One append writes a command's effect and its consumption (DESIGN §4.5)."""
        store = self._context.store
        entries = await self._retry_policy.until_answered(lambda: store.read_inbox(self.chat_id, COMMANDS_AT_ONCE))
        for entry in entries:
            command, by, _, blob = await intake.read_command(store, self._retry_policy, writer, entry)
            self._context.metrics.inbox_wait_seconds.observe(intake.waited_seconds(entry))
            source = await source_of(store, self._retry_policy, self.chat_id, command, by)
            is_stopped = stops(command, writer.state)
            if is_stopped and self._run_task is not None:  # if it is None, this worker lacks the run's agent
                await self._run_task.stop()
            write = partial(
                intake.carry_out,
                self._context.profiles.tools_of,
                command=command,
                by=by,
                request_id=entry.request_id,
                source=source,
                is_stopped=is_stopped,
                advance=self._slot.advance,
            )
            step = await writer.commit(write, (entry,))
            if isinstance(command, BeginSubchat):
                await leave_no_orphan(store, self._retry_policy, writer)
            self._start(writer, tasks, step)
            await intake.drop_body(store, writer, blob)
        self._has_inbox_signal = self._has_inbox_signal or len(entries) == COMMANDS_AT_ONCE

    def _start(self, writer: Writer, tasks: TaskGroup, step: Step) -> None:
        if isinstance(step, RunAgent) and durable_agent(self._context.models, step.name) is None:
            self._wake.set()  # so that `_pass_on` is called
        elif not isinstance(step, Wait):
            self._run_task = RunTask(self._context, writer, self._processes, self._slot, self._on_task_end)
            tasks.start_soon(self._run_task.run, step)
        elif not self._is_working:
            self._slot.free()

    @property
    def _is_working(self) -> bool:
        return self._run_task is not None and not self._run_task.is_done

    def _on_task_end(self, is_fenced: bool) -> None:
        self._is_fenced = self._is_fenced or is_fenced
        if not self._is_working:  # the task of a stopped tool may end while the next task works
            self._slot.free()
        self._wake.set()

    async def _end_processes(self, writer: Writer, tasks: TaskGroup) -> None:
        """Write an event for each process that has ended, and start a run if a model waits for one of them."""
        views = self._processes.take_ended()

        def write(builder: EntryBuilder) -> Step:
            tools = self._context.profiles.tools_of(builder.state)
            is_held = is_worked_on(builder.state)
            write_ends(builder, views)
            return Wait() if is_held else self._slot.advance(builder, tools)

        try:
            step = await writer.commit(write)
        except Fenced:
            self._processes.put_back(views)
            raise
        self._processes.settle(views)
        self._start(writer, tasks, step)

    async def _mend_cut(self, writer: Writer, tasks: TaskGroup) -> None:
        self._was_cut = False
        if self._run_task is not None:
            await self._run_task.stop()
            self._start(writer, tasks, await writer.commit(self._mend))

    async def _is_left(self, writer: Writer, wake: anyio.Event) -> bool:
        """Wait a moment for the next command of a program, unless a run waits for a slot. Returns False if one came."""
        await intake.forget_takeovers(writer)
        self._slot.free()
        if writer.state.runtime.waits_for is None:
            with anyio.move_on_after(self._context.linger_seconds):
                await wake.wait()
        return not wake.is_set()

    async def _release(self, writer: Writer, when_ms: int | None) -> bool:
        """Release the chat until `when_ms`, or until its run gets a slot. Returns False if a command has arrived."""
        context, state, policy = self._context, writer.state, writer.checkpoint_policy
        now_ms, check_ms = writer.now_ms(), self._slot.check_ms() if state.runtime.waits_for is not None else None
        when_ms = when_ms if check_ms is None else now_ms + check_ms
        rest_seconds = 0.0 if policy.has_grown else context.limits.compact_after_seconds
        left_ms = now_ms + int(1_000 * (rest_seconds + LEFT_SECONDS)) if is_compacted(state, policy) else None
        answer = await self._retry_policy.until_answered(
            lambda: context.store.release(self.chat_id, context.worker, state.head, when_ms, left_ms)
        )
        if answer is Released.MORE:
            return False
        context.cache.put(state, policy, writer.kept_view)
        if left_ms is not None:
            context.rests.add(self.chat_id, Rest(time.monotonic() + rest_seconds, state.head, writer.owner))
        if check_ms is not None:
            self._slot.wait(state, check_ms)
        return True

    async def _stop_at_safe_point(self, writer: Writer) -> None:
        """Stop all work of the chat within a second, and hand the chat over (DESIGN §4.6). Processes are ended while a
        running tool may still finish."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._processes.aclose)
            if self._run_task is not None and self._is_working:
                tasks.start_soon(self._run_task.reach_safe_point, DRAIN_TOOL_SECONDS)
        await self._processes.aclose()  # this also ends the processes that the tool has started meanwhile
        views = self._processes.take_ended()
        await writer.commit(lambda builder: write_ends(builder, views))
        self._processes.settle(views)
        await self._hand_over(round(1000 * self._former_wait_seconds(writer)))

    async def _pass_on(self, writer: Writer) -> End:
        """Offer the chat to a worker that has the agent of its run. Until such a worker takes the chat, the chat is
        offered every second for a minute, and then less often."""
        _log.warning("chat.lacks_agent", chat_id=self.chat_id)
        since_ms = await writer.commit(lambda builder: say_missing(builder))
        is_long = writer.now_ms() - since_ms >= MISSING_MS
        await self._hand_over(LONG_MISSING_DELAY_MS if is_long else NEWER_VERSION_DELAY_MS)
        return End.LACKS_AGENT

    async def _hand_over(self, delay_ms: int) -> None:
        """Offer the chat to other workers after `delay_ms`. A chat that was lost meanwhile needs no hand-over."""
        handover, worker = self._context.store.handover, self._context.worker
        with suppress(Lost):
            await self._retry_policy.until_answered(lambda: handover(self.chat_id, worker, delay_ms))
