"""The events of one response: OpenAI's `response.*` frames, numbered from 0.

The frames are a function of the response's id, the message that began the run and the events of the run. Any process
that reads the same log therefore gives the same frames the same numbers. The types are those of
`openai.types.responses` (PyPI `openai` 3.54).
"""

from threadcast.compat.base import OutFrame, Projection, json_frame
from threadcast.compat.foreign_ids import call_id_of
from threadcast.compat.responses.response_ids import ResponseId
from threadcast_protocol.framing.codec import encode
from threadcast_protocol.wire.deltas import AppendContent, AppendReasoning
from threadcast_protocol.wire.events import (
    Event,
    IdeToolRequired,
    MessageAdded,
    PauseRequired,
    RuntimeUpdated,
    StreamDelta,
    StreamFinished,
    StreamStarted,
    ToolStatus,
)
from threadcast_protocol.wire.messages import JsonObject, Message, Usage, add_usage, text_of
from threadcast_protocol.wire.tool_names import mcp_server_of

__all__ = ["APPROVAL_PREFIX", "ECHO", "ResponseStream", "call_output_item", "error_object"]

ECHO = "openai_response"
"""The key in a message's `context` for the request's fields that every answer about the response repeats."""

APPROVAL_PREFIX = "mcpr_"
"""The id of an approval request is this prefix and the id of the tool call."""

OWN_LABEL = "threadcast"
"""`server_label` of the server's own tools, which belong to no MCP server."""

_CUT = frozenset({"unavailable"})
"""Codes that end a stream but not its run: the client may reconnect with `starting_after`."""


class ResponseStream(Projection):
    """Makes the frames of a response. Frames up to the number `starting_after` are left out (-1: none). `client_calls`
    are the run's calls of client tools before this response began."""

    def __init__(
        self, own_id: ResponseId, echo: JsonObject, *, starting_after: int = -1, client_calls: set[str] | None = None
    ) -> None:
        super().__init__(own_id.chat_id)
        self.own_id = own_id
        self.echo = echo
        self.status = "in_progress"
        self.last_message_id = ""
        self.answer_ids: set[str] = set()
        self.inputs: list[JsonObject] = []
        self._starting_after = starting_after
        self._client_calls = set(client_calls or ())
        self._next_number = 0
        self._model = str(echo.get("model", ""))
        self._output: list[JsonObject] = []
        self._open: int | None = None
        self._texts: list[str] = []
        self._calls: dict[str, int] = {}
        self._asked: PauseRequired | None = None
        self._usage: Usage | None = None
        self._cut_short: str | None = None

    @property
    def last_number(self) -> int:
        """The number of the last event up to now; -1 before the first one."""
        return self._next_number - 1

    def begin(self) -> list[OutFrame]:
        return [
            *self._event("response.created", response=self.body()),
            *self._event("response.in_progress", response=self.body()),
        ]

    def body(self) -> JsonObject:
        """Return OpenAI's `Response`, as it is now."""
        failure = self.failure if self.status == "failed" else None
        usage = self._usage
        return {
            "id": str(self.own_id),
            "object": "response",
            "created_at": self.own_id.created_at,
            "status": self.status,
            "background": bool(self.echo.get("background", False)),
            "error": None if failure is None else {"code": _error_code(failure.code), "message": failure.message},
            "incomplete_details": {"reason": self._cut_short} if self.status == "incomplete" else None,
            "instructions": self.echo.get("instructions"),
            "max_output_tokens": self.echo.get("max_output_tokens"),
            "metadata": self.echo.get("metadata") or {},
            "model": self._model,
            "output": [*self._output],
            "parallel_tool_calls": self.echo.get("parallel_tool_calls", True),
            "previous_response_id": self.echo.get("previous_response_id"),
            "conversation": {"id": self.chat_id},
            "store": self.own_id.kind != "t",
            "temperature": self.echo.get("temperature"),
            "text": {"format": {"type": "text"}},
            "tool_choice": "auto",
            "tools": self.echo.get("tools", []),
            "top_p": self.echo.get("top_p"),
            "truncation": "disabled",
            "usage": None if usage is None else _usage(usage),
        }

    def fail(self, code: str, message: str) -> list[OutFrame]:
        """Return the last frames for a run that was refused. If only this stream is interrupted, the stream ends
        without a last frame."""
        if code not in _CUT:
            return super().fail(code, message)
        self.is_done = True
        return []

    def show_input(self, message: Message) -> None:
        """Record the message that began the run."""
        self.last_message_id = self.last_message_id or message.message_id
        parts = message.content if isinstance(message.content, list) else []
        content = [{"type": "input_text", "text": text_of(message.content)}]
        for part in parts:
            if part.__struct_config__.tag == "image_url":
                url = getattr(part, "image_url").url  # noqa: B009 (the tag tells the type)
                content.append({"type": "input_image", "image_url": url, "detail": "auto"})
        item = {"type": "message", "id": f"msg_{message.message_id}", "role": "user", "status": "completed"}
        self.inputs.append({**item, "content": content})

    def _pause(self, event: Event) -> list[OutFrame]:
        if isinstance(event, PauseRequired):
            self._asked = event
            return []
        frames = self._close()
        for reason in self._asked.reasons if self._asked is not None else ():
            if reason.type == "question":
                continue
            item = {
                "id": APPROVAL_PREFIX + reason.tool_call_id,
                "type": "mcp_approval_request",
                "name": reason.tool_name or reason.type,
                "arguments": encode(reason.input).decode(),
                "server_label": _label(reason.tool_name),
            }
            frames += self._whole(item)
        return [*frames, *self._wait()]

    def _wait(self) -> list[OutFrame]:
        """Return the last frames of a response whose run waits for its client."""
        frames = self._close()
        self.is_done, self.status = True, "completed"
        return [*frames, *self._event("response.completed", response=self.body())]

    def _show(self, event: Event) -> list[OutFrame]:
        match event:
            case RuntimeUpdated(state="waiting_ide"):
                return self._wait()
            case StreamStarted():
                frames = self._close()
                self._model = event.model or self._model
                self.last_message_id = event.message_id
                self.answer_ids.add(event.message_id)
                return frames
            case StreamDelta() if self._is_mine(event.message_id):
                return self._delta(event)
            case StreamFinished():
                self._usage = add_usage(self._usage, event.usage)
                reasons = {"length": "max_output_tokens", "content_filter": "content_filter"}
                self._cut_short = reasons.get(event.finish_reason)
                return self._close()
            case MessageAdded(message=message) if message.role == "tool":
                self.last_message_id = message.message_id
                return self._result(message)
            case IdeToolRequired():
                return self._function_call(event)
            case ToolStatus(status="running"):
                return self._begin_call(event.tool_call_id, event.name, event.input)
            case _:
                return []

    def _delta(self, event: StreamDelta) -> list[OutFrame]:
        frames: list[OutFrame] = []
        for op in event.ops:
            match op:
                case AppendReasoning(text=text) if text:
                    frames += self._grow("reasoning", event.message_id, text)
                case AppendContent(text=text) if text:
                    frames += self._grow("message", event.message_id, text)
                case _:
                    pass
        return frames

    def _grow(self, kind: str, message_id: str, text: str) -> list[OutFrame]:
        """Add text to the open item, or to a new item of this kind."""
        frames: list[OutFrame] = []
        if self._open is None or self._output[self._open]["type"] != kind:
            frames += self._close()
            frames += self._open_text(kind, message_id)
        assert self._open is not None
        self._texts.append(text)
        where = self._where(self._open)
        if kind == "message":
            return [*frames, *self._event("response.output_text.delta", **where, delta=text, logprobs=[])]
        return [*frames, *self._event("response.reasoning_summary_text.delta", **where, delta=text)]

    def _open_text(self, kind: str, message_id: str) -> list[OutFrame]:
        index = len(self._output)
        self._open, self._texts = index, []
        if kind == "message":
            item: JsonObject = {"type": "message", "role": "assistant", "content": []}
            added, part = "response.content_part.added", _text_part("")
        else:
            item = {"type": "reasoning", "summary": []}
            added, part = "response.reasoning_summary_part.added", {"type": "summary_text", "text": ""}
        prefix = "msg" if kind == "message" else "rs"
        item |= {"id": f"{prefix}_{index}_{message_id}", "status": "in_progress"}
        self._output.append(item)
        frames = self._event("response.output_item.added", output_index=index, item=item)
        return [*frames, *self._event(added, **self._where(index), part=part)]

    def _where(self, index: int) -> JsonObject:
        item = self._output[index]
        part = "content_index" if item["type"] == "message" else "summary_index"
        return {"item_id": item["id"], "output_index": index, part: 0}

    def _close(self) -> list[OutFrame]:
        """Return the frames that finish the open text."""
        if self._open is None:
            return []
        index, text = self._open, "".join(self._texts)
        self._open, self._texts = None, []
        where, item = self._where(index), self._output[index]
        if item["type"] == "message":
            part = _text_part(text)
            frames = self._event("response.output_text.done", **where, text=text, logprobs=[])
            frames += self._event("response.content_part.done", **where, part=part)
            done = {**item, "content": [part], "status": "completed"}
        else:
            part = {"type": "summary_text", "text": text}
            frames = self._event("response.reasoning_summary_text.done", **where, text=text)
            frames += self._event("response.reasoning_summary_part.done", **where, part=part)
            done = {**item, "summary": [part], "status": "completed"}
        self._output[index] = done
        return [*frames, *self._event("response.output_item.done", output_index=index, item=done)]

    def _whole(self, item: JsonObject) -> list[OutFrame]:
        """Return the frames of an item that is complete when it appears."""
        index = len(self._output)
        self._output.append(item)
        frames = self._event("response.output_item.added", output_index=index, item=item)
        return [*frames, *self._event("response.output_item.done", output_index=index, item=item)]

    def _function_call(self, call: IdeToolRequired) -> list[OutFrame]:
        """Return the frames of a call that the client carries out."""
        if call.tool_call_id in self._client_calls:
            return []
        self._client_calls.add(call.tool_call_id)
        frames, index, arguments = self._close(), len(self._output), encode(call.args).decode()
        item = {
            "type": "function_call",
            "id": f"fc_{call.tool_call_id}",
            "call_id": call_id_of(self.chat_id, call.tool_call_id),
            "name": call.tool_name,
            "arguments": "",
            "status": "in_progress",
        }
        done = {**item, "arguments": arguments, "status": "completed"}
        self._output.append(done)
        where = {"item_id": item["id"], "output_index": index}
        frames += self._event("response.output_item.added", output_index=index, item=item)
        frames += self._event("response.function_call_arguments.delta", **where, delta=arguments)
        frames += self._event(
            "response.function_call_arguments.done", **where, name=call.tool_name, arguments=arguments
        )
        return [*frames, *self._event("response.output_item.done", output_index=index, item=done)]

    def _begin_call(self, call_id: str, name: str, arguments: JsonObject | None) -> list[OutFrame]:
        """Return the frames of a call that this server carries out."""
        if call_id in self._calls or call_id in self._client_calls:
            return []
        frames, index = self._close(), len(self._output)
        self._calls[call_id] = index
        item = {
            "type": "mcp_call",
            "id": f"mcp_{call_id}",
            "name": name,
            "server_label": _label(name),
            "arguments": encode(arguments or {}).decode(),
            "output": None,
            "error": None,
            "status": "in_progress",
        }
        self._output.append(item)
        where = {"item_id": item["id"], "output_index": index}
        frames += self._event("response.output_item.added", output_index=index, item=item)
        frames += self._event("response.mcp_call.in_progress", **where)
        return [*frames, *self._event("response.mcp_call_arguments.done", **where, arguments=item["arguments"])]

    def _result(self, message: Message) -> list[OutFrame]:
        call_id = message.tool_call_id or ""
        if call_id in self._client_calls:
            if self.own_id.kind == "n":
                self.inputs.append(call_output_item(message, self.chat_id))
            return []
        index = self._calls.get(call_id)
        if index is None:  # the call was denied before it ran, or began before this response
            return []
        text = text_of(message.content)
        failed = bool(message.tool_failed)
        error = {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": text}]}
        item = {**self._output[index], "status": "failed" if failed else "completed"}
        item |= {"error": error} if failed else {"output": text}
        self._output[index] = item
        name = "response.mcp_call.failed" if failed else "response.mcp_call.completed"
        frames = self._event(name, item_id=item["id"], output_index=index)
        return [*frames, *self._event("response.output_item.done", output_index=index, item=item)]

    def _last(self, outcome: str) -> list[OutFrame]:
        frames = self._close()
        if outcome in ("aborted", "interrupted"):
            self.status, self.failure = "cancelled", None
            return [*frames, *self._event("response.incomplete", response=self.body())]
        if outcome == "limit":
            self._cut_short, self.failure = "max_messages", None
        if self.failure is not None:
            self.status = "failed"
            return [*frames, *self._event("response.failed", response=self.body())]
        self.status = "completed" if self._cut_short is None else "incomplete"
        return [*frames, *self._event(f"response.{self.status}", response=self.body())]

    def _event(self, kind: str, **fields: object) -> list[OutFrame]:
        """Return the frame with the next number; [] if the client already has it."""
        number = self._next_number
        self._next_number += 1
        if number <= self._starting_after:
            return []
        return [json_frame(kind, {"type": kind, "sequence_number": number, **fields})]


def call_output_item(message: Message, chat_id: str) -> JsonObject:
    """Return the input item for the result of a client's tool."""
    return {
        "type": "function_call_output",
        "id": f"fco_{message.message_id}",
        "call_id": call_id_of(chat_id, message.tool_call_id or ""),
        "output": text_of(message.content),
        "status": "completed",
    }


def error_object(code: str, message: str, path: str | None) -> JsonObject:
    """Return OpenAI's error object."""
    param = path.strip("/").replace("/", ".") if path else None
    return {"error": {"message": message, "type": code, "param": param, "code": code}}


def _text_part(text: str) -> JsonObject:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _label(tool_name: str) -> str:
    return mcp_server_of(tool_name) or OWN_LABEL


def _error_code(code: str) -> str:
    """Return the code of OpenAI's closed set `ResponseError` for a code of this server."""
    if code in ("rate_limited", "queue_full"):
        return "rate_limit_exceeded"
    return "invalid_prompt" if code in ("bad_request", "invalid_content", "too_large") else "server_error"


def _usage(usage: Usage) -> JsonObject:
    cached = usage.cache_read_input_tokens or 0
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {
            "cached_tokens": cached,
            "cache_write_tokens": usage.cache_creation_input_tokens or 0,
        },
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.total_tokens,
    }
