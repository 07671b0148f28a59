"""Builds the JSON body of a request to OpenAI's Responses API, and defines the structs of the answer's events.

Pure: no socket and no SDK; `openai/responses.py` calls it. The provider does not store the chat (`store: false`), so
each request repeats the model's encrypted reasoning items, each before the text or the call that followed it.
"""

import re

import msgspec

from threadcast.providers.base import Request
from threadcast.providers.openai.chat_wire import ErrorBody, object_text
from threadcast.providers.tolerant import Count
from threadcast_protocol.wire.messages import FilePart, ImagePart, JsonObject, Message, Part, TextPart, Usage, text_of

__all__ = ["Event", "Response", "kept_item", "request_body", "usage_of"]

_REASONING_MODELS = re.compile(r"(^|/)(o\d|gpt-[5-9]|gpt-oss|codex)")
"""Name patterns of models with encrypted reasoning; other models refuse a request for encrypted reasoning. A request
with an effort asks for encrypted reasoning, too."""


class _Cached(msgspec.Struct, frozen=True):
    cached_tokens: Count | None = None


class TokenCounts(msgspec.Struct, frozen=True):
    input_tokens: Count | None = None
    output_tokens: Count | None = None
    total_tokens: Count | None = None
    input_tokens_details: _Cached | None = None


class _Incomplete(msgspec.Struct, frozen=True):
    reason: str | None = None


class Response(msgspec.Struct, frozen=True):
    """The response object: part of the first and the last event, and the body of an answer that is not streamed."""

    model: str | None = None
    status: str | None = None
    output: list[JsonObject] | None = None
    usage: TokenCounts | None = None
    error: ErrorBody | str | None = None
    incomplete_details: _Incomplete | None = None


class Event(msgspec.Struct, frozen=True):
    """The fields of all events of the stream; `item` and `annotation` are rare and stay untyped."""

    type: str = ""
    delta: str | None = None
    output_index: int = 0
    summary_index: int = 0
    arguments: str | None = None
    item: JsonObject | None = None
    annotation: JsonObject | None = None
    response: Response | None = None
    code: str | int | None = None
    message: str | None = None
    error: ErrorBody | str | None = None


def usage_of(counts: TokenCounts) -> Usage:
    prompt, completion = counts.input_tokens or 0, counts.output_tokens or 0
    details = counts.input_tokens_details
    return Usage(
        prompt,
        completion,
        prompt + completion if counts.total_tokens is None else counts.total_tokens,
        cache_read_input_tokens=details.cached_tokens if details else None,
    )


def kept_item(item: JsonObject, *, after_text: bool, calls_before: int) -> JsonObject:
    """Return the data kept for a reasoning item: the item and its place in the answer."""
    whole = {key: value for key, value in item.items() if key != "status"}
    return {"item": whole, "after_text": after_text, "calls_before": calls_before}


def request_body(request: Request) -> JsonObject:
    """Return the JSON body. Parameters that are None are left to the provider; `extra_body` overrides all fields
    (PROV-5)."""
    params = request.params
    items: list[JsonObject] = []
    for message in request.messages:
        items += _items(message, request.provider_data.get(message.message_id, []))
    chosen: JsonObject = {
        "instructions": request.system or None,
        "temperature": params.temperature,
        "top_p": params.top_p,
        "max_output_tokens": params.max_tokens,
        "user": request.user or None,
    }
    body: JsonObject = {"model": request.model, "input": items, "store": False, "stream": request.stream}
    body |= {name: value for name, value in chosen.items() if value is not None}
    if params.reasoning_effort is not None or _REASONING_MODELS.search(request.model):
        effort = {} if params.reasoning_effort is None else {"effort": params.reasoning_effort}
        body["reasoning"] = {**effort, "summary": "auto"}
        body["include"] = ["reasoning.encrypted_content"]
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.input_schema,
                "strict": False,
            }
            for tool in request.tools
        ]
        if params.parallel_tool_calls is not None:
            body["parallel_tool_calls"] = params.parallel_tool_calls
    return {**body, **params.extra_body}


def _items(message: Message, kept: list[JsonObject]) -> list[JsonObject]:
    match message.role:
        case "user":
            content = message.content
            parts: str | list[JsonObject] = content if isinstance(content, str) else [_part(p) for p in content]
            return [{"role": "user", "content": parts}]
        case "system":
            return [{"role": "system", "content": text_of(message.content)}]
        case "tool":
            content = message.content
            seen = not isinstance(content, str) and any(isinstance(part, ImagePart) for part in content)
            output: str | list[JsonObject] = (
                [_part(part) for part in content] if seen and not isinstance(content, str) else text_of(content)
            )
            return [{"type": "function_call_output", "call_id": message.tool_call_id, "output": output}]
        case "assistant":
            return _answer(message, kept)
        case _:
            return []


def _answer(message: Message, kept: list[JsonObject]) -> list[JsonObject]:
    """Return the items of an earlier answer. A reasoning item is included only with the item that followed it, since
    the API refuses it alone."""
    text = text_of(message.content)
    steps: list[tuple[tuple[bool, int], JsonObject]] = []
    if text:
        steps.append(((False, 0), {"role": "assistant", "content": text}))
    for call in message.tool_calls:
        said = {
            "type": "function_call",
            "call_id": call.id,
            "name": call.function.name,
            "arguments": object_text(call.function.arguments),
        }
        steps.append(((True, call.index), said))
    items: list[JsonObject] = []
    waiting = [data for data in kept if "item" in data]
    for (is_call, index), said in steps:
        preceding = [data for data in waiting if _precedes(data, is_call=is_call, index=index)]
        waiting = [data for data in waiting if data not in preceding]
        items += [data["item"] for data in preceding]
        items.append(said)
    return items


def _precedes(data: JsonObject, *, is_call: bool, index: int) -> bool:
    if not is_call:
        return not data["after_text"] and data["calls_before"] == 0
    return bool(data["calls_before"] <= index)


def _part(part: Part) -> JsonObject:
    match part:
        case TextPart():
            return {"type": "input_text", "text": part.text}
        case ImagePart():
            return {"type": "input_image", "image_url": part.image_url.url, "detail": part.image_url.detail or "auto"}
        case FilePart(text=str() as text):
            return {"type": "input_text", "text": f"File {part.name}:\n{text}"}
        case FilePart():
            file_data = f"data:{part.mime};base64,{part.data or ''}"
            return {"type": "input_file", "filename": part.name, "file_data": file_data}
        case _:
            sound = part.input_audio
            return {"type": "input_audio", "input_audio": {"data": sound.data, "format": sound.format}}
