"""Builds the JSON body of a request to the OpenAI chat-completions API, and defines the structs of the answer's chunks.

Pure: no socket and no SDK; `openai/chat.py` calls it. The structs skip unknown fields, so that a server may send more
than OpenAI does (reasoning in two spellings, timings, whole answers instead of deltas). Messages of pass-through roles
are never sent to the model.
"""

from collections.abc import Sequence
from urllib.parse import urlsplit

import msgspec

from threadcast.providers.base import (
    FinishReason,
    ModelParams,
    Prefill,
    PromptProgress,
    Request,
    ToolCallDelta,
)
from threadcast.providers.openai.samplers import sampling
from threadcast.providers.tolerant import Count
from threadcast.providers.unchanged import Encoded
from threadcast_protocol.framing.codec import encode
from threadcast_protocol.wire.bodies import read_object
from threadcast_protocol.wire.decoders import decode_any
from threadcast_protocol.wire.messages import (
    FilePart,
    ImagePart,
    JsonObject,
    Message,
    Part,
    TextPart,
    ToolCall,
    Usage,
    text_of,
)

__all__ = [
    "CallFragment",
    "CallNumbers",
    "Chunk",
    "ErrorBody",
    "finish_reason",
    "object_text",
    "prefill_at",
    "request_body",
    "usage_of",
]


class FunctionFragment(msgspec.Struct, frozen=True):
    name: str | None = None
    arguments: str | None = None


class CallFragment(msgspec.Struct, frozen=True):
    index: int | None = None
    id: str | None = None
    function: FunctionFragment = FunctionFragment()


class Spoken(msgspec.Struct, frozen=True):
    """The content of a delta, or of the whole message when a server does not stream."""

    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[CallFragment] | None = None
    annotations: list[JsonObject] | None = None


class Choice(msgspec.Struct, frozen=True):
    delta: Spoken | None = None
    message: Spoken | None = None
    finish_reason: str | None = None


class CachedTokens(msgspec.Struct, frozen=True):
    cached_tokens: Count | None = None


class TokenCounts(msgspec.Struct, frozen=True):
    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    total_tokens: Count | None = None
    prompt_tokens_details: CachedTokens | None = None


class ErrorBody(msgspec.Struct, frozen=True):
    """The inside of `{"error": …}`. In `code`, gateways send the HTTP status and OpenAI sends a word."""

    message: str | None = None
    type: str | None = None
    code: str | int | None = None


class Chunk(msgspec.Struct, frozen=True):
    """One event of the stream. `timings` and `prompt_progress` come from llama.cpp."""

    choices: list[Choice] | None = None
    usage: TokenCounts | None = None
    model: str | None = None
    timings: JsonObject | None = None
    prompt_progress: PromptProgress | None = None
    error: ErrorBody | str | None = None


_FINISH_REASONS: dict[str, FinishReason] = {
    "stop": "stop",
    "eos": "stop",
    "end_turn": "stop",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "tool_use": "tool_calls",
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "content_filter": "content_filter",
    "safety": "content_filter",
}


def finish_reason(theirs: str) -> FinishReason:
    """Map a server's finish reason to ours (LOOP-14); an unknown reason counts as a normal stop."""
    return _FINISH_REASONS.get(theirs.lower(), "stop")


def usage_of(counts: TokenCounts) -> Usage:
    prompt, completion = counts.prompt_tokens or 0, counts.completion_tokens or 0
    details = counts.prompt_tokens_details
    return Usage(
        prompt,
        completion,
        prompt + completion if counts.total_tokens is None else counts.total_tokens,
        cache_read_input_tokens=details.cached_tokens if details else None,
    )


class _OpenCall(msgspec.Struct):
    index: int
    id: str | None
    is_named: bool = False


class CallNumbers:
    """Numbers the calls of one answer and passes on each id and name once (PROV-4).

    Indexes are unreliable: some servers send whole calls without an index, some give every call index 0. A new id
    together with a name therefore begins a new call whatever its index.
    """

    def __init__(self) -> None:
        self._open: dict[int | None, _OpenCall] = {}
        self._count = 0

    def delta(self, fragment: CallFragment) -> ToolCallDelta:
        name = fragment.function.name or None
        arguments = fragment.function.arguments or ""
        call = self._open.get(fragment.index)
        other = (
            call is not None and name is not None and (fragment.index is None or (fragment.id or call.id) != call.id)
        )
        if call is None or other:
            call = self._open[fragment.index] = _OpenCall(self._count, fragment.id or None, name is not None)
            self._count += 1
            return ToolCallDelta(call.index, call.id, name, arguments)
        if call.is_named:
            name = None
        call.is_named = call.is_named or name is not None
        return ToolCallDelta(call.index, None, name, arguments)


def prefill_at(base_url: str) -> Prefill:
    """Return how the server at this address accepts the beginning of an answer, if the address tells. Mistral and,
    under /beta, DeepSeek document `prefix: true`. For other addresses the operator must configure whether the server
    continues the assistant's last message or answers it."""
    parts = urlsplit(base_url)
    if parts.hostname == "api.mistral.ai":
        return "prefix"
    is_beta = parts.hostname == "api.deepseek.com" and parts.path.strip("/").startswith("beta")
    return "prefix" if is_beta else "none"


def request_body(
    request: Request,
    *,
    max_tokens_field: str,
    send_reasoning_back: bool,
    prefill: Prefill = "none",
    samplers: frozenset[str] = frozenset(),
    program: str = "",
) -> JsonObject:
    """Return the JSON body, in which the messages that are unchanged since an earlier request are already encoded.
    Parameters that are None are left to the provider; `extra_body` overrides everything (PROV-5). `samplers` are the
    samplers that the server accepts; `program` is the server's software (`samplers.PROGRAMS`), '' when it is
    unknown."""
    messages: list[JsonObject | msgspec.Raw] = [{"role": "system", "content": request.system}] if request.system else []
    later = request.messages
    if request.unchanged is not None:

        def add(encoded: Encoded, more: Sequence[Message]) -> Encoded:
            return encoded.plus(encode(_messages(more, send_reasoning_back=send_reasoning_back))[1:-1])

        encoded = request.unchanged.fold(f"openai_chat {send_reasoning_back}", later, Encoded(), add)
        messages += map(msgspec.Raw, encoded.pieces)  # each piece holds several messages with commas between them
        later = later[request.unchanged.count :]
    messages += _messages(later, send_reasoning_back=send_reasoning_back)
    body: JsonObject = {
        "model": request.model,
        "messages": messages,
        "stream": request.stream,
        **({"stream_options": {"include_usage": True}} if request.stream else {}),
        **_params(request.params, max_tokens_field),
        **sampling(request.params, samplers, program),
    }
    if program == "llama.cpp" and request.stream:
        body["return_progress"] = True
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {"name": tool.name, "description": tool.description, "parameters": tool.input_schema},
            }
            for tool in request.tools
        ]
        if request.params.parallel_tool_calls is not None:
            body["parallel_tool_calls"] = request.params.parallel_tool_calls
    if request.user:
        body["user"] = request.user
    body = {**body, **request.params.extra_body}
    return _prefilled(body, request.prefix, prefill) if request.prefix else body


def _prefilled(body: JsonObject, prefix: str, prefill: Prefill) -> JsonObject:
    """Return `body` with `prefix` as the beginning of the answer. Thinking is disabled on servers with chat templates:
    models would think after the prefix, and llama.cpp refuses thinking with a prefix ("Assistant response prefill is
    incompatible with enable_thinking"). Servers without the option ignore it."""
    beginning: JsonObject = {"role": "assistant", "content": prefix}
    if prefill == "prefix":
        return {**body, "messages": [*body["messages"], {**beginning, "prefix": True}]}
    how = {"continue_final_message": True, "add_generation_prompt": False} if prefill != "trailing" else {}
    template = {**body.get("chat_template_kwargs", {}), "enable_thinking": False}
    return {**body, "messages": [*body["messages"], beginning], **how, "chat_template_kwargs": template}


def _seen(images: list[JsonObject]) -> JsonObject:
    """Return the images of tools as a user's message: the API accepts only text from tools, and requires all results of
    a round in succession."""
    said = {"type": "text", "text": "The images that the tools above returned:"}
    return {"role": "user", "content": [said, *images]}


def _params(params: ModelParams, max_tokens_field: str) -> JsonObject:
    chosen: JsonObject = {
        "temperature": params.temperature,
        "top_p": params.top_p,
        "frequency_penalty": params.frequency_penalty,
        "presence_penalty": params.presence_penalty,
        "reasoning_effort": params.reasoning_effort,
        max_tokens_field: params.max_tokens,
    }
    return {name: value for name, value in chosen.items() if value is not None}


def _messages(history: Sequence[Message], *, send_reasoning_back: bool) -> list[JsonObject]:
    messages: list[JsonObject] = []
    shown: list[JsonObject] = []  # images of tool results, collected until the last result of the round
    for message in history:
        if message.role != "tool" and shown:
            messages.append(_seen(shown))
            shown = []
        messages.extend(_message(message, send_reasoning_back=send_reasoning_back))
        if message.role == "tool" and not isinstance(message.content, str):
            shown += [_part(part) for part in message.content if isinstance(part, ImagePart)]
    if shown:
        messages.append(_seen(shown))
    return messages


def _message(message: Message, *, send_reasoning_back: bool) -> list[JsonObject]:
    match message.role:
        case "user":
            content = message.content
            return [{"role": "user", "content": content if isinstance(content, str) else [_part(p) for p in content]}]
        case "system":
            return [{"role": "system", "content": text_of(message.content)}]
        case "tool":
            return [{"role": "tool", "tool_call_id": message.tool_call_id, "content": text_of(message.content)}]
        case "assistant":
            text = text_of(message.content)
            if not text and not message.tool_calls:
                return []  # an answer cut off before its first word; most servers refuse an empty message
            said: JsonObject = {"role": "assistant", "content": text or None}
            if message.tool_calls:
                said["tool_calls"] = [_call(call) for call in message.tool_calls]
            if send_reasoning_back and message.reasoning_content:
                said["reasoning_content"] = message.reasoning_content
            return [said]
        case _:
            return []


def _call(call: ToolCall) -> JsonObject:
    arguments = object_text(call.function.arguments)
    return {"id": call.id, "type": "function", "function": {"name": call.function.name, "arguments": arguments}}


def object_text(arguments: str) -> str:
    """Return `arguments` as the text of a JSON object. Servers parse the calls of the history and answer 400 to other
    text, so one malformed call would block the chat for ever."""
    if not arguments.strip():
        return "{}"
    found = read_object(arguments)
    if found is None:
        return msgspec.json.encode({"invalid_json": arguments}).decode()
    try:
        decode_any(arguments)
    except msgspec.DecodeError:
        return msgspec.json.encode(found).decode()  # repaired, because a strict server would refuse the original
    return arguments


def _part(part: Part) -> JsonObject:
    match part:
        case TextPart():
            return {"type": "text", "text": part.text}
        case ImagePart():
            image: JsonObject = {"url": part.image_url.url}
            if part.image_url.detail is not None:
                image["detail"] = part.image_url.detail
            return {"type": "image_url", "image_url": image}
        case FilePart(text=str() as text):
            return {"type": "text", "text": f"File {part.name}:\n{text}"}
        case FilePart():
            file_data = f"data:{part.mime};base64,{part.data or ''}"
            return {"type": "file", "file": {"filename": part.name, "file_data": file_data}}
        case _:
            sound = part.input_audio
            return {"type": "input_audio", "input_audio": {"data": sound.data, "format": sound.format}}
