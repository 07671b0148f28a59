"""A neutral request in the words of Google's Gemini API. Pure: no socket and no SDK; `google.py` calls it.

The wire knows contents of parts where we know messages: neighbours of one role become one content. Thought signatures
that came with an answer go back on the parts they came on; answers of other providers go as text and calls alone. The
names are the SDK's (snake case), bytes are bytes. The one rule: whatever stands in a history, what comes out is a
request that the API takes.
"""

import re
from base64 import urlsafe_b64decode

from protocol.blobs import decode_base64
from protocol.messages import AudioPart, FilePart, ImagePart, JsonObject, Message, Part, TextPart, ToolCall, text_of
from server.providers.base import ModelParams, Request
from server.providers.turns import Turns, arguments_object, split_data_url

__all__ = ["contents_and_config"]

_GENERATION = re.compile(r"gemini-(\d+)(?:\.(\d+))?")

UNSIGNED = b"skip_thought_signature_validator"
"""From Gemini 3 on, a call without its signature is refused. This one, which Google documents for the purpose, stands
for calls that another model made."""

_BUDGETS = {"none": 0, "minimal": 1_024, "low": 1_024, "medium": 8_192, "high": 24_576, "xhigh": 24_576, "max": 24_576}
"""Efforts as tokens for Gemini 2.5, which knows no levels; Google's own table."""

_LEVELS = {"none": "minimal", "max": "xhigh"}


def contents_and_config(request: Request) -> tuple[list[JsonObject], JsonObject]:
    """`contents` and `config` for the SDK. `extra_body` goes into the body as it is (PROV-5); nothing on this wire
    limits parallel calls."""
    turns = _Contents(request.model)
    heading = [request.system] if request.system else []
    messages = list(request.messages)
    while messages and messages[0].role == "system":
        heading.append(text_of(messages.pop(0).content))
    for message in messages:
        turns.add(message, request.provider_data.get(message.message_id, []))
    turns.end()
    config = _params(request.params, request.model)
    config["automatic_function_calling"] = {"disable": True}  # running tools is our business
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
        "top_k": params.top_k or None,  # 0 means no bound, which is what it does without one
        "seed": params.seed,
        "stop_sequences": params.stop or None,
        "thinking_config": _thinking(params, model),
    }
    return {name: value for name, value in chosen.items() if value is not None}


def _thinking(params: ModelParams, model: str) -> JsonObject | None:
    """None leaves it to the model, which then thinks without showing it."""
    budget, effort = params.thinking_budget, params.reasoning_effort
    if budget is None and effort is not None and _generation(model) < 3:
        budget = _BUDGETS.get(effort)
    if budget is not None:
        return {"thinking_budget": budget, "include_thoughts": budget != 0}
    return None if effort is None else {"thinking_level": _LEVELS.get(effort, effort), "include_thoughts": True}


def _generation(model: str) -> int:
    """Models without a number are aliases for the latest."""
    found = _GENERATION.search(model)
    return int(found[1]) if found else 3


class _Contents:
    """Turns in the making. `_shown` are the images of tools, held until the results of the round are all there."""

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
        """The parts of an answer: those that were kept of it, with its calls in their places, and what they do not
        hold because the stream broke before they were whole."""
        calls = {call.index: call for call in message.tool_calls}
        parts: list[JsonObject] = []
        said = ""
        for part in kept:
            if "call" in part:
                call = calls.pop(part["call"], None)
                if call is not None:
                    parts.append(_with_bytes({**{k: v for k, v in part.items() if k != "call"}, **_call(call)}))
                continue
            if not part.get("thought"):
                said += str(part.get("text", ""))
            parts.append(_with_bytes(part))
        text = text_of(message.content)
        if text.startswith(said) and (rest := text[len(said) :]):
            parts.append({"text": rest})
        parts += [_call(call) for call in calls.values()]
        first = next((part for part in parts if "function_call" in part), None)
        if self._wants_signatures and first is not None and not any("thought_signature" in part for part in parts):
            first["thought_signature"] = UNSIGNED
        return parts


def _call(call: ToolCall) -> JsonObject:
    arguments = arguments_object(call.function.arguments)
    return {"function_call": {"id": call.id, "name": call.function.name, "args": arguments}}


def _with_bytes(part: JsonObject) -> JsonObject:
    """A kept part as the SDK wants it: what is (URL-safe) base64 in JSON as bytes."""
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
