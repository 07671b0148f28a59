"""Lighter versions of anyio's waits for the code under test, on a loop without sockets and threads.

`clock.py` puts them in anyio's place while a simulation is installed. Task groups and cancel scopes are anyio's own,
with its rules of cancellation; the frames around them, and the text of a cancellation's reason, are left out. A task
waits at the same places, and is woken and cancelled in the same order, as with anyio.
"""

import asyncio
from asyncio import get_running_loop
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from types import TracebackType
from typing import Any, Self, cast

from anyio._backends import _asyncio as anyio_backend
from anyio._backends._asyncio import AsyncIOBackend, CancelScope

from tests.sim.loop import VirtualLoop

__all__ = ["Event", "FailAfter", "Lock", "QuickEvent", "Scope", "cancel", "move_on_after", "sleep"]

_NEVER = float("inf")

_loop = cast(Callable[[], VirtualLoop], get_running_loop)


def sleep(seconds: float) -> Awaitable[None]:
    """As `anyio.sleep`."""
    return _loop().sleep(seconds) if seconds > 0 else asyncio.sleep(0)


class Scope(CancelScope):
    """Works like anyio's cancel scope, but takes fewer steps to enter and leave while it is not cancelled."""

    __slots__ = ()

    def __new__(cls, *_: object, **_named: object) -> Self:
        return object.__new__(cls)

    def __enter__(self) -> Self:
        if self._cancel_called:
            return super().__enter__()
        states = anyio_backend._task_states
        task: asyncio.Task[Any] = vars(anyio_backend)[
            "current_task"
        ]()  # Any: tasks may return anything; `clock` replaces it
        self._host_task = task
        self._tasks.add(task)
        state = states.get(task)
        if state is None:
            states[task] = anyio_backend.TaskState(None, self)
        else:
            parent = self._parent_scope = state.cancel_scope
            state.cancel_scope = self
            if parent is not None:
                parent._child_scopes.add(self)
                parent._tasks.discard(task)
        if self._deadline != _NEVER:
            self._timeout()
        self._active = True
        self._cancelling_at_enter = task.cancelling()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, trouble: BaseException | None, trace: TracebackType | None
    ) -> bool:
        scope: CancelScope | None = self
        while scope is not None:
            if scope._cancel_called:
                return super().__exit__(kind, trouble, trace)
            scope = scope._parent_scope
        task, parent = self._host_task, self._parent_scope
        assert task is not None
        state = anyio_backend._task_states[task]
        if not self._active or self._pending_uncancellations or state.cancel_scope is not self:
            return super().__exit__(kind, trouble, trace)
        self._active = False
        if self._timeout_handle is not None:
            self._timeout_handle.cancel()
            self._timeout_handle = None
        self._tasks.remove(task)
        if parent is not None:
            parent._child_scopes.remove(self)
            parent._tasks.add(task)
        state.cancel_scope = parent
        self._host_task = None
        return False


def move_on_after(seconds: float | None, shield: bool = False) -> CancelScope:
    """Works like `anyio.move_on_after`."""
    return Scope(_NEVER if seconds is None else _loop().now + seconds, shield)


class FailAfter(Scope):
    """Works like `anyio.fail_after`."""

    __slots__ = ()

    def __init__(self, seconds: float | None, shield: bool = False) -> None:
        super().__init__(_NEVER if seconds is None else _loop().now + seconds, shield)

    def __exit__(
        self, kind: type[BaseException] | None, trouble: BaseException | None, trace: TracebackType | None
    ) -> bool:
        is_swallowed = super().__exit__(kind, trouble, trace)
        if self._cancelled_caught and _loop().now >= self._deadline:
            raise TimeoutError
        return is_swallowed


def cancel(scope: CancelScope, reason: str | None = None) -> None:
    """Works like `CancelScope.cancel` of anyio, but without a description of the calling task."""
    if not scope._cancel_called:
        if scope._timeout_handle:
            scope._timeout_handle.cancel()
            scope._timeout_handle = None
        scope._cancel_called = True
        # the text by which anyio recognizes its own cancellations
        scope._cancel_reason = "Cancelled via cancel scope of a schedule"
        if scope._host_task is not None:
            scope._deliver_cancellation(scope)


class Event:
    """Works like `anyio.Event`, with the method `clear` of asyncio's event."""

    __slots__ = ("_is_set", "_waiting")

    def __init__(self) -> None:
        self._is_set = False
        self._waiting: list[asyncio.Future[None]] = []

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        if not self._is_set:
            self._is_set = True
            for waiter in self._waiting:
                if not waiter.done():
                    waiter.set_result(None)
            self._waiting.clear()

    def clear(self) -> None:
        self._is_set = False

    def wait(self) -> Awaitable[None]:
        if self._is_set:
            return asyncio.sleep(0)
        waiter: asyncio.Future[None] = _loop().create_future()
        self._waiting.append(waiter)
        return waiter


class _Done:
    """An awaitable that completes without a turn of the loop."""

    def __await__(self) -> Generator[None, None, None]:
        return
        yield


_DONE = _Done()


class QuickEvent(Event):
    """Works like `asyncio.Event`: a task that waits for an event that is already set continues at once."""

    __slots__ = ()

    def wait(self) -> Awaitable[None]:
        return _DONE if self._is_set else super().wait()


class Lock:
    """Works like `anyio.Lock(fast_acquire=True)`, the only kind that the product uses."""

    __slots__ = ("_is_held", "_waiting")

    def __init__(self, *, fast_acquire: bool) -> None:
        self._is_held = not fast_acquire
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def __aenter__(self) -> None:
        if not self._is_held:
            await AsyncIOBackend.checkpoint_if_cancelled()
            if not self._is_held:
                self._is_held = True
                return
        turn: asyncio.Future[None] = _loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self._pass_on()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._pass_on()

    def _pass_on(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._is_held = False
