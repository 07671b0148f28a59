"""Shows one prompt of a coding agent in the chat: its text, its calls with their changes, its plan."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from typing import Any, Literal

import msgspec
from acp.schema import (
    AgentMessageChunk,
    AgentPlanUpdate,
    AgentThoughtChunk,
    ContentToolCallContent,
    CurrentModeUpdate,
    EmbeddedResourceContentBlock,
    FileEditToolCallContent,
    PermissionOption,
    PromptResponse,
    ResourceContentBlock,
    TerminalToolCallContent,
    TextContentBlock,
    TextResourceContents,
    ToolCallProgress,
    ToolCallStart,
    ToolCallUpdate,
)

from threadcast.agents.acp.calls import RESULT_MAX_CHARACTERS, TITLE_MAX_CHARACTERS, AgentCall
from threadcast.agents.acp.editor import EditorCall
from threadcast.agents.acp.session import Permission, Session, SessionEvent
from threadcast.custom_agents.pieces import Call, Reasoning, Usage
from threadcast.custom_agents.seam import Approval, Payload, Seam
from threadcast.tools.base import ToolResult
from threadcast_protocol.wire.errors import ModelFailed
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["CALLS_MAX", "PromptStream"]

CALLS_MAX = 500
"""The maximum calls in one prompt, the same as the maximum tools that an agent may declare."""

OPEN_CALLS_MAX_BYTES = 33_554_432
"""The maximum bytes that the agent may send about its open calls: two of the longest lines. The calls are held in
memory."""

CALL_ID_MAX_CHARACTERS = 1_000

CHANGE_MAX_CHARACTERS = 100_000
"""Maximum characters of a file's old text, and of its new text, in a change that is shown; a payload has at most
256,000 bytes."""

CHANGES_MAX = 20
"""The maximum shown changes of one call; the call's result names all files."""

ENTRIES_MAX = 200

NO_RESULT = "The agent has not told the result of this call."
ASKED_AGAIN = "The agent has changed this call before it asked for permission; the next call is the one it asks about."
EDITED = "The agent cannot carry out other arguments than its own, so the edited call was rejected."

_OPTIONS: dict[bool, tuple[str, str]] = {True: ("allow_once", "allow_always"), False: ("reject_once", "reject_always")}
"""The kinds of options in order of preference. A permanent decision is stored in the chat, where people can revoke it.
The agent therefore gets one-time decisions, asks again each time, and is answered at once."""


class PromptStream:
    """The events of one prompt. `name` is the name of the agent, with which the names of the agent's tools begin."""

    def __init__(self, seam: Seam, session: Session, name: str, silence_seconds: float) -> None:
        self._seam = seam
        self._session = session
        self._name = name
        self._silence_seconds = silence_seconds
        self.texts: list[tuple[str, str]] = []
        """The ids and texts of the finished messages."""
        self._next: SessionEvent | None = None
        self._messages_count = self._calls_count = 0
        self._calls: dict[str, AgentCall] = {}
        self._handed_over: list[str] = []
        self._plan: JsonObject | None = None
        self._failed: ModelFailed | None = None
        self._decisions: set[asyncio.Task[None]] = set()

    async def show(self) -> PromptResponse:
        """Show the prompt until the agent ends it.

        Raises:
            ModelFailed: the agent failed, was silent for too long, or has ended.
        """
        self._own(self._take_back(), "end")
        try:
            while (event := await self._peek()) is not None:
                if isinstance(event, AgentMessageChunk | AgentThoughtChunk):
                    await self._message()
                    continue
                self._next = None
                await self._take(event)
            return self._session.ended()
        finally:
            for task in self._decisions:
                task.cancel()

    async def end(self) -> None:
        """Answer the calls whose results the agent has not sent."""
        for call in list(self._calls.values()):
            if call.id and not call.is_reported:
                call.is_reported = True
                await self._seam.report(call.id, ToolResult(content=NO_RESULT, failed=True))

    async def _take_back(self) -> None:
        """After the end of the prompt, answer the open requests to the client, because the next message of the chat
        would wait for them."""
        await self._session.until_ended()
        for call_id in self._handed_over:
            await self._seam.report(call_id, ToolResult(content=NO_RESULT, failed=True))

    def _own(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=f"acp {name}")
        self._decisions.add(task)  # cancelled by `show`
        task.add_done_callback(self._decisions.discard)

    async def _peek(self) -> SessionEvent | None:
        if self._next is None:
            self._next = await self._session.next_event(self._silence_seconds)
        return self._next

    async def _take(self, event: SessionEvent) -> None:
        match event:
            case ToolCallStart() | ToolCallProgress():
                await self._update(self._described(event))
            case AgentPlanUpdate(entries=entries):
                self._plan = {
                    "entries": [
                        {
                            "content": each.content[:TITLE_MAX_CHARACTERS],
                            "status": each.status,
                            "priority": each.priority,
                        }
                        for each in entries[:ENTRIES_MAX]
                    ]
                }
                await self._show_plan()
            case CurrentModeUpdate(current_mode_id=mode):
                await self._seam.status(f"mode {mode}")
            case Permission():
                await self._ask(event)
            case EditorCall():
                await self._hand_over(event)

    async def _message(self) -> None:
        """Show the next message, with one call at most."""
        self._messages_count += 1
        shown = await self._seam.message(f"m-{self._messages_count}", self._pieces)
        if shown.text:
            self.texts.append((shown.message_id, shown.text))
        if self._failed is not None:
            raise self._failed
        call = self._waiting_call()
        if call is not None and shown.calls:
            call.id = shown.calls[0].id
            await self._update(call)
        await self._show_plan()

    def _waiting_call(self) -> AgentCall | None:
        return next((call for call in self._calls.values() if call.shown and not call.id), None)

    async def _pieces(self) -> AsyncIterator[object]:
        """Yield the pieces of the next message. A failure ends the message, and is raised afterwards."""
        try:
            async for piece in self._pieces_until_failure():
                yield piece
        except ModelFailed as wrong:
            self._failed = wrong

    async def _pieces_until_failure(self) -> AsyncIterator[object]:
        while (event := await self._peek()) is not None:
            match event:
                case AgentMessageChunk(content=content):
                    yield _text_of(content)
                case AgentThoughtChunk(content=content):
                    yield Reasoning(_text_of(content))
                case ToolCallStart() | ToolCallProgress() if not self._is_shown(event):
                    self._next = None
                    call = self._described(event)
                    if call.is_described:
                        yield self._piece_of(call)
                    return
                case _:
                    return
            self._next = None
        usage = self._usage()
        if usage is not None:
            yield usage

    def _usage(self) -> Usage | None:
        try:
            found = self._session.ended_usage()
        except ModelFailed:
            return None
        return None if found is None else Usage(found.input_tokens, found.output_tokens, found.total_tokens)

    def _is_shown(self, event: ToolCallStart | ToolCallProgress) -> bool:
        known = self._calls.get(event.tool_call_id[:CALL_ID_MAX_CHARACTERS])
        return known is not None and bool(known.id)

    def _described(self, update: ToolCallStart | ToolCallProgress | ToolCallUpdate) -> AgentCall:
        """Return the call of an update. Raises ModelFailed: the agent makes too many calls."""
        call_id = update.tool_call_id[:CALL_ID_MAX_CHARACTERS]
        call = self._calls.get(call_id)
        if call is None or (call.is_reported and isinstance(update, ToolCallStart)):
            if self._calls_count >= CALLS_MAX:  # an agent may use one id for all calls
                raise ModelFailed("limit", f"The agent made more than {CALLS_MAX} calls in one prompt.")
            call = self._calls[call_id] = AgentCall(self._calls_count)
            self._calls_count += 1
        call.take(update)
        if sum(each.content_bytes for each in self._calls.values()) > OPEN_CALLS_MAX_BYTES:
            raise ModelFailed("limit", f"The agent's open calls have more than {OPEN_CALLS_MAX_BYTES:,} bytes.")
        return call

    def _piece_of(self, call: AgentCall) -> Call:
        call.shown, call.shown_kind = call.arguments(), call.kind
        return Call(f"{self._name}_{call.kind}", call.shown)

    async def _show(self, call: AgentCall) -> None:
        self._messages_count += 1

        async def pieces() -> AsyncIterator[object]:
            yield self._piece_of(call)

        shown = await self._seam.message(f"m-{self._messages_count}", pieces)
        call.id = shown.calls[0].id

    async def _update(self, call: AgentCall) -> None:
        """Show the new part of a call."""
        if not call.id:
            if not call.is_described:
                return
            await self._show(call)
        await self._show_changes(call)
        if call.is_reported:
            call.forget()
        if call.is_reported or call.status == "pending":
            return
        await self._begin(call)
        if call.status in ("completed", "failed"):
            call.is_reported = True
            await self._seam.report(call.id, ToolResult(content=self._result(call), failed=call.status == "failed"))
            call.forget()
        elif text := self._content(call):
            await self._seam.progress(call.id, text[-2_000:])

    async def _begin(self, call: AgentCall) -> None:
        if not call.is_begun:
            call.is_begun = True
            await self._seam.begin_call(call.id)

    async def _show_changes(self, call: AgentCall) -> None:
        for number, change in enumerate(call.changes()[:CHANGES_MAX]):
            before, after = change.old_text, change.new_text
            if max(len(before or ""), len(after)) > CHANGE_MAX_CHARACTERS:
                before, after = None, f"(a text of {len(after):,} characters)"
            data: JsonObject = {"path": change.path[:TITLE_MAX_CHARACTERS], "before": before, "after": after}
            await self._seam.show(
                f"change-{call.number}-{number}", Payload("diff", data, f"Change of {change.path:.200}")
            )

    async def _show_plan(self) -> None:
        if self._plan is not None and await self._seam.show("plan", Payload("plan", self._plan, "Plan")):
            self._plan = None

    def _content(self, call: AgentCall) -> str:
        parts: list[str] = []
        for each in call.content:
            match each:
                case ContentToolCallContent(content=content):
                    parts.append(_text_of(content))
                case TerminalToolCallContent(terminal_id=terminal):
                    parts.append(self._session.terminals.said(terminal))
                case FileEditToolCallContent(path=path):
                    parts.append(f"Changed {path}")
        return "\n".join(part for part in parts if part)[:RESULT_MAX_CHARACTERS]

    def _result(self, call: AgentCall) -> str:
        if text := self._content(call):
            return text
        if call.output is None:
            return "Done." if call.status == "completed" else "The call failed."
        if isinstance(call.output, str):
            return call.output[:RESULT_MAX_CHARACTERS]
        return msgspec.json.encode(call.output).decode()[:RESULT_MAX_CHARACTERS]

    async def _ask(self, permission: Permission) -> None:
        """Show the call that the agent asks about, and start a task that asks people."""
        call = self._described(permission.request.tool_call)
        if call.id and (call.is_reported or call.is_changed):
            shown, call.id = call.id, ""
            if not call.is_reported:
                await self._seam.report(shown, ToolResult(content=ASKED_AGAIN))
            call.is_reported = call.is_begun = False
        if not call.id:
            await self._show(call)
        await self._show_changes(call)
        self._own(self._decide(call, call.id, permission), f"permission {call.id}")

    async def _decide(self, call: AgentCall, call_id: str, permission: Permission) -> None:
        """Answer a request for permission. `call_id` is the shown call that people decide about."""
        try:
            approval = await self._seam.approve(call_id, must_ask=False)
            is_allowed = approval.accepted and call.id == call_id and not _is_edited(approval, call)
            if is_allowed:
                await self._begin(call)
            elif call.id == call_id and not call.is_reported:
                call.is_reported = True
                await self._seam.report(call_id, ToolResult(content=EDITED, failed=True))
            if not permission.answer.done():
                permission.answer.set_result(_option(permission.request.options, is_allowed))
        finally:
            if not permission.answer.done():
                permission.answer.set_result(None)

    async def _hand_over(self, asked: EditorCall) -> None:
        """Show the request to the client, and start a task that waits for the answer."""
        self._messages_count += 1

        async def pieces() -> AsyncIterator[object]:
            yield Call(f"{self._name}_{asked.tool}", asked.arguments)

        shown = await self._seam.message(f"m-{self._messages_count}", pieces)
        call_id = shown.calls[0].id
        self._handed_over.append(call_id)
        self._own(asked.carry_out(self._seam, call_id), f"client {call_id}")


def _is_edited(approval: Approval, call: AgentCall) -> bool:
    return approval.arguments is not None and approval.arguments != call.shown


def _option(options: Sequence[PermissionOption], is_allowed: bool) -> str | None:
    """Return the option for a decision. Returns None, which cancels the request, if the agent does not offer that
    option."""
    for kind in _OPTIONS[is_allowed]:
        for option in options:
            if option.kind == kind:
                return option.option_id
    return None


def _text_of(content: Any) -> str:  # Any: a content block
    match content:
        case TextContentBlock(text=text):
            return text
        case ResourceContentBlock(name=name, uri=uri):
            return f"{name} ({uri})"
        case EmbeddedResourceContentBlock(resource=TextResourceContents(text=text)):
            return text
    kind: Literal["image", "audio", "resource"] = content.type
    return f"[{kind}]"
