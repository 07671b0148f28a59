"""Makes tools of Python functions: `@tool()` on a sync or async function or generator.

msgspec makes the schema from the type hints. The descriptions of the tool and of its parameters come from the
docstring, which may list parameters in the style of Google, NumPy or Sphinx. A parameter annotated `ToolContext`
receives the context and is not part of the schema. `Annotated[str, "words"]` describes a parameter in place of the
docstring; `Annotated[int, msgspec.Meta(ge=1)]` also sets bounds. Sync code runs in a thread. If a function cannot
become a tool, its decorator raises TypeError when the file is loaded, and not when a model calls it.

    @tool(retry="safe")
    def wind(city: Annotated[str, "name of the city"], ctx: ToolContext) -> str:
        \"""The wind in a city.\"""
"""

import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from functools import partial
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec

from threadcast.base.threads import Returned, in_thread, items_in_thread
from threadcast.tools.base import (
    DEFAULT_TIMEOUT_SECONDS,
    Policy,
    Retry,
    ToolOutput,
    ToolResult,
)
from threadcast.tools.context import Progress, ToolContext
from threadcast.tools.docstrings import read_docstring
from threadcast.tools.preview import Preview
from threadcast.tools.traits import NO_TRAITS, Traits
from threadcast_protocol.wire.errors import ToolFailed, explain
from threadcast_protocol.wire.mending import mended_json
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["PythonTool", "result_of", "tool"]

_THREADS = "tools"

_LAST = (ToolResult, Preview)
"""The types of the last item that a generator yields."""

_Function = Callable[..., Any]  # Any: arguments and results are checked by msgspec when it is called


class PythonTool:
    """A `Tool` made of a function. Calling the object calls the function, so the function stays usable in Python."""

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
        told, words = read_docstring(inspect.getdoc(function) or "")
        self.description = description if description is not None else told
        self.policy: Policy = policy
        self.timeout_seconds = timeout_seconds
        self.retry: Retry = retry
        self.category = category
        self.hide_input = hide_input
        self.label_arg = label_arg
        self.traits = traits
        self._context_parameter, self._arguments = _read_signature(self.name, function, words)
        self.input_schema = _object_schema(self.name, self._arguments)
        if label_arg is not None and label_arg not in self._arguments.__struct_fields__:
            raise TypeError(f"tool {self.name}: label_arg {label_arg!r} is not one of its parameters")

    def __call__(self, *args: object, **kwargs: object) -> Any:  # Any: whatever the function returns
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<tool {self.name} of {self.function.__module__}.{self.function.__qualname__}>"

    async def run(self, arguments: JsonObject, context: ToolContext) -> AsyncIterator[ToolOutput]:
        """Yield progress, then one result.

        Raises:
            ToolFailed: the arguments are invalid; the sentence contains a JSON Pointer.
        """
        call = partial(self.function, **self._bind(arguments, context))
        if inspect.iscoroutinefunction(self.function):
            yield result_of(await call())
        elif inspect.isasyncgenfunction(self.function) or inspect.isgeneratorfunction(self.function):
            is_async = inspect.isasyncgenfunction(self.function)
            async with aclosing(_outputs(call() if is_async else items_in_thread(call, _THREADS, _LAST))) as outputs:
                async for output in outputs:
                    yield output
        else:
            yield result_of(await in_thread(call, _THREADS))

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
    """Make a tool of a function. The function returns str, `ToolResult`, `Preview`, or a value that can be encoded as
    JSON.

    A generator yields `Progress` (or str, a progress message) and ends by returning its result; an async generator,
    which cannot return, ends by yielding a `ToolResult`. `label_arg` names the argument that is the call's label
    (TOOL-13); `hide_input` hides the arguments from watchers.

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


def _read_signature(
    name: str, function: _Function, words: Mapping[str, str]
) -> tuple[str | None, type[msgspec.Struct]]:
    """Return the name of the parameter for the context, and a struct of the other parameters. `words` are the
    descriptions of parameters."""
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
            fields.append((parameter.name, _described(hint, words.get(parameter.name))))
        else:
            described = _described(hint, words.get(parameter.name))
            fields.append((parameter.name, described, _default(parameter.default)))
    return context_parameter, msgspec.defstruct(name, fields, kw_only=True, forbid_unknown_fields=True)


def _described(hint: Any, words: str | None) -> Any:  # Any: a type hint is any object
    """Return the hint with its description as msgspec expects it: the words of `Annotated[T, "words"]`, or else the
    words of the docstring."""
    inner, *notes = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    notes = [msgspec.Meta(description=note) if isinstance(note, str) else note for note in notes]
    if words and not any(isinstance(note, msgspec.Meta) and note.description for note in notes):
        notes.append(msgspec.Meta(description=words))
    for note in notes:
        inner = Annotated[inner, note]
    return inner


def _default(value: object) -> Any:  # Any: the type of msgspec's own `field`
    if isinstance(value, list | dict | set | bytearray):
        return msgspec.field(default_factory=value.copy)  # one call's changes must not be the next call's default
    return value


def _object_schema(name: str, arguments: type[msgspec.Struct]) -> JsonObject:
    """Return the struct's schema with the object itself at the top, since models do not accept `$ref` there."""
    try:
        schema = msgspec.json.schema(arguments)
    except TypeError as wrong:
        raise TypeError(f"tool {name}: {wrong}") from None
    definitions: JsonObject = schema.get("$defs", {})
    top: JsonObject = definitions.pop(schema["$ref"].rpartition("/")[2])
    top.pop("title", None)
    return {**top, "$defs": definitions} if definitions else top


def result_of(value: object) -> ToolResult:
    """Return the result of a tool that returned `value`. Raises ToolFailed: JSON cannot express it."""
    if isinstance(value, ToolResult):
        return value
    if isinstance(value, str):
        return ToolResult(content=value)
    if isinstance(value, Preview):
        return ToolResult(content="", preview=value)
    try:
        return ToolResult(content=mended_json(value).decode(), is_json=True)
    except (TypeError, ValueError) as wrong:
        raise ToolFailed(f"The tool returned a {type(value).__name__}, which cannot be written as JSON.") from wrong


def _output(item: object) -> ToolOutput:
    if isinstance(item, Progress | ToolResult):
        return item
    if isinstance(item, Preview):
        return result_of(item)
    if isinstance(item, str):
        return Progress(message=item)
    raise ToolFailed(f"The tool yielded a {type(item).__name__}; it may yield Progress, str or ToolResult.")


async def _outputs(items: AsyncGenerator[object]) -> AsyncGenerator[ToolOutput]:
    """Yield what a generator yields and returns, up to its result."""
    async with aclosing(items):
        async for item in items:
            if isinstance(item, Returned):
                output: ToolOutput = ToolResult(content="") if item.value is None else result_of(item.value)
            else:
                output = _output(item)
            yield output
            if isinstance(output, ToolResult):
                return
    yield ToolResult(content="")
