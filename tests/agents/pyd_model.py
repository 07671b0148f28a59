"""A model of pydantic-ai without a network: a function returns the responses, and the model streams them word by
word."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    RetryPromptPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaThinkingPart, DeltaToolCall, FunctionModel

Item = str | DeltaThinkingPart | tuple[str, dict[str, Any]]
"""The parts of a response: text, a thought, and calls as (name, arguments)."""


def local_model(
    write: Callable[[list[ModelMessage], AgentInfo], Sequence[Item]], *, word_seconds: float = 0.0
) -> FunctionModel:
    """Return a model that answers with the responses that `write` returns."""

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        for number, item in enumerate(write(messages, info)):
            if isinstance(item, str):
                for word in item.split(" "):
                    yield word + " "
                    await asyncio.sleep(word_seconds)
            elif isinstance(item, DeltaThinkingPart):
                yield {number: item}
            else:
                name, arguments = item
                call_id = f"call_{len(messages)}_{number}"
                yield {number: DeltaToolCall(name=name, json_args=json.dumps(arguments), tool_call_id=call_id)}

    return FunctionModel(stream_function=stream)


def thought(text: str) -> DeltaThinkingPart:
    return DeltaThinkingPart(content=text)


def asked(messages: list[ModelMessage]) -> str:
    """Return the last text of the user."""
    prompts = [
        part
        for message in messages
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, UserPromptPart)
    ]
    content = prompts[-1].content
    return content if isinstance(content, str) else " ".join(each for each in content if isinstance(each, str))


def results(messages: list[ModelMessage], *, of_run: bool = True) -> list[str]:
    """Return the results of calls since the last prompt of the user, as the model reads them."""
    found: list[str] = []
    for message in messages:
        for part in message.parts if not isinstance(message, ModelResponse) else ():
            if isinstance(part, UserPromptPart) and of_run and isinstance(message.parts[0], UserPromptPart):
                found.clear()
            elif isinstance(part, ToolReturnPart):
                found.append(part.model_response_str() or f"{part.content!r:.30}")
            elif isinstance(part, RetryPromptPart):
                found.append(part.model_response())
    return found
