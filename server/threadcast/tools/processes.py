"""The interface with which tools run operating-system processes that outlive the call (PROTOCOL §12).

`actor/processes.py` implements it over `process_pool.py`. A process belongs to its chat, runs in the worker that owns
the chat, and ends with that worker.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from threadcast_protocol.wire.errors import ToolFailed

__all__ = ["NO_PROCESSES", "ProcessView", "ProcessesPort"]


class ProcessView(msgspec.Struct, frozen=True, kw_only=True):
    """`status`: running, completed, failed or killed. `output`: the last 64 kB of the standard output and the standard
    error together."""

    process_id: str
    status: str
    exit_code: int | None
    output: str


class ProcessesPort(Protocol):
    async def start(
        self,
        argv: Sequence[str],
        *,
        cwd: str = "",
        env: Mapping[str, str] | None = None,
        description: str = "",
        wake: bool = False,
    ) -> str:
        """Start a process and return its id at once. An empty `cwd` means the directory where tools may write, or, if
        processes run as another user (`server.programs_user`), that user's directory. The environment of the process
        has only `PATH`, `HOME`, `LANG`, `TMPDIR` and `env`. The end of the process is an event of the chat, which the
        model reads in its next round; with `wake` the end starts a run.

        Raises:
            ToolFailed: too many processes run already, or the process cannot be started.
        """

    def read(self, process_id: str) -> ProcessView:
        """Return the status and the output of a process, also for a while after its end. Raises ToolFailed when the
        process is unknown or no longer held."""

    async def kill(self, process_id: str) -> None:
        """End the process and its descendants with SIGTERM, then SIGKILL; returns when the process has ended. Raises
        ToolFailed when the process does not run."""


class _NoProcesses:
    """The implementation for tools that run outside a chat, for instance in their own tests."""

    async def start(
        self,
        argv: Sequence[str],
        *,
        cwd: str = "",
        env: Mapping[str, str] | None = None,
        description: str = "",
        wake: bool = False,
    ) -> str:
        raise ToolFailed("There are no processes here.")

    def read(self, process_id: str) -> ProcessView:
        raise ToolFailed("There are no processes here.")

    async def kill(self, process_id: str) -> None:
        raise ToolFailed("There are no processes here.")


NO_PROCESSES: ProcessesPort = _NoProcesses()
