"""The background processes of one owned chat: started for a tool's call, told of in the chat's log, ended with the
ownership.

Joins the worker's pool, which knows no chat, with the chat's log, which knows no pipes. The actor holds the chat for as
long as one runs, so that process, output and log stay in one worker; what a predecessor left is `lost`. The rule: a
process stands in the log before it is started, and its end is written by the owner alone.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

import anyio
import structlog

from protocol.errors import Refused, ToolFailed
from protocol.ledger import Ledger
from protocol.processes import begin_process, end_process
from protocol.relations import ProcessEnded
from protocol.state import ChatState
from server.actor.workplace import Workplace
from server.tools.processes import ProcessView

__all__ = ["ChatProcesses", "CommitPort", "ProcessCalls", "write_ends", "write_lost"]

_log = structlog.get_logger()
_T = TypeVar("_T")

LAST_WORDS_CHARACTERS = 2_000
"""Of a process's output, told to the model when it ends; `read` gives the rest."""

DESCRIPTION_MAX_CHARACTERS = 200

NOTE_SECONDS = 0.5
"""For its turn at the log, against a cancellation, to note that a process did not start after all. An append that
has begun takes what it takes, as any does; an abort leaves the call behind by then (`Turn.stop`)."""


class CommitPort(Protocol):
    """The running turn, as what a tool is lent needs it."""

    @property
    def state(self) -> ChatState: ...

    async def commit(self, write: Callable[[Ledger], _T]) -> _T: ...


class ChatProcesses:
    """Of one actor. `on_end` is told when `take_ended` has something."""

    def __init__(self, place: Workplace, chat_id: str, on_end: Callable[[], None]) -> None:
        self.place = place
        self._chat_id = chat_id
        self._on_end = on_end
        self._mine: set[str] = set()
        self._ended: list[ProcessView] = []

    @property
    def is_busy(self) -> bool:
        """One runs, or its end is not written down yet; the chat must not be given back."""
        return bool(self._mine)

    @property
    def has_ended(self) -> bool:
        return bool(self._ended)

    def take_ended(self) -> list[ProcessView]:
        """Those that ended, to be written down by `write_ends` and then `settle`d, or put back."""
        taken, self._ended = self._ended, []
        return taken

    def put_back(self, views: list[ProcessView]) -> None:
        self._ended = [*views, *self._ended]

    def settle(self, views: list[ProcessView]) -> None:
        self._mine.difference_update(view.process_id for view in views)

    async def start(self, process_id: str, argv: Sequence[str], cwd: str, env: Mapping[str, str]) -> None:
        """Raises ToolFailed."""
        key = (self._chat_id, process_id)
        await self.place.processes.start(key, argv, cwd=cwd, env=env, on_end=self._over)
        self._mine.add(process_id)
        _log.info("process.started", chat_id=self._chat_id, process_id=process_id)  # not what: it may hold secrets

    def read(self, process_id: str) -> ProcessView | None:
        """None when it is none of this chat, or no longer held."""
        return self.place.processes.read((self._chat_id, process_id))

    async def kill(self, process_id: str) -> None:
        await self.place.processes.kill((self._chat_id, process_id))

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

    def lost(self, state: ChatState) -> list[str]:
        """Processes that the log knows and no owner has any more."""
        return [each.process_id for each in state.private.relations.processes if each.process_id not in self._mine]

    async def aclose(self) -> None:
        """End them all; within a second and a half, whatever hangs."""
        async with anyio.create_task_group() as tasks:
            for process_id in self._mine:
                tasks.start_soon(self.kill, process_id)


def write_ends(ledger: Ledger, views: Sequence[ProcessView]) -> None:
    """Write down how these ended."""
    for view in views:
        end_process(ledger, view.process_id, view.status, view.exit_code, view.output[-LAST_WORDS_CHARACTERS:])


def write_lost(ledger: Ledger, process_ids: Sequence[str]) -> None:
    for process_id in process_ids:
        end_process(ledger, process_id, "lost", None)


async def _make_directory(path: str) -> None:
    """Raises ToolFailed: the disk is full, or refuses."""
    try:
        await anyio.Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as wrong:
        raise ToolFailed(f"The tools' directory cannot be made: {wrong.strerror}.") from wrong


class ProcessCalls:
    """A `ProcessesPort` for the calls of one turn."""

    def __init__(self, turn: CommitPort, processes: ChatProcesses) -> None:
        self._turn = turn
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
        place = self._processes.place
        shown = (description or " ".join(argv))[:DESCRIPTION_MAX_CHARACTERS]

        def write(ledger: Ledger) -> str | Refused:
            try:
                return begin_process(ledger, place.worker, shown, wakes=wake)
            except Refused as refusal:
                return refusal  # raised in here it would take along what others had offered

        process_id = await self._turn.commit(write)
        if isinstance(process_id, Refused):
            raise ToolFailed(f"{process_id.message}.")
        begun = process_id
        try:
            await _make_directory(place.data_dir)
            await self._processes.start(begun, argv, cwd or place.data_dir, env or {})
        except BaseException:  # also a cancellation: what was not started does not run
            # What is not noted in time is found by the next owner, who writes it down as lost.
            with anyio.move_on_after(NOTE_SECONDS, shield=True):
                await self._turn.commit(lambda ledger: ledger.note(ProcessEnded(process_id=begun)))
            raise
        return begun

    def read(self, process_id: str) -> ProcessView:
        view = self._processes.read(process_id)
        if view is None:
            raise ToolFailed(f"There is no process {process_id} here, or what it printed is no longer held.")
        return view

    async def kill(self, process_id: str) -> None:
        view = self._processes.read(process_id)
        if view is None or view.status != "running":
            raise ToolFailed(f"No process {process_id} is running in this chat.")
        await self._processes.kill(process_id)
