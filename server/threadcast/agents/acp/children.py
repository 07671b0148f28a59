"""The running coding agents of one worker. Each chat has one agent, which is kept over several prompts and ended when
idle.

The file `.sessions/CHAT.json` beside the folders of the chats has the id of a chat's session, and the keys of the
messages that the session knows: the chat's path up to the last prompt, and the answer to this prompt. The file is
written before each prompt, so it is correct even after a crash, when the answer is unknown. A session is continued only
if the chat's path begins with the known messages. After an edit, on another branch, and after an answer of another
agent, a new session begins.
"""

import asyncio
import os
import re
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from hashlib import sha256
from itertools import takewhile
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import structlog

from threadcast.agents.acp.child import Child, ChildBroke
from threadcast.agents.acp.prompts import Block, history_block, prompt_blocks
from threadcast.agents.acp.session import Files, Session
from threadcast.agents.acp.terminals import Terminals
from threadcast.agents.acp.workspace import Workspace
from threadcast.base.boundary import pass_on
from threadcast.custom_agents.rounds import RoundMessage
from threadcast.tools.process_pool import ENVIRONMENT, ProcessPool
from threadcast.tools.programs_user import ProgramsUser
from threadcast_protocol.wire.errors import ModelFailed
from threadcast_protocol.wire.messages import Part

__all__ = ["CHILDREN_MAX", "IDLE_SECONDS", "MESSAGES_MAX", "Children", "Program", "key_of", "unseen"]

CHILDREN_MAX = 16
"""The maximum running programs of one agent on a worker: programs that use Node take 150 MB each."""

IDLE_SECONDS = 600.0

MESSAGES_MAX = 10_000
"""The maximum messages of one session; after them, the next prompt begins a new session."""

_SAFE_NAME = re.compile(r"(?!\.)[A-Za-z0-9._-]{1,128}")

_log = structlog.get_logger()


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """The settings with which the agent `name` is run. `env` are names of variables that the program gets besides PATH,
    HOME, LANG and TMPDIR. Each chat has its own folder below `workspace`. `mode` and `model` are set in new sessions.
    `files` chooses the side that serves files to the agent."""

    name: str
    command: Sequence[str]
    env: Sequence[str] = ()
    workspace: Path
    user: ProgramsUser | None = None
    idle_seconds: float = IDLE_SECONDS
    mode: str = ""
    model: str = ""
    files: Files = "workspace"


class _Known(msgspec.Struct):
    """The content of the file that describes a chat's session."""

    session_id: str
    seen: list[str]
    answer: list[str] = []


Read: TypeAlias = Callable[[Sequence[RoundMessage]], Awaitable[Sequence[RoundMessage]]]
"""Returns messages with the bytes of their attachments (`Seam.with_attachments`)."""


class Children:
    """The running agents of one worker."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._idle: dict[str, tuple[asyncio.TimerHandle, Session]] = {}
        """The agents between two prompts, each with the timer that ends it; the agent that is idle longest comes
        first."""
        self._busy_count = 0
        self._processes: ProcessPool | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def take(
        self, chat_id: str, messages: Sequence[RoundMessage], read: Read | None = None
    ) -> tuple[Session, list[Block]]:
        """Return the agent of a chat, and the blocks of the prompt, which contain the messages that the agent's session
        has not received yet.

        Raises:
            ModelFailed: the agent cannot be started, or too many agents are running.
        """
        path = [each for each in messages if each.role == "user" or (each.role == "assistant" and each.content)]
        session = self._no_longer_idle(chat_id) if chat_id in self._idle else None
        self._busy_count += 1
        try:
            if session is not None and (session.broken or not unseen(session.seen, session.answer, path)):
                await session.close()
                session = None
            if session is None:
                session = await self._started(chat_id, path)
            new: Sequence[RoundMessage] = unseen(session.seen, session.answer, path)
            blocks: list[Block] = []
            if not new:
                messages = messages if read is None else await read(messages)
                new = [each for each in messages if each.role == "user"][-1:]
                earlier = [each for each in messages if new and each is not new[0] and each.role != "system"]
                told = history_block(earlier)
                blocks = [told] if told is not None else []
            elif read is not None:
                new = await read(new)
            blocks += prompt_blocks(new, session.prompt_able)
            session.seen, session.answer = [key_of(each.message_id, each.content) for each in path], []
            self._write(chat_id, session)
        except BaseException:
            self._busy_count -= 1
            if session is not None:
                self._own(session.close())
            raise
        return session, blocks

    def give_back(
        self, chat_id: str, session: Session, texts: Sequence[tuple[str, str]] = (), *, is_usable: bool
    ) -> None:
        """Keep an agent for the chat's next prompt, or end the agent. `texts` are the ids and texts of the agent's
        answer."""
        self._busy_count -= 1
        session.answer = [key_of(*each) for each in texts]
        try:
            self._write(chat_id, session)
        except ModelFailed as wrong:
            _log.warning("acp.answer_not_noted", agent=self._program.name, error=wrong.message)
        if not is_usable or session.broken or chat_id in self._idle:
            self._own(session.close())
            return
        loop = asyncio.get_running_loop()
        self._idle[chat_id] = (loop.call_later(self._program.idle_seconds, self._end_idle, chat_id), session)

    def _end_idle(self, chat_id: str) -> None:
        self._own(self._no_longer_idle(chat_id).close())

    def _no_longer_idle(self, chat_id: str) -> Session:
        timer, session = self._idle.pop(chat_id)
        timer.cancel()
        return session

    async def _started(self, chat_id: str, path: Sequence[RoundMessage]) -> Session:
        """Start an agent with the chat's session, or with a new session. Raises ModelFailed."""
        program = self._program
        if self._busy_count + len(self._idle) > CHILDREN_MAX:
            if not self._idle:
                raise ModelFailed(
                    "rate_limited", f"{CHILDREN_MAX} chats use this agent now; try again soon.", retryable=True
                )
            await self._no_longer_idle(next(iter(self._idle))).close()
        try:
            workspace = Workspace(self._folder(chat_id), program.user)
        except OSError as wrong:
            raise ModelFailed("llm_error", f"The folder of this chat cannot be used: {wrong.strerror}.") from wrong
        env = {name: os.environ[name] for name in (*ENVIRONMENT, *program.env) if name in os.environ}
        if program.user is not None:
            env["HOME"] = program.user.home
        try:
            child = await Child.start(
                program.name, program.command, cwd=str(workspace.root), env=env, user=program.user
            )
        except ChildBroke as wrong:
            raise ModelFailed("connection", str(wrong)) from wrong
        if self._processes is None:
            self._processes = ProcessPool(user=program.user)
        shell = {name: value for name, value in env.items() if name not in program.env}
        terminals = Terminals(self._processes, f"{program.name}-{secrets.token_hex(8)}", workspace, shell)
        session = Session(child, workspace, terminals, program.files)
        try:
            await session.initialize()
            known = self._read(chat_id)
            can_go_on = known is not None and bool(unseen(known.seen, known.answer, path))
            if known is not None and can_go_on and await session.restore(known.session_id):
                session.seen, session.answer = known.seen, known.answer
            else:
                await session.begin(program.mode, program.model)
        except BaseException:
            self._own(session.close())
            raise
        return session

    def _folder(self, chat_id: str) -> Path:
        return self._program.workspace / _file_name(chat_id)

    def _session_file(self, chat_id: str) -> Path:
        return self._program.workspace / ".sessions" / f"{_file_name(chat_id)}.json"

    def _read(self, chat_id: str) -> _Known | None:
        try:
            return msgspec.json.decode(self._session_file(chat_id).read_bytes(), type=_Known)
        except (OSError, msgspec.DecodeError):
            return None

    def _write(self, chat_id: str, session: Session) -> None:
        known, file = _Known(session.session_id, session.seen, session.answer), self._session_file(chat_id)
        try:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            new = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
            new.write_bytes(msgspec.json.encode(known))
            new.replace(file)
        except OSError as wrong:
            raise ModelFailed("llm_error", f"The session of this chat cannot be noted: {wrong.strerror}.") from wrong

    def _own(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` in a task that this object holds. If the worker ends before the task, the guards end the
        programs."""
        task = asyncio.create_task(_logged(work), name=f"acp {self._program.name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def key_of(message_id: str, content: str | list[Part]) -> str:
    """Return the key of a message; a message that was edited in place has another key than before."""
    return f"{message_id}:{sha256(msgspec.json.encode(content)).hexdigest()[:16]}"


def unseen(seen: Sequence[str], answer: Sequence[str], path: Sequence[RoundMessage]) -> list[RoundMessage]:
    """Return the user's messages on a chat's path that a session has not received, or [] if the session cannot
    continue. `answer` are the keys of the known first messages of the session's last answer."""
    if not 0 < len(seen) < len(path) <= MESSAGES_MAX:
        return []
    keys = [key_of(each.message_id, each.content) for each in path]
    said = len(list(takewhile(lambda each: each.role != "user", path[len(seen) :])))
    asked = path[len(seen) + said :]
    is_known = keys[: len(seen) + min(said, len(answer))] == [*seen, *answer]
    return list(asked) if is_known and all(each.role == "user" for each in asked) else []


def _file_name(chat_id: str) -> str:
    return chat_id if _SAFE_NAME.fullmatch(chat_id) else sha256(chat_id.encode()).hexdigest()


async def _logged(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except BaseException as wrong:  # boundary: the end of a program
        pass_on(wrong)
        _log.warning("acp.close_failed", exc_info=wrong)
