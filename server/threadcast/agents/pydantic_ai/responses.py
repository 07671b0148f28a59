"""Translates the stream of a model's response into pieces of a message, and messages into JSON and back. Pure."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
)
from pydantic_ai.models import ModelRequestParameters

from threadcast.custom_agents.pieces import Call, Reasoning, Usage
from threadcast.tools.base import Payload
from threadcast_protocol.wire.mending import mend
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["NATIVE", "ResponseReader", "arguments_of", "decoded", "encoded", "native_results"]

NATIVE = "native_"
"""The prefix of the names under which calls of a provider's own tools are shown, such as `native_web_search`."""

NATIVE_MAX_CHARACTERS = 10_000
"""The maximum length of the shown arguments and result of a provider's tool. The kept response is complete."""

PAYLOAD_TYPE_MAX_CHARACTERS = 64


class ResponseReader:
    """Reads one response to a request made with `asked`. The names of calls begin with `prefix` in the chat. `call_ids`
    are the framework's ids of the shown calls, and `hidden_ids` are the ids of the calls of output tools."""

    def __init__(self, asked: ModelRequestParameters, prefix: str) -> None:
        self.call_ids: list[str] = []
        self.hidden_ids: list[str] = []
        self._asked = asked
        self._outputs = {each.name: each for each in asked.output_tools}
        self._prefix = prefix
        self._has_text = False
        self._has_reasoning = False

    def read(self, event: object) -> object | None:
        """Return the piece of one event of the stream, or None."""
        if type(event) is PartDeltaEvent:
            delta = event.delta
            if type(delta) is TextPartDelta:
                self._has_text = True
                return delta.content_delta or None
            if isinstance(delta, ThinkingPartDelta) and delta.content_delta:
                self._has_reasoning = True
                return Reasoning(delta.content_delta)
        elif isinstance(event, PartStartEvent):
            return self._begun(event.part)
        return None

    def _begun(self, part: object) -> object | None:
        """Return the first piece of a part. An empty line separates parts of one kind."""
        match part:
            case TextPart(content=text):
                text = f"\n\n{text}" if self._has_text else text
                self._has_text = self._has_text or bool(text)
                return text or None
            case ThinkingPart(content=text):
                text = f"\n\n{text}" if self._has_reasoning else text
                self._has_reasoning = self._has_reasoning or bool(text)
                return Reasoning(text) if text else None
        return None

    def unstreamed(self, response: ModelResponse) -> Iterator[object]:
        """Yield the text of a response that was not streamed."""
        for part in response.parts:
            piece = self._begun(part)
            if piece is not None:
                yield piece

    def end(self, response: ModelResponse) -> Iterator[object]:
        """Yield the pieces that only the whole response contains: calls, structured output and usage."""
        for part in response.parts:
            if isinstance(part, ToolCallPart) and part.tool_name in self._outputs:
                self.hidden_ids.append(part.tool_call_id)
                schema = self._outputs[part.tool_name].parameters_json_schema
                yield _payload(schema.get("title") or part.tool_name, arguments_of(part.args))
            elif isinstance(part, ToolCallPart):
                self.call_ids.append(part.tool_call_id)
                yield Call(self._prefix + part.tool_name, arguments_of(part.args), id=part.tool_call_id)
            elif isinstance(part, NativeToolCallPart):
                self.call_ids.append(part.tool_call_id)
                arguments = arguments_of(part.args)
                if len(text := json.dumps(arguments)) > NATIVE_MAX_CHARACTERS:
                    arguments = {"arguments": text[:NATIVE_MAX_CHARACTERS]}
                yield Call(NATIVE + part.tool_name, arguments, id=part.tool_call_id)
        wanted = self._asked.output_object
        if self._asked.output_mode in ("native", "prompted") and wanted is not None and not response.tool_calls:
            data = _object_in(response.text or "")
            if data is not None:
                yield _payload(wanted.name or wanted.json_schema.get("title") or "output", data)
        used = response.usage
        if used.input_tokens or used.output_tokens:
            yield Usage(
                used.input_tokens,
                used.output_tokens,
                used.input_tokens + used.output_tokens,
                cache_creation_input_tokens=used.cache_write_tokens or None,
                cache_read_input_tokens=used.cache_read_tokens or None,
            )


def arguments_of(written: str | Mapping[str, Any] | None) -> JsonObject:
    """Return the arguments that a model wrote. A text that is not a JSON object is shown as the argument
    `arguments`."""
    if isinstance(written, Mapping):
        return dict(written)
    found = _object_in(written or "{}")
    return found if found is not None else {"arguments": written}


def encoded(messages: Sequence[ModelMessage]) -> list[Any]:  # Any: JSON
    """Return messages as JSON, without loss."""
    return list(mend(ModelMessagesTypeAdapter.dump_python(list(messages), mode="json")))


def decoded(value: Any) -> list[ModelMessage]:  # Any: JSON
    """Return the messages that `encoded` has encoded. Raises pydantic.ValidationError: the installed framework does not
    know one of their parts."""
    return ModelMessagesTypeAdapter.validate_json(msgspec.json.encode(value))


def native_results(response: ModelResponse) -> list[tuple[str, str, str, bool]]:
    """Return (id, shown name, result, failed) of each call of a provider's own tool, which the provider has run."""
    results = {each.tool_call_id: each for each in response.parts if isinstance(each, NativeToolReturnPart)}
    found = []
    for part in response.parts:
        if isinstance(part, NativeToolCallPart):
            result = results.get(part.tool_call_id)
            text = result.model_response_str()[:NATIVE_MAX_CHARACTERS] if result is not None else "completed"
            failed = result is not None and result.outcome == "failed"
            found.append((part.tool_call_id, NATIVE + part.tool_name, mend(text), failed))
    return found


def _object_in(text: str) -> JsonObject | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _payload(name: str, data: JsonObject) -> Payload:
    kind = re.sub(r"[^A-Za-z0-9_.-]+", "_", str(name)).strip("_")[:PAYLOAD_TYPE_MAX_CHARACTERS]
    return Payload(kind or "output", mend(data))
