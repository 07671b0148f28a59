"""Models whose responses are recorded: each response of a run is one message of the chat.

Runs inside a tool (`Agent.as_tool`) or inside a guardrail are part of that tool or guardrail. Such runs get the
operator's models unchanged, since the chat has one message at a time.
"""

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

from agents import AgentOutputSchemaBase, Handoff, ModelProvider, ModelSettings, Tool
from agents.items import ModelResponse, TResponseInputItem
from agents.models.interface import Model, ModelTracing
from agents.retry import ModelRetryAdvice, ModelRetryAdviceRequest

from threadcast.agents.openai_agents.history import Kept, keep_of
from threadcast.agents.openai_agents.responses import (
    ResponseReader,
    decoded_response,
    encoded_response,
    hosted_results,
    input_items,
)
from threadcast.custom_agents.errors import StepFailed
from threadcast.custom_agents.seam import DeclaredAgentTool, Recorded, Seam, ShownMessage
from threadcast.tools.base import ToolResult
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["Messages", "RecordedModel", "RecordedProvider", "is_nested"]

is_nested: ContextVar[bool] = ContextVar("whether the code runs inside a tool or a guardrail of a run", default=False)


class Messages:
    """The messages of one run. `calls` maps the model's id of each shown call to the chat's id. `speaker` is the name
    of the agent that the SDK runs now; messages of `home`, the served agent, name no speaker, since the profile has its
    own title. The names of tools in the chat begin with `prefix`. `has_text` is true when the latest requested response
    has begun."""

    def __init__(self, seam: Seam, *, home: str, speaker: str, prefix: str) -> None:
        self.calls: dict[str, str] = {}
        self.speaker = speaker
        self.has_text = False
        self._seam = seam
        self._home = home
        self._prefix = prefix
        self._number = 0
        self._has_failed = False
        self._answered_by = speaker
        self._unkept_items: list[JsonObject] = []
        self._unkept_calls: set[str] = set()

    async def respond(self, model: Model, asked: tuple[Any, ...], more: dict[str, Any]) -> ModelResponse:
        """Call the model and write its response as the next message, or return the recorded response. `asked` and
        `more` are the arguments of `Model.stream_response`.

        Raises:
            Exception: the model's own exception; StepFailed in a replay.
        """
        inputs, schema, handoffs = asked[1], asked[4], asked[5]
        if self.speaker != self._answered_by:
            await self._seam.status(f"Handed over to {self.speaker}")
            self._answered_by = self.speaker
        if self._has_failed:  # the SDK retries after an error, so a replay must do so, too
            await self._seam.put(f"retried-{self._number}", True)
            self._has_failed = False
        hidden = {handoff.tool_name for handoff in handoffs}
        self._take_outputs(inputs)
        error: Exception | None = None

        async def pieces() -> AsyncGenerator[object]:
            nonlocal error
            self.has_text = False
            reader = ResponseReader(hidden, schema, self._prefix)
            try:
                events = model.stream_response(*asked, **more)
                async with _closing(events):
                    async for event in events:
                        for piece in reader.read(event):
                            self.has_text = True
                            yield piece
                for piece in reader.end():
                    yield piece
            except Exception as wrong:  # boundary: the operator's model
                error = wrong
                raise
            response = reader.whole()
            for piece in keep_of(Kept(self.speaker, [*self._unkept_items, *input_items(response)], reader.call_ids)):
                yield piece
            yield Recorded(encoded_response(response))

        while True:
            self._number += 1
            try:
                speaker = "" if self.speaker == self._home else self.speaker
                shown = await self._seam.message(f"model-{self._number}", pieces, speaker=speaker)
                break
            except StepFailed:
                if await self._seam.get(f"retried-{self._number}"):
                    continue
                self._has_failed = True
                if error is not None:
                    raise error from None
                raise
        return await self._finished(shown, hidden)

    async def _finished(self, shown: ShownMessage, hidden: set[str]) -> ModelResponse:
        """Remember the calls of a finished message, and report the results of hosted tools."""
        response = decoded_response(shown.value)
        self._unkept_items = [] if shown.message_id else [*self._unkept_items, *input_items(response)]
        self._unkept_calls.update(item.call_id for item in response.output if item.type == "function_call")
        self.calls.update((call.own_id, call.id) for call in shown.calls)
        hosted = hosted_results(response)
        if hosted:
            await self._seam.declare([DeclaredAgentTool(name=name, retry="safe") for _, name, _, _ in hosted])
        for own_id, _, result, failed in hosted:
            if own_id in self.calls:
                await self._seam.report(self.calls[own_id], ToolResult(content=result, failed=failed))
        return response

    async def write_final(self, output: Any) -> None:  # Any: what a tool of the SDK returned
        """Write the final output of a run as its answer, if a tool produced it (`tool_use_behavior`) and not the
        model."""
        text = output if isinstance(output, str) else json.dumps(output, default=str, ensure_ascii=False)

        async def pieces() -> AsyncGenerator[object]:
            yield text

        await self._seam.message("final", pieces, speaker="" if self.speaker == self._home else self.speaker)

    def _take_outputs(self, inputs: str | list[TResponseInputItem]) -> None:
        """Collect, from the model's input, the outputs of calls that no message keeps yet."""
        for item in inputs if isinstance(inputs, list) else ():
            output = dict(item)
            if str(output.get("type", "")).endswith("_output") and output.get("call_id") in self._unkept_calls:
                self._unkept_calls.discard(str(output["call_id"]))
                self._unkept_items.append(output)


class RecordedModel(Model):
    """A model whose responses are messages of the chat."""

    def __init__(self, messages: Messages, model: Model) -> None:
        self._messages = messages
        self._model = model

    async def get_response(
        self,
        system_instructions: str | None,
        input: str | list[TResponseInputItem],
        model_settings: ModelSettings,
        tools: list[Tool],
        output_schema: AgentOutputSchemaBase | None,
        handoffs: list[Handoff],
        tracing: ModelTracing,
        **more: Any,
    ) -> ModelResponse:
        asked = (system_instructions, input, model_settings, tools, output_schema, handoffs, tracing)
        if is_nested.get():
            return await self._model.get_response(*asked, **more)
        return await self._messages.respond(self._model, asked, more)

    def stream_response(self, *asked: Any, **more: Any) -> AsyncIterator[Any]:  # Any: as `Model.stream_response`
        """Stream a response of a nested run, which is not recorded. Recorded runs request whole responses instead."""
        return self._model.stream_response(*asked, **more)

    def get_retry_advice(self, request: ModelRetryAdviceRequest) -> ModelRetryAdvice | None:
        """Return the model's own advice, but advise against repeating a response that people have partly seen."""
        if self._messages.has_text and not is_nested.get():
            return ModelRetryAdvice(suggested=False, replay_safety="unsafe", reason="a part of the response is shown")
        return self._model.get_retry_advice(request)

    async def _cleanup_on_run_end(self, owner: object) -> None:
        await self._model._cleanup_on_run_end(owner)


class RecordedProvider(ModelProvider):
    """A provider whose models are recorded."""

    def __init__(self, messages: Messages, provider: ModelProvider) -> None:
        self._messages = messages
        self._provider = provider

    def get_model(self, model_name: str | None) -> Model:
        return RecordedModel(self._messages, self._provider.get_model(model_name))


@asynccontextmanager
async def _closing(events: AsyncIterator[Any]) -> AsyncGenerator[None]:
    """Close a stream of events after the block, if the stream can be closed."""
    try:
        yield
    finally:
        if isinstance(events, AsyncGenerator):
            await events.aclose()
