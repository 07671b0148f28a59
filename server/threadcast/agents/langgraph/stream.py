"""Shows the stream of a graph: each message of a model as a message of the chat, one after the other.

Messages of parallel nodes arrive mixed. One message is shown as it streams, and the others wait. The key of a message
is the task of its node, and this task is the same when the node runs again after a crash.
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
from langchain_core.messages import AIMessage, AIMessageChunk, ToolMessage
from langgraph.config import get_stream_writer

from threadcast.agents.langgraph.history import pieces_in, usage_of
from threadcast.custom_agents.pieces import DATA_MAX_BYTES, Call, Data
from threadcast.custom_agents.seam import Recorded, Seam, ShownCall
from threadcast.tools.base import ToolResult
from threadcast_protocol.wire.decoders import decode_any
from threadcast_protocol.wire.errors import ModelFailed
from threadcast_protocol.wire.mending import mended_json

__all__ = ["WAITING_MAX", "GraphStream", "all_shown", "tell_end"]

WAITING_MAX = 50_000
"""The maximum events that wait while another message is shown."""

Event = tuple[tuple[str, ...], str, Any]
"""The namespace of a subgraph, the stream mode, and the data."""


@dataclass(frozen=True, slots=True)
class _NodeEnded:
    """Sent after the last event of a node's task."""

    task: str

    def has(self, task: str) -> bool:
        """Return whether a task is this task or a part of it."""
        return task == self.task or task.startswith(f"{self.task}|")


@dataclass(frozen=True, slots=True)
class _Barrier:
    """An event that is set when all earlier events of the graph have been shown."""

    passed: asyncio.Event = field(default_factory=asyncio.Event)


def tell_end(task: str) -> None:
    """Report, from within a node, that the node's task has ended."""
    get_stream_writer()(_NodeEnded(task))


async def all_shown() -> None:
    """Wait, within a node, until all events of the graph so far have been shown. This wait is needed because a subgraph
    does not wait for the reader of the stream, so its nodes may begin earlier."""
    barrier = _Barrier()
    get_stream_writer()(barrier)
    await barrier.passed.wait()


class GraphStream:
    """The events of one pass of the graph. Each shown call is added to `calls` under the model's id. The names of tools
    in the chat begin with `prefix`."""

    def __init__(
        self, seam: Seam, events: AsyncIterator[Event], calls: dict[str, ShownCall], counts: Counter[str], prefix: str
    ) -> None:
        self._seam = seam
        self._source = events
        self._waiting: deque[Event] = deque()
        self._calls = calls
        self._counts = counts
        self._prefix = prefix
        self._shown: set[str] = set()
        self._subgraph = ""

    async def show(self) -> None:
        """Show all events. Raises ModelFailed: too many events wait."""
        while (event := await self._next()) is not None:
            namespace, mode, told = event
            if isinstance(told, _Barrier):
                told.passed.set()
            elif mode == "custom" and not isinstance(told, _NodeEnded):
                await self._emit(told)
            elif mode == "messages":
                await self._enter("/".join(each.partition(":")[0] for each in namespace))
                message, metadata = told
                if isinstance(message, ToolMessage):
                    await self._result(message)
                elif isinstance(message, AIMessage) and message.id not in self._shown:
                    await self._message(event, message, metadata)

    async def _next(self) -> Event | None:
        if self._waiting:
            return self._waiting.popleft()
        return await anext(self._source, None)

    async def _enter(self, subgraph: str) -> None:
        """Show the running subgraph as the run's status."""
        if subgraph != self._subgraph:
            self._subgraph = subgraph
            await self._seam.status(subgraph)

    async def _message(self, first: Event, message: AIMessage, metadata: dict[str, Any]) -> None:
        """Show a message, to its end."""
        task = str(metadata.get("langgraph_checkpoint_ns") or metadata.get("langgraph_node"))
        self._counts[task] += 1
        self._shown.add(message.id or "")
        key = f"{task[-150:]} {self._counts[task]}"
        whole: list[AIMessage] = []
        is_asked = False

        async def pieces() -> AsyncIterator[object]:
            nonlocal is_asked
            is_asked = True
            async for chunk in self._chunks(first, message.id, task):
                whole.append(chunk)
                for piece in pieces_in(chunk.content):
                    yield piece
            for each in _ends(whole, self._prefix):
                yield each

        shown = await self._seam.message(key, pieces)
        if not is_asked:  # an interrupted node runs again after it finished this message
            whole += [chunk async for chunk in self._chunks(first, message.id, task)]
            again = _ends(whole, self._prefix)
            text = "".join(piece for chunk in whole for piece in pieces_in(chunk.content) if isinstance(piece, str))
            calls = [each for each in again if isinstance(each, Call)]
            is_same = text == shown.text and [each.name for each in calls] == [each.name for each in shown.calls]
            if not is_same and shown.message_id:
                await self._seam.remove(shown.message_id)

                async def other() -> AsyncIterator[object]:
                    yield text
                    for each in again:
                        yield each

                shown = await self._seam.message(f"{key} again", other)
            for call, own in zip(shown.calls, calls, strict=False):
                self._calls[own.id or ""] = call
        for call in shown.calls:
            self._calls[call.own_id] = call  # a model may use an id twice

    async def _chunks(self, first: Event, message_id: str | None, task: str) -> AsyncIterator[AIMessage]:
        """Yield the chunks of one message, up to the end of its node's task at the latest. Other events wait."""
        event: Event | None = first
        others: list[Event] = []
        while event is not None:
            _, mode, told = event
            is_own = mode == "messages" and told[0].id == message_id and isinstance(told[0], AIMessage)
            if is_own:
                yield told[0]
                if not isinstance(told[0], AIMessageChunk) or told[0].chunk_position == "last":
                    break
            else:
                others.append(event)
                if isinstance(told, _NodeEnded) and told.has(task):
                    break
                if len(others) > WAITING_MAX:
                    raise ModelFailed("limit", f"More than {WAITING_MAX:,} events of the graph wait to be shown.")
            event = await self._next()
        self._waiting.extendleft(reversed(others))

    async def _result(self, message: ToolMessage) -> None:
        """Show the result of a call that the graph has carried out by itself."""
        call = self._calls.get(message.tool_call_id)
        if call is not None:
            content = message.content if isinstance(message.content, str) else str(message.text)
            await self._seam.report(call.id, ToolResult(content=content, failed=message.status == "error"))

    async def _emit(self, told: Any) -> None:  # Any: what a node writes
        """Send what a node has written to clients."""
        try:
            data = decode_any(mended_json(told if isinstance(told, dict) else {"value": told}))
        except (TypeError, ValueError):
            data = {"value": str(told)}
        if len(msgspec.json.encode(data)) <= DATA_MAX_BYTES:
            await self._seam.emit(Data("langgraph", data))


def _ends(chunks: list[AIMessage], prefix: str) -> list[object]:
    """Return the pieces with which a message ends: its calls, its tokens, and a value that marks its end."""
    whole: Any = None
    for chunk in chunks:
        whole = chunk if whole is None else whole + chunk
    if whole is None:
        return []
    usage = usage_of(whole)
    calls = [Call(prefix + call["name"], call["args"], call["id"]) for call in whole.tool_calls]
    return [*calls, *([usage] if usage is not None else []), Recorded(True)]
