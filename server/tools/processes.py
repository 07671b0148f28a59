"""What a tool may do with processes of the operating system that go on after its call (PROTOCOL §12).

The seam only; `server/actor/processes.py` implements it over `process_pool.py`. A process belongs to the chat and lives
in the worker that owns it: it ends with that worker, and never outlives it.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from protocol.errors import ToolFailed

__all__ = ["NO_PROCESSES", "ProcessView", "ProcessesPort"]


class ProcessView(msgspec.Struct, frozen=True, kw_only=True):
    """`status`: running, completed, failed or killed. `output`: the last 64 kB of both its streams together."""

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
        """Start a process and return its id at once. `cwd` '' is the directory where tools may write. It sees `PATH`,
        `HOME`, `LANG` and `env`, nothing else of the server's environment. Its end is an event of the chat, and the
        model is told in its next round; `wake` starts a run for that.

        Raises:
            ToolFailed: too many run already, or it cannot be started.
        """

    def read(self, process_id: str) -> ProcessView:
        """How it stands, also for a while after its end. Raises ToolFailed: unknown, or no longer held."""

    async def kill(self, process_id: str) -> None:
        """End it and all it started, kindly, then not; returns when it is gone. Raises ToolFailed: it does not run."""


class _NoProcesses:
    """Where a tool runs outside any chat, in its own tests for instance."""

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
