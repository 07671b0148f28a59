"""`threadcast chat`: a conversation in the terminal, over the public HTTP API alone.

Three tasks: one watches the stream and prints, one takes lines and posts them, one listens for Ctrl-C. They share a
`Standing`; whoever changes it wakes the others. Every other client of the same chat is an equal: what is typed there
appears here. The one rule: what a person did is never lost in silence. What could not be posted yet, or was refused,
is said.
"""

import asyncio
import os
import secrets
import shutil
import signal
import sys
from typing import TextIO

import anyio
import msgspec
from anyio.abc import TaskGroup

from protocol.codec import encode
from protocol.messages import JsonObject
from server.console.keyboard import Keyboard, is_terminal
from server.console.standing import Standing
from server.console.transcript import Transcript
from threadcast import Chat, Client, Connection, RawEvent, Refused, Unreachable, new_request_id
from threadcast.errors import ThreadcastError, Unreadable
from threadcast.listeners import ChatItem

__all__ = ["chat", "new_chat_id"]

HELP = """\
Type a message and press Enter. Ctrl-C stops the answer, or leaves when there is none; Ctrl-D leaves.
  /model NAME   answer with this model from now on, such as demo/essay
  /retry        answer the last message again
  /help         this
  //text        a message that begins with a slash
When a tool asks: y runs it, n does not, always runs it and does not ask for this tool again."""

PATIENCE_SECONDS = 10.0
"""How long a command may be on its way before a person is told; longer than a takeover takes."""

_DECISIONS: dict[str, JsonObject] = {
    "y": {"accepted": True},
    "yes": {"accepted": True},
    "n": {"accepted": False},
    "no": {"accepted": False},
    "a": {"accepted": True, "remember": "tool"},
    "always": {"accepted": True, "remember": "tool"},
}


def new_chat_id() -> str:
    """40 random bits: short enough to type again."""
    return f"chat-{secrets.token_hex(5)}"


def chat(url: str, token: str | None, chat_id: str, model: str | None) -> int:
    """Talk until the person leaves or the input ends; the exit code."""
    is_interactive = is_terminal()
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # a terminal that cannot show a character is no reason to stop

    async def talk() -> int:
        async with Client(url, token) as client, client.chat(chat_id, wait=False) as live:
            return await Conversation(live, client.base_url, sys.stdin, sys.stdout, is_interactive).run(model)

    return asyncio.run(talk())


class Conversation:
    """One chat, one person or pipe."""

    def __init__(self, live: Chat, url: str, stdin: TextIO, stdout: TextIO, is_interactive: bool = False) -> None:
        self._chat = live
        self._url = url
        self._is_interactive = is_interactive
        self._own: set[str] = set()
        self._standing = Standing()
        self._keyboard = Keyboard(stdin, stdout, is_interactive=is_interactive)
        self._transcript = Transcript(
            self._own,
            is_live=is_interactive,
            has_colors=is_interactive and not os.environ.get("NO_COLOR"),
            width=shutil.get_terminal_size().columns,
        )
        self._changed = anyio.Event()
        self._is_ready = False
        self._is_connected = False
        self._is_stopping = False
        self._exit_code = 0

    async def run(self, model: str | None = None) -> int:
        """The exit code: 0, or 1 when the server could not be used or the last answer failed."""
        with self._keyboard.opened():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._watch, tasks)
                tasks.start_soon(self._heed_interrupts, tasks)
                await self._until_ready()
                if self._is_interactive:
                    await self._take_lines(model)
                else:
                    await self._take_pipe(model)
                tasks.cancel_scope.cancel()
        return self._exit_code

    # The stream.

    async def _watch(self, tasks: TaskGroup) -> None:
        try:
            async for item in self._chat.events():
                if isinstance(item, Connection):
                    self._take_connection(item)
                    continue
                event = _on_the_wire(item)
                self._standing.feed(event)
                if not self._standing.is_busy:
                    self._is_stopping = False
                self._is_ready = True
                self._show(self._transcript.feed(event))
        except (Refused, Unreadable) as wrong:
            self._fail(f"{self._url}: {wrong}", tasks)
        except _NobodyThere as wrong:
            self._fail(f"{self._url}: {wrong}. Is it running? Start it with: threadcast serve", tasks)

    def _take_connection(self, connection: Connection) -> None:
        is_open = connection.state != "offline"
        if not is_open and not self._is_ready and connection.reason:
            raise _NobodyThere(connection.reason)  # before the first event nothing is lost by giving up
        if self._is_ready and is_open != self._is_connected:
            text = "(connected again)" if is_open else f"(connection lost: {connection.reason}; trying again)"
            self._show(self._transcript.note(text))
        self._is_connected = is_open

    def _show(self, text: str) -> None:
        self._keyboard.write(text)
        if self._standing.wants_line:
            self._keyboard.write(self._transcript.settle())
            self._keyboard.show_prompt()
        self._changed.set()
        self._changed = anyio.Event()

    def _note(self, text: str) -> None:
        self._show(self._transcript.note(text))

    def _fail(self, text: str, tasks: TaskGroup) -> None:
        self._note(text)
        self._exit_code = 1
        tasks.cancel_scope.cancel()

    async def _until_ready(self) -> None:
        while not self._is_ready:
            await self._changed.wait()

    async def _until_wanted(self) -> None:
        while not self._standing.wants_line:
            await self._changed.wait()

    # What is typed.

    async def _take_lines(self, model: str | None) -> None:
        self._note(f"{self._url} · Ctrl-C stops the answer, Ctrl-D leaves, /help says more")
        if model:
            await self._post({"type": "set_params", "patch": {"model": model}})
        while True:
            await self._until_wanted()
            line = await self._keyboard.read()
            if line is None:
                return
            await self._take_line(line.strip())

    async def _take_line(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        if self._standing.questions:
            await self._decide(line)
        elif word == "/model" and rest.strip():
            await self._post({"type": "set_params", "patch": {"model": rest.strip()}})
        elif line == "/retry":
            await self._post({"type": "regenerate"}, is_awaited=True)
        elif line.startswith("/") and not line.startswith("//"):
            self._note(HELP)
        elif line:
            await self._say(line.removeprefix("/") if line.startswith("//") else line)

    async def _take_pipe(self, model: str | None) -> None:
        """One line, one message, one answer; the next line then. Ends after the last answer."""
        if model:
            await self._post({"type": "set_params", "patch": {"model": model}})
        while (line := await self._keyboard.read()) is not None:
            if line.strip():
                await self._until_wanted()
                await (self._decide(line.strip()) if self._standing.questions else self._say(line))
        await self._until_wanted()
        if self._standing.questions:
            where = f" --url {self._url}"
            self._note(f"(a tool waits for a decision; make it with: threadcast chat {self._chat.id}{where})")
            self._exit_code = 1
        elif self._standing.has_failed:
            self._exit_code = 1

    async def _say(self, text: str) -> None:
        if self._standing.is_busy:
            self._note("(waits for the answer that is being written)")
        await self._post({"type": "user_message", "content": text}, is_awaited=True)

    async def _decide(self, line: str) -> None:
        decision = _DECISIONS.get(line.lower())
        if decision is None:
            self._note("please answer y, n or always (Ctrl-C stops the run instead)")
            return
        question = self._standing.questions[0]
        self._standing.answered.add(question["tool_call_id"])
        command = {"type": "tool_decision", "tool_call_id": question["tool_call_id"], **decision}
        if question.get("input_hash"):
            command["input_hash"] = question["input_hash"]
        if not await self._post(command):
            self._standing.answered.discard(question["tool_call_id"])

    async def _post(self, command: JsonObject, *, is_awaited: bool = False) -> bool:
        """False when it was refused."""
        request_id = new_request_id()
        self._own.add(request_id)
        if is_awaited:
            self._standing.awaited.add(request_id)
        try:
            await self._chat.send({"client_request_id": request_id, **command}).accepted(PATIENCE_SECONDS)
        except Unreachable as wrong:
            reason = self._chat.connection.reason or wrong
            self._note(f"(not sent yet: {reason}; it goes out as soon as the server is back)")
        except ThreadcastError as wrong:
            self._standing.give_up(request_id)
            self._standing.has_failed = True
            self._note(f"error: {wrong}")
            return False
        return True

    # Ctrl-C.

    async def _heed_interrupts(self, tasks: TaskGroup) -> None:
        with anyio.open_signal_receiver(signal.SIGINT) as interrupts:
            async for _ in interrupts:
                if self._is_stopping or not self._standing.is_busy or not self._is_connected:
                    self._exit_code = 0 if self._is_interactive else 130
                    tasks.cancel_scope.cancel()
                    return
                self._is_stopping = True
                self._note("(stopping; once more to leave)")
                tasks.start_soon(self._post, {"type": "abort"})


class _NobodyThere(Exception):
    pass


def _on_the_wire(event: ChatItem) -> JsonObject:
    """As the transcript reads it."""
    if isinstance(event, RawEvent):
        return event.fields
    plain: JsonObject = msgspec.json.decode(encode(event))
    return plain
