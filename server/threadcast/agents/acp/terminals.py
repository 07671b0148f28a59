"""The terminals of one coding agent (ACP, "Terminals"): commands that we run for it in the folder of its chat."""

import asyncio
from collections.abc import Mapping

from acp.schema import (
    CreateTerminalRequest,
    TerminalExitStatus,
    TerminalOutputResponse,
    WaitForTerminalExitResponse,
)

from threadcast.agents.acp.connection import INVALID_PARAMS, RequestFailed
from threadcast.agents.acp.workspace import Workspace
from threadcast.tools.process_pool import OUTPUT_MAX_BYTES, ProcessPool
from threadcast.tools.processes import ProcessView
from threadcast_protocol.wire.errors import ToolFailed

__all__ = ["TERMINALS_MAX", "Terminals"]

TERMINALS_MAX = 16
"""The maximum unreleased terminals of one agent."""

RELEASED_MAX = 64
"""The maximum released terminals whose output can still be shown. The newest are kept, and their output takes 4 MB at
most."""

ARGUMENTS_MAX_BYTES = 131_072
"""The maximum bytes of a command with its arguments and variables. Linux has the same limit for a single argument."""


class Terminals:
    """The terminals of the agent; `owner` names its processes in the pool."""

    def __init__(self, pool: ProcessPool, owner: str, workspace: Workspace, env: Mapping[str, str]) -> None:
        self._pool = pool
        self._owner = owner
        self._workspace = workspace
        self._env = env
        self._count = 0
        self._released: dict[str, str] = {}
        self._open: dict[str, tuple[asyncio.Future[ProcessView], int]] = {}

    async def create(self, wanted: CreateTerminalRequest) -> str:
        """Start a command and return the id of its terminal. Raises RequestFailed."""
        if len(self._open) >= TERMINALS_MAX:
            raise RequestFailed(f"at most {TERMINALS_MAX} terminals; release one first", INVALID_PARAMS)
        env = {each.name: each.value for each in wanted.env or ()}
        argv = [wanted.command, *(wanted.args or ())]
        if sum(map(len, [*argv, *env, *env.values()])) > ARGUMENTS_MAX_BYTES:
            raise RequestFailed(f"a command has at most {ARGUMENTS_MAX_BYTES:,} bytes", INVALID_PARAMS)
        if len(argv) == 1 and any(sign in wanted.command for sign in " ;|&<>$"):
            argv = ["/bin/sh", "-c", wanted.command]  # several agents send a whole shell command line
        folder = self._workspace.folder(wanted.cwd)
        self._count += 1
        terminal_id = f"term-{self._count}"
        over: asyncio.Future[ProcessView] = asyncio.get_running_loop().create_future()

        def end(view: ProcessView) -> None:
            if not over.done():
                over.set_result(view)

        try:
            await self._pool.start((self._owner, terminal_id), argv, cwd=folder, env={**self._env, **env}, on_end=end)
        except ToolFailed as wrong:
            raise RequestFailed(wrong.message) from None
        limit = OUTPUT_MAX_BYTES if wanted.output_byte_limit is None else wanted.output_byte_limit
        self._open[terminal_id] = (over, max(0, min(limit, OUTPUT_MAX_BYTES)))
        return terminal_id

    def output(self, terminal_id: str) -> TerminalOutputResponse:
        """Return the last part of a terminal's output. Raises RequestFailed."""
        over, limit = self._known(terminal_id)
        view = over.result() if over.done() else self._pool.read((self._owner, terminal_id))
        printed = (view.output if view is not None else "").encode()
        exit_status = _exit_of(over.result()) if over.done() else None
        return TerminalOutputResponse(
            output=printed[len(printed) - limit :].decode(errors="ignore")
            if len(printed) > limit
            else printed.decode(),
            truncated=len(printed) > limit or len(printed) >= OUTPUT_MAX_BYTES,
            exit_status=exit_status,
        )

    async def wait(self, terminal_id: str) -> WaitForTerminalExitResponse:
        """Wait for the end of a terminal's command, and return its exit status. The agent may kill the command
        meanwhile. Raises RequestFailed."""
        over, _ = self._known(terminal_id)
        found = _exit_of(await asyncio.shield(over))
        return WaitForTerminalExitResponse(exit_code=found.exit_code, signal=found.signal)

    async def kill(self, terminal_id: str) -> None:
        """End the command; the terminal stays readable. Raises RequestFailed."""
        self._known(terminal_id)
        await self._pool.kill((self._owner, terminal_id))

    async def release(self, terminal_id: str) -> None:
        """End the command and forget the terminal. Raises RequestFailed."""
        await self.kill(terminal_id)
        self._released[terminal_id] = self.output(terminal_id).output
        while len(self._released) > RELEASED_MAX:
            del self._released[next(iter(self._released))]
        del self._open[terminal_id]

    def said(self, terminal_id: str) -> str:
        """Return the output of a terminal, even after its release (ACP, "Embedding in Tool Calls"); '' for an unknown
        terminal."""
        return self.output(terminal_id).output if terminal_id in self._open else self._released.get(terminal_id, "")

    async def close(self) -> None:
        """End all commands."""
        await asyncio.gather(*(self._pool.kill((self._owner, each)) for each in self._open))
        self._open.clear()

    def _known(self, terminal_id: str) -> tuple["asyncio.Future[ProcessView]", int]:
        found = self._open.get(terminal_id)
        if found is None:
            raise RequestFailed(f"there is no terminal {terminal_id:.100}", INVALID_PARAMS)
        return found


def _exit_of(view: ProcessView) -> TerminalExitStatus:
    code = view.exit_code
    if code is not None and code < 0:
        return TerminalExitStatus(signal=str(-code))
    return TerminalExitStatus(exit_code=code)
