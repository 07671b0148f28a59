"""Functions become tools: schema from type hints, four kinds of function, every kind of result."""

import sqlite3
import threading
from collections.abc import AsyncIterator, Generator, Iterator
from typing import Annotated, Literal

import anyio
import msgspec
import pytest
from msgspec import Meta

from protocol.errors import ToolFailed
from protocol.messages import JsonObject
from protocol.principal import LOCAL
from server.tools.base import Progress, ToolContext, ToolOutput, ToolResult
from server.tools.python import PythonTool, tool

pytestmark = pytest.mark.anyio

CONTEXT = ToolContext(
    chat_id="chat",
    run_id="run",
    tool_call_id="call",
    idempotency_key="chat:call",
    principal=LOCAL,
    metadata={},
    context={},
    data_dir="/nowhere",
    report=lambda progress: None,
    is_cancelled=lambda: False,
)


async def outputs_of(made: PythonTool, arguments: JsonObject | None = None) -> list[ToolOutput]:
    with anyio.fail_after(30):
        return [output async for output in made.run(arguments or {}, CONTEXT)]


async def result_of(made: PythonTool, arguments: JsonObject | None = None) -> str:
    last = (await outputs_of(made, arguments))[-1]
    assert isinstance(last, ToolResult)
    return last.content


class Place(msgspec.Struct):
    city: str
    country: str = "FR"


@pytest.mark.row("TOOL-1")
def test_definition_comes_from_name_docstring_and_type_hints() -> None:
    @tool(policy="ask", category="editing", retry="safe", timeout_seconds=5, hide_input=True, label_arg="unit")
    def wind(
        place: Place,
        ctx: ToolContext,
        days: Annotated[int, "how far ahead", Meta(ge=1)] = 3,
        unit: Literal["m/s", "kn"] = "m/s",
        tags: list[str] = [],  # noqa: B006  # what is tested: a mutable default
    ) -> str:
        """The wind at a place.

        Measured at ten metres.
        """
        return ""

    assert (wind.name, wind.description) == ("wind", "The wind at a place.\n\nMeasured at ten metres.")
    assert (wind.policy, wind.category, wind.retry, wind.source) == ("ask", "editing", "safe", "python")
    assert (wind.timeout_seconds, wind.hide_input, wind.label_arg) == (5, True, "unit")
    schema = wind.input_schema
    assert schema.pop("$defs")["Place"]["properties"]["country"] == {"type": "string", "default": "FR"}
    assert schema == {
        "type": "object",
        "properties": {
            "place": {"$ref": "#/$defs/Place"},
            "days": {"type": "integer", "minimum": 1, "description": "how far ahead", "default": 3},
            "unit": {"enum": ["kn", "m/s"], "default": "m/s"},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["place"],
        "additionalProperties": False,
    }


def test_name_and_description_can_be_given_and_nothing_is_required() -> None:
    @tool(name="now", description="The time.")
    def _anything() -> str:
        return "noon"

    assert (_anything.name, _anything.description) == ("now", "The time.")
    assert _anything.input_schema["properties"] == {}
    assert (_anything.policy, _anything.retry, _anything.timeout_seconds) == ("auto", "once", 30.0)
    assert _anything() == "noon"


def test_signature_that_cannot_become_a_schema_is_refused_when_decorated() -> None:
    def unhinted(city) -> str:  # type: ignore[no-untyped-def]  # what is tested
        return str(city)

    def positional(city: str, /) -> str:
        return city

    def many(*cities: str) -> str:
        return "".join(cities)

    def odd(number: complex) -> str:
        return str(number)

    for function, words in (
        (unhinted, "tool unhinted: parameter 'city' has no type hint"),
        (positional, "tool positional: parameter 'city' cannot be given by name"),
        (many, "tool many: parameter 'cities' cannot be given by name"),
        (odd, "(?s)tool odd: .*complex"),
    ):
        with pytest.raises(TypeError, match=words):
            tool()(function)
    with pytest.raises(TypeError, match="label_arg 'town'"):
        tool(label_arg="town")(many_named)


def many_named(city: str) -> str:
    return city


@pytest.mark.row("TOOL-2")
async def test_arguments_arrive_converted_and_the_context_beside_them() -> None:
    @tool()
    def where(place: Place, ctx: ToolContext, days: int = 3) -> str:
        return f"{place.city} {place.country} {days} {ctx.idempotency_key}"

    assert await result_of(where, {"place": {"city": "Nice"}}) == "Nice FR 3 chat:call"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "missing required field `place`"),
        ({"place": {"city": 5}}, r"Expected `str`, got `int` \(at /place/city\)"),
        ({"place": {"city": "Nice"}, "days": "3"}, r"Expected `int`, got `str` \(at /days\)"),
        ({"place": {"city": "Nice"}, "day": 3}, "unknown field `day`"),
        ({"place": {"city": "Nice"}, "ctx": {}}, "unknown field `ctx`"),
    ],
)
async def test_arguments_that_do_not_fit_are_refused_with_their_path(arguments: JsonObject, words: str) -> None:
    ran = []

    @tool()
    def where(place: Place, ctx: ToolContext, days: int = 3) -> None:
        ran.append(place)

    with pytest.raises(ToolFailed, match=words):
        await outputs_of(where, arguments)
    assert ran == []


async def test_mutable_default_is_fresh_for_every_call() -> None:
    @tool()
    def collect(items: list[int] = [1]) -> list[int]:  # noqa: B006  # what is tested
        items.append(2)
        return items

    assert [await result_of(collect), await result_of(collect)] == ["[1,2]", "[1,2]"]


@pytest.mark.row("TOOL-3")
async def test_all_four_kinds_of_function_give_their_result() -> None:
    @tool()
    def sync() -> str:
        return "a"

    @tool()
    async def coroutine() -> str:
        return "a"

    @tool()
    def generator() -> Generator[str, None, str]:
        yield "on it"
        return "a"

    @tool()
    async def async_generator() -> AsyncIterator[Progress | ToolResult]:
        yield Progress(message="on it")
        yield ToolResult(content="a")

    progress, result = Progress(message="on it"), ToolResult(content="a")
    assert await outputs_of(sync) == [result]
    assert await outputs_of(coroutine) == [result]
    assert await outputs_of(generator) == [progress, result]
    assert await outputs_of(async_generator) == [progress, result]


@pytest.mark.parametrize(
    ("value", "content"),
    [("text", "text"), ({"a": [1]}, '{"a":[1]}'), (Place("Nice"), '{"city":"Nice","country":"FR"}'), (None, "null")],
)
async def test_any_value_that_json_can_say_is_a_result(value: object, content: str) -> None:
    @tool()
    def give() -> object:
        return value

    assert await result_of(give) == content


async def test_tool_result_passes_as_it_is() -> None:
    whole = ToolResult(content="a", failed=True, metadata_patch={"b": 1}, end_run="completed")

    @tool()
    async def give() -> ToolResult:
        return whole

    assert await outputs_of(give) == [whole]


async def test_value_that_json_cannot_say_is_a_failure() -> None:
    @tool()
    def give() -> object:
        return object()

    with pytest.raises(ToolFailed, match="returned a object, which cannot be written as JSON"):
        await outputs_of(give)


async def test_generators_may_end_early_with_a_yielded_result_and_may_not_yield_anything_else() -> None:
    closed = []

    @tool()
    def early() -> Iterator[object]:
        try:
            yield ToolResult(content="early")
            raise AssertionError("went on after its result")
        finally:
            closed.append("sync")

    @tool()
    async def early_async() -> AsyncIterator[object]:
        try:
            yield ToolResult(content="early")
            raise AssertionError("went on after its result")
        finally:
            closed.append("async")

    @tool()
    def silent() -> Iterator[str]:
        yield from ()

    @tool()
    async def odd() -> AsyncIterator[object]:
        yield 5

    assert await outputs_of(early) == [ToolResult(content="early")]
    assert await outputs_of(early_async) == [ToolResult(content="early")]
    assert closed == ["sync", "async"]
    assert await outputs_of(silent) == [ToolResult(content="")]
    with pytest.raises(ToolFailed, match="yielded a int"):
        await outputs_of(odd)


@pytest.mark.row("TOOL-4")
async def test_progress_of_a_sync_generator_is_live() -> None:
    """The tool goes on only when its progress has been seen; were it not live, both would wait for ever."""
    seen = threading.Event()

    @tool()
    def work() -> Generator[str, None, str]:
        yield "half"
        return "seen" if seen.wait(5) else "nobody saw it"

    outputs = []
    with anyio.fail_after(30):
        async for output in work.run({}, CONTEXT):
            outputs.append(output)
            seen.set()
    assert outputs == [Progress(message="half"), ToolResult(content="seen")]


async def test_sync_code_runs_outside_the_loops_thread_and_a_generator_in_one_thread_only() -> None:
    @tool()
    def thread() -> int:
        return threading.get_ident()

    @tool()
    def database() -> Generator[str, None, str]:
        connection = sqlite3.connect(":memory:")  # refuses every thread but its own
        yield "open"
        connection.execute("select 1")
        yield "asked"
        connection.close()
        return "done"

    assert await result_of(thread) != str(threading.get_ident())
    assert await result_of(database) == "done"


async def test_many_reports_of_a_sync_generator_all_arrive_in_order() -> None:
    @tool()
    def count() -> Generator[str, None, str]:
        for number in range(200):
            yield str(number)
        return "done"

    outputs = await outputs_of(count)
    assert outputs == [*(Progress(message=str(number)) for number in range(200)), ToolResult(content="done")]


async def test_failure_inside_any_kind_comes_out_as_it_is() -> None:
    @tool()
    def sync() -> str:
        raise KeyError("a")

    @tool()
    def generator() -> Iterator[str]:
        yield "on it"
        raise KeyError("a")

    for failing in (sync, generator):
        with pytest.raises(KeyError):
            await outputs_of(failing)


async def test_sync_generator_that_nobody_hears_is_closed() -> None:
    closed = threading.Event()

    @tool()
    def endless() -> Iterator[str]:
        try:
            while True:
                yield "again"
        finally:
            closed.set()

    with anyio.move_on_after(5) as scope:
        async for _ in endless.run({}, CONTEXT):
            scope.cancel()
    assert await anyio.to_thread.run_sync(closed.wait, 5)


async def test_sync_function_is_left_behind_when_its_caller_is_cancelled() -> None:
    started, release, ended = threading.Event(), threading.Event(), threading.Event()

    @tool()
    def hangs() -> None:
        started.set()
        release.wait(5)
        ended.set()

    async def run() -> None:
        async for _ in hangs.run({}, CONTEXT):
            pass

    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await anyio.to_thread.run_sync(started.wait, 5)
            group.cancel_scope.cancel()
    assert not ended.is_set()
    release.set()
    assert await anyio.to_thread.run_sync(ended.wait, 5)


def test_a_decorator_without_parentheses_says_what_to_write() -> None:
    def plain() -> str:
        return ""

    with pytest.raises(TypeError, match="write @tool\\(\\)"):
        tool(plain)
