"""An event loop on virtual time, and the processes that live on it.

The loop has no selector, socket or thread: when no callback is ready, the clock jumps to the next timer. Every callback
belongs to the process in whose context it was scheduled, so a process can be frozen (SIGSTOP: its callbacks wait) or
killed (kill -9: they are never run again) at any instant, whatever its code does. The module does not depend on
Threadcast. The order of callbacks depends only on the program and its seed, never on memory addresses or the machine.
"""

import asyncio
import itertools
import sys
from asyncio import events
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Sequence
from contextvars import Context, ContextVar, copy_context
from functools import partial
from heapq import heappop, heappush
from typing import Any, TypeAlias, TypeVar, TypeVarTuple, Unpack

__all__ = ["PROCESS", "Process", "Stuck", "VirtualLoop", "at_once"]

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")


STEPS_MAX = 100_000
"""A schedule takes some hundreds to some thousands of turns; a schedule that takes this many is in an endless loop."""


class Stuck(Exception):
    """Raised when no callback is ready and no timer is set, or when the callbacks never end."""


class Process:
    """The loop's record of a process. `is_stopped` is true while the process is frozen or dead; `held` has the
    callbacks of a frozen process, in order."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_dead = False
        self.is_stopped = False
        self.held: deque[_Ready] = deque()
        self.context = copy_context()
        self.context.run(PROCESS.set, self)

    def __repr__(self) -> str:
        return self.name


_Ready: TypeAlias = tuple[Context, Callable[..., object], Sequence[Any]]

PROCESS: ContextVar[Process | None] = ContextVar("PROCESS", default=None)
"""The process that runs now; None for the outside (store, network, the schedule itself)."""


class _Timer(asyncio.TimerHandle):
    """A timer handle that does not use its loop."""

    __slots__ = ()

    def __init__(self, when: float, callback: Callable[..., object], args: Sequence[Any], context: Context) -> None:
        # Replaces the base class's constructor, because its debug support and source lookup for every callback would be
        # the main cost of a schedule.
        self._when = when
        self._callback = callback
        self._args = args
        self._context = context
        self._cancelled = False

    def cancel(self) -> None:
        self._cancelled = True

    def when(self) -> float:
        return self._when

    def fire(self) -> None:
        if not self._cancelled:
            self._callback(*self._args)


class VirtualLoop(asyncio.BaseEventLoop):
    """Overrides the most frequent methods of a running loop, without the checks and debugging of the base class. A
    ready callback is a tuple of three, not a handle, because it is never cancelled."""

    get_debug = bool  # each future tests this value; `bool()` is False and needs no frame

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.steps = 0
        self.tasks: list[asyncio.Task[Any]] = []
        self._soon: deque[_Ready] = deque()
        # Each timer has its time, a number that keeps the order of insertion, and a call (cancellable or not) or a
        # sleeper's future.
        self._timers: list[tuple[float, int, _Timer | _Ready | asyncio.Future[None]]] = []
        self._numbers = itertools.count()
        self.create_future = partial(asyncio.Future, loop=self)  # type: ignore[method-assign]  # as for `get_debug`

    def time(self) -> float:
        return self.now

    def call_soon(
        self, callback: Callable[[Unpack[_Ts]], object], *args: *_Ts, context: Context | None = None
    ) -> Any:  # Any: the caller only keeps the handle
        ready = (copy_context() if context is None else context, callback, args)
        self._soon.append(ready)
        return ready

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[_Ts]], object],
        *args: *_Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        timer = _Timer(when, callback, args, copy_context() if context is None else context)
        heappush(self._timers, (when, next(self._numbers), timer))
        return timer

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[_Ts]], object],
        *args: *_Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self.now + delay, callback, *args, context=context)

    def later(self, seconds: float, context: Context, callback: Callable[..., object], args: Sequence[Any]) -> None:
        """Works like `call_later`, but the call cannot be cancelled, so it needs no handle."""
        heappush(self._timers, (self.now + seconds, next(self._numbers), (context, callback, args)))

    def sleep(self, seconds: float) -> "asyncio.Future[None]":
        """Return a future that is done after that time: a timer without a call. A sleeper whose process is frozen wakes
        up when the process continues."""
        woken: asyncio.Future[None] = asyncio.Future(loop=self)
        heappush(self._timers, (self.now + seconds, next(self._numbers), woken))
        return woken

    def create_task(self, coro: Any, *, name: object = None, context: Context | None = None) -> asyncio.Task[Any]:
        task = asyncio.Task(coro, loop=self, name="" if name is None else str(name), context=context)
        self.tasks.append(task)
        return task

    def freeze(self, process: Process) -> None:
        process.is_stopped = True

    def thaw(self, process: Process) -> None:
        process.is_stopped = process.is_dead
        self._soon.extend(process.held)
        process.held.clear()

    def kill(self, process: Process) -> None:
        process.is_dead = process.is_stopped = True
        process.held.clear()

    def run_until_complete(self, future: Any) -> Any:  # Any: a coroutine and its result
        """Raises Stuck."""
        main = self.create_task(future)
        hooks = sys.get_asyncgen_hooks()
        events._set_running_loop(self)
        sys.set_asyncgen_hooks(firstiter=None, finalizer=self._close_later)
        try:
            self._turns(main)
        finally:
            sys.set_asyncgen_hooks(*hooks)
            events._set_running_loop(None)
        return main.result()

    def _close_later(self, left: AsyncGenerator[Any, Any]) -> None:  # Any: values of any type
        """An async generator without references is closed in a later step of the loop."""
        self.call_soon(self.create_task, left.aclose())

    def _turns(self, main: "asyncio.Task[Any]") -> None:  # Any: `main` may return any value
        """Run until `main` is done: timers whose time has come become ready; if no callback is ready, the clock jumps
        to the next timer. Then all ready callbacks run; the callbacks that they schedule wait for the next step. The
        steps are in one function for speed, because a schedule spends most of its time in this loop."""
        soon, timers = self._soon, self._timers
        take = soon.popleft
        while not main.done():
            while timers and (not soon or timers[0][0] <= self.now):
                when, _, timer = heappop(timers)
                if isinstance(timer, tuple):
                    soon.append(timer)
                elif isinstance(timer, _Timer):
                    if timer._cancelled:
                        continue
                    soon.append((timer._context, timer.fire, ()))
                elif timer.done():
                    continue
                else:
                    timer.set_result(None)
                if when > self.now:
                    self.now = when
            count = len(soon)
            if not count:
                raise Stuck
            self.steps += count
            if self.steps > STEPS_MAX:
                raise Stuck(f"{STEPS_MAX} steps")
            for _ in range(count):
                ready = take()
                context, callback, args = ready
                process = context.get(PROCESS)
                if process is not None and process.is_stopped:
                    if not process.is_dead:
                        process.held.append(ready)
                    continue
                try:
                    context.run(callback, *args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as trouble:  # as BaseEventLoop does
                    self.call_exception_handler({"message": f"a callback failed: {callback}", "exception": trouble})


def at_once(coroutine: Coroutine[Any, Any, _T] | Generator[Any, Any, _T]) -> _T:
    """Return the result of a coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: _T = done.value
        return result
    raise AssertionError("a step of the store waited")
