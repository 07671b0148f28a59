"""OpenAI's Responses API, for models whose reasoning must survive between calls.

The call is `client.py`'s, the words are `responses_wire.py`'s. It knows nothing of chats and runs; `Providers` hands it
out, the agent loop iterates it. The one rule: encrypted reasoning leaves as `ProviderData` alone, and an
answer is whole only when the server said that the response has ended.
"""

from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

import msgspec

from protocol.messages import JsonObject
from server.providers.base import (
    Citation,
    Delta,
    Finished,
    FinishReason,
    ModelNamed,
    ProviderData,
    ReasoningDelta,
    Request,
    ServerBlock,
    TextDelta,
    ToolCallDelta,
    UsageReported,
)
from server.providers.failures import model_failed
from server.providers.openai.chat_wire import ErrorBody
from server.providers.openai.client import OpenAIServer, SaidInStream
from server.providers.openai.responses_wire import Event, Response, kept_item, request_body, usage_of
from server.providers.tolerant import Decoder, Mender

if TYPE_CHECKING:
    from openai import AsyncAPIResponse, AsyncOpenAI

__all__ = ["OpenAIResponses", "ResponsesReader"]

_events = Decoder(Event)
_responses = Decoder(Response)

_TEXT_EVENTS = frozenset({"response.output_text.delta", "response.refusal.delta"})
_REASONING_EVENTS = frozenset({"response.reasoning_summary_text.delta", "response.reasoning_text.delta"})
_LAST_EVENTS = frozenset({"response.completed", "response.incomplete", "response.failed"})


class OpenAIResponses(OpenAIServer):
    """The `Provider`."""

    def _body(self, request: Request) -> JsonObject:
        return request_body(request)

    def _reader(self) -> "ResponsesReader":
        return ResponsesReader()

    def _call(
        self, client: "AsyncOpenAI", body: JsonObject
    ) -> "AbstractAsyncContextManager[AsyncAPIResponse[Any]]":  # Any: the type that the SDK would parse; we read raw
        return client.responses.with_streaming_response.create(
            model=body["model"], input=[], stream=True, extra_body=body
        )


class _Call(msgspec.Struct, frozen=True):
    """What we read of an item that is a call."""

    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None


class _Part(msgspec.Struct, frozen=True):
    """What we read of a part of a message beside its text."""

    annotations: list[JsonObject] | None = None


class ResponsesReader:
    """Events to deltas. Calls are numbered in the order in which their items appear."""

    def __init__(self) -> None:
        self.has_begun = False
        self.is_done = False
        self._mender = Mender()
        self._model: str | None = None
        self._finish: FinishReason | None = None
        self._usage: UsageReported | None = None
        self._calls: dict[int, int] = {}
        """Output index to call index."""
        self._with_arguments: set[int] = set()
        self._with_text: set[int] = set()

    def feed(self, data: bytes) -> list[Delta]:
        if data == b"[DONE]":  # not OpenAI's, but of servers that write it after every stream
            return []
        event = _events.decode(data, self._mender)
        deltas = self._event(event) if event.type else self._whole(_responses.decode(data, self._mender))
        self.has_begun = self.has_begun or any(not isinstance(delta, ModelNamed) for delta in deltas)
        return self._mender.mend(deltas)

    def end(self) -> list[Delta]:
        if self._finish is None:
            raise model_failed("broken" if self.has_begun else "empty", "the stream ended before its response did")
        last: list[Delta] = [] if self._usage is None else [self._usage]
        return [*self._mender.end(), *last, Finished(self._finish)]

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
            raise SaidInStream(event.error or ErrorBody(message=event.message, code=event.code))
        if event.response is None:
            return []
        return self._last(event.response) if event.type in _LAST_EVENTS else self._named(event.response)

    def _named(self, response: Response) -> list[Delta]:
        if not response.model or response.model == self._model:
            return []
        self._model = response.model
        return [ModelNamed(response.model)]

    def _last(self, response: Response) -> list[Delta]:
        """The end; an answer that was not streamed says its status in the same words."""
        if response.error is not None or response.status == "failed":
            raise SaidInStream(response.error or ErrorBody(message="the response failed"))
        if response.usage is not None:
            self._usage = UsageReported(usage_of(response.usage))
        if response.status == "incomplete":
            reason = response.incomplete_details.reason if response.incomplete_details else None
            self._finish = "content_filter" if reason == "content_filter" else "length"
        else:
            self._finish = "tool_calls" if self._calls else "stop"
        self.is_done = True
        return self._named(response)

    def _whole(self, response: Response) -> list[Delta]:
        deltas = self._named(response)
        if response.status is None and response.error is None:
            return deltas  # not a response at all; `end` says so
        for at, item in enumerate(response.output or ()):
            deltas += self._item(at, item, is_streamed=False)
        self._last(response)
        return deltas

    def _item(self, at: int, item: JsonObject, *, is_streamed: bool = True) -> list[Delta]:
        """A finished item: what its deltas did not say already."""
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
    """The texts of an item's parts; a refusal is what the model says instead of its answer."""
    if not isinstance(parts, list):
        return ""
    return between.join(str(p.get("text") or p.get("refusal") or "") for p in parts if isinstance(p, dict))
