"""Functions become tools: schema from type hints, four kinds of function, every kind of result."""

from collections.abc import AsyncIterator, Generator, Iterator
from typing import Annotated, Literal

import msgspec
import pytest
from msgspec import Meta

from tests.unit.tool_desk import outputs_of, result_of, tool_context
from threadcast.tools.base import ToolResult
from threadcast.tools.context import Progress, ToolContext
from threadcast.tools.python import PythonTool, tool
from threadcast_protocol.wire.errors import ToolFailed
from threadcast_protocol.wire.messages import JsonObject

pytestmark = pytest.mark.anyio

CONTEXT = tool_context()


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


GOOGLE = """The wind at a place.

    Args:
        place: a city,
            or a summit
        days: not said here

    Returns:
        Metres per second.
    """
NUMPY = """The wind at a place.

    Parameters
    ----------
    place : str
        a city, or a summit
    days
        not said here

    Returns
    -------
    float
        Metres per second.
    """
SPHINX = """The wind at a place.

    :param place: a city, or a summit
    :param int days: not said here
    :returns: Metres per second.
    """


@pytest.mark.parametrize("docstring", [GOOGLE, NUMPY, SPHINX])
def test_a_docstring_describes_the_tool_its_result_and_each_parameter_without_words_of_its_own(docstring: str) -> None:
    def wind(place: str, days: Annotated[int, "how far ahead", Meta(ge=1)] = 3, unit: str = "m/s") -> float:
        return 1.0

    wind.__doc__ = docstring
    made = PythonTool(wind)
    assert made.description == "The wind at a place.\n\nReturns: Metres per second."
    assert made.input_schema["properties"] == {
        "place": {"type": "string", "description": "a city, or a summit"},
        "days": {"type": "integer", "minimum": 1, "description": "how far ahead", "default": 3},
        "unit": {"type": "string", "default": "m/s"},
    }


def test_a_docstring_without_a_list_of_parameters_is_the_description_as_it_is() -> None:
    @tool()
    def note(text: str) -> str:
        """Keep a note.

        Example:
            note("milk")
        """
        return text

    assert note.description == 'Keep a note.\n\nExample:\n    note("milk")'


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


WHOLE = ToolResult(content="a", failed=True, metadata_patch={"b": 1}, end_run="completed")


@pytest.mark.parametrize(
    ("value", "result"),
    [
        ("text", ToolResult(content="text")),
        ({"a": [1]}, ToolResult(content='{"a":[1]}', is_json=True)),
        (Place("Nice"), ToolResult(content='{"city":"Nice","country":"FR"}', is_json=True)),
        (None, ToolResult(content="null", is_json=True)),
        (WHOLE, WHOLE),
    ],
)
async def test_any_value_that_json_can_say_is_a_result_and_a_result_passes_as_it_is(
    value: object, result: ToolResult
) -> None:
    @tool()
    def give() -> object:
        return value

    assert await outputs_of(give) == [result]


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
