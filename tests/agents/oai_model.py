"""A model of the OpenAI Agents SDK without a network: a function of the input returns the answer, and the model streams
the answer word by word, in the same events as the SDK's own models."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from agents import Model, ModelResponse, Usage
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputItem,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseReasoningItem,
    ResponseReasoningSummaryTextDeltaEvent,
    ResponseTextDeltaEvent,
    ResponseUsage,
)
from openai.types.responses.response_reasoning_item import Summary
from openai.types.responses.response_usage import InputTokensDetails, OutputTokensDetails

__all__ = ["LocalModel", "call", "outputs", "response", "said", "thought"]


def said(text: str, number: int = 0) -> ResponseOutputMessage:
    part = ResponseOutputText(type="output_text", text=text, annotations=[], logprobs=[])
    return ResponseOutputMessage(
        id=f"msg_{number}", type="message", role="assistant", status="completed", content=[part]
    )


def thought(text: str, number: int = 0) -> ResponseReasoningItem:
    summary = [Summary(type="summary_text", text=text)]
    return ResponseReasoningItem(id=f"rs_{number}", type="reasoning", summary=summary, encrypted_content="c2VjcmV0")


def call(name: str, call_id: str, **arguments: object) -> ResponseFunctionToolCall:
    return ResponseFunctionToolCall(
        type="function_call", id=f"fc_{call_id}", call_id=call_id, name=name, arguments=json.dumps(arguments)
    )


def outputs(given: Any) -> list[str]:
    """Return the outputs of the calls since the last message of the user."""
    found: list[str] = []
    for item in given:
        if item.get("role") == "user":
            found = []
        elif item.get("type") == "function_call_output":
            found.append(item["output"] if isinstance(item["output"], str) else json.dumps(item["output"]))
    return found


class LocalModel(Model):
    """`write(input, instructions)` returns the items of one response."""

    def __init__(self, write: Callable[[Any, str], Sequence[ResponseOutputItem]], *, word_seconds: float = 0.0) -> None:
        self._write = write
        self._word_seconds = word_seconds

    async def get_response(self, system_instructions: str | None, input: Any, *more: Any, **most: Any) -> ModelResponse:
        items = list(self._write(input, system_instructions or ""))
        return ModelResponse(output=items, usage=Usage(requests=1), response_id="resp_local")

    async def stream_response(
        self, system_instructions: str | None, input: Any, *more: Any, **most: Any
    ) -> AsyncIterator[Any]:
        items = list(self._write(input, system_instructions or ""))
        for index, item in enumerate(items):
            for word in _words(item):
                await asyncio.sleep(self._word_seconds)
                if isinstance(item, ResponseReasoningItem):
                    yield ResponseReasoningSummaryTextDeltaEvent(
                        type="response.reasoning_summary_text.delta",
                        delta=word,
                        item_id=item.id,
                        output_index=index,
                        summary_index=0,
                        sequence_number=0,
                    )
                else:
                    yield ResponseTextDeltaEvent(
                        type="response.output_text.delta",
                        delta=word,
                        item_id=item.id or "",
                        output_index=index,
                        content_index=0,
                        logprobs=[],
                        sequence_number=0,
                    )
        yield ResponseCompletedEvent(type="response.completed", response=response(items), sequence_number=0)


def _words(item: Any) -> list[str]:
    """Return the text of an item in pieces of one word and the space after it."""
    if isinstance(item, ResponseOutputMessage):
        text = "".join(part.text for part in item.content if isinstance(part, ResponseOutputText))
    elif isinstance(item, ResponseReasoningItem):
        text = "".join(part.text for part in item.summary)
    else:
        return []
    return [f"{word} " for word in text.split(" ")[:-1]] + [text.split(" ")[-1]]


def response(items: list[Any]) -> Response:
    usage = ResponseUsage(
        input_tokens=10,
        output_tokens=5,
        total_tokens=15,
        input_tokens_details=InputTokensDetails(cached_tokens=4, cache_write_tokens=0),
        output_tokens_details=OutputTokensDetails(reasoning_tokens=1),
    )
    return Response(
        id="resp_local",
        created_at=0,
        model="local",
        object="response",
        output=items,
        parallel_tool_calls=True,
        tool_choice="auto",
        tools=[],
        usage=usage,
    )
