"""Client tools: carries out the calls that the server wants done here, such as an editor's (PROTOCOL §12).

It looks at the folded state alone, so a call that came while the line was down is found like any other. The rules: no
call is begun without its claim, a claim is renewed while the handler runs, and a handler whose call is no longer wanted
is cancelled.
"""

import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol, TypeAlias

import anyio
import anyio.to_thread
import msgspec
from anyio.abc import TaskGroup

from protocol.commands import Command, IdeToolClaim, IdeToolResult
from protocol.events import IdeCall
from protocol.messages import JsonObject
from protocol.state import ChatState
from threadcast.backoff import Patience
from threadcast.errors import AlreadyClaimed, ThreadcastError
from threadcast.ids import new_id, new_request_id
from threadcast.sent import Sent

__all__ = ["Handler", "ToolAnswer", "ToolCalls"]

OTHERS_CLAIM_SECONDS = 15.0
"""How often to ask again for a call that another client has: a quarter of what a claim lasts (PROTOCOL §12)."""


class ToolAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool did, when a text alone does not say it. `failed`: the model is told so."""

    content: str
    failed: bool = False
    files_changed: list[str] = []


Handler: TypeAlias = Callable[..., str | ToolAnswer | Awaitable[str | ToolAnswer]]
"""Called with the call's arguments by their names."""


class _Chat(Protocol):
    """What is asked of the chat."""

    @property
    def state(self) -> ChatState: ...

    def send(self, what: Command) -> Sent: ...


class ToolCalls:
    """The handlers of one chat. `claimer` is this program's name."""

    def __init__(self, chat: _Chat, claimer: str, patience: Patience) -> None:
        self._chat = chat
        self._claimer = claimer
        self._patience = patience
        self._handlers: dict[str, Handler] = {}
        self._calls: dict[str, anyio.CancelScope] = {}
        self._tasks: TaskGroup | None = None

    def begin(self, tasks: TaskGroup) -> None:
        """Handlers run in these tasks."""
        self._tasks = tasks
        self.look()

    def add(self, name: str, handler: Handler) -> None:
        """Calls of this tool are ours from now on; those that wait already too."""
        self._handlers[name] = handler
        self.look()

    def look(self) -> None:
        """The state has changed: begin what is wanted, and let go what is not."""
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
                return  # it is not wanted any more, or the chat has ended

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
            except BaseException as wrong:  # the boundary of a handler, also of native code that panics in it
                result = ToolAnswer(content=str(wrong) or type(wrong).__name__, failed=True)
            beside.cancel_scope.cancel()
        return ToolAnswer(content=result) if isinstance(result, str) else result

    async def _renew(self, call: IdeCall) -> None:
        while True:
            await anyio.sleep(self._patience.claim_renewed_seconds)
            try:
                await self._claim(call)
            except ThreadcastError:
                return  # the result will say whether it still counts


async def _called(handler: Handler, args: JsonObject) -> str | ToolAnswer:
    if inspect.iscoroutinefunction(handler):
        result: str | ToolAnswer = await handler(**args)
        return result
    answered = await anyio.to_thread.run_sync(partial(handler, **args), abandon_on_cancel=True)
    return answered if isinstance(answered, str | ToolAnswer) else await answered
