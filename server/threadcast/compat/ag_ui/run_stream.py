"""The events of AG-UI 1.0 for one request: an AG-UI run, from `RUN_STARTED` to `RUN_FINISHED` or `RUN_ERROR`.

One run of the chat may appear as several AG-UI runs: a pause ends the AG-UI run with an interrupt, and a call of the
client's own tool ends the AG-UI run with success. The stream keeps the path of the chat, so that `MESSAGES_SNAPSHOT`
can remove retracted text.
"""

from collections.abc import Collection, Sequence

import msgspec

from threadcast.compat.ag_ui.bodies import RunInput, SentMessage
from threadcast.compat.ag_ui.client_state import STATE_TYPE, ClientState, newest_state
from threadcast.compat.ag_ui.custom_events import activity_of, agent_event, payload_event
from threadcast.compat.ag_ui.history import History, failure_metadata, given_message, is_in_step, path_of, snapshots
from threadcast.compat.ag_ui.interrupts import interrupt_of
from threadcast.compat.ag_ui.message_ids import SentIds
from threadcast.compat.ag_ui.open_answer import OpenAnswer, event
from threadcast.compat.ag_ui.run_slice import TurnSlice
from threadcast.compat.base import OutFrame, Projection
from threadcast_protocol.fold.state import ChatState
from threadcast_protocol.wire.deltas import AddCitation
from threadcast_protocol.wire.events import (
    FINAL_TOOL_STATUSES,
    Ack,
    AgentData,
    AgentStep,
    Event,
    IdeToolRequired,
    MessageAdded,
    MessageRemoved,
    MessagesTruncated,
    MessageUpdated,
    PauseCleared,
    PauseReason,
    PauseRequired,
    PayloadAdded,
    PayloadUpdated,
    RuntimeUpdated,
    StreamDelta,
    StreamStarted,
    ToolStatus,
)
from threadcast_protocol.wire.messages import JsonObject, Message, Usage, add_usage, text_of

__all__ = ["PROTOCOL_VERSION", "RunStream"]

PROTOCOL_VERSION = "1.0"
"""The version of the specification (ag-ui.com/spec/1.0) that the events follow."""


class RunStream(Projection):
    """Makes the events of one answer.

    `request_id` is the id of the request's new message, '' if the request has no message. `awaited` are the ids of the
    commands that continue the open run: the stream does not end at a pause before they are answered. With `shows_all`,
    the stream begins with a snapshot of the messages; otherwise the stream sends a snapshot only if the client's
    messages differ from the chat's messages. `given` are new messages of the client: snapshots contain these messages
    even before the path contains them.
    """

    def __init__(
        self,
        chat_id: str,
        asked: RunInput,
        run: TurnSlice,
        *,
        request_id: str = "",
        awaited: Collection[str] = (),
        shows_all: bool = True,
        given: Sequence[SentMessage] = (),
        public_url: str = "",
    ) -> None:
        super().__init__(chat_id)
        self._asked = asked
        self._run = run
        self._request_id = request_id
        self._awaited = set(awaited)
        self._shows_all = shows_all
        self._ids = SentIds(asked.messages)
        self._history = History(chat_id, self._ids, public_url)
        self._own_tools = {tool.name for tool in asked.tools or ()}
        self._given = {message.tool_call_id or message.id: message for message in given}
        self._order = dict.fromkeys(message.id for message in asked.messages)  # in the client's form
        self._path: list[Message] = []
        self._open: OpenAnswer | None = None
        self._client_state = ClientState()
        self._is_begun = self._is_live = False
        self._runtime_state = ""
        self._reasons: Sequence[PauseReason] = ()
        self._pending: dict[str, str] = {}  # the names of calls that wait for a client
        self._at_work: set[str] = set()
        self._usage: dict[str, Usage | None] = {}

    def body(self) -> JsonObject:
        """Return {}, because this format always streams its answers."""
        return {}

    # -- joining

    def join(self, state: ChatState) -> list[OutFrame]:
        self._path = path_of(state)
        frames = [self._started()]
        is_known = any(each.client_request_id == self._request_id for each in self._path if self._request_id)
        if self._request_id and not self._shows_all and not is_known:
            return frames  # the stream continues when the request's own message is in the chat
        open_run = None if state.is_at_rest else state.runtime.run_id
        if is_known or not self._request_id:
            self._run.join(open_run)
        elif open_run != self._run.run_id:
            self._run.release()
        self._is_begun = True
        return [*frames, *self._joined(state)]

    def _joined(self, state: ChatState) -> list[OutFrame]:
        runtime, draft = state.runtime, state.draft
        self._is_live = not state.is_at_rest
        if draft is not None and self._path and self._path[-1].message_id == draft.message.message_id:
            drafted = self._path.pop()
            self._answers.add(drafted.message_id)
            self._open = OpenAnswer(drafted.message_id, text_of(drafted.content), drafted.reasoning_content or "")
        frames: list[OutFrame] = []
        if self._path or self._open is not None or not self._asked.messages:
            frames += self._snapshot()
        if self._open is not None and draft is not None:
            frames += self._open.calls(draft.message.tool_calls)
        if not self._awaited and (newest := newest_state(state)) is not msgspec.UNSET:
            frames += self._client_state.show(newest)
        if not self._is_live:
            return frames if self._awaited or self._request_id else [*frames, *self._finish({"type": "success"})]
        self._runtime_state, self._reasons = runtime.state, runtime.pause_reasons
        self._pending = {call.tool_call_id: call.tool_name for call in runtime.ide_calls}
        self._at_work = {tool.tool_call_id for tool in runtime.tools} - set(self._pending)
        return [*frames, *self._rest()]

    def _started(self) -> OutFrame:
        more = {} if self._asked.parent_run_id is None else {"parentRunId": self._asked.parent_run_id}
        version = {"protocolVersion": PROTOCOL_VERSION} if self._asked.is_1_0 else {}
        return event("RUN_STARTED", threadId=self._asked.thread_id, runId=self._asked.run_id, **version, **more)

    def _snapshot(self) -> list[OutFrame]:
        """Return the events after which the client has exactly the messages of the path and its own new messages."""
        messages = self._path if self._open is None else [*self._path, self._open.so_far()]
        shown = [*self._history.of(messages), *(given_message(each) for each in self._given.values())]
        before, self._order = self._order, dict.fromkeys(message["id"] for message in shown)
        return [event("MESSAGES_SNAPSHOT", messages=each) for each in snapshots(list(before), shown)]

    def _note(self, message: Message) -> None:
        """Record that the client has this message, after its earlier messages."""
        for shown in self._history.translated(message):
            self._order.setdefault(shown["id"])

    # -- ends

    def _pause(self, event: Event) -> list[OutFrame]:
        if isinstance(event, PauseRequired):
            self._reasons = event.reasons
        elif isinstance(event, RuntimeUpdated):
            self._runtime_state = event.state
        return self._rest()

    def _rest(self) -> list[OutFrame]:
        """Return the last events if the run now waits only for this client."""
        if self._awaited or self.is_done:
            return []
        if self._reasons:
            found = [interrupt_of(reason) for reason in self._reasons]
            return self._finish({"type": "interrupt", "interrupts": found})
        own = [key for key, name in self._pending.items() if name in self._own_tools]
        if self._runtime_state == "waiting_ide" and own and not self._at_work:
            return self._finish({"type": "success", "pendingToolCallIds": own})
        return []

    def _finish(self, outcome: JsonObject) -> list[OutFrame]:
        self.is_done = True
        told: JsonObject = {"threadId": self._asked.thread_id, "runId": self._asked.run_id}
        if self._asked.is_1_0:
            told |= {"outcome": outcome, **self._usage_field()}
        elif outcome["type"] == "interrupt":
            told["outcome"] = outcome  # clients before 1.0 know only this outcome and success
        return [*self._closed(), event("RUN_FINISHED", **told)]

    def _last(self, outcome: str) -> list[OutFrame]:
        if self.failure is None:
            return self._finish({"type": "success"})
        if outcome in ("aborted", "interrupted"):
            return self._finish({"type": "cancelled"})
        usage = self._usage_field() if self._asked.is_1_0 else {}
        told = {"message": self.failure.message, "code": self.failure.code, **usage}
        return [*self._closed(), event("RUN_ERROR", **told)]

    def _usage_field(self) -> JsonObject:
        """Return the tokens of the answers in this stream, by model. `prompt_tokens` includes cached tokens."""
        found: list[JsonObject] = []
        for model, usage in self._usage.items():
            if usage is not None:
                told: JsonObject = {"inputTokens": usage.prompt_tokens, "outputTokens": usage.completion_tokens}
                told["totalTokens"] = usage.prompt_tokens + usage.completion_tokens
                if usage.cache_read_input_tokens is not None:
                    told["cachedInputTokens"] = usage.cache_read_input_tokens
                if usage.cache_creation_input_tokens is not None:
                    told["cacheWriteInputTokens"] = usage.cache_creation_input_tokens
                found.append({"model": model, **told} if model else told)
        return {"usage": found} if found else {}

    # -- events

    def _show(self, event: Event) -> list[OutFrame]:
        if not self._is_begun:
            return self._before_run(event)
        match event:
            case StreamDelta():
                return self._delta(event)
            case StreamStarted():
                return self._answer_started(event)
            case MessageAdded(message=message):
                return self._added(message, event.index)
            case MessageUpdated():
                return self._updated(event)
            case MessageRemoved() | MessagesTruncated():
                return self._removed(event)
            case ToolStatus():
                return self._status(event)
            case IdeToolRequired():
                self._pending[event.tool_call_id] = event.tool_name
                self._at_work.discard(event.tool_call_id)
                return self._rest()
            case RuntimeUpdated():
                self._runtime_state = event.state
                return self._rest()
            case PauseCleared():
                self._reasons = ()
                return []
            case Ack():
                return self._acknowledged(event)
            case _:
                return self._extra(event)

    def _before_run(self, event: Event) -> list[OutFrame]:
        """Process a change of the path before the request's own message arrives and begins the run."""
        match event:
            case MessageAdded(message=message):
                self._put(message, event.index)
                if message.client_request_id != self._request_id:
                    return []
                self._given.clear()
                self._is_begun = self._is_live = True
                is_same = is_in_step(self._asked.messages, self._history.of(self._path))
                return [] if is_same else self._snapshot()
            case MessageUpdated():
                self._replace(event.message)
            case MessageRemoved() | MessagesTruncated():
                self._cut(event)
            case _:
                pass
        return []

    def _delta(self, event: StreamDelta) -> list[OutFrame]:
        answer = self._open
        if answer is None or answer.message_id != event.message_id:
            return []
        frames: list[OutFrame] = []
        for op in event.ops:
            frames += answer.op(op)
            if isinstance(op, AddCitation):
                frames.append(_custom("citation", {"message_id": event.message_id, "citation": op.citation}))
        return frames

    def _answer_started(self, event: StreamStarted) -> list[OutFrame]:
        if self._open is not None and self._open.message_id == event.message_id:
            return []  # another process continues the shown answer
        frames = self._closed()
        text = reasoning = ""
        if event.append:
            known = next((each for each in self._path if each.message_id == event.message_id), None)
            if known is not None:
                self._path.remove(known)
                text, reasoning = text_of(known.content), known.reasoning_content or ""
        self._open = OpenAnswer(event.message_id, text, reasoning)
        return frames

    def _closed(self) -> list[OutFrame]:
        """End the open answer, if there is one."""
        answer, self._open = self._open, None
        return [] if answer is None else answer.close()

    def _added(self, message: Message, index: int) -> list[OutFrame]:
        self._put(message, index)
        if message.role == "tool":
            return self._result(message)
        if message.role == "assistant":
            return self._final(message)
        if message.role == "user" and message.client_request_id == self._request_id:
            self._given.clear()
        return self._snapshot() if self._history.translated(message) else []

    def _final(self, message: Message) -> list[OutFrame]:
        """Send the final form of an answer."""
        answer, self._open = self._open, None
        frames: list[OutFrame] = []
        if answer is None or answer.message_id != message.message_id:
            frames += [] if answer is None else answer.close()
            answer = OpenAnswer(message.message_id)
        if message.usage is not None:
            model = message.model or ""
            self._usage[model] = add_usage(self._usage.get(model), message.usage)
        shown, is_exact = answer.finish(message)
        frames += shown
        self._note(message)
        return frames if is_exact else [*frames, *self._snapshot()]

    def _result(self, message: Message) -> list[OutFrame]:
        call_id = message.tool_call_id or ""
        self._pending.pop(call_id, None)
        self._at_work.discard(call_id)
        self._note(message)
        if self._given.pop(call_id, None) is not None or self._ids.has_result_of(call_id):
            return self._rest()  # the client sent this result
        told = event(
            "TOOL_CALL_RESULT",
            messageId=message.message_id,
            toolCallId=call_id,
            content=text_of(message.content),
            role="tool",
            **failure_metadata(message),
        )
        return [told, *self._rest()]

    def _updated(self, event: MessageUpdated) -> list[OutFrame]:
        before = [each for each in self._path if each.message_id == event.message_id]
        if not before:
            return []
        self._replace(event.message)
        is_same = self._history.of(before) == self._history.translated(event.message)
        return [] if is_same else self._snapshot()

    def _removed(self, event: MessageRemoved | MessagesTruncated) -> list[OutFrame]:
        answer = self._open
        if isinstance(event, MessageRemoved) and answer is not None and answer.message_id == event.message_id:
            frames = self._closed()
            return [*frames, *self._snapshot()] if answer.has_shown else frames
        before = len(self._path)
        self._cut(event)
        return [] if len(self._path) == before else self._snapshot()

    def _status(self, event: ToolStatus) -> list[OutFrame]:
        call_id = event.tool_call_id
        if event.status in FINAL_TOOL_STATUSES:
            self._at_work.discard(call_id)
            return self._rest()
        if call_id not in self._pending:
            self._at_work.add(call_id)
        return activity_of(event)

    def _acknowledged(self, event: Ack) -> list[OutFrame]:
        self._awaited.discard(event.client_request_id)
        frames: list[OutFrame] = []
        if not event.accepted:
            frames.append(_custom("refused", event.result))
        if not self._is_live and not self._awaited and not self._request_id:
            return [*frames, *self._finish({"type": "success"})]
        return [*frames, *self._rest()]

    def _extra(self, event: Event) -> list[OutFrame]:
        match event:
            case PayloadAdded() | PayloadUpdated() if event.payload_type == STATE_TYPE and event.source != "preview":
                return self._client_state.show(event.data)
            case PayloadAdded() | PayloadUpdated():
                return [payload_event(event)]
            case AgentData(data_type=kind) if kind == STATE_TYPE:
                return self._client_state.show(event.data.get("state"))
            case AgentData():
                return agent_event(event)
            case AgentStep():
                return activity_of(event)
            case _:
                return []

    # -- the path

    def _put(self, message: Message, index: int) -> None:
        if not self._replace(message):
            self._path.insert(index, message)

    def _replace(self, message: Message) -> bool:
        for at, known in enumerate(reversed(self._path), 1):
            if known.message_id == message.message_id:
                self._path[-at] = message
                return True
        return False

    def _cut(self, event: MessageRemoved | MessagesTruncated) -> None:
        if isinstance(event, MessagesTruncated):
            del self._path[event.from_index :]
        else:
            self._path = [message for message in self._path if message.message_id != event.message_id]


def _custom(name: str, value: object) -> OutFrame:
    return event("CUSTOM", name=f"threadcast.{name}", value=value)
