"""For any answer of a tool, including failures, patches and large results, the caller gets a valid result."""

import asyncio
import math
import sys
from collections.abc import AsyncIterator, Iterator

import pytest
from structlog.testing import capture_logs

from tests.unit.tool_desk import Desk, failure_of, made
from threadcast.tools.base import Payload, ToolResult
from threadcast.tools.context import Progress
from threadcast.tools.python import PythonTool
from threadcast.tools.runner import TOOL_RESULT_MAX_BYTES
from threadcast_protocol.wire.errors import ToolFailed
from threadcast_protocol.wire.mending import MENDED

pytestmark = pytest.mark.anyio


@pytest.mark.row("LOOP-6")
async def test_unknown_tool_is_answered_with_the_available_ones() -> None:
    assert await failure_of(None) == "There is no tool 't'. Available tools: clock, t."


@pytest.mark.row("LOOP-7")
@pytest.mark.parametrize("arguments", ["{", "[1]", "5", "null", '"{}"', "{} {}", "\ud800"])
async def test_arguments_that_are_no_json_object_do_not_run_the_tool(arguments: str) -> None:
    ran = []
    assert "not a JSON object" in await failure_of(made(lambda: ran.append(1)), arguments)
    assert ran == []


@pytest.mark.row("LOOP-7")
@pytest.mark.parametrize("arguments", ["", "  \n", "{}"])
async def test_empty_arguments_are_an_empty_object(arguments: str) -> None:
    assert (await Desk().run(made(lambda: "ran"), arguments)).result == ToolResult(content="ran")


async def test_result_passes_with_its_patch_and_its_end() -> None:
    whole = ToolResult(content="a", metadata_patch={"b": 1}, end_run="completed")
    done = await Desk().run(made(lambda: whole))
    assert (done.result, done.is_abandoned) == (whole, False)
    assert done.elapsed_ms >= 0


@pytest.mark.row("LOOP-5")
async def test_failure_becomes_a_short_result_and_never_a_traceback() -> None:
    def says_why() -> None:
        raise ToolFailed("The printer is on fire.")

    def crashes() -> None:
        raise LookupError("/home/ann/secret")

    async def cancels_itself() -> None:
        raise asyncio.CancelledError

    async def exits() -> None:
        sys.exit(1)

    def exits_in_a_generator() -> Iterator[str]:
        yield "on it"
        sys.exit(1)

    async def never_says() -> AsyncIterator[Progress]:
        yield Progress(message="on it")
        raise RuntimeError

    patches_badly = ToolResult(content="", metadata_patch={"a": object()})
    lies = ToolResult(content=5)  # type: ignore[arg-type]  # what is tested: a tool is foreign code

    with capture_logs() as logs:
        assert await failure_of(made(says_why)) == "The printer is on fire."
        assert logs == []
        assert await failure_of(made(crashes)) == "The tool failed: LookupError."
        assert await failure_of(made(cancels_itself)) == "The tool failed: CancelledError."
        assert await failure_of(made(exits)) == "The tool failed: SystemExit."
        assert await failure_of(made(exits_in_a_generator)) == "The tool failed: SystemExit."
        assert await failure_of(made(never_says)) == "The tool failed: RuntimeError."
        assert "metadata_patch" in await failure_of(made(lambda: patches_badly))
        assert await failure_of(made(lambda: lies)) == "The tool failed: TypeError."
    assert {line["event"] for line in logs} == {"tool.failed"}


async def test_a_metadata_patch_is_no_larger_than_what_a_client_may_set() -> None:
    def patching(size: int) -> PythonTool:
        return made(lambda: ToolResult(content="ok", metadata_patch={"key": "x" * size}))

    assert await failure_of(patching(70_000)) == "The tool returned a metadata_patch of more than 65536 bytes."
    assert (await Desk().run(patching(60_000))).result.content == "ok"


async def test_failure_of_bad_arguments_names_the_place() -> None:
    def wants(city: str) -> None: ...

    assert await failure_of(made(wants), '{"city": 5}') == "Bad arguments: Expected `str`, got `int` (at /city)."


async def test_generator_that_refuses_to_close_is_a_failure_and_no_more() -> None:
    async def stubborn() -> AsyncIterator[ToolResult]:
        while True:
            try:
                yield ToolResult(content="a")
            except GeneratorExit:
                yield ToolResult(content="b")

    with capture_logs():
        assert (await Desk().run(made(stubborn))).result == ToolResult(
            content="The tool failed: RuntimeError.", failed=True
        )


@pytest.mark.parametrize("head", ["x", "xx"])
async def test_result_is_cut_at_its_bound_inside_no_character_and_says_so(head: str) -> None:
    fits = "é" * (TOOL_RESULT_MAX_BYTES // 2)
    assert (await Desk().run(made(lambda: fits))).result.content == fits
    whole = head + fits
    cut = (await Desk().run(made(lambda: whole))).result.content
    text, note = cut.split("\n")
    assert note == f"[cut: {len(whole)} characters in all]"
    assert text == whole[: len(text)]
    assert TOOL_RESULT_MAX_BYTES - 2 <= len(cut.encode()) <= TOOL_RESULT_MAX_BYTES


@pytest.mark.row("TOOL-5", "PAY-8")
async def test_text_of_a_tool_that_utf8_cannot_hold_is_mended_wherever_it_stands() -> None:
    half, whole = "a\ud800b", f"a{MENDED}b"
    assert (await Desk().run(made(lambda: half))).result.content == whole
    assert (await Desk().run(made(lambda: "\ud83d\ude00"))).result.content == "😀"
    assert (await Desk().run(made(lambda: {"text": [half, math.nan]}))).result.content == f'{{"text":["{whole}",null]}}'
    result = ToolResult(
        content="done",
        payloads=[Payload("chart", {half: half}, half)],
        metadata_patch={"a": half},
        memory_patch={"b": [half]},
    )
    mended = (await Desk().run(made(lambda: result))).result
    assert (mended.content, mended.failed) == ("done", False)
    assert mended.payloads == [Payload("chart", {whole: whole}, whole)]
    assert (mended.metadata_patch, mended.memory_patch) == ({"a": whole}, {"b": [whole]})

    def fails() -> str:
        raise ToolFailed(half)

    assert (await Desk().run(made(fails))).result.content == whole


async def test_arguments_with_half_a_character_reach_the_tool_mended() -> None:
    def say(text: str) -> str:
        return text

    for written in ('{"text":"a\\ud800b"}', '{"text":"a\ud800b"}', '{"text":"a\x01b"}'):
        run = await Desk().run(made(say), written)
        assert run.result.content in (f"a{MENDED}b", "a\x01b"), written
