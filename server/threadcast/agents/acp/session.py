"""One running coding agent and its session of one chat (ACP, "Initialization", "Session Setup", "Prompt Turn")."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Literal, TypeAlias

from acp.meta import PROTOCOL_VERSION
from acp.schema import (
    AgentCapabilities,
    AllowedOutcome,
    CancelNotification,
    ClientCapabilities,
    CreateTerminalRequest,
    DeniedOutcome,
    FileSystemCapabilities,
    Implementation,
    InitializeRequest,
    InitializeResponse,
    LoadSessionRequest,
    LoadSessionResponse,
    NewSessionRequest,
    NewSessionResponse,
    PromptCapabilities,
    PromptRequest,
    PromptResponse,
    ReadTextFileRequest,
    RequestPermissionRequest,
    RequestPermissionResponse,
    ResumeSessionRequest,
    ResumeSessionResponse,
    SessionConfigOptionSelect,
    SessionNotification,
    SetSessionConfigOptionResponse,
    SetSessionConfigOptionSelectRequest,
    SetSessionModeRequest,
    SetSessionModeResponse,
    TerminalOutputRequest,
    Usage,
    WriteTextFileRequest,
)
from pydantic import BaseModel, ValidationError

from threadcast.agents.acp.child import Child, ChildBroke
from threadcast.agents.acp.connection import INVALID_PARAMS, NOT_FOUND, Connection, RequestFailed, checked
from threadcast.agents.acp.editor import EDITOR_CALLS_MAX, EditorCall, EditorFiles, EditorTerminals
from threadcast.agents.acp.prompts import Block
from threadcast.agents.acp.terminals import Terminals
from threadcast.agents.acp.workspace import Workspace
from threadcast_protocol.wire.decoders import decode_any
from threadcast_protocol.wire.errors import ModelFailed
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["Files", "Permission", "Session", "SessionEvent"]

START_SECONDS = 60.0
"""Seconds for the agent's first answer, and for a new session, because some agents first connect to their servers."""

LOAD_SECONDS = 120.0

CANCEL_SECONDS = 0.6
"""Seconds in which an agent may end a cancelled prompt itself; the whole cleanup of a run has one second."""

EVENTS_WAITING_MAX = 256
"""The maximum updates that wait to be shown; further updates wait in the agent's pipe."""

LARGE_UPDATE_BYTES = 65_536
"""A larger update waits in the agent's pipe until no other update waits, so that the waiting updates take 16 MB at
most."""

SESSION_ID_MAX_CHARACTERS = 1_000
"""The maximum length of a session's id, which is a part of each message in both directions. Agents use UUIDs."""

UPDATES_MAX = 100_000
"""The maximum updates in one prompt. An hour of a fast model has 50,000."""

PERMISSIONS_MAX = 500
"""The maximum permissions that are requested in one prompt, the same as the maximum calls."""


class Permission:
    """A request for permission. `answer` gets the id of the chosen option, None if nothing is chosen."""

    def __init__(self, request: RequestPermissionRequest) -> None:
        self.request = request
        self.answer: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()


SessionEvent: TypeAlias = BaseModel | Permission | EditorCall
"""An update of the session (a type of `acp.schema`), or a request to people or to the watching client."""

Files: TypeAlias = Literal["workspace", "client", "none"]
"""The side that serves the files that the agent requests. workspace: the server, below the chat's folder. client: the
watching client. none: the agent itself."""


class Session:
    """A running agent. `seen` are the keys of the chat's messages up to the last prompt, and `answer` the keys of the
    answer to this prompt (`children.key_of`). `files` chooses the side that serves files; with `client`, the client
    also serves terminals."""

    def __init__(self, child: Child, workspace: Workspace, terminals: Terminals, files: Files = "workspace") -> None:
        self._workspace = workspace
        self._files = files
        self._editor = EditorFiles(self._hand_over, workspace) if files == "client" else None
        self._shell = terminals
        self.terminals = terminals if files != "client" else EditorTerminals(self._hand_over, workspace)
        self._connection = Connection(child, self._request, self._update)
        self._events: asyncio.Queue[SessionEvent | None] = asyncio.Queue(EVENTS_WAITING_MAX)
        self._prompt: asyncio.Future[Any] | None = None
        self._permissions: set[Permission | EditorCall] = set()
        self._updates_count = 0
        self._permissions_count = self._editor_count = 0
        self._is_cancelled = False
        self.able = AgentCapabilities()
        self.session_id = ""
        self.seen: list[str] = []
        self.answer: list[str] = []

    @property
    def prompt_able(self) -> PromptCapabilities:
        return self.able.prompt_capabilities or PromptCapabilities()

    @property
    def broken(self) -> str:
        return self._connection.broken

    async def initialize(self) -> None:
        """Agree on the protocol. Raises ModelFailed."""
        has_files = self._files != "none"
        files = FileSystemCapabilities(read_text_file=has_files, write_text_file=has_files)
        can = ClientCapabilities(fs=files, terminal=True)
        hello = InitializeRequest(
            protocol_version=PROTOCOL_VERSION,
            client_capabilities=can,
            client_info=Implementation(name="threadcast", version="1"),
        )
        found = await self._connection.request("initialize", hello, InitializeResponse, START_SECONDS)
        if found.protocol_version != PROTOCOL_VERSION:
            raise ModelFailed(
                "llm_error", f"The agent speaks ACP {found.protocol_version}, and not version {PROTOCOL_VERSION}."
            )
        self.able = found.agent_capabilities or self.able

    async def restore(self, session_id: str) -> bool:
        """Load an earlier session. The agent repeats the session in updates, which are not shown. Returns False if the
        agent cannot load sessions."""
        cwd, able = str(self._workspace.root), self.able.session_capabilities
        try:
            if able is not None and able.resume is not None:
                again = ResumeSessionRequest(session_id=session_id, cwd=cwd, mcp_servers=[])
                await self._connection.request("session/resume", again, ResumeSessionResponse, LOAD_SECONDS)
            elif self.able.load_session:
                load = LoadSessionRequest(session_id=session_id, cwd=cwd, mcp_servers=[])
                await self._connection.request("session/load", load, LoadSessionResponse, LOAD_SECONDS)
            else:
                return False
        except ModelFailed:
            if self.broken:
                raise
            return False
        self.session_id = session_id
        return True

    async def begin(self, mode: str, model: str) -> None:
        """Begin a new session, in the configured mode and with the configured model. Raises ModelFailed: the agent
        requires a sign-in, or has no such mode or model."""
        new = NewSessionRequest(cwd=str(self._workspace.root), mcp_servers=[])
        found = await self._connection.request("session/new", new, NewSessionResponse, START_SECONDS)
        if len(found.session_id) > SESSION_ID_MAX_CHARACTERS:
            limit = f"{SESSION_ID_MAX_CHARACTERS:,} characters"
            raise ModelFailed("llm_error", f"The id of the agent's session has more than {limit}.")
        self.session_id = found.session_id
        options = [each for each in found.config_options or () if isinstance(each, SessionConfigOptionSelect)]
        if mode:
            known = [each.id for each in found.modes.available_modes] if found.modes is not None else []
            if mode in known:
                wanted = SetSessionModeRequest(session_id=self.session_id, mode_id=mode)
                await self._connection.request("session/set_mode", wanted, SetSessionModeResponse, START_SECONDS)
            else:
                await self._set_option(options, "mode", mode, known)
        if model:
            await self._set_option(options, "model", model, [])

    async def _set_option(
        self, options: Sequence[SessionConfigOptionSelect], category: str, value: str, known: Sequence[str]
    ) -> None:
        option = next((each for each in options if each.category == category), None)
        if option is None:
            there = f"; it has {', '.join(known)}" if known else ""
            raise ModelFailed("llm_error", f"The agent has no {category} {value!r}{there}."[:500])
        wanted = SetSessionConfigOptionSelectRequest(session_id=self.session_id, config_id=option.id, value=value)
        method, answer = "session/set_config_option", SetSessionConfigOptionResponse
        await self._connection.request(method, wanted, answer, START_SECONDS)

    def prompt(self, blocks: Sequence[Block]) -> None:
        """Begin a prompt; `next_event` then returns its events."""
        self._updates_count = self._permissions_count = self._editor_count = 0
        self._is_cancelled = False
        self._events = asyncio.Queue(EVENTS_WAITING_MAX)
        request = PromptRequest(session_id=self.session_id, prompt=list(blocks))
        self._prompt = self._connection.send("session/prompt", request)

    async def next_event(self, silence_seconds: float) -> SessionEvent | None:
        """Return the next event of the prompt, or None when the agent has ended it.

        Raises:
            ModelFailed: the agent was silent for too long while no person was asked, or exceeded a bound.
        """
        prompt = self._prompt
        while prompt is not None:
            if not self._events.empty():
                self._events.task_done()
                return self._events.get_nowait()
            if prompt.done():
                return None
            waiting = asyncio.ensure_future(self._events.get())
            try:
                seconds = None if self._permissions else silence_seconds
                await asyncio.wait({waiting, prompt}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
                if waiting.done():
                    self._events.task_done()
                    return waiting.result()
                if not prompt.done() and seconds is not None:
                    raise ModelFailed("timeout", f"The agent has sent nothing for {seconds:g} seconds.")
            finally:
                if not waiting.done():
                    waiting.cancel()
        return None

    async def until_ended(self) -> None:
        """Wait until the agent has ended the prompt."""
        if self._prompt is not None:
            await asyncio.wait({self._prompt})

    def ended(self) -> PromptResponse:
        """Return the agent's answer to the ended prompt. Raises ModelFailed."""
        prompt, self._prompt = self._prompt, None
        if prompt is None:
            raise ModelFailed("connection", "The agent was stopped.")
        return checked(PromptResponse, prompt.result(), "session/prompt")

    def ended_usage(self) -> Usage | None:
        """Return the tokens of the prompt, if it has ended and the agent counts them."""
        prompt = self._prompt
        if prompt is None or not prompt.done() or prompt.cancelled() or prompt.exception() is not None:
            return None
        return checked(PromptResponse, prompt.result(), "session/prompt").usage

    async def cancel(self) -> bool:
        """Cancel the prompt and withdraw the requests for permission. Returns whether the agent ended the prompt in
        time."""
        prompt, self._is_cancelled = self._prompt, True
        for each in self._permissions:
            if not each.answer.done():
                each.answer.set_result(None)
        if prompt is None:
            return True
        with suppress(TimeoutError, ChildBroke, ModelFailed):
            async with asyncio.timeout(CANCEL_SECONDS):
                await self._connection.notify("session/cancel", CancelNotification(session_id=self.session_id))
                while await self.next_event(CANCEL_SECONDS) is not None:
                    pass
        self._prompt = None
        if not prompt.done():
            prompt.cancel()
            return False
        return not prompt.cancelled() and prompt.exception() is None

    async def close(self) -> None:
        """End the agent's program and its terminals."""
        await asyncio.gather(self._connection.close(), self.terminals.close(), self._shell.close())

    async def _update(self, params: Any, size: int) -> None:  # Any: JSON of the agent
        if self._prompt is None or self._prompt.done():
            return  # while a session loads, the agent repeats shown updates
        self._updates_count += 1
        if self._updates_count > UPDATES_MAX:
            if not self._prompt.done():
                self._prompt.set_exception(
                    ModelFailed("limit", f"The agent sent more than {UPDATES_MAX:,} updates in one prompt.")
                )
            return
        try:
            found = SessionNotification.model_validate(params)
        except (ValidationError, RecursionError):
            return  # a newer agent has updates that this version does not know
        if found.session_id == self.session_id:
            await self._put(found.update, size)

    async def _put(self, event: SessionEvent, size: int = 0) -> None:
        while self._prompt is not None and not self._prompt.done():
            with suppress(TimeoutError):
                async with asyncio.timeout(1.0):  # the prompt may end while no reader waits
                    if size > LARGE_UPDATE_BYTES:
                        await self._events.join()
                    await self._events.put(event)
                    return

    async def _request(self, method: str, params: Any) -> JsonObject:  # Any: JSON of the agent
        """Answer a request of the agent. Raises RequestFailed."""
        match method:
            case "session/request_permission":
                asked = self._own(RequestPermissionRequest, params)
                return _json(RequestPermissionResponse(outcome=await self._permission(asked)))
            case "fs/read_text_file":
                read = self._own(ReadTextFileRequest, params)
                if self._editor is not None:
                    return {"content": await self._editor.read(read.path, read.line, read.limit)}
                return {"content": await asyncio.to_thread(self._workspace.read, read.path, read.line, read.limit)}
            case "fs/write_text_file":
                write = self._own(WriteTextFileRequest, params)
                if self._editor is not None:
                    await self._editor.write(write.path, write.content)
                else:
                    await asyncio.to_thread(self._workspace.write, write.path, write.content)
                return {}
            case "terminal/create":
                return {"terminalId": await self.terminals.create(self._own(CreateTerminalRequest, params))}
            case "terminal/output":
                return _json(self.terminals.output(self._terminal(params)))
            case "terminal/wait_for_exit":
                return _json(await self.terminals.wait(self._terminal(params)))
            case "terminal/kill":
                await self.terminals.kill(self._terminal(params))
                return {}
            case "terminal/release":
                await self.terminals.release(self._terminal(params))
                return {}
        raise RequestFailed(f"there is no method {method:.100}", NOT_FOUND)

    def _terminal(self, params: Any) -> str:  # Any: JSON of the agent
        return str(self._own(TerminalOutputRequest, params).terminal_id)

    def _own(self, model: Any, params: Any) -> Any:  # Any: a model of `acp.schema` with a session id, and JSON
        """Return checked params of this session. Raises RequestFailed."""
        try:
            found = model.model_validate(params)
        except (ValidationError, RecursionError):
            raise RequestFailed(f"the params do not fit {model.__name__}", INVALID_PARAMS) from None
        if found.session_id != self.session_id:
            raise RequestFailed(f"there is no session {found.session_id:.100}", INVALID_PARAMS)
        return found

    async def _permission(self, asked: RequestPermissionRequest) -> AllowedOutcome | DeniedOutcome:
        self._permissions_count += 1
        if self._permissions_count > PERMISSIONS_MAX or self._is_cancelled or self._prompt is None:
            return DeniedOutcome(outcome="cancelled")
        permission = Permission(asked)
        self._permissions.add(permission)
        try:
            await self._put(permission)
            if self._prompt is None or self._prompt.done():
                return DeniedOutcome(outcome="cancelled")
            chosen = await permission.answer
        finally:
            self._permissions.discard(permission)
        if chosen is None:
            return DeniedOutcome(outcome="cancelled")
        return AllowedOutcome(outcome="selected", option_id=chosen)

    async def _hand_over(self, call: EditorCall) -> str:
        """Let the watching client answer a request of the agent. Raises RequestFailed."""
        self._editor_count += 1
        if self._editor_count > EDITOR_CALLS_MAX:
            raise RequestFailed(f"a prompt asks the client at most {EDITOR_CALLS_MAX:,} times", INVALID_PARAMS)
        self._permissions.add(call)
        try:
            if not self._is_cancelled and self._prompt is not None and not self._prompt.done():
                await self._put(call)
                found = await call.answer
                if found is not None:
                    return found
        finally:
            self._permissions.discard(call)
        raise RequestFailed(call.failed)


def _json(model: BaseModel) -> JsonObject:
    found: JsonObject = decode_any(model.model_dump_json(by_alias=True, exclude_none=True))
    return found
