"""The background processes of one owned chat: started for tool calls, recorded in the chat's log, ended with the
ownership.

Connects the worker's pool of processes with the chat's log. The actor owns the chat as long as a process runs, so that
the process, its output and the log stay in one worker. Processes of a previous owner are `lost`. A process is in the
log before it is started, and only the chat's owner writes its end.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

import anyio
import structlog

from threadcast.actor.worker_context import WorkerContext
from threadcast.chat.entry_builder import EntryBuilder
from threadcast.chat.owner_state import OwnerState
from threadcast.chat.processes import begin_process, end_process
from threadcast.chat.relations import ProcessEnded
from threadcast.tools.processes import ProcessView
from threadcast_protocol.wire.errors import Refused, ToolFailed

__all__ = ["ChatProcesses", "CommitPort", "ProcessCalls", "commit_or_fail", "write_ends", "write_lost"]

_log = structlog.get_logger()
_T = TypeVar("_T")

LAST_WORDS_CHARACTERS = 2_000
"""The maximum length of the output that the model receives when a process ends; `read` returns more."""

DESCRIPTION_MAX_CHARACTERS = 200

NOTE_SECONDS = 0.5
"""Seconds that a cancelled call may take to record that its process did not start. An append that has begun is not
interrupted, but an abort does not wait longer than this (`RunTask.stop`)."""


class CommitPort(Protocol):
    """The methods of a `RunTask` that the ports of tools call."""

    @property
    def state(self) -> OwnerState: ...

    async def commit(self, write: Callable[[EntryBuilder], _T]) -> _T: ...


async def commit_or_fail(chat: CommitPort, write: Callable[[EntryBuilder], _T]) -> _T:
    """Commit what `write` adds. Raises ToolFailed if `write` raises Refused."""

    def guarded(builder: EntryBuilder) -> _T | Refused:
        try:
            return write(builder)
        except Refused as refusal:
            return refusal  # an exception from the commit would discard deltas that other tasks have offered

    outcome = await chat.commit(guarded)
    if isinstance(outcome, Refused):
        raise ToolFailed(f"{outcome.message}.")
    return outcome


class ChatProcesses:
    """The processes of one actor. `on_end` is called when a process has ended."""

    def __init__(self, context: WorkerContext, chat_id: str, on_end: Callable[[], None]) -> None:
        self.context = context
        self._chat_id = chat_id
        self._on_end = on_end
        self._mine: set[str] = set()
        self._ended: list[ProcessView] = []

    @property
    def is_busy(self) -> bool:
        """Whether a process is running, or the end of a process is not in the log yet; the chat must then not be
        released."""
        return bool(self._mine)

    @property
    def has_ended(self) -> bool:
        return bool(self._ended)

    def take_ended(self) -> list[ProcessView]:
        """Return the processes that have ended. The caller writes their ends by `write_ends` and then calls `settle`,
        or `put_back` if the write failed."""
        taken, self._ended = self._ended, []
        return taken

    def put_back(self, views: list[ProcessView]) -> None:
        self._ended = [*views, *self._ended]

    def settle(self, views: list[ProcessView]) -> None:
        self._mine.difference_update(view.process_id for view in views)

    async def start(self, process_id: str, argv: Sequence[str], cwd: str, env: Mapping[str, str]) -> None:
        """Start a process. Raises ToolFailed if the process cannot be started."""
        key = (self._chat_id, process_id)
        await self.context.processes.start(key, argv, cwd=cwd, env=env, on_end=self._over)
        self._mine.add(process_id)
        # The command is left out, because it may contain secrets.
        _log.info("process.started", chat_id=self._chat_id, process_id=process_id)

    def read(self, process_id: str) -> ProcessView | None:
        """Return the state and the output of a process; None if the chat has no such process, or if the worker no
        longer has its output."""
        return self.context.processes.read((self._chat_id, process_id))

    async def kill(self, process_id: str) -> None:
        await self.context.processes.kill((self._chat_id, process_id))

    def _over(self, view: ProcessView) -> None:
        self._ended.append(view)
        _log.info(
            "process.ended",
            chat_id=self._chat_id,
            process_id=view.process_id,
            status=view.status,
            exit_code=view.exit_code,
        )
        self._on_end()

    def lost(self, state: OwnerState) -> list[str]:
        """Return the ids of processes that are open in the log, but belong to an earlier owner."""
        return [each.process_id for each in state.private.relations.processes if each.process_id not in self._mine]

    async def aclose(self) -> None:
        """End all processes within a second and a half, even if some hang."""
        async with anyio.create_task_group() as tasks:
            for process_id in self._mine:
                tasks.start_soon(self.kill, process_id)


def write_ends(builder: EntryBuilder, views: Sequence[ProcessView]) -> None:
    """Write how these processes ended."""
    for view in views:
        end_process(builder, view.process_id, view.status, view.exit_code, view.output[-LAST_WORDS_CHARACTERS:])


def write_lost(builder: EntryBuilder, process_ids: Sequence[str]) -> None:
    for process_id in process_ids:
        end_process(builder, process_id, "lost", None)


async def _make_directory(path: str) -> None:
    """Make the directory of the tools. Raises ToolFailed, for example if the disk is full."""
    try:
        await anyio.Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as wrong:
        raise ToolFailed(f"The tools' directory cannot be created: {wrong.strerror}.") from wrong


class ProcessCalls:
    """The `ProcessesPort` for the tool calls of one task."""

    def __init__(self, run_task: CommitPort, processes: ChatProcesses) -> None:
        self._run_task = run_task
        self._processes = processes

    async def start(
        self,
        argv: Sequence[str],
        *,
        cwd: str = "",
        env: Mapping[str, str] | None = None,
        description: str = "",
        wake: bool = False,
    ) -> str:
        context = self._processes.context
        shown = (description or " ".join(argv))[:DESCRIPTION_MAX_CHARACTERS]
        process_id = await commit_or_fail(
            self._run_task, lambda builder: begin_process(builder, context.worker, shown, wakes=wake)
        )
        try:
            directory = context.processes.home or context.data_dir
            await _make_directory(directory)
            await self._processes.start(process_id, argv, cwd or directory, env or {})
        except BaseException:  # All exceptions, also a cancellation, mean that the process was not started.
            # If this fact is not appended in time, the next owner records the process as lost.
            with anyio.move_on_after(NOTE_SECONDS, shield=True):
                await self._run_task.commit(lambda builder: builder.note(ProcessEnded(process_id=process_id)))
            raise
        return process_id

    def read(self, process_id: str) -> ProcessView:
        view = self._processes.read(process_id)
        if view is None:
            raise ToolFailed(f"This chat has no process {process_id}, or its output is no longer held.")
        return view

    async def kill(self, process_id: str) -> None:
        view = self._processes.read(process_id)
        if view is None or view.status != "running":
            raise ToolFailed(f"No process {process_id} is running in this chat.")
        await self._processes.kill(process_id)
