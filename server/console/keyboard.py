"""Lines from a person or a pipe, without ever blocking the event loop.

A thread of its own waits for them; it is a daemon, since nothing can wake a thread that waits for a key, and the
terminal is put back as it was when we leave. A person gets line editing and history. While they type, other tabs may
speak: `write` takes the prompt away, prints, and `show_prompt` puts it back with what was typed so far. The one rule:
everything that `chat.py` prints goes through here, or it would land in the middle of somebody's typing.
"""

import asyncio
import os
import queue
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import TextIO

__all__ = ["Keyboard", "is_terminal"]

PROMPT = "> "
READ_BYTES = 65_536
LINE_MAX_BYTES = 262_144
"""The longest message that the server takes (PROTOCOL §18); a longer line of a pipe is cut into several."""

_BRACKETED_PASTE_OFF = "\x1b[?2004l"
"""Line editing switches it on, and cannot switch it off when we leave in the middle of a line."""


def is_terminal(stdin: TextIO = sys.stdin, stdout: TextIO = sys.stdout) -> bool:
    return stdin.isatty() and stdout.isatty()


class Keyboard:
    """Enter it (`opened`) on the event loop's thread; read one line at a time."""

    def __init__(self, stdin: TextIO, stdout: TextIO, *, is_interactive: bool) -> None:
        self._stdin = stdin
        self._stdout = stdout
        self._is_interactive = is_interactive
        self._wanted: queue.SimpleQueue[Callable[[str | None], None]] = queue.SimpleQueue()
        self._editor = _line_editing() if is_interactive else None
        self._is_editing = False
        self._has_prompt = False

    @contextmanager
    def opened(self) -> Iterator["Keyboard"]:
        settings = termios.tcgetattr(self._stdin) if self._is_interactive else None
        threading.Thread(target=self._serve, name="keyboard", daemon=True).start()
        try:
            yield self
        finally:
            if settings is not None:
                termios.tcsetattr(self._stdin, termios.TCSADRAIN, settings)
                if self._is_editing:
                    self._stdout.write(_BRACKETED_PASTE_OFF + "\r\n")
                    self._stdout.flush()

    async def read(self) -> str | None:
        """The next line without its end; None at the end of input. One reader at a time."""
        loop = asyncio.get_running_loop()
        line: asyncio.Future[str | None] = loop.create_future()

        def deliver(text: str | None) -> None:
            if not line.done():
                line.set_result(text)

        self._wanted.put(lambda text: _call_soon(loop, deliver, text))
        text = await line  # when we are cancelled here, the thread stays in the middle of its line
        self._has_prompt = False
        return text

    def write(self, text: str) -> None:
        """Print, the prompt out of the way."""
        if text:
            if self._has_prompt:
                self._stdout.write("\r\x1b[K")
                self._has_prompt = False
            self._stdout.write(text)
            self._stdout.flush()

    def show_prompt(self) -> None:
        """Put the prompt back, with what was typed so far, if somebody is asked for a line."""
        if self._is_editing and not self._has_prompt:
            typed = self._editor.get_line_buffer() if self._editor is not None else ""
            self._stdout.write(PROMPT + typed)
            self._stdout.flush()
            self._has_prompt = True

    # The thread.

    def _serve(self) -> None:
        lines = self._ask() if self._is_interactive else self._split()
        while True:
            deliver = self._wanted.get()
            deliver(next(lines, None))

    def _ask(self) -> Iterator[str]:
        if self._editor is not None:
            self._editor.set_pre_input_hook(self._begin_editing)  # called once its prompt stands there
        while True:
            try:
                if self._editor is None:
                    self._begin_editing()
                line = input(PROMPT)
            except EOFError:
                return
            finally:
                self._is_editing = False
            yield line

    def _begin_editing(self) -> None:
        self._has_prompt = self._is_editing = True

    def _split(self) -> Iterator[str]:
        """Lines straight from the descriptor: a thread that holds the lock of sys.stdin while Python shuts down brings
        the process down with an error."""
        pending = b""
        while chunk := os.read(self._stdin.fileno(), READ_BYTES):
            *whole, pending = (pending + chunk).split(b"\n")
            for line in whole:
                yield line.decode("utf-8", "replace").removesuffix("\r")
            while len(pending) > LINE_MAX_BYTES:
                yield pending[:LINE_MAX_BYTES].decode("utf-8", "ignore")
                pending = pending[LINE_MAX_BYTES:]
        if pending:
            yield pending.decode("utf-8", "replace")


def _line_editing() -> ModuleType | None:
    """Its import alone gives `input` editing and history. Some builds of Python come without it."""
    try:
        import readline
    except ImportError:
        return None
    return readline


def _call_soon(loop: asyncio.AbstractEventLoop, deliver: Callable[[str | None], None], text: str | None) -> None:
    try:
        loop.call_soon_threadsafe(deliver, text)
    except RuntimeError:  # the loop is closed: we are leaving, and nobody wants the line any more
        return
