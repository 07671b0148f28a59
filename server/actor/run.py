"""A running run: one task that carries out the plan's steps, and how it is stopped.

A turn is the bridge between the agent loop, which knows no store, and the chat's writer. It can be stopped at any
moment, because every step it finished stands in the log; what it was doing is settled by `recovery.recover`. A tool
that does not heed its cancellation is left behind: the turn is over when we say so; what comes later does not count.
"""

from collections.abc import Callable
from typing import TypeVar

import anyio
import structlog

from protocol.blobs import BLOB_TTL_SECONDS, Blob
from protocol.deltas import DeltaOp
from protocol.events import ToolStatus
from protocol.failures import Failure
from protocol.ledger import Ledger
from protocol.runs import fail_run
from protocol.state import ChatState
from server.actor.children import ChildChats
from server.actor.patience import Patience
from server.actor.processes import ChatProcesses, ProcessCalls
from server.actor.workplace import Workplace
from server.actor.writer import Writer
from server.agent.calls.client_events import Emitted
from server.agent.loop import AgentLoop
from server.agent.place.profile import ChatTools
from server.agent.plan import advance
from server.agent.steps import RunTool, Step
from server.agent.tracing import Trace
from server.foreign import pass_on
from server.store.port import BlobOutcome, BlobPut, Fenced, Lost
from server.tools.chats import ChatsPort
from server.tools.processes import ProcessesPort

__all__ = ["Turn"]

_log = structlog.get_logger()
_T = TypeVar("_T")

STOP_SECONDS = 0.8
"""An abort is done within a second, whatever hangs (CMD-3)."""

DRAIN_STOP_SECONDS = 0.1
"""The same when the chat is handed over: a tool that does not heed its cancellation must not hold up the next owner,
who was promised the chat within a second (DESIGN §4.6). Its result would not count any more."""


class TurnOver(Exception):
    """Somebody stopped this turn; what it still wants to say does not count."""


class Turn:
    """One task's worth of work on a chat. A `ChatPort` for the loop. `on_end` is told when the task is through;
    its argument says whether the log was found to be somebody else's."""

    def __init__(
        self, place: Workplace, writer: Writer, processes: ChatProcesses, on_end: Callable[[bool], None]
    ) -> None:
        self._place = place
        self._processes = processes
        self._writer = writer
        self._on_end = on_end
        self._scope = anyio.CancelScope()
        self._is_over = False
        self._done = anyio.Event()
        self._loop = AgentLoop(
            self,
            place.models,
            place.runner,
            place.metrics,
            new_id=place.new_id,
            data_dir=place.data_dir,
            authorizations=place.authorizations,
            answer_seconds=place.answer_seconds,
            reasons=place.reasons,
        )

    @property
    def is_done(self) -> bool:
        return self._is_over or self._done.is_set()

    @property
    def running_tool(self) -> RunTool | None:
        """The tool call that is being carried out now."""
        step = self._loop.current
        return step if isinstance(step, RunTool) and not self.is_done else None

    async def run(self, step: Step | None) -> None:
        """Carry out `step` and what follows. Our own mistakes end the run, not the worker."""
        is_fenced = False
        try:
            with self._scope:
                while step is not None:
                    step = await self._run_guarded(step)
        except Fenced:
            is_fenced = True
        except TurnOver:
            pass
        finally:
            self._done.set()
            self._on_end(is_fenced)

    async def _run_guarded(self, step: Step) -> Step | None:
        try:
            await self._loop.run(step)
        except (Fenced, TurnOver):
            raise
        except BaseException as wrong:  # the boundary of a run: a mistake must not take the chat's owner along
            pass_on(wrong)
            _log.exception("run.crashed", chat_id=self.state.chat_id)
            return await self.commit(self._fail)
        return None

    def _fail(self, ledger: Ledger) -> Step:
        fail_run(ledger, Failure(code="internal", message="Something failed inside the server; it is in its log."))
        return advance(ledger, self.tools())

    def cancel(self) -> None:
        """Cancel model and tools, without waiting for them."""
        self._scope.cancel()

    async def stop(self, within_seconds: float = STOP_SECONDS) -> None:
        """Cancel model and tools; returns in that time, whatever they do."""
        self.cancel()
        with anyio.move_on_after(within_seconds):
            await self._done.wait()
        if not self._done.is_set():
            _log.warning("turn.abandoned", chat_id=self.state.chat_id)
        self._is_over = True

    async def reach_safe_point(self, deadline_seconds: float) -> None:
        """Give a running tool its chance to finish; a model call is cut where it is. `deadline_seconds` and
        `DRAIN_STOP_SECONDS` are the longest that it takes."""
        tool = self.running_tool
        with anyio.move_on_after(deadline_seconds):
            while tool is not None and self.running_tool is tool:
                await self._loop.step_ended.wait()
        await self.stop(DRAIN_STOP_SECONDS)

    # what the loop is lent

    @property
    def state(self) -> ChatState:
        return self._writer.state

    async def commit(self, write: Callable[[Ledger], _T]) -> _T:
        if self._is_over:
            raise TurnOver
        return await self._writer.commit(write)

    async def stream(self, op: DeltaOp) -> None:
        if self._is_over:
            raise TurnOver
        await self._writer.offer_and_wait(op)

    def offer(self, event: ToolStatus | Emitted) -> None:
        if not self._is_over:
            self._writer.offer(event)

    def chats_of(self, tool_call_id: str) -> ChatsPort:
        return ChildChats(self, self._writer, self._place.profiles, tool_call_id)

    def processes_of(self, tool_call_id: str) -> ProcessesPort:
        return ProcessCalls(self, self._processes)

    async def fetch_blob(self, hash: str) -> Blob | None:
        """As patient as the writer with a store that is away: a model must not be told that a file is gone which is
        there. One that cannot be read for a minute, while the chat is still ours, is left out."""
        store, owner = self._place.store, self._writer.owner
        try:
            return await Patience(self._place.metrics).until_answered(
                lambda: store.get_blob(self.state.chat_id, owner, hash)
            )
        except Lost as trouble:
            _log.warning("blob.not_read", chat_id=self.state.chat_id, error=str(trouble.__cause__))
            return None

    async def put_blob(self, blob: Blob) -> bool:
        """As patient: what a tool has made cannot be made again. False: it is not kept."""
        store = self._place.store
        request = BlobPut(chat_id=self.state.chat_id, owner=self._writer.owner, blob=blob, ttl_seconds=BLOB_TTL_SECONDS)
        try:
            outcome = await Patience(self._place.metrics).until_answered(lambda: store.put_blob(request))
        except Lost as trouble:
            _log.warning("blob.not_kept", chat_id=self.state.chat_id, error=str(trouble.__cause__))
            return False
        if outcome is not BlobOutcome.KEPT:
            _log.warning("blob.not_kept", chat_id=self.state.chat_id, error=outcome.value)
        return outcome is BlobOutcome.KEPT

    def trace(self, record: Trace) -> None:
        if self._place.traces is not None:
            self._place.traces.offer(self.state.chat_id, self._writer.owner, record)

    def tools(self) -> ChatTools:
        return self._place.profiles.tools_of(self.state)
