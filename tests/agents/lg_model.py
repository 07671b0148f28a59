"""A chat model of LangChain without a network: a function of the messages returns the answer, and the model streams the
answer word by word."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessageChunk, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult

__all__ = ["Item", "LocalModel", "results"]

Item = str | tuple[str, dict[str, object]]
"""A text, or a call as (name, arguments)."""


class LocalModel(BaseChatModel):
    """`write(messages)` returns the items of one message."""

    write: Callable[[Sequence[BaseMessage]], Sequence[Item]]
    word_seconds: float = 0.0

    @property
    def _llm_type(self) -> str:
        return "local"

    def bind_tools(self, tools: Any, **more: Any) -> "LocalModel":
        return self

    def _generate(self, *given: Any, **more: Any) -> ChatResult:
        raise NotImplementedError

    async def _astream(self, messages: list[BaseMessage], *given: Any, **more: Any) -> AsyncIterator[Any]:
        calls = 0
        for item in self.write(messages):
            if isinstance(item, str):
                for word in item.split(" "):
                    await asyncio.sleep(self.word_seconds)
                    yield ChatGenerationChunk(message=AIMessageChunk(content=f"{word} "))
                continue
            name, arguments = item
            call: Any = {
                "name": name,
                "args": json.dumps(arguments),
                "id": f"call_{len(messages)}_{calls}",
                "index": calls,
            }
            calls += 1
            yield ChatGenerationChunk(message=AIMessageChunk(content="", tool_call_chunks=[call]))
        usage: Any = {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}
        yield ChatGenerationChunk(message=AIMessageChunk(content="", usage_metadata=usage))


def results(messages: Sequence[BaseMessage]) -> list[str]:
    """Return the results of the tools since the last message of the user."""
    found: list[str] = []
    for message in messages:
        if isinstance(message, HumanMessage):
            found = []
        elif isinstance(message, ToolMessage):
            found.append(str(message.content))
    return found
