"""Python functions as tools: `@tool()` on a sync or async function or generator.

The schema comes from the type hints, by msgspec; the description from the docstring. A parameter annotated
`ToolContext` receives the context and is not part of the schema. `Annotated[str, "words"]` describes a parameter,
`Annotated[int, msgspec.Meta(ge=1)]` also bounds it. Sync code runs in a thread. A function that cannot become a tool
says so when it is decorated, at start, never when a model calls it.

    @tool(retry="safe")
    def wind(city: Annotated[str, "name of the city"], ctx: ToolContext) -> str:
        \"""The wind in a city.\"""
"""

import asyncio
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator
from contextlib import aclosing
from functools import partial
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import anyio
import anyio.from_thread
import anyio.to_thread
import msgspec
from anyio.abc import ObjectSendStream
from anyio.lowlevel import RunVar

from protocol.errors import ToolFailed, explain
from protocol.mending import mended_json
from protocol.messages import JsonObject
from server.foreign import failing_plainly
from server.tools.base import DEFAULT_TIMEOUT_SECONDS, Policy, Progress, Retry, ToolContext, ToolOutput, ToolResult
from server.tools.preview import Preview
from server.tools.traits import NO_TRAITS, Traits

__all__ = ["THREADS_COUNT", "PythonTool", "tool"]

THREADS_COUNT = 40
"""Sync tools that run at once, as many as anyio's own default; apart from it, so that slow tools cannot starve other
threads' work. One more waits, within its own timeout. An abandoned thread gives its place back though it still runs:
threads cannot be stopped, and forty that hang must not end all tools."""

PROGRESS_BUFFER_COUNT = 16
"""Progress of a sync generator that nobody has taken yet; then its thread waits."""

_threads: RunVar[anyio.CapacityLimiter] = RunVar("tool threads")  # of one event loop

_T = TypeVar("_T")

_Function = Callable[..., Any]  # Any: arguments and results are checked by msgspec when it is called


class PythonTool:
    """A `Tool` made of a function. Calling it calls the function, so it stays usable in Python."""

    source = "python"

    def __init__(
        self,
        function: _Function,
        *,
        name: str | None = None,
        description: str | None = None,
        policy: Policy = "auto",
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
        retry: Retry = "once",
        category: str = "",
        hide_input: bool = False,
        label_arg: str | None = None,
        traits: Traits = NO_TRAITS,
    ) -> None:
        self.function = function
        self.name = name or function.__name__
        self.description = description if description is not None else inspect.getdoc(function) or ""
        self.policy: Policy = policy
        self.timeout_seconds = timeout_seconds
        self.retry: Retry = retry
        self.category = category
        self.hide_input = hide_input
        self.label_arg = label_arg
        self.traits = traits
        self._context_parameter, self._arguments = _read_signature(self.name, function)
        self.input_schema = _object_schema(self.name, self._arguments)
        if label_arg is not None and label_arg not in self._arguments.__struct_fields__:
            raise TypeError(f"tool {self.name}: label_arg {label_arg!r} is not one of its parameters")

    def __call__(self, *args: object, **kwargs: object) -> Any:  # Any: whatever the function returns
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<tool {self.name} of {self.function.__module__}.{self.function.__qualname__}>"

    async def run(self, arguments: JsonObject, context: ToolContext) -> AsyncIterator[ToolOutput]:
        """Progress, then one result.

        Raises:
            ToolFailed: the arguments do not fit; the sentence names the place as a JSON Pointer.
        """
        call = partial(self.function, **self._bind(arguments, context))
        if inspect.iscoroutinefunction(self.function):
            yield _result(await call())
        elif inspect.isasyncgenfunction(self.function) or inspect.isgeneratorfunction(self.function):
            is_async = inspect.isasyncgenfunction(self.function)
            async with aclosing(_run_async_generator(call) if is_async else _run_generator(call)) as outputs:
                async for output in outputs:
                    yield output
        else:
            yield _result(await _in_thread(call))

    def _bind(self, arguments: JsonObject, context: ToolContext) -> dict[str, object]:
        try:
            values = msgspec.convert(arguments, self._arguments)
        except msgspec.ValidationError as wrong:
            sentence, path = explain(wrong)
            raise ToolFailed(f"Bad arguments: {sentence}{f' (at {path})' if path else ''}.") from None
        bound = {name: getattr(values, name) for name in self._arguments.__struct_fields__}
        if self._context_parameter is not None:
            bound[self._context_parameter] = context
        return bound


def tool(
    *bare: object,
    name: str | None = None,
    description: str | None = None,
    policy: Policy = "auto",
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
    retry: Retry = "once",
    category: str = "",
    hide_input: bool = False,
    label_arg: str | None = None,
    traits: Traits = NO_TRAITS,
) -> Callable[[_Function], PythonTool]:
    """Make a tool of a function. The function returns str, `ToolResult`, `Preview`, or what can be written as
    JSON.

    A generator yields `Progress` (or str, a progress message) and ends by returning its result; an async generator,
    which cannot return, ends by yielding a `ToolResult`. `label_arg` names the argument that is the call's label
    (TOOL-13); `hide_input` keeps the arguments from watchers.

    Raises:
        TypeError: the signature cannot become a schema.
    """
    if bare:
        raise TypeError("write @tool() above the function, with parentheses")
    return partial(
        PythonTool,
        name=name,
        description=description,
        policy=policy,
        timeout_seconds=timeout_seconds,
        retry=retry,
        category=category,
        hide_input=hide_input,
        label_arg=label_arg,
        traits=traits,
    )


def _read_signature(name: str, function: _Function) -> tuple[str | None, type[msgspec.Struct]]:
    """The parameter that wants the context, and a struct of the others."""
    hints = get_type_hints(function, include_extras=True)
    context_parameter: str | None = None
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []  # Any: a type hint, a field of msgspec
    for parameter in inspect.signature(function).parameters.values():
        hint = hints.get(parameter.name)
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise TypeError(f"tool {name}: parameter {parameter.name!r} cannot be given by name")
        if hint is None:
            raise TypeError(f"tool {name}: parameter {parameter.name!r} has no type hint")
        if hint is ToolContext:
            context_parameter = parameter.name
        elif parameter.default is parameter.empty:
            fields.append((parameter.name, _described(hint)))
        else:
            fields.append((parameter.name, _described(hint), _default(parameter.default)))
    return context_parameter, msgspec.defstruct(name, fields, kw_only=True, forbid_unknown_fields=True)


def _described(hint: Any) -> Any:  # Any: a type hint is any object
    """`Annotated[T, "words"]` as msgspec reads it."""
    if get_origin(hint) is not Annotated:
        return hint
    inner, *notes = get_args(hint)
    for note in notes:
        inner = Annotated[inner, msgspec.Meta(description=note) if isinstance(note, str) else note]
    return inner


def _default(value: object) -> Any:  # Any: msgspec types its field so
    if isinstance(value, list | dict | set | bytearray):
        return msgspec.field(default_factory=value.copy)  # one call's changes must not be the next call's default
    return value


def _object_schema(name: str, arguments: type[msgspec.Struct]) -> JsonObject:
    """The struct's schema, with the object itself at the top: models want no `$ref` there."""
    try:
        schema = msgspec.json.schema(arguments)
    except TypeError as wrong:
        raise TypeError(f"tool {name}: {wrong}") from None
    definitions: JsonObject = schema.get("$defs", {})
    top: JsonObject = definitions.pop(schema["$ref"].rpartition("/")[2])
    top.pop("title", None)
    return {**top, "$defs": definitions} if definitions else top


def _result(value: object) -> ToolResult:
    if isinstance(value, ToolResult):
        return value
    if isinstance(value, str):
        return ToolResult(content=value)
    if isinstance(value, Preview):
        return ToolResult(content="", preview=value)
    try:
        return ToolResult(content=mended_json(value).decode())
    except (TypeError, ValueError) as wrong:
        raise ToolFailed(f"The tool returned a {type(value).__name__}, which cannot be written as JSON.") from wrong


def _output(item: object) -> ToolOutput:
    if isinstance(item, Progress | ToolResult):
        return item
    if isinstance(item, Preview):
        return _result(item)
    if isinstance(item, str):
        return Progress(message=item)
    raise ToolFailed(f"The tool yielded a {type(item).__name__}; it may yield Progress, str or ToolResult.")


async def _run_async_generator(call: Callable[[], AsyncGenerator[object, None]]) -> AsyncGenerator[ToolOutput, None]:
    async with aclosing(call()) as items:
        async for item in items:
            output = _output(item)
            yield output
            if isinstance(output, ToolResult):
                return
    yield ToolResult(content="")


async def _run_generator(call: Callable[[], Generator[object, None, object]]) -> AsyncGenerator[ToolOutput, None]:
    """A sync generator, from first to last in one thread (what it opened may belong to that thread), its progress live.

    When nobody listens any more its next `yield` raises GeneratorExit in it, so even an abandoned one comes to an end.
    """
    sender, receiver = anyio.create_memory_object_stream[ToolOutput](PROGRESS_BUFFER_COUNT)

    async def drive() -> ToolResult:
        with sender:
            return await _in_thread(partial(_drive_generator, call, sender))

    task = asyncio.create_task(drive())  # owned by this generator, whose `finally` ends it
    try:
        with receiver:
            async for output in receiver:
                yield output
        yield await task
    finally:
        task.cancel()
        await asyncio.wait({task})  # at once: a thread that still runs is left behind
        if not task.cancelled():
            task.exception()  # raised above, or nobody asks any more


def _drive_generator(
    call: Callable[[], Generator[object, None, object]], out: ObjectSendStream[ToolOutput]
) -> ToolResult:
    """In the thread."""
    items = call()
    try:
        while True:
            try:
                output = _output(next(items))
            except StopIteration as end:
                return ToolResult(content="") if end.value is None else _result(end.value)
            if isinstance(output, ToolResult):
                return output
            anyio.from_thread.run(out.send, output)
    finally:
        items.close()


async def _in_thread(call: Callable[[], _T]) -> _T:
    run = partial(failing_plainly, call)
    return await anyio.to_thread.run_sync(run, abandon_on_cancel=True, limiter=_limiter())


def _limiter() -> anyio.CapacityLimiter:
    try:
        return _threads.get()
    except LookupError:
        limiter = anyio.CapacityLimiter(THREADS_COUNT)
        _threads.set(limiter)
        return limiter
