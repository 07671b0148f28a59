"""The words of the OpenAI chat-completions wire: a neutral request to its JSON body, its chunks to neutral deltas.

Pure: no socket and no SDK. The structs name what we read and skip the rest, so that a server may send more than the
official one does (reasoning in two spellings, timings, whole answers instead of deltas). Called by `openai/chat.py`.
Nothing that is not the model's business passes: messages of pass-through roles never go out.
"""

from urllib.parse import urlsplit

import msgspec

from protocol.bodies import read_object
from protocol.messages import FilePart, ImagePart, JsonObject, Message, Part, TextPart, ToolCall, Usage, text_of
from server.providers.base import FinishReason, ModelParams, Prefill, PromptProgress, Request, ToolCallDelta
from server.providers.openai.samplers import sampling
from server.providers.tolerant import Count

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
    """A delta, or the whole message of a server that does not stream."""

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
    """The inside of `{"error": …}`. Gateways write HTTP's status as `code`, OpenAI a word."""

    message: str | None = None
    type: str | None = None
    code: str | int | None = None


class Chunk(msgspec.Struct, frozen=True):
    """One event of the stream. `timings` and `prompt_progress` are llama.cpp's."""

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
    """LOOP-14; a word nobody knows means that the model stopped."""
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
    """Numbers the calls of one answer and lets each id and name through once (PROV-4).

    Not every server counts: some send whole calls without an index, some give every call index 0. A new id together
    with a name opens a new call whatever index it came under.
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
    """Return how the server at this address accepts the beginning of an answer, if the address tells: the API of
    Mistral, and that of DeepSeek under /beta, document `prefix: true`. For other addresses the operator has to say
    whether the server continues a last message of the assistant or answers it."""
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
    """Return the JSON body. Parameters that are None are left to the provider; `extra_body` overrides everything
    (PROV-5). `samplers` are those that the server takes; `program` is its software (`samplers.PROGRAMS`), '' when it is
    unknown."""
    messages: list[JsonObject] = [{"role": "system", "content": request.system}] if request.system else []
    shown: list[JsonObject] = []  # images of tool results, until the results are all there
    for message in request.messages:
        if message.role != "tool" and shown:
            messages.append(_seen(shown))
            shown = []
        messages.extend(_message(message, send_reasoning_back=send_reasoning_back))
        if message.role == "tool" and not isinstance(message.content, str):
            shown += [_part(part) for part in message.content if isinstance(part, ImagePart)]
    if shown:
        messages.append(_seen(shown))
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
    """`body`, whose answer begins with `prefix`. Templates that think first would think after it, and llama.cpp refuses
    the two together ("Assistant response prefill is incompatible with enable_thinking"), so servers with templates of
    their own are told not to think; those that do not know the word ignore it."""
    beginning: JsonObject = {"role": "assistant", "content": prefix}
    if prefill == "prefix":
        return {**body, "messages": [*body["messages"], {**beginning, "prefix": True}]}
    how = {"continue_final_message": True, "add_generation_prompt": False} if prefill != "trailing" else {}
    template = {**body.get("chat_template_kwargs", {}), "enable_thinking": False}
    return {**body, "messages": [*body["messages"], beginning], **how, "chat_template_kwargs": template}


def _seen(images: list[JsonObject]) -> JsonObject:
    """Images of tools, as a user's: this wire takes only text from tools, and all results of a round in one row."""
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
                return []  # an answer cut off before its first word; most servers refuse an empty one
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
    """`arguments` if it is a JSON object. Servers parse the calls of the history and answer 400 to anything else, so a
    call that the model once misspelt would block the chat for good."""
    if not arguments.strip():
        return "{}"
    found = read_object(arguments)
    if found is None:
        return msgspec.json.encode({"invalid_json": arguments}).decode()
    try:
        msgspec.json.decode(arguments)
    except msgspec.DecodeError:
        return msgspec.json.encode(found).decode()  # mended: a strict server would refuse what was written
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
