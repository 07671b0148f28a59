"""Reads lines from a terminal or a pipe without blocking the event loop.

The thread that waits for lines is a daemon thread, because it cannot be woken when the program ends. The terminal's
mode is restored at the end. Users get line editing and history. Messages may arrive while a user types: `write` removes
the prompt and prints, and `show_prompt` restores the prompt with the typed text. All output of `chat.py` uses this
module, so that the output does not mix with typed text.
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
"""Maximum bytes of a message that the server accepts (PROTOCOL §18). A longer line of a pipe is split into several
messages."""

_BRACKETED_PASTE_OFF = "\x1b[?2004l"
"""Switches bracketed paste off. Line editing switches bracketed paste on, and does not switch it off when the program
ends while a line is being typed."""


def is_terminal(stdin: TextIO = sys.stdin, stdout: TextIO = sys.stdout) -> bool:
    """Return whether both the input and the output are a terminal."""
    return stdin.isatty() and stdout.isatty()


class Keyboard:
    """The input and output of one conversation. Enter `opened` on the event loop's thread; read one line at a time."""

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
        """Start the reading thread, and restore the terminal's mode at the end of the block."""
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
        """Return the next line without its newline; None at the end of the input, or if the user types Ctrl-D at a
        terminal. Only one task may read at a time."""
        loop = asyncio.get_running_loop()
        line: asyncio.Future[str | None] = loop.create_future()

        def deliver(text: str | None) -> None:
            if not line.done():
                line.set_result(text)

        self._wanted.put(lambda text: _call_soon(loop, deliver, text))
        text = await line  # a cancellation here does not stop the thread, which continues to read its line
        self._has_prompt = False
        return text

    def write(self, text: str) -> None:
        """Remove the prompt and print text."""
        if text:
            if self._has_prompt:
                self._stdout.write("\r\x1b[K")
                self._has_prompt = False
            self._stdout.write(text)
            self._stdout.flush()

    def show_prompt(self) -> None:
        """Print the prompt again, with the text typed so far, if a line is being read."""
        if self._is_editing and not self._has_prompt:
            typed = self._editor.get_line_buffer() if self._editor is not None else ""
            self._stdout.write(PROMPT + typed)
            self._stdout.flush()
            self._has_prompt = True

    # The thread.

    def _serve(self) -> None:
        lines: Iterator[str | None] = self._ask() if self._is_interactive else self._split()
        while True:
            deliver = self._wanted.get()
            deliver(next(lines, None))

    def _ask(self) -> Iterator[str | None]:
        """Yield the lines that the user types, and None for Ctrl-D. After Ctrl-D the user may continue to type."""
        if self._editor is not None:
            self._editor.set_pre_input_hook(self._begin_editing)  # called after the prompt was printed
        while True:
            try:
                if self._editor is None:
                    self._begin_editing()
                line: str | None = input(PROMPT)
            except EOFError:
                line = None
            finally:
                self._is_editing = False
            yield line

    def _begin_editing(self) -> None:
        self._has_prompt = self._is_editing = True

    def _split(self) -> Iterator[str]:
        """Yield lines read directly from the file descriptor. The thread does not use `sys.stdin`: if it held the lock
        of `sys.stdin` while Python shuts down, the process would crash."""
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
    """Import `readline`, which adds editing and history to `input`. Returns None in builds of Python without it."""
    try:
        import readline
    except ImportError:
        return None
    return readline


def _call_soon(loop: asyncio.AbstractEventLoop, deliver: Callable[[str | None], None], text: str | None) -> None:
    try:
        loop.call_soon_threadsafe(deliver, text)
    except RuntimeError:  # the event loop is closed because the program ends; the line is dropped
        return
