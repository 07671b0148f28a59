"""Tests the answers and the refusals of the demo tools."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.tool_desk import outputs_of
from threadcast.tools.base import ToolResult
from threadcast.tools.context import Progress
from threadcast.tools.demo import DEMO_TOOLS, NOTES_MAX, calculator, clock, countdown, write_note
from threadcast.tools.registry import Tools
from threadcast_protocol.wire.errors import ToolFailed

pytestmark = pytest.mark.anyio


def test_they_are_a_registry_of_their_own_and_only_the_writing_one_asks() -> None:
    assert {name: (tool.policy, tool.retry) for name, tool in Tools(DEMO_TOOLS).items()} == {
        "calculator": ("auto", "safe"),
        "clock": ("auto", "safe"),
        "countdown": ("auto", "safe"),
        "write_note": ("ask", "idempotent"),
    }
    assert write_note.category == "editing"
    assert all(tool.description for tool in DEMO_TOOLS)


async def test_clock_tells_weekday_time_and_offset() -> None:
    (said,) = await outputs_of(clock, {})
    assert isinstance(said, ToolResult)
    assert re.fullmatch(r"\w+day \d{4}-\d\d-\d\d \d\d:\d\d:\d\d \+0000", said.content)


@pytest.mark.parametrize("zone", ["Nowhere/Land", "../../etc/passwd", "/etc/passwd", "Europe", "a\0b"])
def test_clock_refuses_what_is_no_time_zone(zone: str) -> None:
    with pytest.raises(ToolFailed, match="no time zone"):
        clock(zone)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("1+1", "2"),
        (" 2 + 3 * 4 ", "14"),
        ("(2 + 3) * -4", "-20"),
        ("7 / 2", "3.5"),
        ("7 // 2", "3"),
        ("7 % 4", "3"),
        ("2 ^ 10", "1024"),
        ("2 ** -1", "0.5"),
        ("(-8) ** 3.0", "-512.0"),
        ("2 ** 4000 // 2 ** 3999", "2"),
    ],
)
def test_calculator_works_out(expression: str, value: str) -> None:
    assert calculator(expression) == value


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("1 / 0", "Division by zero"),
        ("0 ** -1", "Division by zero"),
        ("9**9**9**9", "too large"),
        ("2 ** 4097", "too large"),
        ("*".join(["2**4000"] * 20), "too large"),
        ("1e308 * 10", "too large"),
        ("10.0 ** 400", "too large"),
        ("2 ** 2000 + 0.5", "too large"),
        ("(-8) ** 0.5", "negative number"),
        ("1 +", "not an arithmetic expression"),
        ("", "not an arithmetic expression"),
        ("(" * 300 + "1" + ")" * 300, "not an arithmetic expression"),
        ("1\0", "not an arithmetic expression"),
        ("__import__('os')", "Only numbers"),
        ("a + 1", "Only numbers"),
        ("'a' * 9", "Only numbers"),
        ("True + 1", "Only numbers"),
        ("1 if 2 else 3", "Only numbers"),
        ("[1][0]", "Only numbers"),
        ("1 << 9", "Only numbers"),
        ("1j", "Only numbers"),
    ],
)
def test_calculator_refuses(expression: str, words: str) -> None:
    with pytest.raises(ToolFailed, match=words):
        calculator(expression)


@given(st.text("0123456789.+-*/%^() e", max_size=30))
def test_calculator_answers_or_refuses_whatever_it_is_given(expression: str) -> None:
    try:
        float(calculator(expression))
    except ToolFailed:
        pass
    except OverflowError:
        assert int(calculator(expression))  # an integer beyond the range of floats


async def test_calculator_bounds_its_input() -> None:
    with pytest.raises(ToolFailed, match="length <= 200"):
        await outputs_of(calculator, {"expression": "1" * 201})


@pytest.mark.parametrize("name", ["a.md", "trip/packing.md", "./a.md", "x/../a.md", "ä b.txt"])
async def test_note_is_written_below_the_notebook_and_replaced_as_a_whole(tmp_path: Path, name: str) -> None:
    for text in ("first, and longer", "é\r\n"):
        (said,) = await outputs_of(write_note, {"name": name, "text": text}, data_dir=str(tmp_path))
    (written,) = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert written == (tmp_path / "notes" / "local" / name).resolve()
    assert written.read_bytes() == "é\r\n".encode()
    assert said == ToolResult(content=f"Wrote {written.relative_to(tmp_path / 'notes' / 'local')} (4 bytes).")


async def test_a_full_notebook_takes_no_further_note_but_replaces_those_it_has(tmp_path: Path) -> None:
    for number in range(NOTES_MAX):
        await outputs_of(write_note, {"name": str(number), "text": "x"}, data_dir=str(tmp_path))
    with pytest.raises(ToolFailed, match="The notebook is full"):
        await outputs_of(write_note, {"name": "more", "text": "x"}, data_dir=str(tmp_path))
    await outputs_of(write_note, {"name": "7", "text": "replaced"}, data_dir=str(tmp_path))
    assert (tmp_path / "notes" / "local" / "7").read_text() == "replaced"
    assert len(list((tmp_path / "notes" / "local").iterdir())) == NOTES_MAX


@pytest.mark.parametrize("name", ["../a.md", "x/../../a.md", "/tmp/a.md", "..", ".", "out/a.md", "out"])
async def test_name_that_leads_out_of_the_notebook_is_refused(tmp_path: Path, name: str) -> None:
    data_dir, outside = tmp_path / "data", tmp_path / "outside"
    (data_dir / "notes" / "local").mkdir(parents=True)
    outside.mkdir()
    (data_dir / "notes" / "local" / "out").symlink_to(outside)
    with pytest.raises(ToolFailed, match="leads out of the notebook"):
        await outputs_of(write_note, {"name": name, "text": "x"}, data_dir=str(data_dir))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


async def test_note_that_cannot_be_written_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "notes" / "local" / "folder").mkdir(parents=True)
    for name, words in (("folder", "Is a directory"), ("a\0b", "not a file name")):
        with pytest.raises(ToolFailed, match=words):
            await outputs_of(write_note, {"name": name, "text": "x"}, data_dir=str(tmp_path))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


async def test_countdown_reports_its_way_to_zero() -> None:
    assert await outputs_of(countdown, {"start": 2, "interval_seconds": 0}) == [
        Progress(stage="counting", message="2", fraction=0.0),
        Progress(stage="counting", message="1", fraction=0.5),
        ToolResult(content="Counted down from 2."),
    ]
    with pytest.raises(ToolFailed, match="<= 100"):
        await outputs_of(countdown, {"start": 101})
