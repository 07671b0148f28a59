"""Files and terminals of the client that watches the chat, such as an editor. Each request of the agent becomes a call
of a client tool (PROTOCOL §12), and the client's result answers the request.

Paths sent to the client are relative to the agent's folder, which stands for the client's own project.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Literal, NamedTuple, TypeAlias

import msgspec
from acp.schema import (
    CreateTerminalRequest,
    TerminalExitStatus,
    TerminalOutputResponse,
    WaitForTerminalExitResponse,
)

from threadcast.agents.acp.connection import INVALID_PARAMS, RequestFailed
from threadcast.agents.acp.terminals import ARGUMENTS_MAX_BYTES, RELEASED_MAX, TERMINALS_MAX
from threadcast.agents.acp.workspace import Workspace
from threadcast.custom_agents.errors import CallDenied, CallFailed, OutcomeUnknown
from threadcast.custom_agents.seam import Seam
from threadcast.tools.agent_tool import AgentTool
from threadcast.tools.context import ToolContext
from threadcast_protocol.wire.errors import ToolFailed
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["EDITOR_CALLS_MAX", "EditorCall", "EditorFiles", "EditorTerminals", "EditorTool", "editor_tools"]

EDITOR_CALLS_MAX = 1_000
"""The maximum requests for files and commands that a prompt sends to the client. Each request is a message of the
chat."""

WRITE_MAX_CHARACTERS = 256_000
"""The maximum characters, as JSON, of a write's path and text together: the same as for the arguments of a call
(PROTOCOL §18)."""

EditorTool: TypeAlias = Literal["read_file", "write_file", "run_command"]

_PATH: JsonObject = {"type": "string", "description": "Relative to the project."}
_LINE: JsonObject = {"type": "integer", "minimum": 0}
_SCHEMAS: dict[EditorTool, tuple[str, JsonObject, list[str]]] = {
    "read_file": (
        "Returns the text of a file as the editor has it, also unsaved: from the line `line` (from 1), `limit` lines.",
        {"path": _PATH, "line": _LINE, "limit": _LINE},
        ["path"],
    ),
    "write_file": ("Writes a file.", {"path": _PATH, "content": {"type": "string"}}, ["path", "content"]),
    "run_command": (
        "Runs a command in the project and returns what it has printed.",
        {
            "command": {"type": "string"},
            "args": {"type": "array", "items": {"type": "string"}},
            "cwd": _PATH,
            "env": {"type": "object"},
        },
        ["command"],
    ),
}


def editor_tools(name: str) -> list[AgentTool]:
    """Return the tools of the agent `name` that the watching client carries out."""
    return [
        AgentTool(
            f"{name}_{tool}",
            description=description,
            input_schema={"type": "object", "properties": properties, "required": required},
            policy="client",
            retry="safe" if tool == "read_file" else "once",
        )
        for tool, (description, properties, required) in _SCHEMAS.items()
    ]


class EditorCall:
    """One request. `answer` is a future for the client's result; if there is none, the future returns None, and
    `failed` is the reason."""

    def __init__(self, tool: EditorTool, arguments: JsonObject) -> None:
        self.tool = tool
        self.arguments = arguments
        self.answer: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self.failed = "the prompt has ended"

    async def carry_out(self, seam: Seam, call_id: str) -> None:
        """Wait until the client has answered the call `call_id` of the chat."""
        result: str | None = None
        try:
            found = await seam.call(call_id, _nobody, whole=self.tool == "read_file")
            result = found if isinstance(found, str) else msgspec.json.encode(found).decode()
        except (CallDenied, CallFailed, OutcomeUnknown) as failed:
            self.failed = str(failed)
        finally:
            if not self.answer.done():
                self.answer.set_result(result)


async def _nobody(arguments: JsonObject, context: ToolContext) -> str:
    raise ToolFailed("No client serves files any more.")


Ask: TypeAlias = Callable[[EditorCall], Awaitable[str]]
"""Hands a request to the client and returns its result. Raises RequestFailed."""


class EditorFiles:
    """The client's files."""

    def __init__(self, ask: Ask, workspace: Workspace) -> None:
        self._ask = ask
        self._workspace = workspace

    async def read(self, path: str, line: int | None, limit: int | None) -> str:
        """Return the text of a file. Raises RequestFailed."""
        more = {key: value for key, value in (("line", line), ("limit", limit)) if value is not None}
        return await self._ask(EditorCall("read_file", {"path": self._workspace.relative(path), **more}))

    async def write(self, path: str, text: str) -> None:
        """Write a file. Raises RequestFailed."""
        arguments: JsonObject = {"path": self._workspace.relative(path), "content": text}
        if len(msgspec.json.encode(arguments).decode()) > WRITE_MAX_CHARACTERS:
            raise RequestFailed(f"a write has at most {WRITE_MAX_CHARACTERS:,} characters as JSON", INVALID_PARAMS)
        await self._ask(EditorCall("write_file", arguments))


class _Ended(NamedTuple):
    output: str
    failed: bool


class EditorTerminals:
    """Commands that the client runs. A command has no output before its end. Only the person at the client can end a
    command, not the agent."""

    def __init__(self, ask: Ask, workspace: Workspace) -> None:
        self._ask = ask
        self._workspace = workspace
        self._count = 0
        self._tasks: dict[str, asyncio.Task[_Ended]] = {}
        self._said: dict[str, str] = {}

    async def create(self, wanted: CreateTerminalRequest) -> str:
        """Hand a command to the client and return the id of its terminal. Raises RequestFailed."""
        if len(self._tasks) >= TERMINALS_MAX:
            raise RequestFailed(f"at most {TERMINALS_MAX} terminals; release one first", INVALID_PARAMS)
        arguments: JsonObject = {"command": wanted.command}
        if wanted.args:
            arguments["args"] = list(wanted.args)
        if wanted.cwd is not None:
            arguments["cwd"] = self._workspace.relative(wanted.cwd)
        if wanted.env:
            arguments["env"] = {each.name: each.value for each in wanted.env}
        if len(msgspec.json.encode(arguments)) > ARGUMENTS_MAX_BYTES:
            raise RequestFailed(f"a command has at most {ARGUMENTS_MAX_BYTES:,} bytes", INVALID_PARAMS)
        self._count += 1
        terminal_id = f"client-{self._count}"
        self._tasks[terminal_id] = asyncio.create_task(self._run(arguments), name=f"acp {terminal_id}")
        return terminal_id

    async def _run(self, arguments: JsonObject) -> _Ended:
        try:
            return _Ended(await self._ask(EditorCall("run_command", arguments)), failed=False)
        except RequestFailed as failed:
            return _Ended(str(failed), failed=True)

    def output(self, terminal_id: str) -> TerminalOutputResponse:
        """Return the output of a command if it has ended, else an empty output. Raises RequestFailed."""
        task = self._known(terminal_id)
        if not task.done():
            return TerminalOutputResponse(output="", truncated=False)
        ended = task.result()
        return TerminalOutputResponse(output=ended.output, truncated=False, exit_status=_status(ended))

    async def wait(self, terminal_id: str) -> WaitForTerminalExitResponse:
        """Wait for the end of a command, and return its exit status. Raises RequestFailed."""
        ended = await asyncio.shield(self._known(terminal_id))
        return WaitForTerminalExitResponse(exit_code=int(ended.failed))

    async def kill(self, terminal_id: str) -> None:
        """Do nothing, since only the client can end the command. Raises RequestFailed: there is no such terminal."""
        self._known(terminal_id)

    async def release(self, terminal_id: str) -> None:
        """Forget the terminal, and stop waiting for a command that still runs. Raises RequestFailed."""
        self._said[terminal_id] = self.output(terminal_id).output
        while len(self._said) > RELEASED_MAX:
            del self._said[next(iter(self._said))]
        await self._end(self._tasks.pop(terminal_id))

    def said(self, terminal_id: str) -> str:
        """Return the output of a command; '' before the command ends, and for an unknown terminal."""
        return self.output(terminal_id).output if terminal_id in self._tasks else self._said.get(terminal_id, "")

    async def close(self) -> None:
        """Stop waiting for commands."""
        await asyncio.gather(*map(self._end, self._tasks.values()))
        self._tasks.clear()

    async def _end(self, task: "asyncio.Task[_Ended]") -> None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    def _known(self, terminal_id: str) -> "asyncio.Task[_Ended]":
        found = self._tasks.get(terminal_id)
        if found is None:
            raise RequestFailed(f"there is no terminal {terminal_id:.100}", INVALID_PARAMS)
        return found


def _status(ended: _Ended) -> TerminalExitStatus:
    return TerminalExitStatus(exit_code=int(ended.failed))
