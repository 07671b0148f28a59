"""Runs client tools: the tool calls that the server assigns to clients, such as an editor (PROTOCOL §12).

The module reads the folded state, so that it also finds calls made during a disconnection. It claims each call before
it runs the handler, renews the claim while the handler runs, and cancels the handler when the call is no longer wanted.
"""

import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol, TypeAlias

import anyio
import anyio.to_thread
import msgspec
from anyio.abc import TaskGroup

from threadcast_client.backoff import RetryPolicy
from threadcast_client.errors import AlreadyClaimed, ThreadcastError
from threadcast_client.ids import new_id, new_request_id
from threadcast_client.sent import Sent
from threadcast_protocol.fold.state import ChatState
from threadcast_protocol.wire.commands import Command, IdeToolClaim, IdeToolResult
from threadcast_protocol.wire.events import IdeCall
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["Handler", "ToolAnswer", "ToolCalls"]

OTHERS_CLAIM_SECONDS = 15.0
"""The interval between attempts to claim a call that another client has claimed: a quarter of a claim's lifetime
(PROTOCOL §12)."""


class ToolAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A tool's result with more fields than a text. `failed`: whether the model is told that the call failed."""

    content: str
    failed: bool = False
    files_changed: list[str] = []


Handler: TypeAlias = Callable[..., str | ToolAnswer | Awaitable[str | ToolAnswer]]
"""A function that runs a call; the call's arguments are passed by name."""


class _Chat(Protocol):
    """The part of `Chat` that this module uses."""

    @property
    def state(self) -> ChatState: ...

    def send(self, what: Command) -> Sent: ...


class ToolCalls:
    """The handlers of one chat. `claimer` is the name under which this program claims calls."""

    def __init__(self, chat: _Chat, claimer: str, retry_policy: RetryPolicy) -> None:
        self._chat = chat
        self._claimer = claimer
        self._retry_policy = retry_policy
        self._handlers: dict[str, Handler] = {}
        self._calls: dict[str, anyio.CancelScope] = {}
        self._tasks: TaskGroup | None = None

    def begin(self, tasks: TaskGroup) -> None:
        """Set the task group in which handlers run, and begin the calls that wait."""
        self._tasks = tasks
        self.look()

    def add(self, name: str, handler: Handler) -> None:
        """Set the handler of a tool. The handler runs all later calls, and the calls that wait already."""
        self._handlers[name] = handler
        self.look()

    def look(self) -> None:
        """Compare the running handlers with the chat's state: begin new calls, and cancel calls that are not wanted."""
        waiting = self._chat.state.runtime.ide_calls
        if not (waiting or self._calls) or self._tasks is None:
            return
        wanted = {call.tool_call_id for call in waiting}
        for call_id in self._calls.keys() - wanted:
            self._calls.pop(call_id).cancel()
        for call in waiting:
            handler = self._handlers.get(call.tool_name)
            if handler is not None and call.tool_call_id not in self._calls:
                scope = self._calls[call.tool_call_id] = anyio.CancelScope()
                self._tasks.start_soon(self._carry_out, call, handler, scope)

    async def _carry_out(self, call: IdeCall, handler: Handler, scope: anyio.CancelScope) -> None:
        with scope:
            try:
                await self._claimed(call)
                result = await self._answered(call, handler)
                self._chat.send(
                    IdeToolResult(
                        client_request_id=new_request_id(),
                        tool_call_id=call.tool_call_id,
                        content=result.content,
                        tool_failed=result.failed,
                        files_changed=result.files_changed,
                    )
                )
            except ThreadcastError:
                return  # the call is no longer wanted, or the chat has ended

    async def _claimed(self, call: IdeCall) -> None:
        while True:
            try:
                await self._claim(call)
                return
            except AlreadyClaimed:
                await anyio.sleep(OTHERS_CLAIM_SECONDS)

    async def _claim(self, call: IdeCall) -> None:
        claim = IdeToolClaim(client_request_id=new_id("claim"), tool_call_id=call.tool_call_id, claimer=self._claimer)
        await self._chat.send(claim)

    async def _answered(self, call: IdeCall, handler: Handler) -> ToolAnswer:
        result: str | ToolAnswer = ""
        async with anyio.create_task_group() as beside:
            beside.start_soon(self._renew, call)
            try:
                result = await _called(handler, call.args)
            except (GeneratorExit, KeyboardInterrupt, SystemExit, anyio.get_cancelled_exc_class()):
                raise
            except BaseException as wrong:  # the boundary of a handler, including native code that panics
                result = ToolAnswer(content=str(wrong) or type(wrong).__name__, failed=True)
            beside.cancel_scope.cancel()
        return ToolAnswer(content=result) if isinstance(result, str) else result

    async def _renew(self, call: IdeCall) -> None:
        while True:
            await anyio.sleep(self._retry_policy.claim_renewed_seconds)
            try:
                await self._claim(call)
            except ThreadcastError:
                return  # the answer to the result will tell whether the claim is still valid


async def _called(handler: Handler, args: JsonObject) -> str | ToolAnswer:
    if inspect.iscoroutinefunction(handler):
        result: str | ToolAnswer = await handler(**args)
        return result
    answered = await anyio.to_thread.run_sync(partial(handler, **args), abandon_on_cancel=True)
    return answered if isinstance(answered, str | ToolAnswer) else await answered
