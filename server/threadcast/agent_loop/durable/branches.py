"""Tracks the branches of a durable function: which task runs which branch, and whether any branch still works.

The function itself is the first branch; `gather` and `first` begin further branches. Each branch numbers its own
operations. Therefore the keys of operations do not depend on the order in which branches happen to run.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeAlias

import structlog

from threadcast.base.boundary import pass_on

__all__ = ["CLEANUP_SECONDS", "AgentHalted", "Branch", "Branches", "Ended"]

CLEANUP_SECONDS = 1.0
"""The maximum seconds for the `finally` blocks of a cancelled function or branch."""

_log = structlog.get_logger()

Ended: TypeAlias = tuple[Any, BaseException | None]
"""The result of a branch, and the error with which the branch has ended, or None."""


_around: ContextVar["Branch | None"] = ContextVar("the branch that has started the running task", default=None)


class AgentHalted(BaseException):
    """Ends the function from inside an operation. The class is not a subclass of `Exception`, so that the function's
    handlers of `Exception` do not catch the error."""


class Branch:
    """One branch. `key` is '' for the function itself. `inside` names the step that runs now, in which the context must
    not be used. `in_effect` is true while a step, call or answer runs. `is_over` is true if another branch of the same
    `first` has ended earlier. `open_count` is the number of unfinished branches that this branch has begun. If
    `until_first` is true, this branch waits for only one of these branches."""

    def __init__(self, key: str, parent: "Branch | None" = None) -> None:
        self.key = key
        self.parent = parent
        self.inside = ""
        self.in_effect = False
        self.is_over = False
        self.open_count = 0
        self.until_first = False
        self._count = 0

    def next_key(self) -> str:
        """Return the key of the branch's next operation."""
        key = f"{self.key}.{self._count}" if self.key else str(self._count)
        self._count += 1
        return key

    @property
    def is_cancelled(self) -> bool:
        """Whether this branch, or an enclosing branch, is over."""
        return self.is_over or (self.parent is not None and self.parent.is_cancelled)

    def key_ahead(self) -> str:
        """Return the key that `next_key` will return."""
        return f"{self.key}.{self._count}" if self.key else str(self._count)


class Branches:
    """All branches of one function. `on_change` is called when a branch begins to wait or to work. `on_end` is called
    with each branch that has ended, and with the branch's error or None. `on_end` may raise AgentHalted."""

    def __init__(self, on_change: Callable[[], None], on_end: Callable[[Branch, BaseException | None], None]) -> None:
        self._of_task: dict[asyncio.Task[Any], Branch] = {}
        self._working: set[Branch] = set()
        self._resting: set[Branch] = set()
        self._seam_waits: dict[Branch, tuple[int, bool]] = {}
        self.uses_seam = False
        """Whether a framework runs in the function. A task of the framework may begin an operation at any moment."""
        self._on_change = on_change
        self._on_end = on_end

    @property
    def all_wait(self) -> bool:
        """Whether no branch works."""
        return not self._working

    @property
    def any_awake(self) -> bool:
        """Whether any branch runs code of the operator."""
        return bool(self._working - self._resting)

    def current(self) -> Branch:
        """Return the branch of the running task. Raises RuntimeError: the task is not a branch, or runs a step."""
        try:
            task = asyncio.current_task()
        except RuntimeError:  # a thread
            task = None
        branch = self._of_task.get(task) if task is not None else None
        if branch is None:
            raise RuntimeError(
                "the context of a durable agent was used outside its function; use ctx.gather for work at the same time"
            )
        if branch.inside:
            raise RuntimeError(f"the context was used inside {branch.inside}; use it in the agent's function alone")
        return branch

    def start(
        self, coroutine: Coroutine[Any, Any, Any], key: str = "", parent: Branch | None = None
    ) -> "asyncio.Task[Ended]":
        """Run `coroutine` as a branch. The returned task returns the result or the error of `coroutine`, and raises
        only CancelledError."""
        branch = Branch(key, parent)
        task = asyncio.create_task(self._run(coroutine, branch), name=f"agent branch {key or 'main'}")
        self._of_task[task] = branch
        self._working.add(branch)
        return task

    async def _run(self, coroutine: Coroutine[Any, Any, Any], branch: Branch) -> Ended:
        ended: Ended
        _around.set(branch)
        try:
            try:
                ended = await coroutine, None
            except AgentHalted as halted:
                return None, halted
            except BaseException as wrong:  # boundary: the operator's agent
                pass_on(wrong)
                ended = None, wrong
            try:
                self._on_end(branch, ended[1])
            except AgentHalted as halted:
                return None, halted
            return ended
        finally:
            # counted without an await, so that the branches never all seem to wait in between
            if (parent := branch.parent) is not None:
                parent.open_count -= 1
                if parent.until_first or not parent.open_count:
                    self._working.add(parent)
            self._working.discard(branch)
            self._on_change()

    @contextmanager
    def operation(self) -> Iterator[Branch]:
        """Count one operation of a framework as a branch during the block, in any of the function's tasks. The branch
        that started the task counts as waiting while such operations run. Raises RuntimeError: the function is not
        running, or a step runs in this task."""
        task = asyncio.current_task()
        before = self._of_task.get(task) if task is not None else None
        outer = before or _around.get()
        if task is None or outer is None or outer.inside:
            raise RuntimeError("the seam of a durable agent was used outside its function, or inside a step")
        self.uses_seam = True
        branch = Branch("@", outer)
        self._of_task[task] = branch
        token = _around.set(branch)
        count, has_worked = self._seam_waits.get(outer, (0, outer in self._working))
        self._seam_waits[outer] = count + 1, has_worked
        self._working.add(branch)
        self._working.discard(outer)
        try:
            yield branch
        finally:
            _around.reset(token)
            if before is None:
                del self._of_task[task]
            else:
                self._of_task[task] = before
            count, has_worked = self._seam_waits.pop(outer)
            if count > 1:
                self._seam_waits[outer] = count - 1, has_worked
            elif has_worked:
                self._working.add(outer)
            self._working.discard(branch)
            self._on_change()

    @contextmanager
    def waiting(self, branch: Branch) -> Iterator[None]:
        """Count `branch` as waiting for an outside event during the block."""
        self._working.discard(branch)
        self._on_change()
        try:
            yield
        finally:
            self._working.add(branch)
            self._on_change()

    @contextmanager
    def resting(self, branch: Branch) -> Iterator[None]:
        """Count `branch` as working, but not as awake, during the block. A branch rests while it waits for the path, or
        while it runs a tool, which has its own deadline."""
        self._resting.add(branch)
        self._on_change()
        try:
            yield
        finally:
            self._resting.discard(branch)
            self._on_change()

    async def run_all(
        self,
        branch: Branch,
        key: str,
        coroutines: Sequence[Coroutine[Any, Any, Any]],
        on_first: Callable[[int], Awaitable[None]] | None = None,
        first_index: int = 0,
    ) -> list[Ended | None]:
        """Run `coroutines` as branches of `branch`, numbered from `first_index` on, and return their results in order.
        With `on_first`, wait until one branch has ended, call `on_first` with the index of this branch, and cancel the
        other branches. The results of the cancelled branches are None."""
        branch.open_count, branch.until_first = len(coroutines), on_first is not None
        tasks = [self.start(each, f"{key}.{index}", branch) for index, each in enumerate(coroutines, first_index)]
        self._working.discard(branch)
        self._on_change()
        try:
            when = asyncio.ALL_COMPLETED if on_first is None else asyncio.FIRST_COMPLETED
            await asyncio.wait(tasks, return_when=when)
            index = next(index for index, task in enumerate(tasks) if task.done())
            if on_first is not None:
                for task in tasks[:index] + tasks[index + 1 :]:
                    self._of_task[task].is_over = True
                await on_first(index)
                return [task.result() if task is tasks[index] else None for task in tasks]
            return [task.result() for task in tasks]
        finally:
            self._working.add(branch)
            await self._end(tasks)

    async def end_all(self) -> None:
        """Cancel all branches, and wait at most `CLEANUP_SECONDS` for their end."""
        await self._end(list(self._of_task))

    async def _end(self, tasks: Sequence["asyncio.Task[Any]"]) -> None:
        left = [task for task in tasks if not task.done()]
        for task in left:
            task.cancel()
        if left:
            _, still = await asyncio.wait(left, timeout=CLEANUP_SECONDS)
            for task in still:
                _log.warning("agent.branch_abandoned", task=task.get_name())
        for task in tasks:
            self._of_task.pop(task, None)
