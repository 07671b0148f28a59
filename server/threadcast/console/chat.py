"""`threadcast chat`: a conversation in the terminal. It uses only the public HTTP API.

Three tasks run: the first watches the stream and prints, the second reads lines and posts them, the third listens for
Ctrl-C. The tasks share a `Standing`; a task that changes it wakes the others. Messages of other clients of the same
chat are printed, too. A message that was refused, or could not be posted yet, is reported to the user.
"""

import asyncio
import os
import secrets
import shutil
import signal
import sys
from collections.abc import Mapping
from typing import Any, TextIO

import anyio
import msgspec
from anyio.abc import TaskGroup

from threadcast.console.answers import REJECT, answer_of
from threadcast.console.keyboard import Keyboard, is_terminal
from threadcast.console.standing import Standing
from threadcast.console.transcript import Transcript
from threadcast_client import Chat, Client, Connection, RawEvent, Refused, Unreachable, new_request_id
from threadcast_client.changed import Changed
from threadcast_client.errors import ThreadcastError, Unreadable
from threadcast_client.listeners import ChatItem
from threadcast_protocol.framing.codec import encode
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["chat", "new_chat_id"]

HELP = """\
Type a message and press Enter. Ctrl-C stops the answer, or leaves when there is none; Ctrl-D leaves.
  /model NAME   answer with this model from now on, such as demo/essay
  /retry        answer the last message again
  /help         show this help
  //text        send a message that begins with a slash
When a tool needs your approval: y runs it, n does not run it, always runs it now and from now on without asking.
If the question hides the arguments, show prints them.
When an agent or a tool asks you something, type your answer; /reject or Ctrl-D refuses to answer."""

TIMEOUT_SECONDS = 10.0
"""Seconds after which an accepted command without an effect is reported to the user: longer than a takeover."""

_DECISIONS: dict[str, JsonObject] = {
    "y": {"accepted": True},
    "yes": {"accepted": True},
    "n": {"accepted": False},
    "no": {"accepted": False},
    "a": {"accepted": True, "remember": "tool"},
    "always": {"accepted": True, "remember": "tool"},
}


def new_chat_id() -> str:
    """Return a new chat id with 40 random bits, which is short enough to type again."""
    return f"chat-{secrets.token_hex(16)}"


def chat(url: str, token: str | None, chat_id: str, model: str | None) -> int:
    """Run a conversation until the user leaves or the input ends. Returns the exit code."""
    is_interactive = is_terminal()
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # an unprintable character must not end the program

    async def talk() -> int:
        async with Client(url, token) as client, client.chat(chat_id, wait=False) as live:
            return await Conversation(live, client.base_url, sys.stdin, sys.stdout, is_interactive).run(model)

    return asyncio.run(talk())


class Conversation:
    """A conversation between one chat and one terminal or pipe."""

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
        self._changed = Changed()
        self._is_ready = False
        self._is_connected = False
        self._is_stopping = False
        self._exit_code = 0

    async def run(self, model: str | None = None) -> int:
        """Run the conversation; `model` becomes the chat's model.

        Returns the exit code: 0; 1 when the server could not be used or the last answer failed; 130 when a pipe was
        interrupted.
        """
        with self._keyboard.opened():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._watch, tasks)
                tasks.start_soon(self._heed_interrupts, tasks)
                await self._changed.until(lambda: self._is_ready)
                if self._is_interactive:
                    self._note(f"{self._url} · Ctrl-C stops the answer, Ctrl-D leaves, /help says more")
                if model:
                    await self._post({"type": "set_params", "patch": {"model": model}})
                await (self._take_lines() if self._is_interactive else self._take_pipe())
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
        except (Refused, Unreadable, _NobodyThere) as wrong:
            advice = ". Is it running? Start it with: threadcast serve" if isinstance(wrong, _NobodyThere) else ""
            self._note(f"{self._url}: {wrong}{advice}")
            self._exit_code = 1
            tasks.cancel_scope.cancel()

    def _take_connection(self, connection: Connection) -> None:
        is_open = connection.state != "offline"
        if not is_open and not self._is_ready and connection.reason:
            raise _NobodyThere(connection.reason)  # before the first event, no data is lost by giving up
        if self._is_ready and is_open != self._is_connected:
            self._note("(connected again)" if is_open else f"(connection lost: {connection.reason}; trying again)")
        self._is_connected = is_open

    def _show(self, text: str) -> None:
        self._keyboard.write(text)
        if self._standing.wants_line:
            self._keyboard.write(self._transcript.settle())
            self._keyboard.show_prompt()
        self._changed.tell()

    def _note(self, text: str) -> None:
        self._show(self._transcript.note(text))

    async def _until_wanted(self) -> None:
        await self._changed.until(lambda: self._standing.wants_line)

    # Input.

    async def _take_lines(self) -> None:
        await self._until_wanted()
        while True:
            line = await self._keyboard.read()
            if line is not None:
                await self._take_line(line.strip())
            elif self._standing.questions and self._standing.questions[0]["type"] == "question":
                self._keyboard.write("\n")
                await self._decide(REJECT)
            else:
                return
            await self._until_wanted()

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

    async def _take_pipe(self) -> None:
        """Send each line as a message and wait for its answer before the next line. Return after the last answer."""
        while (line := await self._keyboard.read()) is not None:
            if line.strip():
                await self._until_wanted()
                await (self._decide(line.strip()) if self._standing.questions else self._say(line))
        await self._until_wanted()
        if self._standing.questions:
            command = f"threadcast chat {self._chat.id} --url {self._url}"
            is_question = self._standing.questions[0]["type"] == "question"
            who, what = ("a question", "an answer") if is_question else ("a tool", "a decision")
            self._note(f"({who} waits for {what}; decide with: {command})")
            self._exit_code = 1
        elif self._standing.has_failed:
            self._exit_code = 1

    async def _say(self, text: str) -> None:
        if self._standing.is_busy:
            self._note("(your message waits until the present answer is finished)")
        await self._post({"type": "user_message", "content": text}, is_awaited=True)

    async def _decide(self, line: str) -> None:
        question = self._standing.questions[0]
        if question["type"] == "question":
            await self._answer(question, line)
            return
        if line.lower() == "show" and question.get("hides_input"):
            await self._show_input(question["tool_call_id"])
            return
        decision = _DECISIONS.get(line.lower())
        if decision is None:
            choices = "y, n, always or show" if question.get("hides_input") else "y, n or always"
            self._note(f"please answer {choices} (Ctrl-C stops the run instead)")
            return
        await self._send_decision(question, decision)

    async def _answer(self, question: Mapping[str, Any], line: str) -> None:
        """Answer a question of an agent or a tool. An answer that begins with a slash must be typed with two
        slashes."""
        if line == REJECT:
            await self._send_decision(question, {"accepted": False})
            return
        if not line or (line.startswith("/") and not line.startswith("//")):
            self._note(HELP if line else f"please type your answer, or {REJECT}")
            return
        try:
            value = answer_of(question, line.removeprefix("/") if line.startswith("//") else line)
        except ValueError as wrong:
            self._note(str(wrong))
            return
        await self._send_decision(question, {"accepted": True, "edited_input": {"answer": value}})

    async def _send_decision(self, question: Mapping[str, Any], decision: JsonObject) -> None:
        self._standing.answered.add(question["tool_call_id"])
        command = {"type": "tool_decision", "tool_call_id": question["tool_call_id"], **decision}
        if question.get("input_hash"):
            command["input_hash"] = question["input_hash"]
        if not await self._post(command):
            self._standing.answered.discard(question["tool_call_id"])

    async def _show_input(self, call_id: str) -> None:
        """Print the arguments of a question that the stream does not show."""
        try:
            asked = await self._chat.read_questions()
        except ThreadcastError as wrong:
            self._note(f"error: {wrong}")
            return
        shown = next((reason.input for reason in asked if reason.tool_call_id == call_id), None)
        self._note("(this question is no longer open)" if shown is None else encode(shown).decode())

    async def _post(self, command: JsonObject, *, is_awaited: bool = False) -> bool:
        """Post a command and wait until the server accepts it. Returns False when the command was refused.

        `is_awaited`: the command is a message whose answer the conversation waits for.
        """
        request_id = new_request_id()
        self._own.add(request_id)
        if is_awaited:
            self._standing.awaited.add(request_id)
        try:
            await self._chat.send({"client_request_id": request_id, **command}).accepted(TIMEOUT_SECONDS)
        except Unreachable as wrong:
            reason = self._chat.connection.reason or wrong
            self._note(f"(not sent yet: {reason}; it will be sent as soon as the server is back)")
        except ThreadcastError as wrong:
            self._standing.give_up(request_id)
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
                self._note("(stopping; press Ctrl-C again to leave)")
                tasks.start_soon(self._post, {"type": "abort"})


class _NobodyThere(Exception):
    """No server could be reached when the conversation began."""


def _on_the_wire(event: ChatItem) -> JsonObject:
    """Return an event as the JSON object that the server sent, which `Transcript` and `Standing` read."""
    if isinstance(event, RawEvent):
        return event.fields
    plain: JsonObject = msgspec.json.decode(encode(event))
    return plain
