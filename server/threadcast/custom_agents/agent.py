"""Makes agents of Python functions: `@agent("name")`.

An agent that takes a `Round` is called round by round. A round takes the place of a model call: the round ends with the
answer, or with calls of tools. The server asks people for approval, runs the tools, and begins the next round with
their results in `messages`. Finished rounds survive a crash. A round that a crash has interrupted is repeated: its text
is removed from the chat, or continued if the chat's parameter `on_owner_loss` is `continue`.

    @agent("bank", tools=[charge, balance])
    async def bank(round: Round):
        async for piece in my_model(round.messages):
            yield piece

An agent that takes an `AgentContext` is a durable function: it runs from its beginning to its end, over crashes and
pauses, and each operation of its context is recorded in the chat's log.

    @agent("researcher")
    async def researcher(ctx: AgentContext) -> None:
        plan = await ctx.step("plan", make_plan, ctx.messages)
        await ctx.answer(write, plan)
"""

import inspect
import re
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, get_type_hints

from threadcast.base.threads import Returned, in_thread, items_in_thread
from threadcast.custom_agents.context import AgentContext
from threadcast.custom_agents.pieces import Piece
from threadcast.custom_agents.rounds import Round
from threadcast.tools.base import Tool
from threadcast.tools.python import PythonTool

__all__ = ["Agent", "agent", "call_sync_or_async", "pieces_of"]

_THREADS = "agents"

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""Matches names that need no quoting in a URL as a profile's `mode`."""


class Agent:
    """An agent made of a function. Calling the object calls the function, so the function stays usable in Python.

    `is_durable`: the function takes an `AgentContext`. `own_tools` are the tools that the agent brings along.
    `tool_names` are the names of all offered tools; None offers the same tools as a profile without a list.
    """

    def __init__(
        self,
        function: Callable[
            [Any], Any
        ],  # Any: a Round or an AgentContext, and pieces in any of the forms that `agent` lists
        *,
        name: str,
        title: str = "",
        description: str | None = None,
        tools: Sequence[Tool | str] | None = None,
    ) -> None:
        if not _NAME.fullmatch(name):
            raise TypeError(f"agent {name!r}: a name is 1 to 64 characters of A-Z a-z 0-9 _ -")
        self.is_durable = _input_of(name, function) is AgentContext
        self.function = function
        self.name = name
        self.title = title or name
        documented = (inspect.getdoc(function) or "").partition("\n\n")[0]
        self.description = description if description is not None else " ".join(documented.split())
        for each in tools or ():
            if not isinstance(each, str) and not hasattr(each, "input_schema"):
                raise TypeError(f"agent {name}: tools: write @tool() above {getattr(each, '__name__', repr(each))}")
        self.own_tools: list[Tool] = [each for each in tools or () if not isinstance(each, str)]
        self.tool_names = None if tools is None else [each if isinstance(each, str) else each.name for each in tools]

    def __call__(self, given: Any) -> Any:  # Any: a Round or an AgentContext, and the function's result
        return self.function(given)

    def __repr__(self) -> str:
        return f"<agent {self.name} of {self.function.__module__}.{self.function.__qualname__}>"

    def pieces(self, round: Round) -> AsyncGenerator[object]:
        """Call the function for one round and yield its pieces, unchecked. Sync code runs in a thread."""
        return pieces_of(self.function, round)


async def pieces_of(function: Callable[..., Any], *args: Any, **kwargs: Any) -> AsyncGenerator[object]:
    """Call a function and yield the pieces that it yields or returns, unchecked. Sync code runs in a thread."""
    call = partial(function, *args, **kwargs)
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        async with aclosing(
            call() if inspect.isasyncgenfunction(function) else items_in_thread(call, _THREADS)
        ) as items:
            async for item in items:
                for piece in _pieces_in(item.value) if isinstance(item, Returned) else (item,):
                    yield piece
        return
    for piece in _pieces_in(await call_sync_or_async(function, *args, **kwargs)):
        yield piece


async def call_sync_or_async(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return the result of a function. A sync function runs in a thread; if it returns an awaitable, the awaitable is
    awaited on the event loop."""
    call = partial(function, *args, **kwargs)
    found = await call() if inspect.iscoroutinefunction(function) else await in_thread(call, _THREADS)
    return await found if inspect.isawaitable(found) else found


def agent(
    name: str,
    *,
    title: str = "",
    description: str | None = None,
    tools: Sequence[PythonTool | str] | None = None,
) -> Callable[[Callable[[Any], Any]], Agent]:
    """Make an agent of a function with one parameter, a `Round` or an `AgentContext`.

    A function that takes an `AgentContext` is an async function without a result. A function that takes a `Round` is an
    async generator, a generator, or a function (async or not) that returns its pieces: a `str`, one piece, a list of
    pieces, or None. Each piece is a `str`, `Text`, `Reasoning`, `Call`, `Usage`, `Citation`, `Data` or `Keep`.

    The name is a profile, which chats choose with `mode`; `[profiles.NAME]` of the configuration may set its
    parameters, limits and texts. An agent called "agent" answers in all chats that choose no other profile. `tools` are
    tools of Python functions, or names of any tools; None offers the same tools as a profile without a list.

    Raises:
        TypeError: the name is invalid, or the function takes other arguments.
    """
    if not isinstance(name, str):
        raise TypeError('write @agent("name") above the function, with its name in parentheses')
    return partial(Agent, name=name, title=title, description=description, tools=tools)


def _input_of(name: str, function: Callable[..., Any]) -> type[Round] | type[AgentContext]:
    """Return the type of the function's only argument. Raises TypeError if the function takes other arguments, or is
    durable and not async."""
    parameters = inspect.signature(function).parameters.values()
    needed = [each for each in parameters if each.default is each.empty and each.kind is not each.VAR_KEYWORD]
    if len(needed) != 1 or needed[0].kind not in (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    ):
        raise TypeError(f"agent {name}: the function must take one argument, a Round or an AgentContext")
    hint = get_type_hints(function).get(needed[0].name, Round)
    if needed[0].name == "ctx" and needed[0].annotation is needed[0].empty:
        raise TypeError(
            f"agent {name}: write the type of ctx: `ctx: AgentContext` for a durable function, `ctx: Round` for rounds"
        )
    if hint is AgentContext and not inspect.iscoroutinefunction(function):
        raise TypeError(
            f"agent {name}: a function that takes an AgentContext must be an async function without `yield`"
        )
    if hint is Round or hint is AgentContext:
        return hint
    raise TypeError(
        f"agent {name}: the function's argument is a Round or an AgentContext, not {getattr(hint, '__name__', hint)}"
    )


def _pieces_in(value: object) -> Iterable[Piece | object]:
    """Return the pieces of a returned value."""
    if value is None:
        return ()
    return value if isinstance(value, list | tuple) else (value,)
