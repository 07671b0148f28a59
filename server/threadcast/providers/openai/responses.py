"""The provider for OpenAI's Responses API, for models whose reasoning must survive between calls.

`client.py` makes the call, `responses_wire.py` defines the formats. `Providers` returns this provider, and the agent
loop iterates over its deltas. Encrypted reasoning is emitted as `ProviderData` only, and an answer is complete only
when the server reported the end of the response.
"""

import msgspec

from threadcast.providers.base import (
    Citation,
    Delta,
    ProviderData,
    ReasoningDelta,
    Request,
    ServerBlock,
    TextDelta,
    ToolCallDelta,
    UsageReported,
)
from threadcast.providers.openai.causes import from_error_body
from threadcast.providers.openai.chat_wire import ErrorBody
from threadcast.providers.openai.client import OpenAIReader, OpenAIServer
from threadcast.providers.openai.responses_wire import Event, Response, kept_item, request_body, usage_of
from threadcast.providers.tolerant import Decoder
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["OpenAIResponses", "ResponsesReader"]

_events = Decoder(Event)
_responses = Decoder(Response)

_TEXT_EVENTS = frozenset({"response.output_text.delta", "response.refusal.delta"})
_REASONING_EVENTS = frozenset({"response.reasoning_summary_text.delta", "response.reasoning_text.delta"})
_LAST_EVENTS = frozenset({"response.completed", "response.incomplete", "response.failed"})


class OpenAIResponses(OpenAIServer):
    """The `Provider`."""

    path = "/responses"

    def _body(self, request: Request) -> JsonObject:
        return request_body(request)

    def _reader(self) -> "ResponsesReader":
        return ResponsesReader()


class _Call(msgspec.Struct, frozen=True):
    """The fields read from a call's item."""

    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None


class _Part(msgspec.Struct, frozen=True):
    """The fields that are read from a part of a message, besides its text."""

    annotations: list[JsonObject] | None = None


class ResponsesReader(OpenAIReader):
    """Converts events into deltas. Calls are numbered in the order in which their items appear."""

    def __init__(self) -> None:
        super().__init__()
        self._calls: dict[int, int] = {}
        """The index of a call, by its output index."""
        self._with_arguments: set[int] = set()
        self._with_text: set[int] = set()

    def feed(self, data: bytes) -> list[Delta]:
        if data == b"[DONE]":  # compatible servers end each stream with it; OpenAI does not
            return []
        event = _events.decode(data, self.mender)
        deltas = self._event(event) if event.type else self._whole(_responses.decode(data, self.mender))
        return self._passed_on(deltas)

    def _event(self, event: Event) -> list[Delta]:
        at, delta = event.output_index, event.delta
        if event.type in _TEXT_EVENTS:
            self._with_text.add(at)
            return [TextDelta(delta)] if delta else []
        if event.type == "response.function_call_arguments.delta":
            return self._arguments(at, delta or "")
        if event.type in _REASONING_EVENTS:
            return [ReasoningDelta(delta)] if delta else []
        if event.type == "response.reasoning_summary_part.added":
            return [ReasoningDelta("\n\n")] if event.summary_index else []
        if event.type == "response.output_text.annotation.added":
            return [Citation(event.annotation)] if event.annotation else []
        if event.type == "response.output_item.added" and event.item:
            return self._open_call(at, event.item) if event.item.get("type") == "function_call" else []
        if event.type == "response.output_item.done" and event.item:
            return self._item(at, event.item)
        if event.type == "error":
            error = event.error or ErrorBody(message=event.message, code=event.code)
            raise from_error_body(error, has_begun=self.has_begun)
        if event.response is None:
            return []
        return self._last(event.response) if event.type in _LAST_EVENTS else self._named(event.response.model)

    def _last(self, response: Response) -> list[Delta]:
        """Return the last deltas, made from the response's status, for streamed and whole answers alike."""
        if response.error is not None or response.status == "failed":
            error = response.error or ErrorBody(message="the response failed")
            raise from_error_body(error, has_begun=self.has_begun)
        if response.usage is not None:
            self._usage = UsageReported(usage_of(response.usage))
        if response.status == "incomplete":
            reason = response.incomplete_details.reason if response.incomplete_details else None
            self._finish = "content_filter" if reason == "content_filter" else "length"
        else:
            self._finish = "tool_calls" if self._calls else "stop"
        self.is_done = True
        return self._named(response.model)

    def _whole(self, response: Response) -> list[Delta]:
        deltas = self._named(response.model)
        if response.status is None and response.error is None:
            return deltas  # this is not a response, and `end` raises the error
        for at, item in enumerate(response.output or ()):
            deltas += self._item(at, item, is_streamed=False)
        self._last(response)
        return deltas

    def _item(self, at: int, item: JsonObject, *, is_streamed: bool = True) -> list[Delta]:
        """Return the deltas of a finished item that were not streamed already."""
        match item.get("type"):
            case "reasoning":
                deltas: list[Delta] = []
                if not is_streamed and (summary := _joined(item.get("summary"), "\n\n")):
                    deltas.append(ReasoningDelta(summary))
                if item.get("encrypted_content"):
                    kept = kept_item(item, after_text=bool(self._with_text), calls_before=len(self._calls))
                    deltas.append(ProviderData(kept))
                return deltas
            case "message":
                return self._message(at, item, is_streamed=is_streamed)
            case "function_call":
                opened = [] if at in self._calls else self._open_call(at, item)
                if at in self._with_arguments:
                    return opened
                return opened + self._arguments(at, str(item.get("arguments") or ""))
            case _:
                return [ServerBlock(item)]

    def _message(self, at: int, item: JsonObject, *, is_streamed: bool) -> list[Delta]:
        if at in self._with_text:
            return []
        text = _joined(item.get("content"), "")
        if not text:
            return []
        self._with_text.add(at)
        cited = [] if is_streamed else msgspec.convert(item["content"], list[_Part])
        return [TextDelta(text), *(Citation(note) for part in cited for note in part.annotations or ())]

    def _open_call(self, at: int, item: JsonObject) -> list[Delta]:
        call = msgspec.convert(item, _Call)
        index = self._calls.setdefault(at, len(self._calls))
        opened: list[Delta] = [ToolCallDelta(index, call.call_id, call.name)]
        return opened + self._arguments(at, call.arguments) if call.arguments else opened

    def _arguments(self, at: int, text: str) -> list[Delta]:
        if not text or at not in self._calls:
            return []
        self._with_arguments.add(at)
        return [ToolCallDelta(self._calls[at], arguments=text)]


def _joined(parts: object, between: str) -> str:
    """Return the joined texts of an item's parts; a refusal counts as text."""
    if not isinstance(parts, list):
        return ""
    return between.join(str(p.get("text") or p.get("refusal") or "") for p in parts if isinstance(p, dict))
