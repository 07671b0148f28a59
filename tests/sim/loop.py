"""An event loop on virtual time, and the processes that live on it.

No selector, no socket, no thread: when nothing is ready, the clock jumps to the next timer. Every callback belongs to
the process in whose context it was scheduled, so a process can be frozen (SIGSTOP: its callbacks wait) or killed
(kill -9: they are never run again) at any instant, without its code having a say. It knows nothing of Threadcast. The
one rule: the order of callbacks follows from the program and its seed alone, never from addresses or the machine.
"""

import asyncio
import heapq
import itertools
from collections import deque
from collections.abc import Coroutine, Generator
from contextvars import ContextVar, copy_context
from typing import Any, TypeVar

__all__ = ["PROCESS", "Process", "Stuck", "VirtualLoop", "at_once"]

_T = TypeVar("_T")


STEPS_MAX = 100_000
"""A schedule takes some hundreds to some thousands; one that takes so many turns in a circle."""


class Stuck(Exception):
    """Nothing is ready and nothing ever will be, or the callbacks never come to an end."""


class Process:
    """What the loop knows of a process. `held` are the callbacks of a frozen one, in order."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_dead = False
        self.is_frozen = False
        self.held: deque[asyncio.Handle] = deque()
        self.context = copy_context()
        self.context.run(PROCESS.set, self)

    def __repr__(self) -> str:
        return self.name


PROCESS: ContextVar[Process | None] = ContextVar("PROCESS", default=None)
"""Who runs now; None: the world outside (store, network, the schedule itself)."""


class _Task(asyncio.Task[Any]):  # Any: whatever the coroutine returns
    """Hashes by its number: sets of tasks, as anyio keeps them, are walked in the same order in every process."""

    _numbers = itertools.count()

    def __init__(self, coro: Any, **more: Any) -> None:  # Any: what asyncio.Task takes
        self._number = next(_Task._numbers)
        super().__init__(coro, **more)

    def __hash__(self) -> int:
        return self._number


class VirtualLoop(asyncio.BaseEventLoop):
    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.steps = 0
        self.tasks: list[asyncio.Task[Any]] = []
        _Task._numbers = itertools.count()
        self.set_task_factory(_make_task)

    def time(self) -> float:
        return self.now

    def _write_to_self(self) -> None:
        """`call_soon_threadsafe` wakes a selector with it; there is none, and there are no threads."""

    def freeze(self, process: Process) -> None:
        process.is_frozen = True

    def thaw(self, process: Process) -> None:
        process.is_frozen = False
        self._ready.extend(process.held)
        process.held.clear()

    def kill(self, process: Process) -> None:
        process.is_dead = True
        process.held.clear()

    def _process_events(self, events: object) -> None:
        """There is no selector."""

    def _run_once(self) -> None:
        ready, scheduled = self._ready, self._scheduled
        while scheduled and scheduled[0].cancelled():
            heapq.heappop(scheduled)._scheduled = False  # type: ignore[attr-defined]  # as BaseEventLoop does
        if not ready and not self._is_stopping():
            if not scheduled:
                raise Stuck
            self.now = max(self.now, scheduled[0].when())
        while scheduled and scheduled[0].when() <= self.now:
            timer = heapq.heappop(scheduled)
            timer._scheduled = False  # type: ignore[attr-defined]  # as above
            ready.append(timer)
        if self.steps > STEPS_MAX:
            raise Stuck(f"{STEPS_MAX} steps")
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle._cancelled:
                continue
            process = handle._context.get(PROCESS)  # type: ignore[attr-defined]  # there is no public way to it
            if process is not None:
                if process.is_dead:
                    continue
                if process.is_frozen:
                    process.held.append(handle)
                    continue
            self.steps += 1
            handle._run()

    def _is_stopping(self) -> bool:
        return bool(getattr(self, "_stopping", False))


def _make_task(loop: asyncio.AbstractEventLoop, coro: Any, **more: Any) -> asyncio.Task[Any]:  # Any: asyncio's own
    task = _Task(coro, loop=loop, **more)
    if isinstance(loop, VirtualLoop):
        loop.tasks.append(task)
    return task


def at_once(coroutine: Coroutine[Any, Any, _T] | Generator[Any, Any, _T]) -> _T:
    """The result of a coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: _T = done.value
        return result
    raise AssertionError("a step of the store waited")
