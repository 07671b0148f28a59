"""Translates the chat into the message history of a run, and keeps the framework's messages with the chat's. Pure.

Each answer keeps the model's response, and the earlier requests that carry results of tools, in the framework's form.
An answer without kept messages, because it is from another assistant or older than the newest 256, is translated from
the form that clients see.
"""

import base64
from collections.abc import Sequence
from typing import Any

import msgspec
from pydantic import ValidationError
from pydantic_ai.messages import (
    BinaryContent,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    RetryPromptPart,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)

from threadcast.agents.pydantic_ai.responses import decoded, encoded
from threadcast.custom_agents.pieces import KEEP_MAX_BYTES, Keep
from threadcast.custom_agents.rounds import RoundMessage
from threadcast_protocol.wire import messages as wire
from threadcast_protocol.wire.decoders import decoder
from threadcast_protocol.wire.messages import text_of

__all__ = ["NOT_CARRIED_OUT", "OUTPUT_TAKEN", "history_of", "keep_of"]

NOT_CARRIED_OUT = "The call was not carried out."
"""The result that the model reads for a call that was not made before its run ended, because model APIs require a
result."""

OUTPUT_TAKEN = "Final result processed."
"""The result that the model reads for an output tool that ended a run. The sentence is the framework's own."""


class Kept(msgspec.Struct, frozen=True):
    """The private state of one message. `messages` are messages of the framework, `calls` are the ids that the
    framework gave the shown calls, in the order of the calls, and `outputs` are the ids of calls of output tools."""

    messages: list[Any]  # Any: JSON
    calls: list[str]
    outputs: list[str]


def keep_of(messages: Sequence[ModelMessage], calls: list[str], outputs: list[str]) -> list[Keep]:
    """Return the piece that keeps the messages; the last message is the response. If results of tools are too large,
    they are left out first, because the chat has their text. If the response is still larger than a message may keep,
    nothing is kept."""
    responses = [each for each in messages if isinstance(each, ModelResponse)]
    for candidate in (messages, responses):
        data = msgspec.json.encode(Kept(encoded(candidate), calls, outputs))
        if len(data) <= KEEP_MAX_BYTES:
            return [Keep(data)]
    return []


def history_of(
    messages: Sequence[RoundMessage], prefix: str = ""
) -> tuple[list[UserContent] | str | None, list[ModelMessage]]:
    """Return the prompt of a run and the earlier messages. The prompt is the last message if a person wrote it. The
    names of tools in the chat begin with `prefix`."""
    found: list[ModelMessage] = []
    own_ids: dict[str, str] = {}
    names: dict[str, str] = {}
    outputs: set[str] = set()
    results: dict[str, ModelRequestPart] = {}
    prompt = _content(messages[-1]) if messages and messages[-1].role == "user" else None
    for message in messages[:-1] if prompt is not None else messages:
        if message.role == "tool":
            call_id = own_ids.get(message.tool_call_id or "", message.tool_call_id or "")
            results[call_id] = ToolReturnPart(names.get(call_id, "tool"), text_of(message.content), call_id)
            continue
        kept, of_framework = _kept(message)
        for request in of_framework:
            for part in request.parts if isinstance(request, ModelRequest) else ():
                if isinstance(part, ToolReturnPart | RetryPromptPart):
                    results.pop(part.tool_call_id, None)
        if results:
            found.append(ModelRequest(list(results.values())))
            results.clear()
        if kept is not None:
            own_ids.update(zip((call.id for call in message.tool_calls), kept.calls, strict=False))
            outputs.update(kept.outputs)
        elif message.role == "assistant":
            of_framework = _response(message, prefix)
        else:
            of_framework = [ModelRequest([UserPromptPart(_content(message))])]
        for each in of_framework:
            if isinstance(each, ModelResponse):
                names.update((call.tool_call_id, call.tool_name) for call in each.tool_calls)
        # this message came before the first prompt, and the chat contains the prompt
        if of_framework and _is_system(of_framework[0]):
            found.insert(0, of_framework.pop(0))
        found.extend(of_framework)
    if results:
        found.append(ModelRequest(list(results.values())))
    return prompt, _answered(found, outputs)


def _kept(message: RoundMessage) -> tuple[Kept | None, list[ModelMessage]]:
    """Return the state and the messages of pydantic-ai that `message` keeps. Returns (None, []) if the message keeps
    nothing, or if another version of this code wrote the state."""
    try:
        kept = decoder(Kept).decode(message.keep) if message.keep else None
        return kept, decoded(kept.messages) if kept is not None else []
    except (msgspec.DecodeError, ValidationError):
        return None, []


def _is_system(message: ModelMessage) -> bool:
    return isinstance(message, ModelRequest) and all(isinstance(part, SystemPromptPart) for part in message.parts)


def _response(message: RoundMessage, prefix: str) -> list[ModelMessage]:
    """Return the response that an answer shows; no response if the answer shows nothing."""
    text = text_of(message.content)
    calls = [
        ToolCallPart(call.function.name.removeprefix(prefix), call.function.arguments or "{}", call.id)
        for call in message.tool_calls
    ]
    parts: list[ModelResponsePart] = [*([TextPart(text)] if text else []), *calls]
    return [ModelResponse(parts)] if parts else []


def _content(message: RoundMessage) -> list[UserContent] | str:
    """Return the content of a message of a person."""
    if isinstance(message.content, str):
        return message.content
    parts: list[UserContent] = []
    for part in message.content:
        match part:
            case wire.TextPart(text=text):
                parts.append(text)
            case wire.ImagePart(image_url=image) if image.url.startswith("data:"):
                parts.append(_image(image.url))
            case wire.ImagePart(image_url=image):
                parts.append(ImageUrl(image.url))
            case wire.AudioPart(input_audio=audio) if audio.data:
                parts.append(BinaryContent(base64.b64decode(audio.data), media_type=f"audio/{audio.format or 'wav'}"))
            case wire.FilePart(data=str(data)):
                parts.append(BinaryContent(base64.b64decode(data), media_type=part.mime))
            case wire.FilePart():
                parts.append(f"[file {part.name}]\n{part.text or ''}")
            case _:
                parts.append("[an attachment that no longer exists]")
    return parts


def _image(url: str) -> UserContent:
    try:
        return BinaryContent.from_data_uri(url)
    except ValueError:
        return "[an image that cannot be read]"


def _answered(messages: list[ModelMessage], outputs: set[str]) -> list[ModelMessage]:
    """Return the messages with a result behind each call."""
    found: list[ModelMessage] = []
    for number, message in enumerate(messages):
        found.append(message)
        if not isinstance(message, ModelResponse) or not message.tool_calls:
            continue
        answered: set[str] = set()
        for request in messages[number + 1 :]:
            if isinstance(request, ModelResponse):
                break
            answered.update(
                part.tool_call_id
                for part in request.parts
                if isinstance(part, ToolReturnPart | RetryPromptPart) and part.tool_call_id
            )
        missing: list[ModelRequestPart] = [
            ToolReturnPart(
                call.tool_name,
                OUTPUT_TAKEN if call.tool_call_id in outputs else NOT_CARRIED_OUT,
                call.tool_call_id,
            )
            for call in message.tool_calls
            if call.tool_call_id not in answered
        ]
        if missing:
            found.append(ModelRequest(missing))
    return found
