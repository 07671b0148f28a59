"""Turns the events of a chat into text for a terminal.

The module is pure; `chat.py` prints the text. A `Transcript` remembers which messages are on the screen, so no message
is shown twice: a snapshot after a lost connection adds only the missing text. An answer that the server took back is
reported.
"""

from collections.abc import Container, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from threadcast.console.agent_steps import StepLines
from threadcast.console.answers import lines_of
from threadcast.console.pen import BOLD, CYAN, DIM, RED, YELLOW, Pen, short
from threadcast.console.tool_change import changed_tool
from threadcast_protocol.wire.events import AT_REST, FINAL_TOOL_STATUSES

__all__ = ["Transcript"]

Json: TypeAlias = Mapping[str, Any]  # Any: events as JSON objects

HISTORY_COUNT = 10
"""The number of messages that are shown at the beginning: about a screenful."""

ARGUMENTS_MAX_CHARS = 100
RESULT_MAX_CHARS = 160
"""Limits that keep a tool call on one or two lines."""


class Transcript:
    """The text of one chat. Pass every event to `feed`, in order, from the first snapshot on.

    `own` holds the request ids of messages that were typed here and are on the screen already. `is_live`: the terminal
    can erase a line, so the progress of tools is shown. `width` is the number of columns of such a terminal.
    """

    def __init__(
        self, own: Container[str] = (), *, is_live: bool = False, has_colors: bool = False, width: int = 80
    ) -> None:
        self._own = own
        self._pen = Pen(is_live=is_live, has_colors=has_colors, width=width)
        self._steps = StepLines(self._pen)
        self._has_snapshot = False
        self._seen: dict[str, str] = {}  # texts of the shown messages
        self._draft_id: str | None = None
        self._draft: list[str] = []
        self._is_thinking = False
        self._calls: dict[str, tuple[str, str]] = {}
        self._results: dict[str, Json] = {}
        self._finals: dict[str, Json] = {}
        self._is_live = is_live
        self._is_continued = False
        self._last_error = ""

    def feed(self, event: Json) -> str:
        """Return the text that an event adds to the screen; often ""."""
        kind = event.get("type")
        if kind not in ("tool_status", "message_added"):
            self._show_waiting_calls()
        match kind:
            case "snapshot":
                self._take_snapshot(event)
            case "message_added":
                self._take_message(event["message"])
            case "stream_started":
                self._begin_draft(event["message_id"])
                self._is_continued = bool(event.get("append"))
            case "stream_delta":
                self._grow_draft(event)
            case "stream_finished":
                self._pen.end_line()
                if event.get("finish_reason") in ("length", "content_filter"):
                    self._pen.note(f"(cut off: {event['finish_reason']})")
            case "message_removed":
                if event["message_id"] == self._draft_id:
                    self._take_back()
            case "messages_truncated":
                self._pen.note(f"(the history was cut to {event['from_index']} messages)")
            case "message_updated":
                self._note_edit(event["message"])
            case "thread_updated":
                for key in ("title", "model", "mode"):
                    if event.get(key):
                        self._pen.note(f"({key}: {event[key]})")
            case "tool_status":
                self._take_tool_status(event)
            case "agent_step":
                self._steps.take(event)
            case "runtime_updated":
                self._take_runtime(event)
            case "pause_required":
                self._ask(event["reasons"])
            case "pause_cleared":
                self._pen.passing("")
            case "ide_tool_required":
                self._pen.note(f"(waiting for an IDE to run {event['tool_name']})")
            case "error":
                self._error(event["message"], event["code"])
            case "ack" if event.get("accepted") is False and event.get("client_request_id") in self._own:
                result = event.get("result", {})
                self._error(result.get("error", "the command was refused"), result.get("code", ""))
            case _:
                pass
        return self._pen.taken()

    def note(self, text: str) -> str:
        """Return a line about the connection or the program."""
        self._pen.note(text)
        return self._pen.taken()

    def settle(self) -> str:
        """Return the text that ends an unfinished line, so that the prompt begins on a new line."""
        self._pen.end_line()
        return self._pen.taken()

    # Messages.

    def _take_snapshot(self, event: Json) -> None:
        messages: Sequence[Json] = event["messages"]
        runtime: Json = event["runtime"]
        draft_id = None
        if messages and runtime["state"] not in AT_REST and messages[-1]["role"] == "assistant":
            draft_id = None if messages[-1].get("finish_reason") else messages[-1]["message_id"]
        is_first, self._has_snapshot = not self._has_snapshot, True
        if is_first:
            thread = event["thread"]
            facts = [thread.get("title", ""), thread.get("model", "")]
            self._pen.line("chat " + " · ".join(fact for fact in (thread["id"], *facts) if fact), DIM)
            earlier = len(messages) - HISTORY_COUNT
            if earlier > 0:
                self._pen.note(f"… {earlier} earlier messages")
                for message in messages[:earlier]:
                    self._remember(message)
        if self._draft_id is not None and all(message["message_id"] != self._draft_id for message in messages):
            self._take_back()
        for message in messages:
            if message["message_id"] != draft_id:
                self._take_message(message, is_history=True)
        open_run = None if runtime["state"] in AT_REST else runtime.get("run_id")
        for step in runtime.get("agent_steps", ()):
            self._steps.take(step, is_shown=not is_first or step["run_id"] == open_run)
        if draft_id is not None:
            self._show_draft(messages[-1])
        self._ask(runtime.get("pause_reasons", ()))

    def _remember(self, message: Json) -> None:
        self._seen[message["message_id"]] = _text(message.get("content", ""))
        self._take_calls(message.get("tool_calls", ()))

    def _take_calls(self, calls: Sequence[Json]) -> None:
        self._calls |= {call["id"]: (call["function"]["name"], call["function"]["arguments"]) for call in calls}

    def _take_message(self, message: Json, *, is_history: bool = False) -> None:
        message_id = message["message_id"]
        if message_id in self._seen:
            return
        self._remember(message)
        text = _text(message.get("content", ""))
        match message["role"]:
            case "assistant" if message_id == self._draft_id:
                self._finish_draft(text)
            case "assistant":
                if text:
                    self._pen.line(text)
            case "user":
                if message.get("client_request_id") not in self._own:
                    self._pen.end_line()
                    self._pen.write(message.get("by") or "", BOLD)
                    self._pen.write("> ", CYAN)
                    self._pen.line(text)
            case "tool":
                call_id = message.get("tool_call_id", "")
                self._results[call_id] = message
                if is_history or call_id in self._finals:
                    self._show_call(call_id)
            case "error":
                self._error(text, "")
            case role:
                self._pen.note(f"[{role}] {short(text, RESULT_MAX_CHARS)}")

    def _note_edit(self, message: Json) -> None:
        """Write a note if the text of an earlier message has changed; write nothing if only its other fields have
        changed."""
        text = _text(message.get("content", ""))
        if self._seen.get(message["message_id"], text) != text:
            self._pen.note("(an earlier message was edited)")
            self._seen[message["message_id"]] = text

    def _take_back(self) -> None:
        """End the draft, and write a note if a part of it was shown."""
        if self._draft or self._is_thinking:
            self._pen.note("(that answer was taken back)")
        self._draft_id, self._draft, self._is_thinking = None, [], False

    def _begin_draft(self, message_id: str) -> None:
        if message_id != self._draft_id:
            self._pen.end_line()
            self._draft_id, self._draft, self._is_thinking = message_id, [], False

    def _show_draft(self, message: Json) -> None:
        """Write the part of a snapshot's unfinished answer that is not on the screen yet."""
        is_new = message["message_id"] != self._draft_id
        self._begin_draft(message["message_id"])
        self._take_calls(message.get("tool_calls", ()))
        if is_new and message.get("reasoning_content") and not message["content"]:
            self._think(message["reasoning_content"])
        self._catch_up(_text(message["content"]))

    def _catch_up(self, text: str) -> None:
        shown = "".join(self._draft)
        if not text.startswith(shown):
            self._pen.note("(the answer now reads:)")
            shown, self._draft = "", []
        self._speak(text[len(shown) :])

    def _finish_draft(self, text: str) -> None:
        """Write the rest of an answer. The final text may differ from the streamed text, because the server may clean
        the text."""
        if not (self._is_continued and text.endswith("".join(self._draft))):
            self._catch_up(text)
        self._pen.end_line()
        self._draft_id, self._draft = None, []

    def _grow_draft(self, event: Json) -> None:
        if event["message_id"] != self._draft_id:
            return
        for op in event["ops"]:
            match op.get("op"):
                case "append_content":
                    self._speak(op["text"])
                case "append_reasoning" | "set_reasoning":
                    self._think(op["text"])
                case "set_tool_calls":
                    self._take_calls(op["tool_calls"])
                case _:
                    pass

    def _speak(self, text: str) -> None:
        if text:
            if self._is_thinking:
                self._pen.end_line()
                self._is_thinking = False
            self._draft.append(text)
            self._pen.write(text)

    def _think(self, text: str) -> None:
        if text:
            if not self._is_thinking:
                self._pen.end_line()
            self._pen.write(text, DIM)
            self._is_thinking = True

    # Tools and the run.

    def _take_tool_status(self, event: Json) -> None:
        call_id, status = event["tool_call_id"], event["status"]
        name, arguments = self._calls.get(call_id, (event["name"], ""))
        if event.get("input") is not None:
            arguments = msgspec.json.encode(event["input"]).decode()
        self._calls[call_id] = (name, arguments)
        if status in FINAL_TOOL_STATUSES:
            self._finals[call_id] = event
            if call_id in self._results:
                self._show_call(call_id)
        elif status in ("running", "progress"):
            label = event.get("label")
            called = f"{name}: {label}" if label else _call(name, arguments)
            parts = [called, event.get("stage"), event.get("message")]
            if event.get("progress") is not None:
                parts.append(f"{event['progress']:.0%}")
            self._pen.passing("* " + " · ".join(str(part) for part in parts if part))

    def _show_waiting_calls(self) -> None:
        """Write finished calls for which no further event will arrive: either no message contained the call's result,
        or the end of the call was reported before this transcript began."""
        for call_id in [*self._finals, *self._results]:
            self._show_call(call_id)

    def _show_call(self, call_id: str) -> None:
        final, result = self._finals.pop(call_id, {}), self._results.pop(call_id, {})
        if not final and not result:
            return
        name, arguments = self._calls.get(call_id, (final.get("name", "tool"), ""))
        status = final.get("status", "done")
        is_failed = bool(result.get("tool_failed")) or status != "done"
        text = short(_text(result.get("content", "")), RESULT_MAX_CHARS) or status
        elapsed = f" ({final['elapsed_ms']} ms)" if final.get("elapsed_ms") is not None else ""
        self._pen.end_line()
        self._pen.write(f"{'!' if is_failed else '*'} {_call(name, arguments)} ", RED if is_failed else CYAN)
        self._pen.line(f"→ {text}{elapsed}", DIM)

    def _take_runtime(self, event: Json) -> None:
        if event.get("status_text"):
            self._pen.passing(event["status_text"])
        if event["state"] not in AT_REST:
            return
        self._pen.passing("")
        match event.get("outcome"):
            case "aborted":
                self._pen.note("(stopped)")
            case "limit":
                self._pen.note("(stopped: the limit of model calls in one run is reached)")
            case "interrupted":
                self._pen.note("(interrupted: the worker that ran it has ended)")
            case _:
                pass
        if event.get("error"):
            self._error(event["error"], "")
        self._last_error = ""
        if self._is_live:
            self._pen.line("")  # an empty line after each turn

    def _ask(self, reasons: Sequence[Json]) -> None:
        for reason in reasons:
            name = reason["tool_name"]
            self._pen.end_line()
            if change := reason.get("change"):
                self._pen.line(changed_tool(name, change), YELLOW)
            if reason.get("once"):
                self._pen.line(f"(asked each time: {reason['rule']})", YELLOW)
            match reason["type"]:
                case "question":
                    for line in lines_of(reason):
                        self._pen.line(line, YELLOW)
                case "round_limit":
                    self._pen.line("? the limit of model calls is reached; continue?", YELLOW)
                case "outcome_unknown":
                    shown = _call(name, _json(reason.get("input")))
                    self._pen.line(f"? {shown} was interrupted and may have run already; run it again?", YELLOW)
                case _ if reason.get("hides_input"):
                    self._pen.line(f"? allow {name} with arguments that are hidden (show prints them)?", YELLOW)
                case _:
                    self._pen.line(f"? allow {_call(name, _json(reason.get('input')))}?", YELLOW)

    def _error(self, text: str, code: str) -> None:
        if text == self._last_error:
            return
        self._last_error = text
        self._pen.end_line()
        self._pen.line(f"error: {text}{f' ({code})' if code else ''}", RED)


def _text(content: object) -> str:
    """Return a message's content as text, with the type of each part that is not text."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "\n".join(str(part.get("text") or f"[{part.get('type', 'part')}]") for part in content)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode() if value else ""


def _call(name: str, arguments: str) -> str:
    """Return `name(key=value, …)`. Arguments that are not a JSON object are shown unchanged."""
    try:
        fields = msgspec.json.decode(arguments, type=dict[str, Any])  # Any: arguments written by a model
    except msgspec.MsgspecError:
        inside = arguments
    else:
        inside = ", ".join(f"{key}={msgspec.json.encode(value).decode()}" for key, value in fields.items())
    return f"{name}({short(inside, ARGUMENTS_MAX_CHARS)})"
