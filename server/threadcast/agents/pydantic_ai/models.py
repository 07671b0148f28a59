"""Models whose responses are recorded: each response of a run is one message of the chat."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from pydantic_ai import RunContext
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    RetryPromptPart,
    SystemPromptPart,
    ToolReturnPart,
)
from pydantic_ai.models import CompletedStreamedResponse, Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings

from threadcast.agents.pydantic_ai.history import keep_of
from threadcast.agents.pydantic_ai.responses import ResponseReader, decoded, encoded, native_results
from threadcast.custom_agents.errors import StepFailed
from threadcast.custom_agents.seam import DeclaredAgentTool, Recorded, Seam, ShownCall, ShownMessage
from threadcast.tools.base import ToolResult
from threadcast_protocol.wire.mending import mend_text

__all__ = ["Messages", "RecordedModel"]


class Messages:
    """The messages of one run. `calls` maps the framework's ids to the shown calls. `history` are the framework's own
    messages; the last message is the request to the model. The names of tools in the chat begin with `prefix`."""

    def __init__(self, seam: Seam, prefix: str) -> None:
        self.calls: dict[str, ShownCall] = {}
        self.history: Sequence[ModelMessage] = ()
        self._seam = seam
        self._prefix = prefix
        self._number = 0
        self._has_failed = False
        self._has_response = False
        self._open: set[str] = set()
        self._unkept: list[ModelMessage] = []
        self._output: _ShownOutput | None = None

    async def respond(self, model: Model, asked: tuple[Any, Any, ModelRequestParameters]) -> ModelResponse:
        """Call the model and write its response as the next message, or return the recorded response. `asked` are the
        arguments of `Model.request`.

        Raises:
            Exception: the model's own exception; StepFailed in a replay.
        """
        if self._has_failed:  # the framework retries after an error, so a replay must do so, too
            await self._seam.put(f"retried-{self._number}", True)
            self._has_failed = False
        else:
            await self._take_requests()
        error: Exception | None = None

        async def pieces() -> AsyncGenerator[object]:
            nonlocal error
            reader = ResponseReader(asked[2], self._prefix)
            try:
                if _can_stream(model):
                    async with model.request_stream(*asked) as events:
                        async for event in events:
                            piece = reader.read(event)
                            if piece is not None:
                                yield piece
                    response = events.get()
                else:
                    response = await model.request(*asked)
                    for piece in reader.unstreamed(response):
                        yield piece
            except Exception as wrong:  # boundary: the operator's model
                error = wrong
                raise
            for piece in reader.end(response):
                yield piece
            for piece in keep_of([*self._unkept, response], reader.call_ids, reader.hidden_ids):
                yield piece
            yield Recorded(encoded([response]))

        while True:
            self._number += 1
            try:
                shown = await self._seam.message(f"model-{self._number}", pieces)
                break
            except StepFailed:
                if await self._seam.get(f"retried-{self._number}"):
                    continue
                self._has_failed = True
                if error is not None:
                    raise error from None
                raise
        return await self._finished(shown, {each.name for each in asked[2].output_tools})

    def began(self, call_id: str) -> ShownCall | None:
        """Return the shown call that the framework carries out now; None if no model has made the call."""
        self._open.discard(call_id)
        return self.calls.get(call_id)

    async def report(self, messages: Sequence[ModelMessage]) -> None:
        """Show the results of calls that the framework has answered itself without running their tools, because of
        unknown tools, invalid arguments, or a final output beside the calls."""
        for message in reversed(messages):
            if isinstance(message, ModelResponse):
                break
            for part in message.parts:
                if isinstance(part, ToolReturnPart | RetryPromptPart) and part.tool_call_id in self._open:
                    call = self.began(part.tool_call_id)
                    is_failed = isinstance(part, RetryPromptPart) or part.outcome not in ("success",)
                    text = part.model_response() if isinstance(part, RetryPromptPart) else part.model_response_str()
                    if call is not None:
                        await self._seam.report(call.id, ToolResult(content=mend_text(text), failed=is_failed))

    async def _take_requests(self) -> None:
        """Collect the requests since the last response; they are stored with the next message. The prompt of the run is
        left out, because the chat has it."""
        await self.report(self.history)
        await self._remove_refused()
        requests: list[ModelMessage] = []
        for message in reversed(self.history):
            if isinstance(message, ModelResponse):
                break
            if not self._has_response and isinstance(message, ModelRequest):
                prompts = [part for part in message.parts if isinstance(part, SystemPromptPart)]
                if prompts and message is self.history[-1]:
                    requests.insert(0, ModelRequest(prompts))
            else:
                requests.insert(0, message)
        self._unkept.extend(requests)

    async def _remove_refused(self) -> None:
        """Remove the last message if it is only a structured output that the framework has refused. The state that was
        kept with this message is then kept with the next message."""
        output, self._output = self._output, None
        if output is None or not _is_refused(self.history, output.call_ids):
            return
        await self._seam.remove(output.message_id)
        self._unkept = output.kept

    async def _finished(self, shown: ShownMessage, outputs: set[str]) -> ModelResponse:
        """Remember the calls of a finished message, and report the results of tools of the model's provider. `outputs`
        are the names of output tools."""
        [response] = decoded(shown.value)
        if not isinstance(response, ModelResponse):
            raise TypeError("the recorded value is no response")
        self._has_response = True
        kept = [*self._unkept, response]
        output_ids = {call.tool_call_id for call in response.tool_calls if call.tool_name in outputs}
        if shown.message_id and output_ids and not shown.text and not shown.calls:
            self._output = _ShownOutput(shown.message_id, output_ids, kept)
        self._unkept = [] if shown.message_id else kept
        self.calls.update((call.own_id, call) for call in shown.calls)
        self._open = {call.own_id for call in shown.calls}
        native = native_results(response)
        if native:
            await self._seam.declare([DeclaredAgentTool(name=name, retry="safe") for _, name, _, _ in native])
        for own_id, _, text, failed in native:
            call = self.began(own_id)
            if call is not None:
                await self._seam.report(call.id, ToolResult(content=text, failed=failed))
        return response


class _ShownOutput(NamedTuple):
    """A message that is only a structured output, with its id, the ids of its calls, and the framework's messages that
    it keeps."""

    message_id: str
    call_ids: set[str]
    kept: list[ModelMessage]


class RecordedModel(WrapperModel):
    """A model whose responses are messages of the chat."""

    def __init__(self, wrapped: Model, messages: Messages) -> None:
        super().__init__(wrapped)
        self._messages = messages

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        return await self._messages.respond(self.wrapped, (messages, model_settings, model_request_parameters))

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        """Yield the events of a whole response, because an event handler of the agent requests a stream."""
        response = await self.request(messages, model_settings, model_request_parameters)
        yield CompletedStreamedResponse(response, model_request_parameters=model_request_parameters, replay_events=True)


def _is_refused(history: Sequence[ModelMessage], call_ids: set[str]) -> bool:
    """Return whether the last request asks the model for one of these outputs again."""
    last = history[-1] if history else None
    return isinstance(last, ModelRequest) and any(
        isinstance(part, RetryPromptPart) or (isinstance(part, ToolReturnPart) and part.outcome == "retried")
        for part in last.parts
        if isinstance(part, RetryPromptPart | ToolReturnPart) and part.tool_call_id in call_ids
    )


def _can_stream(model: Model) -> bool:
    """Return whether a model can stream. A model that is a function may be unable to stream."""
    return not isinstance(model, FunctionModel) or model.stream_function is not None
