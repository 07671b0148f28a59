"""The boundary of foreign code: a bare `BaseException` is treated as a failure; a cancellation and Ctrl-C are not."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import msgspec
import pytest

from tests.unit.tool_desk import Desk, failure_of, made
from threadcast.agent_loop.calls.telling import summarized
from threadcast.base.boundary import Panicked, failing_plainly, name_of, pass_on
from threadcast.profiles.payload_types import payload_type, summary_of
from threadcast.profiles.prompt import PromptContext, section
from threadcast.settings import Mcp
from threadcast.tools.context import ToolContext
from threadcast.tools.mcp.connection import McpConnection
from threadcast.tools.mcp.tool import McpTool
from threadcast.tools.resolvers import Resolvers
from threadcast.wiring.app_file import app_file_of
from threadcast_protocol.wire.errors import ToolFailed


class PanicException(BaseException):
    """Stands for `pyo3_runtime.PanicException`."""


class Note(msgspec.Struct):
    title: str


def panics(*_: object) -> NoReturn:
    raise PanicException("a None value")


async def panics_soon(*_: object) -> NoReturn:
    raise PanicException("a None value")


@pytest.mark.parametrize("kind", [asyncio.CancelledError, GeneratorExit])
def test_a_request_to_end_passes_every_boundary(kind: type[BaseException]) -> None:
    for wrong in (kind(), BaseExceptionGroup("", [PanicException(), BaseExceptionGroup("", [kind()])])):
        with pytest.raises(type(wrong)) as raised:
            pass_on(wrong)
        assert raised.value is wrong


@pytest.mark.parametrize(
    "wrong", [ValueError(), SystemExit(), KeyboardInterrupt(), PanicException(), BaseExceptionGroup("", [SystemExit()])]
)
def test_anything_else_is_a_failure(wrong: BaseException) -> None:
    pass_on(wrong)


@pytest.mark.parametrize("kind", [asyncio.CancelledError, KeyboardInterrupt, SystemExit, PanicException])
def test_in_a_thread_all_of_them_are_failures_of_their_code(kind: type[BaseException]) -> None:
    def fails() -> None:
        raise kind

    with pytest.raises(Panicked) as raised:
        failing_plainly(fails)
    assert name_of(raised.value) == kind.__name__
    with pytest.raises(ValueError, match="plain"):
        failing_plainly(lambda: int("plain"))


@pytest.mark.anyio
@pytest.mark.parametrize("kind", [asyncio.CancelledError, KeyboardInterrupt])
async def test_a_thread_that_raises_as_if_it_were_cancelled_fails_its_call_alone(kind: type[BaseException]) -> None:
    def fails() -> None:
        raise kind

    assert await failure_of(made(fails)) == f"The tool failed: {kind.__name__}."


@pytest.mark.anyio
async def test_a_resolver_that_panics_fails_its_call() -> None:
    resolvers = Resolvers({"name": panics_soon})

    async def resolves(name: str, ctx: ToolContext) -> str:
        return str(await resolvers.resolved({"name": name}, ctx))

    assert await failure_of(made(resolves), '{"name": "x"}') == "The tool failed: PanicException."


@pytest.mark.anyio
async def test_an_sdk_that_panics_fails_the_call_of_its_server() -> None:
    class Panicking(McpConnection):
        async def ask(self, make: object, asking: object = None) -> NoReturn:
            await panics_soon()

    offered = SimpleNamespace(name="read", description="", title="", input_schema={})
    connection = Panicking("files", Mcp(url="http://127.0.0.1:1"), lambda _: None)
    tool = McpTool(connection, offered, 5.0)  # type: ignore[arg-type] # the SDK's type takes a second to import
    with pytest.raises(ToolFailed, match="files failed the call"):
        async for _ in tool.run({}, Desk().context):
            pass


def test_a_section_that_panics_writes_nothing() -> None:
    assert section("harness")(panics).write(PromptContext()) == ""


def test_a_summarizer_that_panics_says_so_in_place_of_the_result() -> None:
    assert "could not be summarised (PanicException)" in summarized("text", panics)


def test_a_payload_whose_summarizer_panics_is_named_by_its_fields() -> None:
    kind = payload_type(name="note", model=Note, summary=panics)
    assert summary_of(kind, "note", {"title": "x"}) == "note: title"


@pytest.mark.parametrize("line", ["sys.exit(0)", "raise type('PanicException', (BaseException,), {})('a None value')"])
def test_a_file_of_tools_that_ends_python_is_a_sentence(tmp_path: Path, line: str) -> None:
    file = tmp_path / "tools.py"
    file.write_text(f"import sys\n{line}\n")
    with pytest.raises(ValueError, match=r"tools\.py"):
        app_file_of(str(file))
