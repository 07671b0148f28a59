"""Translates the conversation into messages of LangChain, and LangChain's messages into pieces. Pure."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage, ToolMessage

from threadcast.custom_agents.pieces import Reasoning, Usage
from threadcast.custom_agents.rounds import RoundMessage
from threadcast_protocol.wire.messages import FilePart, ImagePart, JsonObject, TextPart, text_of

__all__ = ["messages_of", "pieces_in", "usage_of"]


def messages_of(messages: Sequence[RoundMessage]) -> list[AnyMessage]:
    """Return messages of the chat as a graph reads them."""
    return [_message(message) for message in messages]


def _message(message: RoundMessage) -> AnyMessage:
    text = text_of(message.content)
    match message.role:
        case "assistant":
            calls = [
                {"id": call.id, "name": call.function.name, "args": _arguments(call.function.arguments)}
                for call in message.tool_calls
            ]
            return AIMessage(content=text, tool_calls=calls, id=message.message_id)
        case "tool":
            status = "error" if message.tool_failed else "success"
            return ToolMessage(
                content=text, tool_call_id=message.tool_call_id or "", status=status, id=message.message_id
            )
        case "system":
            return SystemMessage(content=text, id=message.message_id)
    return HumanMessage(content=_content(message), id=message.message_id)


def _content(message: RoundMessage) -> Any:  # Any: a text, or content blocks of LangChain
    if isinstance(message.content, str):
        return message.content
    blocks: list[JsonObject] = []
    for part in message.content:
        match part:
            case TextPart(text=text):
                blocks.append({"type": "text", "text": text})
            case ImagePart(image_url=image):
                blocks.append({"type": "image_url", "image_url": {"url": image.url}})
            case FilePart(data=str(data)):
                blocks.append({"type": "file", "base64": data, "mime_type": part.mime, "filename": part.name})
            case FilePart():
                blocks.append({"type": "text", "text": f"[file {part.name}]\n{part.text or ''}"})
            case _:
                blocks.append({"type": "text", "text": "[a sound, which this agent cannot hear]"})
    return blocks


def _arguments(text: str) -> JsonObject:
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def pieces_in(content: object) -> Iterator[str | Reasoning]:
    """Yield the text and the reasoning in the content of a message or a chunk."""
    for block in content if isinstance(content, list) else [content]:
        if isinstance(block, str):
            if block:
                yield block
        elif isinstance(block, dict):
            text = block.get("text") or block.get("reasoning") or block.get("thinking")
            if isinstance(text, str) and text:
                yield text if block.get("type") in ("text", "output_text") else Reasoning(text)


def usage_of(message: AIMessage) -> Usage | None:
    """Return the token counts of a message; None if the message has none."""
    told = message.usage_metadata
    return Usage(told["input_tokens"], told["output_tokens"], told["total_tokens"]) if told else None
