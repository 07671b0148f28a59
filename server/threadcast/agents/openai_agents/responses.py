"""Translates the stream of a model's response into pieces of a message, and a response into JSON and back. Pure.

The events are those of OpenAI's Responses API, which all models of the SDK yield (`agents.models.interface`). The
events are read by their names and fields, so a model may also yield its own objects with the same fields.
"""

import json
import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import msgspec
from agents import AgentOutputSchemaBase, Usage
from agents.exceptions import ModelBehaviorError
from agents.items import ModelResponse, TResponseOutputItem
from agents.usage import deserialize_usage, serialize_usage
from pydantic import TypeAdapter

from threadcast.custom_agents.pieces import Call, Citation, Reasoning, Text
from threadcast.custom_agents.pieces import Usage as ShownUsage
from threadcast.tools.base import Payload
from threadcast_protocol.wire.mending import mend
from threadcast_protocol.wire.messages import JsonObject

__all__ = [
    "HOSTED",
    "HOSTED_ARGUMENTS_MAX_CHARACTERS",
    "HOSTED_RESULT_MAX_CHARACTERS",
    "ResponseReader",
    "arguments_of",
    "called_name",
    "decoded_response",
    "encoded_response",
    "hosted_results",
    "input_items",
]

HOSTED = "openai_"
"""The prefix of the names under which calls of hosted tools are shown, such as `openai_web_search`."""

HOSTED_RESULT_MAX_CHARACTERS = 10_000
"""The maximum length of a hosted tool's shown result. The response itself, which the model reads again, keeps
everything."""

HOSTED_ARGUMENTS_MAX_CHARACTERS = 20_000
"""The maximum length of a hosted tool's shown arguments, such as the code that it runs."""

PAYLOAD_TYPE_MAX_CHARACTERS = 64

_RESULTS = ("results", "outputs", "output", "result", "error")
_ITEMS: TypeAdapter[list[TResponseOutputItem]] = TypeAdapter(list[TResponseOutputItem])


class ResponseReader:
    """Reads one response. `hidden` are the names of the calls that are not shown, which are handoffs. In the chat, the
    names of all other calls begin with `prefix`. `call_ids` are the ids that the model gave the shown calls, in the
    order of the calls."""

    def __init__(self, hidden: Collection[str], schema: AgentOutputSchemaBase | None, prefix: str) -> None:
        self.call_ids: list[str] = []
        self._hidden = hidden
        self._prefix = prefix
        self._schema = schema
        self._texts: list[str] = []
        self._part: object = None
        self._summary: object = None
        self._done: list[TResponseOutputItem] = []
        self._response: ModelResponse | None = None

    def read(self, event: Any) -> Iterator[object]:  # Any: an event of the SDK, or of a model of the operator
        """Yield the pieces of one event.

        Raises:
            ModelBehaviorError: the event says that the response has failed.
        """
        match event.type:
            case "response.output_text.delta" | "response.refusal.delta":
                part: object = (getattr(event, "output_index", 0), getattr(event, "content_index", 0))
                if self._texts and part != self._part:
                    yield from self._text("\n\n")
                self._part = part
                yield from self._text(event.delta)
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                part = (
                    getattr(event, "output_index", 0),
                    getattr(event, "summary_index", None),
                    getattr(event, "content_index", None),
                )
                if self._summary is not None and part != self._summary:
                    yield Reasoning("\n\n")
                self._summary = part
                yield Reasoning(event.delta)
            case "response.output_text.annotation.added":
                note = event.annotation
                yield Citation(mend(note if isinstance(note, dict) else note.model_dump(mode="json")))
            case "response.output_item.done":
                self._done.append(event.item)
            case "response.completed":
                self._complete(event.response)
            case "response.incomplete" | "response.failed" | "response.error" | "error":
                raise ModelBehaviorError(f"The model's response ended with {event.type}{_reason(event)}.")

    def end(self) -> Iterator[object]:
        """Yield the pieces that only the whole response contains: unstreamed text, calls, structured output and usage.

        Raises:
            ModelBehaviorError: the stream ended before the response was complete.
        """
        response = self.whole()
        whole = [_text_of(item) for item in response.output if item.type == "message"]
        if not self._texts and any(whole):
            yield from self._text("\n\n".join(text for text in whole if text))
        calls = 0
        for item in response.output:
            if item.type == "function_call":
                calls += 1
                if item.name not in self._hidden:
                    self.call_ids.append(item.call_id)
                    yield Call(self._prefix + called_name(item), arguments_of(item.arguments), id=item.call_id)
            elif _is_hosted(item):
                call = _hosted_call(item)
                self.call_ids.append(str(call.id))
                yield call
        if not calls and self._schema is not None and not self._schema.is_plain_text() and any(whole):
            yield from _payload(self._schema, whole[-1])
        used = response.usage
        if used.total_tokens:
            yield ShownUsage(
                used.input_tokens,
                used.output_tokens,
                used.total_tokens,
                cache_read_input_tokens=used.input_tokens_details.cached_tokens or None,
            )

    def whole(self) -> ModelResponse:
        """Return the complete response. Raises ModelBehaviorError: the stream ended before the response was
        complete."""
        if self._response is None:
            raise ModelBehaviorError("The model's response ended before it was complete.")
        return self._response

    def _text(self, text: str) -> Iterator[Text]:
        if text:
            self._texts.append(text)
            yield Text(text)

    def _complete(self, response: Any) -> None:  # Any: the `Response` of the API
        """Keep the whole response. Items that a backend sent only one by one are added to it."""
        used = response.usage
        usage = Usage()
        if used is not None:
            usage = Usage(
                requests=1,
                input_tokens=used.input_tokens,
                input_tokens_details=used.input_tokens_details,
                output_tokens=used.output_tokens,
                output_tokens_details=used.output_tokens_details,
                total_tokens=used.total_tokens,
            )
        self._response = ModelResponse(
            output=list(response.output or self._done),
            usage=usage,
            response_id=response.id,
            request_id=getattr(response, "_request_id", None),
        )


def encoded_response(response: ModelResponse) -> JsonObject:
    """Return a response as JSON, without loss."""
    return {
        "output": [mend(item.model_dump(mode="json", exclude_unset=True)) for item in response.output],
        "usage": serialize_usage(response.usage),
        "response_id": response.response_id,
        "request_id": response.request_id,
    }


def decoded_response(value: JsonObject) -> ModelResponse:
    """Return the response that `encoded_response` has encoded. Raises pydantic.ValidationError: the installed SDK does
    not know one of the items."""
    return ModelResponse(
        output=_ITEMS.validate_python(value["output"]),
        usage=deserialize_usage(value["usage"]),
        response_id=value["response_id"],
        request_id=value["request_id"],
    )


def input_items(response: ModelResponse) -> list[JsonObject]:
    """Return the items of a response as later model calls read them."""
    return [dict(item) for item in msgspec.to_builtins(mend(response.to_input_items()))]


def arguments_of(written: str) -> JsonObject:
    """Return the arguments that a model wrote. A text that is not a JSON object is shown as the argument
    `arguments`."""
    try:
        found = json.loads(written or "{}")
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {"arguments": written}


def called_name(item: Any) -> str:  # Any: a function call of the API
    """Return the name under which a call is shown, including the tool's namespace if there is one."""
    namespace = getattr(item, "namespace", None)
    return f"{namespace}.{item.name}" if isinstance(namespace, str) and namespace != item.name else str(item.name)


def hosted_results(response: ModelResponse) -> list[tuple[str, str, str, bool]]:
    """Return (id, shown name, result, failed) of each call of a hosted tool, which ran at the model's provider."""
    found = []
    for item in response.output:
        if _is_hosted(item):
            dumped = item.model_dump(mode="json", exclude_none=True)
            results = {key: dumped[key] for key in _RESULTS if key in dumped and item.type != "image_generation_call"}
            text = json.dumps(results, ensure_ascii=False) if results else str(dumped.get("status", "completed"))
            failed = dumped.get("status") == "failed" or "error" in results
            found.append((item.id or item.type, _hosted_name(item), text[:HOSTED_RESULT_MAX_CHARACTERS], failed))
    return found


def _is_hosted(item: Any) -> bool:  # Any: an output item of the API
    return item.type.endswith("_call") and item.type not in ("function_call", "custom_tool_call", "tool_search_call")


def _hosted_name(item: Any) -> str:
    return f"{HOSTED}{item.type.removesuffix('_call')}"


def _hosted_call(item: Any) -> Call:
    """Return the call of a hosted tool as clients see it."""
    left_out = {"id", "type", "status", *_RESULTS}
    arguments = mend(item.model_dump(mode="json", exclude_none=True, exclude=left_out))
    if len(text := json.dumps(arguments, ensure_ascii=False)) > HOSTED_ARGUMENTS_MAX_CHARACTERS:
        arguments = {"arguments": text[:HOSTED_ARGUMENTS_MAX_CHARACTERS]}
    return Call(_hosted_name(item), arguments, id=item.id or item.type)


def _payload(schema: AgentOutputSchemaBase, text: str) -> Iterable[Payload]:
    """Return the structured output as a payload, if it fits the schema; otherwise the SDK ends the run."""
    try:
        schema.validate_json(text)
        data = json.loads(text)
    except (ModelBehaviorError, ValueError, RecursionError):
        return []
    name = re.sub(r"[^A-Za-z0-9_.-]+", "_", schema.name()).strip("_")[:PAYLOAD_TYPE_MAX_CHARACTERS]
    return [Payload(name or "output", data if isinstance(data, dict) else {"response": data})]


def _text_of(item: Any) -> str:  # Any: a message of the API
    parts = (getattr(part, "text", None) or getattr(part, "refusal", None) or "" for part in item.content)
    return "\n\n".join(part for part in parts if part)


def _reason(event: Any) -> str:
    """Return the reason that an event gives for a failed response, in the API's own words and at most 300
    characters."""
    response = getattr(event, "response", None)
    error = getattr(response, "error", None)
    details = getattr(response, "incomplete_details", None)
    reason = getattr(error, "message", None) or getattr(details, "reason", None) or getattr(event, "message", None)
    return f": {reason}"[:300] if reason else ""
