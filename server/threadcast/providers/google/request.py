"""Converts a neutral request into the arguments of Google's SDK for Gemini. Pure: no socket and no SDK; `gemini.py`
calls it.

The API has contents of parts instead of messages: adjacent messages of one role become one content. Each thought
signature of an answer is sent back with its part; answers of other providers are sent as text and calls alone. Names
are the SDK's (snake case), and data is `bytes`. The API accepts the request whatever the history contains.
"""

import re
from base64 import urlsafe_b64decode

from threadcast.providers.base import ModelParams, Request
from threadcast.providers.turns import Turns, answer_blocks, arguments_object, split_data_url
from threadcast_protocol.wire.blobs import decode_base64
from threadcast_protocol.wire.messages import (
    AudioPart,
    FilePart,
    ImagePart,
    JsonObject,
    Message,
    Part,
    TextPart,
    ToolCall,
    text_of,
)

__all__ = ["contents_and_config"]

_GENERATION = re.compile(r"gemini-(\d+)(?:\.(\d+))?")

UNSIGNED = b"skip_thought_signature_validator"
"""The signature of calls that another model made: from Gemini 3 on, a call without a signature is refused, and Google
documents this value for the purpose."""

_BUDGETS = {"none": 0, "minimal": 1_024, "low": 1_024, "medium": 8_192, "high": 24_576, "xhigh": 24_576, "max": 24_576}
"""Efforts as token budgets for Gemini 2.5, which has no effort levels; from Google's documentation."""

_LEVELS = {"none": "minimal", "max": "xhigh"}


def contents_and_config(request: Request) -> tuple[list[JsonObject], JsonObject]:
    """Return `contents` and `config` for the SDK. `extra_body` goes into the body unchanged (PROV-5); the API cannot
    limit parallel calls."""
    turns = _Contents(request.model)
    heading = [request.system] if request.system else []
    messages = list(request.messages)
    while messages and messages[0].role == "system":
        heading.append(text_of(messages.pop(0).content))
    for message in messages:
        turns.add(message, request.provider_data.get(message.message_id, []))
    turns.end()
    config = _params(request.params, request.model)
    config["automatic_function_calling"] = {"disable": True}  # we run the tools
    if heading:
        config["system_instruction"] = "\n\n".join(heading)
    if request.tools:
        declarations = [
            {"name": tool.name, "description": tool.description, "parameters_json_schema": tool.input_schema}
            for tool in request.tools
        ]
        config["tools"] = [{"function_declarations": declarations}]
    if request.params.extra_body:
        config["http_options"] = {"extra_body": request.params.extra_body}
    return turns.turns.turns, config


def _params(params: ModelParams, model: str) -> JsonObject:
    chosen: JsonObject = {
        "temperature": params.temperature,
        "top_p": params.top_p,
        "frequency_penalty": params.frequency_penalty,
        "presence_penalty": params.presence_penalty,
        "max_output_tokens": params.max_tokens,
        "top_k": params.top_k or None,  # 0 means no bound, which is the API's default
        "seed": params.seed,
        "stop_sequences": params.stop or None,
        "thinking_config": _thinking(params, model),
    }
    return {name: value for name, value in chosen.items() if value is not None}


def _thinking(params: ModelParams, model: str) -> JsonObject | None:
    """Return the thinking settings. None leaves the settings to the model, which then does not show its thoughts."""
    budget, effort = params.thinking_budget, params.reasoning_effort
    if budget is None and effort is not None and _generation(model) < 3:
        budget = _BUDGETS.get(effort)
    if budget is not None:
        return {"thinking_budget": budget, "include_thoughts": budget != 0}
    return None if effort is None else {"thinking_level": _LEVELS.get(effort, effort), "include_thoughts": True}


def _generation(model: str) -> int:
    """Return the generation of a model; a name without a number is an alias for the latest."""
    found = _GENERATION.search(model)
    return int(found[1]) if found else 3


class _Contents:
    """Builds the turns of a request. `_shown` collects the images of tools until all results of the round are added."""

    def __init__(self, model: str) -> None:
        self.turns = Turns("model", "parts")
        self._wants_signatures = _generation(model) >= 3
        self._names: dict[str, str] = {}
        self._shown: list[JsonObject] = []

    def add(self, message: Message, kept: list[JsonObject]) -> None:
        if message.role != "tool":
            self._show()
        match message.role:
            case "user":
                self.turns.ask(_parts(message.content))
            case "system":
                self.turns.ask([{"text": f"<system>\n{text_of(message.content)}\n</system>"}])
            case "tool":
                self.turns.ask([self._result(message)])
                if not isinstance(message.content, str):
                    self._shown += [_part(part) for part in message.content if isinstance(part, ImagePart)]
            case "assistant":
                self._names.update({call.id: call.function.name for call in message.tool_calls})
                self.turns.answer(self._answer(message, kept))

    def end(self) -> None:
        self._show()
        self.turns.begin_and_end_with_the_user({"text": "[Earlier messages are left out.]"}, {"text": "[Continue.]"})

    def _show(self) -> None:
        if self._shown:
            self.turns.ask([{"text": "The images that the tools above returned:"}, *self._shown])
            self._shown = []

    def _result(self, message: Message) -> JsonObject:
        key = "error" if message.tool_failed else "output"
        call_id = message.tool_call_id or ""
        response = {"id": call_id, "name": self._names.get(call_id, ""), "response": {key: text_of(message.content)}}
        return {"function_response": response}

    def _answer(self, message: Message, kept: list[JsonObject]) -> list[JsonObject]:
        found = answer_blocks(message, kept, call=_call, text=_text, text_in=_text_in)
        parts = [_with_bytes(part) for part in found]
        first = next((part for part in parts if "function_call" in part), None)
        if self._wants_signatures and first is not None and not any("thought_signature" in part for part in parts):
            first["thought_signature"] = UNSIGNED
        return parts


def _text(text: str) -> JsonObject:
    return {"text": text}


def _text_in(part: JsonObject) -> str:
    return "" if part.get("thought") else str(part.get("text", ""))


def _call(call: ToolCall) -> JsonObject:
    arguments = arguments_object(call.function.arguments)
    return {"function_call": {"id": call.id, "name": call.function.name, "args": arguments}}


def _with_bytes(part: JsonObject) -> JsonObject:
    """Return a kept part for the SDK, with (URL-safe) base64 decoded to bytes."""
    signature = part.get("thought_signature")
    return part if signature is None else {**part, "thought_signature": urlsafe_b64decode(signature)}


def _parts(content: str | list[Part]) -> list[JsonObject]:
    if isinstance(content, str):
        return [{"text": content}] if content else []
    return [_part(part) for part in content]


def _part(part: Part) -> JsonObject:
    match part:
        case TextPart():
            return {"text": part.text}
        case ImagePart():
            mime, data = split_data_url(part.image_url.url)
            return _inline(mime, data)
        case FilePart(text=str() as text):
            return {"text": f"File {part.name}:\n{text}"}
        case FilePart():
            return _inline(part.mime, part.data or "")
        case AudioPart():
            return _inline(f"audio/{part.input_audio.format}", part.input_audio.data)


def _inline(mime: str, data: str) -> JsonObject:
    return {"inline_data": {"mime_type": mime, "data": decode_base64(data)}}
