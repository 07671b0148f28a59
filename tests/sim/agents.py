"""The durable agents of a schedule: a player runs a program on the real `AgentContext`, and reports the values that it
receives to the book.

The arguments of an operation depend on the results of the operations before it, so a wrong value spreads as in a real
agent. The player's only input is the context. The values that the player draws itself (the variant of a fickle answer,
the number of a step's value) differ on purpose between executions.
"""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any
from zlib import crc32

import anyio

from tests.sim.book import Execution
from tests.sim.loop import PROCESS
from tests.sim.programs import Op, Program, program_of
from threadcast.custom_agents.agent import Agent
from threadcast.custom_agents.context import AgentContext
from threadcast.custom_agents.errors import CallDenied, CallFailed, OutcomeUnknown, Rejected, StepFailed
from threadcast.custom_agents.pieces import Call
from threadcast.custom_agents.provider import CustomAgents
from threadcast.custom_agents.seam import AttemptCut, CallReturn, Recorded, ShownCall
from threadcast.tools.base import ToolResult
from threadcast.tools.context import ToolContext
from threadcast_protocol.wire.errors import ToolFailed
from threadcast_protocol.wire.messages import JsonObject, text_of

if TYPE_CHECKING:
    from tests.sim.world import World

__all__ = ["AGENT", "agents_of"]

AGENT = "sim"
"""The name of the agent."""

_ERRORS = (StepFailed, OutcomeUnknown, CallFailed, CallDenied, Rejected, AttemptCut)


def agents_of(world: "World", worker: str, has_new_code: bool) -> CustomAgents:
    """Return the agents of a worker. In a fifth of the seeds, the first worker at the second place (`w1-0`) has no
    agents."""
    if world.plan.seed % 5 == 3 and worker == "w1-0":
        return CustomAgents([])

    async def play(ctx: AgentContext) -> None:
        await _play(world, ctx, has_new_code)

    return CustomAgents([Agent(play, name=AGENT)])


async def _play(world: "World", ctx: AgentContext, has_new_code: bool) -> None:
    words = text_of(ctx.messages[-1].content)
    request_id = words.partition(":")[0]
    program = program_of(world.plan.seed, request_id, world.plan.mix.changes, world.plan.mix.frameworks)
    turn = ctx.state["turn"] if ctx.state else 0
    execution = world.book.begin(ctx.run_id, turn, PROCESS.get())
    try:
        execution.inputs(repr((ctx.messages, ctx.params, ctx.context, ctx.principal)))
        player = _Player(world, ctx, program, execution, f"{request_id}.{turn}", has_new_code)
        with suppress(*_ERRORS):
            await player.scope(program.ops, "")
        if turn < program.restarts:
            await ctx.restart({"turn": turn + 1})
    finally:
        execution.end()


class _Player:
    """One execution of a program by a worker. `tag` identifies its answers."""

    def __init__(
        self,
        world: "World",
        ctx: AgentContext,
        program: Program,
        execution: Execution,
        tag: str,
        has_new_code: bool,
    ) -> None:
        self._world = world
        self._ctx = ctx
        self._program = program
        self._execution = execution
        self._tag = tag
        self._has_new_code = has_new_code

    async def scope(self, ops: tuple[Op, ...], prefix: str) -> list[str]:
        """Play the operations of a branch, and return their results. `prefix` is the branch's key."""
        seen: list[str] = []
        number = 0
        for index, op in enumerate(ops):
            if op.kind in ("framework", "attempt"):  # the framework's operations have separate keys
                seen.append(await self._op(op, f"{prefix}f{index}", seen))
                continue
            key = f"{prefix}.{number}" if prefix else str(number)
            if op.kind == "version":
                self._version(op.name, prefix)
                continue
            if op.kind == "changed":
                op = self._code_of(op, prefix)
            seen.append(await self._op(op, key, seen))
            number += 1
        return seen

    def _version(self, name: str, prefix: str) -> bool:
        is_new = self._ctx.version(name)
        self._execution.see_pending(f"{prefix}:{name}", "version", str(is_new).lower())
        return is_new

    def _code_of(self, op: Op, prefix: str) -> Op:
        """Return the operation that this worker's code has in the place of a changed operation."""
        old, new = op.branches[0][0], op.changed
        if not self._has_new_code or new is None:
            return old
        if not op.guard:
            return new
        return new if self._version(op.guard, prefix) else old

    async def _op(self, op: Op, key: str, before: list[str]) -> str:
        execution = self._execution
        wrong: Exception | None = None
        try:
            said = await self._value(op, key, f"{crc32(repr(before).encode()):08x}")
        except _ERRORS as each:
            wrong, said = each, f"{type(each).__name__}: {each}"
        except asyncio.CancelledError:
            if self._program.is_stubborn:
                await self._go_on()
            raise
        if op.kind == "gather":
            execution.see_pending(key, op.kind, said)
        elif op.kind not in ("now", "random", "new_id", "framework", "attempt"):
            execution.see(key, op.kind, op.name, said)
        if wrong is not None and op.is_strict:
            raise wrong
        return said

    async def _go_on(self) -> None:
        """Try operations after the end of the execution: each operation must raise again."""
        process = PROCESS.get()
        for number in range(2):
            if process is None or process.is_dead:
                return
            try:
                await self._ctx.step(f"after the end {number}", self._step(Op("step", how="works"), "late"))
            except asyncio.CancelledError:
                continue
            self._world.fail("an operation worked in a branch that had been cancelled")

    async def _value(self, op: Op, key: str, told: str) -> str:
        """Carry out an operation and return its value as text. `told` is a digest of the values that the branch has
        received."""
        ctx, execution = self._ctx, self._execution
        match op.kind:
            case "step":
                retry: Any = op.retry  # Any: one of three words
                return repr(await ctx.step(op.name, self._step(op, key), retry=retry))
            case "call":
                return repr(await ctx.call(op.name, {"told": told}))
            case "ask":
                return repr(await ctx.ask(f"{told}?", ["short", "long"]))
            case "sleep":
                await ctx.sleep(op.seconds)
                return "None"
            case "now":
                said = str(int(ctx.now().timestamp() * 1000 + 0.5))
                execution.see_pending(key, "now", said)
                return said
            case "random":
                said = repr(ctx.random())
                execution.see_pending(key, "random", said)
                return said
            case "new_id":
                said = f'"{ctx.new_id()}"'
                execution.see_pending(key, "new_id", said)
                return said
            case "answer":
                return await self._answer(op, key, told)
            case "steered":
                return repr([message.message_id for message in await ctx.steered()])
            case "gather":
                return await self._gather(op, key)
            case "framework":
                return await self._framework(op, key, told)
            case "attempt":
                return await self._attempt(op, key)
            case _:
                branches = [self._branch(each, key, number) for number, each in enumerate(op.branches)]
                with _closed(branches):
                    return repr(await ctx.first(*branches))

    async def _branch(self, ops: tuple[Op, ...], key: str, index: int, ended: list[int] | None = None) -> list[str]:
        try:
            return await self.scope(ops, f"{key}.{index}")
        finally:
            if ended is not None:
                ended.append(index)

    async def _gather(self, op: Op, key: str) -> str:
        ended: list[int] = []
        branches = [self._branch(each, key, number, ended) for number, each in enumerate(op.branches)]
        try:
            with _closed(branches):
                return repr(await self._ctx.gather(*branches))
        except _ERRORS:
            if len(ended) < len(op.branches):
                self._world.fail(f"gather {key} raised while only the branches {ended} had ended")
            raise

    def _step(self, op: Op, key: str) -> Callable[[], Coroutine[Any, Any, tuple[int, str]]]:
        world, execution = self._world, self._execution

        async def work() -> tuple[int, str]:
            if op.retry:
                execution.effect(key, op.retry, self._ctx.step_key)
            is_deadly = op.how == "kills" and world.book.is_first(f"{self._tag} {key}")
            if is_deadly and op.seconds == 0:
                world.kill_here("a step that kills its worker")
            await anyio.sleep(op.seconds)
            if is_deadly and op.seconds:
                world.kill_here("a step that kills its worker")
            if op.how == "fails":
                raise KeyError(f"{op.name} {world.book.turn()}")
            return world.book.turn(), op.name

        return work

    async def _framework(self, op: Op, key: str, told: str) -> str:
        """Play a framework's model call, its tool calls in simultaneous tasks of the framework, and another model
        call."""
        names = op.name.split()
        calls = [Call(name, {"told": told}, id=f"call_{self._tag}-{key}-{n}") for n, name in enumerate(names)]
        shown = await self._message(op, f"{key}-1", told, calls)
        tasks = [asyncio.create_task(self._framework_call(op, call)) for call in shown]
        said = await asyncio.gather(*tasks)
        await self._message(op, f"{key}-2", f"{crc32(repr(said).encode()):08x}", [])
        return repr(said)

    async def _message(self, op: Op, key: str, told: str, calls: list[Call]) -> list[ShownCall]:
        world, tag, turn = self._world, f"[{self._tag}/{key}]", self._world.book.turn()
        text = f"{tag} {turn if op.how == 'fickle' else 0} {told} is what I say."
        world.book.texts.setdefault(tag, set()).add(text)

        async def pieces() -> AsyncIterator[object]:
            middle = len(text) // 2
            yield text[:middle]
            await anyio.sleep(0.05)
            if op.how == "kills in its message" and world.book.is_first(f"{self._tag} {key}"):
                world.kill_here("a message that kills its worker")
            yield text[middle:]
            for call in calls:
                yield call
            yield Recorded({"turn": turn})

        shown = await self._ctx.seam.message(key, pieces)
        said = repr((shown.value, [call.id for call in shown.calls]))
        self._execution.see(f"@answer:{key}", "answer", "message", said)
        return shown.calls

    async def _framework_call(self, op: Op, call: ShownCall) -> str:
        world, execution = self._world, self._execution
        retry = "safe" if call.name == "framework_safe" else "once"

        async def run(arguments: JsonObject, context: ToolContext) -> CallReturn:
            execution.call_effect(call.id, retry)
            await anyio.sleep(op.seconds)
            if op.how == "kills" and world.book.is_first(f"kill in {call.id}"):
                world.kill_here("a call that kills its worker")
            if op.how == "fails":
                raise ToolFailed(f"failed {call.id}")
            return CallReturn(ToolResult(content=f"did {call.id}"), {"turn": world.book.turn()})

        try:
            said = repr(await self._ctx.seam.call(call.id, run))
        except _ERRORS as wrong:
            said = f"{type(wrong).__name__}: {wrong}"
        execution.see_call(call.id, said)
        return said

    async def _attempt(self, op: Op, key: str) -> str:
        """Carry out a step or a call that must not be repeated, and whose outcome may be missing in the journal."""
        done = await self._ctx.seam.get(key)
        if done is None:
            await self._ctx.seam.attempt(key)
            self._execution.call_effect(f"attempt {self._tag} {key}", "once")
            await anyio.sleep(op.seconds)
            if op.how == "kills" and self._world.book.is_first(f"kill in {self._tag} {key}"):
                self._world.kill_here("an attempt that kills its worker")
            await self._ctx.seam.put(key, "done")
        self._execution.see_call(f"attempt {self._tag} {key}", "done", has_result=True)
        return "done"

    async def _answer(self, op: Op, key: str, told: str) -> str:
        world, tag = self._world, f"[{self._tag}/{key}]"
        variant = world.book.turn() if op.how == "fickle" else 0
        text = f"{tag} {variant} {told} is what I say."
        world.book.texts.setdefault(tag, set()).add(text)

        async def write(said: str = "") -> AsyncIterator[str]:
            rest = text.removeprefix(said)
            middle = len(rest) // 2
            yield rest[:middle]
            await anyio.sleep(0.05)
            if op.how in ("kills", "fickle", "continues") and world.book.is_first(f"{self._tag} {key}"):
                await anyio.sleep(0.1)
                world.kill_here("an answer that kills its worker")
            if op.how == "fails":
                raise KeyError(f"{tag} failed")
            yield rest[middle:]

        async def go_on(shown: str = "") -> AsyncIterator[str]:
            async for piece in write(shown):
                yield piece

        return await self._ctx.answer(go_on if op.how == "continues" else write)


@contextmanager
def _closed(branches: Sequence[Coroutine[Any, Any, list[str]]]) -> Iterator[None]:
    """Close the branches that have not begun when the block ends."""
    try:
        yield
    finally:
        for each in branches:
            if inspect.getcoroutinestate(each) == inspect.CORO_CREATED:
                each.close()
