"""Holds the open streams of one transcript by name, and the position of the transcript in each stream."""

from collections.abc import Mapping

import anyio
import anyio.abc
import httpx2

from threadcast.console.conformance.expecting import BlockCursor, Cursor, Failed, Hung
from threadcast.console.conformance.patterns import Names
from threadcast.console.conformance.target import Target
from threadcast.console.conformance.wire import Wire, broken_headers

__all__ = ["Opened"]


class Opened:
    """The streams of one transcript.

    `rules`: broken rules of the streams' headers are added here. `tasks`: the task group that reads the streams; it is
    set before the first `open`.
    """

    def __init__(self, target: Target, names: Names, wait_seconds: float, rules: dict[str, str]) -> None:
        self.wires: dict[str, Wire] = {}
        self.tasks: anyio.abc.TaskGroup
        self._target = target
        self._names = names
        self._wait_seconds = wait_seconds
        self._rules = rules
        self._scopes: dict[str, anyio.CancelScope] = {}
        self._cursors: dict[tuple[str, str], Cursor] = {}
        self._block_cursors: dict[str, BlockCursor] = {}

    async def open(
        self,
        name: str,
        wire: Wire,
        path: str,
        *,
        method: str = "GET",
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Open a stream and read it in a task. Returns when its headers have arrived. Raises Failed."""
        self.wires[name] = wire
        self._scopes[name] = scope = anyio.CancelScope()
        begun = anyio.Event()

        async def run() -> None:
            try:
                with scope:
                    async with self._target.stream(method, path, body=body, headers=headers) as response:
                        if response.status_code != 200:
                            raise Failed(f"the request was answered {response.status_code}")
                        self._rules.update(broken_headers(response) | self._rules)  # keeps each rule's first sentence
                        begun.set()
                        await wire.read(response)
            except (Failed, httpx2.TransportError) as wrong:
                wire.end(str(wrong) or type(wrong).__name__)
            begun.set()

        self.tasks.start_soon(run)
        with anyio.move_on_after(self._wait_seconds):
            await begun.wait()
        if not begun.is_set():
            raise Hung(f"the stream {method} {path} was not answered within {self._wait_seconds:g} s")
        if not wire.blocks and wire.ended is not None:
            raise Failed(f"the stream {method} {path}: {wire.ended}")

    def close(self, name: str) -> None:
        """Disconnect from a stream."""
        self._scopes[name].cancel()
        self.wires[name].end("the transcript closed the stream")

    def cursor(self, name: str, chat: str, *, begins_at: int = 0) -> Cursor:
        """Return the cursor for the events of a chat on a stream."""
        if (name, chat) not in self._cursors:
            wire = self.wires[name]
            stream = wire.chat(str(self._names[chat]))
            self._cursors[name, chat] = Cursor(wire, stream, self._names, self._wait_seconds, begins_at)
        return self._cursors[name, chat]

    def block_cursor(self, name: str) -> BlockCursor:
        """Return the cursor for the blocks of a stream."""
        if name not in self._block_cursors:
            self._block_cursors[name] = BlockCursor(self.wires[name], self._names, self._wait_seconds)
        return self._block_cursors[name]
