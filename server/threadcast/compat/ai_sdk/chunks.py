"""The UI message stream v1 of the AI SDK: a run's events as chunks (`uiMessageChunkSchema` in npm `ai` 6).

`UIStream` sends the content that the page's copy of the message lacks. A page that begins or reloads gets the whole
content. A page that sends back approvals or results gets the outputs of the calls in its copy, and then the later
steps.
"""

from collections.abc import Collection, Mapping, Sequence

from threadcast.compat.ai_sdk.bodies import UIPart
from threadcast.compat.ai_sdk.open_step import OpenStep, chunk
from threadcast.compat.ai_sdk.parts import (
    APPROVED_TYPES,
    PENDING,
    approval_id,
    arguments_of,
    calls_at_work,
    data_type,
    files_in,
    metadata_of,
    output_of,
    path_of,
    payload_data,
    question_input,
    source_of,
    turn_after,
)
from threadcast.compat.base import OutFrame, Projection, json_frame
from threadcast_protocol.fold.state import ChatState
from threadcast_protocol.wire.deltas import (
    AddCitation,
    AppendContent,
    AppendReasoning,
    DeltaOp,
    SetReasoning,
    SetToolCalls,
)
from threadcast_protocol.wire.events import (
    FINAL_TOOL_STATUSES,
    Ack,
    AgentData,
    Event,
    IdeToolRequired,
    MessageAdded,
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
from threadcast_protocol.wire.messages import JsonObject, Message, ToolCall, text_of

__all__ = ["UIStream"]

DONE = OutFrame(None, "[DONE]")

_FINISH_REASONS = {"complete": "stop", "limit": "length", "error": "error", "aborted": "other", "interrupted": "other"}


class UIStream(Projection):
    """Makes the chunks of one answer.

    `known` are the tool parts of the page's copy of the message, and `steps` the number of steps in it. For a call in
    the copy that has not begun or has no result, the input is sent again. `awaited` are the ids of the commands that
    the request posts: the stream does not end at a pause before they are answered. The stream shows the answer to the
    user's message `user_id`, by default to the last message of the user.
    """

    def __init__(
        self,
        chat_id: str,
        public_url: str = "",
        *,
        known: Mapping[str, UIPart] | None = None,
        steps: int = 0,
        awaited: Collection[str] = (),
        user_id: str | None = None,
    ) -> None:
        super().__init__(chat_id)
        self._public_url = public_url
        given = {} if known is None else known
        self._known = {k: p for k, p in given.items() if p.state != "input-streaming" and p.output != PENDING}
        self._steps = steps
        self._awaited = set(awaited)
        self._user_id = user_id
        self._is_begun = False
        self._step = OpenStep()
        self._inputs: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._ready: set[str] = set()
        self._open_calls: set[str] = set()
        self._answered: set[str] = set()
        self._client_calls: set[str] = set()
        self._asked: set[str] = set()
        self._reasons: Sequence[PauseReason] = ()
        self._state = ""
        self._turn: dict[str, Message] = {}

    def body(self) -> JsonObject:
        """Return {}, because this format always streams its answers."""
        return {}

    # -- joining

    def join(self, state: ChatState) -> list[OutFrame]:
        runtime = state.runtime
        turn = turn_after(path_of(state), self._user_id)
        draft_id = state.draft.message.message_id if state.draft is not None else None
        is_live = not state.is_at_rest and self._is_newest(state)
        waiting = {call.tool_call_id for call in runtime.ide_calls} if is_live else set()
        at_work = calls_at_work(state) if is_live else set()
        frames: list[OutFrame] = []
        left = self._steps
        for message in turn:
            if message.role == "assistant":
                self._answers.add(message.message_id)
                frames += self._begin(message)
                is_known, left = left > 0, left - 1
                if is_known:
                    self._note_calls(message)
                else:
                    frames += self._whole(message, draft_id, at_work - waiting)
                self._turn[message.message_id] = message
            elif message.role == "tool":
                frames += self._result(message)
        if is_live:
            self._state, self._reasons = runtime.state, runtime.pause_reasons
            for call in runtime.ide_calls:
                frames += self._client_call(call.tool_call_id, call.tool_name, call.args)
            for payload in state.payloads:
                if payload.message_id in self._answers:
                    frames += self._payload(payload)
            if self._awaited:
                return frames
            return [*frames, *self._rest()]
        for payload in state.payloads:
            if payload.message_id in self._answers:
                frames += self._payload(payload)
        return [*frames, *self._quiet_end()]

    def _is_newest(self, state: ChatState) -> bool:
        """Return whether the shown turn is the last turn, to which the open run belongs."""
        last = next((key for key in reversed(state.path) if state.nodes[key].role == "user"), None)
        return self._user_id in (None, last)

    def _note_calls(self, message: Message) -> None:
        """Record the calls of an answer that the page already has."""
        for call in message.tool_calls:
            self._names[call.id] = call.function.name
            self._inputs[call.id] = call.function.arguments

    def _whole(self, message: Message, draft_id: str | None, at_work: Collection[str]) -> list[OutFrame]:
        """Return the chunks of an answer up to now. The last part stays open if a model is writing the answer.
        `at_work` are the calls that the server has begun; the input of all other calls is sent with their results."""
        frames = self._step.begin(message.message_id)
        if message.reasoning_content:
            frames += self._op(AppendReasoning(message.reasoning_content))
        if text := text_of(message.content):
            frames += self._op(AppendContent(text))
        for citation in message.citations:
            frames += self._op(AddCitation(citation))
        frames += self._calls(message.tool_calls)
        if message.message_id != draft_id:
            frames += self._step.close_texts()
        for call in message.tool_calls:
            if call.id in at_work:
                frames += self._input(call.id, call.function.name, arguments_of(call.function.arguments), True)
        return frames

    def _quiet_end(self) -> list[OutFrame]:
        """End the stream of a run that has ended, without a model call. Calls that the page still waits for get an
        output, because the AI SDK would otherwise send the message repeatedly."""
        frames: list[OutFrame] = []
        stale = [key for key, part in self._known.items() if part.state == "approval-responded"]
        for call_id in stale:
            frames += [chunk("tool-output-error", toolCallId=call_id, errorText="this approval is no longer open")]
        if self._known and not self._step.is_open:
            frames += self._step.begin("")
        return [*self._opening(), *frames, *self._finish("stop")]

    # -- events

    def _pause(self, event: Event) -> list[OutFrame]:
        if isinstance(event, PauseRequired):
            self._reasons = event.reasons
        elif isinstance(event, RuntimeUpdated):
            self._state = event.state
        return self._rest()

    def _rest(self) -> list[OutFrame]:
        """Return the last frames if the run now waits only for the page."""
        if self._awaited or self.is_done:
            return []
        at_work = self._open_calls - self._client_calls
        if self._reasons:
            frames = [frame for reason in self._reasons for frame in self._ask(reason)]
        elif self._state == "waiting_ide" and self._client_calls & self._open_calls and not at_work:
            frames = []
        else:
            return []
        self.is_done = True
        return [*self._opening(), *frames, *self._pending(), *self._finish("tool-calls")]

    def _pending(self) -> list[OutFrame]:
        """Return an output for each call of the server that has no result yet and no open question."""
        asked = {reason.tool_call_id for reason in self._reasons if reason.type in APPROVED_TYPES}
        frames: list[OutFrame] = []
        for call_id, arguments in self._inputs.items():
            if call_id not in self._answered | self._client_calls | asked:
                frames += self._input(call_id, self._names[call_id], arguments_of(arguments), True)
                frames.append(chunk("tool-output-available", toolCallId=call_id, output=PENDING))
        return frames

    def _ask(self, reason: PauseReason) -> list[OutFrame]:
        call_id = reason.tool_call_id
        frames: list[OutFrame] = []
        if call_id not in self._ready and call_id not in self._known:
            is_question = reason.type == "question"
            if is_question or call_id not in self._names:
                shown = {"toolName": reason.type, "input": question_input(reason), "dynamic": True}
                frames.append(chunk("tool-input-available", toolCallId=call_id, **shown))
                self._ready.add(call_id)
            else:
                frames += self._input(call_id, self._names[call_id], reason.input, True)
        if reason.type in APPROVED_TYPES:
            frames.append(chunk("tool-approval-request", approvalId=approval_id(reason), toolCallId=call_id))
        self._known.pop(call_id, None)
        return frames

    def _show(self, event: Event) -> list[OutFrame]:
        match event:
            case StreamStarted():
                return self._started(event)
            case StreamDelta() if self._is_mine(event.message_id):
                return [frame for op in event.ops for frame in self._op(op)]
            case MessageAdded(message=message) if message.role == "assistant" and self._is_mine(message.message_id):
                return self._final(message)
            case MessageAdded(message=message) if message.role == "tool":
                return [*self._result(message), *self._rest()]
            case ToolStatus():
                return self._status(event)
            case IdeToolRequired():
                return self._client_call(event.tool_call_id, event.tool_name, event.args)
            case PayloadAdded() | PayloadUpdated():
                return self._payload(event)
            case AgentData():
                return [*self._opening(), chunk(data_type(event.data_type), data=event.data, transient=True)]
            case PauseCleared():
                self._reasons = ()
            case RuntimeUpdated():
                self._state = event.state
                return self._rest()
            case Ack():
                self._awaited.discard(event.client_request_id)
                return self._rest()
            case _:
                pass
        return []

    def _last(self, outcome: str) -> list[OutFrame]:
        frames = [*self._opening(), *self._step.close_texts()]
        if outcome in ("aborted", "interrupted"):
            reason = "aborted" if self.failure is None else self.failure.message
            return [*frames, chunk("abort", reason=reason), *self._finish("other")]
        if self.failure is not None and outcome != "limit":
            frames.append(chunk("error", errorText=self.failure.message))
        return [*frames, *self._finish(_FINISH_REASONS.get(outcome, "other"))]

    # -- chunks

    def _opening(self) -> list[OutFrame]:
        """Return the first chunk if it was not sent yet, for an answer without any text."""
        if self._is_begun:
            return []
        self._is_begun = True
        return [chunk("start")]

    def _begin(self, message: Message) -> list[OutFrame]:
        if self._is_begun:
            return []
        self._is_begun = True
        told = metadata_of([message])
        told.pop("usage", None)
        return [chunk("start", messageId=message.message_id, messageMetadata=told)]

    def _started(self, event: StreamStarted) -> list[OutFrame]:
        told: JsonObject = {} if event.model is None else {"model": event.model}
        frames: list[OutFrame] = []
        if not self._is_begun:
            self._is_begun = True
            if event.created_at is not None:
                told = {"createdAt": event.created_at, **told}
            frames.append(chunk("start", messageId=event.message_id, messageMetadata=told))
        if event.append and event.message_id == self._step.message_id:
            return frames  # another process continues the shown text
        return [*frames, *self._step.begin(event.message_id)]

    def _op(self, op: DeltaOp) -> list[OutFrame]:
        match op:
            case AppendContent():
                return self._step.write(op.text)
            case AppendReasoning():
                return self._step.reason(op.text)
            case SetReasoning():
                return self._step.reason_up_to(op.text)
            case SetToolCalls():
                return self._calls(op.tool_calls)
            case AddCitation():
                source = source_of(op.citation)
                return [] if source is None else [json_frame(None, source)]
            case _:
                return []

    def _calls(self, calls: Sequence[ToolCall]) -> list[OutFrame]:
        """Return the new parts of the calls' input; the arguments of calls may still grow."""
        frames: list[OutFrame] = []
        for call in calls:
            shown = self._inputs.get(call.id)
            if shown is None:
                self._names[call.id] = call.function.name
                frames.append(chunk("tool-input-start", toolCallId=call.id, toolName=call.function.name))
            more = call.function.arguments.removeprefix(shown or "")
            if more and call.function.arguments.startswith(shown or ""):
                frames.append(chunk("tool-input-delta", toolCallId=call.id, inputTextDelta=more))
            self._inputs[call.id] = call.function.arguments
        return frames

    def _input(self, call_id: str, name: str, given: object, is_ours: bool) -> list[OutFrame]:
        """Return the complete input of a call. Calls of the page's own tools are not `providerExecuted`, so that the AI
        SDK calls `onToolCall` and sends back results for these calls only."""
        self._open_calls.add(call_id)
        if call_id in self._ready or call_id in self._known:
            return []
        self._ready.add(call_id)
        more = {"providerExecuted": True} if is_ours else {}
        return [chunk("tool-input-available", toolCallId=call_id, toolName=name, input=given, **more)]

    def _client_call(self, call_id: str, name: str, given: JsonObject) -> list[OutFrame]:
        self._client_calls.add(call_id)
        frames = self._input(call_id, name, given, False)
        self._open_calls.add(call_id)
        return frames

    def _status(self, event: ToolStatus) -> list[OutFrame]:
        call_id = event.tool_call_id
        if event.status == "progress":
            told = {"toolCallId": call_id, "stage": event.stage, "message": event.message, "progress": event.progress}
            return [chunk("data-tool-progress", data=told, transient=True)]
        if event.status == "running":
            given = arguments_of(self._inputs.get(call_id, "")) if event.input is None else event.input
            return self._input(call_id, event.name, given, True)
        if event.status in FINAL_TOOL_STATUSES:
            self._open_calls.discard(call_id)
            return self._rest()
        return []

    def _result(self, message: Message) -> list[OutFrame]:
        call_id = message.tool_call_id or ""
        known = self._known.pop(call_id, None)
        if known is None and call_id not in self._inputs and call_id not in self._ready:
            return []
        self._open_calls.discard(call_id)
        self._answered.add(call_id)
        told = output_of(message)
        frames: list[OutFrame] = []
        if known is None and call_id not in self._ready:
            given = arguments_of(self._inputs[call_id])
            frames += self._input(call_id, self._names[call_id], given, True)
            self._open_calls.discard(call_id)
        if known is not None and known.state == told["state"]:
            return []  # the page has this result already
        match told["state"]:
            case "output-available":
                frames.append(chunk("tool-output-available", toolCallId=call_id, output=told["output"]))
            case "output-denied":
                frames.append(chunk("tool-output-denied", toolCallId=call_id))
            case _:
                frames.append(chunk("tool-output-error", toolCallId=call_id, errorText=told["errorText"]))
        return [*frames, *(json_frame(None, file) for file in files_in(self.chat_id, message, self._public_url))]

    def _payload(self, payload: PayloadAdded | PayloadUpdated) -> list[OutFrame]:
        shown = chunk(data_type(payload.payload_type), id=payload.payload_id, data=payload_data(payload))
        return [*self._opening(), shown]

    def _final(self, message: Message) -> list[OutFrame]:
        """Send the parts of an answer's final form that its deltas did not contain."""
        self._turn[message.message_id] = message
        frames: list[OutFrame] = []
        if message.message_id == self._step.message_id:
            frames += self._step.write_up_to(text_of(message.content))
        return [*frames, *self._calls(message.tool_calls), *self._step.close_texts()]

    def _finish(self, reason: str) -> list[OutFrame]:
        self.is_done = True
        told = metadata_of(self._turn.values())
        return [*self._step.close(), chunk("finish", finishReason=reason, messageMetadata=told), DONE]
