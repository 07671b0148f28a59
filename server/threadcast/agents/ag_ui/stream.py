"""Shows the events of one run of a remote agent in the chat: the agent's messages, its calls and their results.

A call ends its message, so that clients see at once that the agent carries out the call. The parts of an agent's
message have its id, and become one message again in the agent's next request.
"""

import re
from collections import deque
from collections.abc import AsyncIterator, Collection, Mapping
from typing import Any

import msgspec

from threadcast.agents.ag_ui.events import (
    Activity,
    Ended,
    Event,
    Failed,
    Interrupt,
    Other,
    Reasoning,
    Snapshot,
    StateChange,
    Status,
    Text,
    ToolArgs,
    ToolEnd,
    ToolResult,
    ToolStart,
)
from threadcast.agents.ag_ui.history import Conversation, Kept, keep_of, tool_message
from threadcast.agents.ag_ui.state import changed, checked
from threadcast.custom_agents.pieces import DATA_MAX_BYTES, Call, Data
from threadcast.custom_agents.pieces import Reasoning as ReasoningPiece
from threadcast.custom_agents.pieces import Usage as UsagePiece
from threadcast.custom_agents.seam import DeclaredAgentTool, Seam
from threadcast.tools.base import Policy
from threadcast.tools.base import ToolResult as Result
from threadcast_protocol.wire.decoders import decode_any
from threadcast_protocol.wire.errors import ModelFailed
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["CALLS_MAX", "INTERRUPTS_MAX", "MESSAGES_MAX", "TOLD_MAX_BYTES", "RunDone", "RunStream", "tool_name"]

CALLS_MAX = 500
"""The maximum calls in one run of the agent, the same as the maximum tools that an agent may declare."""

MESSAGES_MAX = 1_000
"""The maximum messages in one run of the agent: `CALLS_MAX` calls, and as many texts between them."""

INTERRUPTS_MAX = 100
"""The maximum interrupts with which one run may end; each interrupt is a question to a person."""

TOLD_MAX_BYTES = 268_435_456
"""The maximum bytes that one run sends to clients: 2,000 changes of the largest state. A change of a few bytes sends
the whole state, so the bound of the agent's stream does not bound these bytes."""

ERROR_MAX_CHARACTERS = 500

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]+")


class RunDone(msgspec.Struct):
    """The result of one run of the agent. `messages` are the agent's own messages, `calls` maps the agent's ids of
    calls to the chat's, `open_calls` are the agent's ids of the calls that it has not answered itself, and `interrupts`
    are the interrupts that it waits for."""

    messages: list[JsonObject] = []
    calls: dict[str, str] = {}
    open_calls: list[str] = []
    interrupts: list[Interrupt] = []
    state: Any = None  # Any: JSON


def tool_name(name: str) -> str:
    """Return the name of a tool in a form that the list of tools allows."""
    return _NOT_IN_NAMES.sub("_", name)[:64] or "tool"


class RunStream:
    """The events of one run. The keys of its messages begin with `key`; `client_tools` are the tools of the watching
    client; `conversation` is the conversation that the agent received, and `calls` maps the agent's ids of the calls in
    it to the chat's ids."""

    def __init__(
        self,
        seam: Seam,
        key: str,
        events: AsyncIterator[list[Event]],
        conversation: Conversation,
        calls: Mapping[str, str],
        client_tools: Collection[str],
        policies: Mapping[str, Policy],
    ) -> None:
        self._seam = seam
        self._key = key
        self._source = events
        self._ready: deque[Event] = deque()
        self._known_ids = conversation.ids
        self._earlier_calls = calls
        self._client_tools = client_tools
        self._policies = policies
        self._status: str | None = None
        self._foreign: set[str] = set()
        self._answered: set[str] = set()
        self._messages_count = 0
        self._calls_count = 0
        self._told_bytes = 0
        self._draft: _Draft = _Draft("")
        self.done = RunDone(state=conversation.state)

    async def show(self) -> RunDone:
        """Show the run, and return its result.

        Raises:
            ModelFailed: the run failed, or its stream ended early.
        """
        while (event := await self._peek()) is not None:
            match event:
                case Text() | Reasoning() | ToolStart() | ToolArgs():
                    await self._message()
                    continue
                case ToolResult():
                    await self._result(event.call_id, event.content)
                case Snapshot():
                    await self._snapshot(event.messages)
                case StateChange() | Activity() | Other():
                    for data in self._data(event):
                        await self._seam.emit(data)
                case Status():
                    await self._seam.status(event.text)
                case Failed():
                    said = event.message.strip()[:ERROR_MAX_CHARACTERS]
                    raise ModelFailed("llm_error", f"The agent failed: {said}" if said else "The agent failed.")
                case Ended():
                    if len(event.interrupts) > INTERRUPTS_MAX:
                        raise ModelFailed("limit", f"The agent waits for more than {INTERRUPTS_MAX} answers at once.")
                    self.done.interrupts = event.interrupts
                    return self.done
                case ToolEnd():
                    pass
            self._ready.popleft()
        raise ModelFailed("stream_error", "The agent's stream ended before its run.")

    async def _peek(self) -> Event | None:
        """Return the next event, which stays in `_ready`; None at the end of the stream."""
        while not self._ready:
            more = await anext(self._source, None)
            if more is None:
                return None
            self._ready.extend(more)
        return self._ready[0]

    async def _message(self) -> None:
        """Show the next message of the chat, with one call at most."""
        self._messages_count += 1
        if self._messages_count > MESSAGES_MAX:
            raise ModelFailed("limit", f"The agent sent more than {MESSAGES_MAX:,} messages in one run.")
        key = f"{self._key}-{self._messages_count}"
        self._draft = draft = _Draft(key)
        shown = await self._seam.message(key, self._pieces)
        self.done.messages += draft.messages()
        if draft.call is not None and shown.calls:
            own_id, name = draft.call.id or "", draft.call.name
            self.done.calls[own_id] = shown.calls[0].id
            self.done.open_calls.append(own_id)
            if name not in self._client_tools:
                await self._declare(name)
                await self._seam.begin_call(shown.calls[0].id)
        if self._status is not None:
            await self._seam.status(self._status)
            self._status = None

    async def _pieces(self) -> AsyncIterator[object]:
        """Yield the pieces of the next message, up to the event that ends it."""
        draft, ready = self._draft, self._ready
        while (event := ready[0] if ready else await self._peek()) is not None:
            match event:
                case Text():
                    if event.role not in ("assistant", "") or event.message_id in self._foreign:
                        self._foreign.add(event.message_id)  # the agent repeats a user's message
                    elif draft.is_other_text(event):
                        break
                    elif event.delta:
                        draft.add_text(event)
                        yield event.delta
                case Reasoning():
                    if draft.texts or draft.call_id:
                        break
                    draft.add_reasoning(event)
                    if event.delta:
                        yield ReasoningPiece(event.delta)
                case ToolStart() | ToolArgs():
                    if not draft.add_call(event):
                        break
                case ToolEnd():
                    ready.popleft()
                    break
                case StateChange() | Activity() | Other():
                    for data in self._data(event):
                        yield data
                case Status():
                    self._status = event.text
                case Ended():
                    if event.usage:
                        counts = [(each.input_tokens or 0, each.output_tokens or 0) for each in event.usage]
                        read, written = sum(each[0] for each in counts), sum(each[1] for each in counts)
                        yield UsagePiece(read, written, read + written)
                    break
                case _:
                    break
            ready.popleft()
        call = draft.end_call()
        if call is not None:
            self._calls_count += 1
            if self._calls_count > CALLS_MAX:
                raise ModelFailed("limit", f"The agent made more than {CALLS_MAX} calls in one run.")
            yield call
        for piece in keep_of(Kept(draft.messages(), [call.id or ""] if call is not None else [], self.done.state)):
            yield piece

    def _data(self, event: StateChange | Activity | Other) -> list[Data]:
        """Apply a change of the state, and return the data for clients. Raises ModelFailed: the change is invalid."""
        if isinstance(event, StateChange):
            try:
                self.done.state = (
                    checked(event.snapshot) if event.delta is None else changed(self.done.state, event.delta)
                )
            except ValueError as wrong:
                raise ModelFailed("llm_error", f"The agent's run was ended: {wrong}.") from None
            told = Data("ag_ui_state", {"state": self.done.state})
        elif isinstance(event, Activity):
            told = Data("ag_ui_activity", event.data)
        else:
            told = Data(f"ag_ui_{event.kind}", event.data)
        size = len(msgspec.json.encode(told.data))
        if size > DATA_MAX_BYTES:
            return []
        self._told_bytes += size
        if self._told_bytes > TOLD_MAX_BYTES:
            raise ModelFailed("limit", f"The agent's run told clients more than {TOLD_MAX_BYTES:,} bytes of data.")
        return [told]

    async def _result(self, own_id: str, content: str) -> None:
        """Show the result of a call that the agent has carried out."""
        call_id = self.done.calls.get(own_id) or self._earlier_calls.get(own_id)
        if call_id is None or own_id in self._answered or f"{self._key}-result-{own_id}" in self._known_ids:
            return
        self._answered.add(own_id)
        if own_id in self.done.open_calls:
            self.done.open_calls.remove(own_id)
        self.done.messages.append(tool_message(f"{self._key}-result-{own_id}", own_id, content))
        await self._seam.report(call_id, Result(content=content))

    async def _snapshot(self, messages: list[JsonObject]) -> None:
        """Show the messages of a snapshot that are neither in the chat nor in this run's stream."""
        known = self._known_ids | {str(message["id"]) for message in self.done.messages}
        results = [each for each in messages if each.get("role") == "tool"]
        for each in results:
            await self._result(str(each.get("toolCallId")), str(each.get("content") or ""))
        for number, each in enumerate(messages):
            text, message_id = each.get("content"), each.get("id")
            is_new = each.get("role") == "assistant" and isinstance(message_id, str) and message_id not in known
            if is_new and isinstance(text, str) and text:
                raw = {"id": message_id, "role": "assistant", "content": text}
                await self._say(f"{self._key}-snapshot-{number}", text, raw)

    async def _say(self, key: str, text: str, raw: JsonObject) -> None:
        state = self.done.state

        async def pieces() -> AsyncIterator[object]:
            yield text
            for piece in keep_of(Kept([raw], [], state)):
                yield piece

        await self._seam.message(key, pieces)
        self.done.messages.append(raw)

    async def _declare(self, name: str) -> None:
        policy = self._policies.get(name, "ask")
        await self._seam.declare([DeclaredAgentTool(name=name, policy=policy, description="A tool of the agent.")])


class _Draft:
    """The message that is being read. `key` replaces missing ids."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._message_id = ""
        self.texts: list[str] = []
        self._reasoning: list[str] = []
        self._reasoning_id = ""
        self._encrypted = ""
        self.call_id = ""
        self._call_name = ""
        self._arguments: list[str] = []
        self.call: Call | None = None

    def is_other_text(self, event: Text) -> bool:
        """Return whether the text belongs to the next message."""
        is_other = bool(event.message_id and self._message_id and event.message_id != self._message_id)
        return bool(self.call_id) or (is_other and bool(self.texts))

    def add_text(self, event: Text) -> None:
        self._message_id = event.message_id or self._message_id
        self.texts.append(event.delta)

    def add_reasoning(self, event: Reasoning) -> None:
        self._reasoning_id = event.message_id or self._reasoning_id
        if event.delta:
            self._reasoning.append(event.delta)
        self._encrypted = event.encrypted or self._encrypted

    def add_call(self, event: ToolStart | ToolArgs) -> bool:
        """Add a part of a call. Returns False if the part belongs to the next message."""
        is_next = bool(self.call_id) and bool(event.call_id) and event.call_id != self.call_id
        is_of_other = bool(event.parent_id and self.texts and event.parent_id != self._message_id)
        if is_next or (is_of_other and not self.call_id):
            return False
        if not self.call_id:
            if not event.name:
                return True  # these arguments belong to a call that never began
            self.call_id, self._call_name = event.call_id or f"{self._key}-call", event.name
            self._message_id = self._message_id or event.parent_id
        if isinstance(event, ToolArgs):
            self._arguments.append(event.delta)
        return True

    def end_call(self) -> Call | None:
        """Return the message's call; None if the message has no call."""
        if self.call_id:
            try:
                values = decode_any("".join(self._arguments) or "{}")
            except (msgspec.DecodeError, RecursionError):
                values = {"text": "".join(self._arguments)}
            self.call = Call(tool_name(self._call_name), values if isinstance(values, dict) else {}, self.call_id)
        return self.call

    def messages(self) -> list[JsonObject]:
        """Return the message in the agent's form, preceded by its reasoning."""
        found: list[JsonObject] = []
        if self._reasoning or self._encrypted:
            thought = {"id": self._reasoning_id or f"{self._key}-reasoning", "role": "reasoning"}
            more = {"encryptedValue": self._encrypted} if self._encrypted else {}
            found.append({**thought, "content": "".join(self._reasoning), **more})
        if self.texts or self.call_id:
            said: JsonObject = {"id": self._message_id or self._key, "role": "assistant"}
            if self.texts:
                said["content"] = "".join(self.texts)
            if self.call_id:
                function = {"name": self._call_name, "arguments": "".join(self._arguments) or "{}"}
                said["toolCalls"] = [{"id": self.call_id, "type": "function", "function": function}]
            found.append(said)
        return found
