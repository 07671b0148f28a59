"""The demo tools: a clock, a calculator, a notebook, a count-down.

Each tool is a small example of `@tool()` and shows one feature: `clock` is safe to repeat, `calculator` limits the cost
of untrusted input, `write_note` asks before it writes and writes only below the directory of the caller, `countdown`
reports progress and can be aborted.
"""

import ast
import asyncio
import math
import operator
import os
import re
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from datetime import UTC, datetime, tzinfo
from itertools import islice
from pathlib import Path
from typing import Annotated
from zoneinfo import ZoneInfo

from msgspec import Meta

from threadcast.tools.base import ToolResult
from threadcast.tools.context import Progress, ToolContext
from threadcast.tools.python import PythonTool, tool
from threadcast_protocol.wire.errors import ToolFailed

__all__ = ["DEMO_TOOLS", "calculator", "clock", "countdown", "write_note"]

NUMBER_MAX_BITS = 4_096
"""Maximum bits of a number: 1,233 digits. This is below Python's own limit of 4,300 digits for writing an int, and such
numbers are computed in microseconds."""

NOTES_MAX = 200
"""Maximum notes and folders in the notebook of one caller. They take at most 50 MB, so a caller cannot fill the
disk."""

_Number = int | float

_BINARY: dict[type[ast.operator], Callable[[_Number, _Number], _Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_UNARY: dict[type[ast.unaryop], Callable[[_Number], _Number]] = {ast.UAdd: operator.pos, ast.USub: operator.neg}


@tool(retry="safe", label_arg="time_zone")
def clock(time_zone: Annotated[str, "IANA name such as Europe/Paris; empty for UTC"] = "") -> str:
    """The current date and time, with weekday and offset from UTC."""
    zone: tzinfo = UTC
    if time_zone not in ("", "UTC"):
        try:
            zone = ZoneInfo(time_zone)
        except (OSError, ValueError, KeyError):  # the zone is unknown, malformed, or a directory of zone files
            raise ToolFailed(f"There is no time zone {time_zone!r}; use an IANA name such as Europe/Paris.") from None
    return datetime.now(zone).strftime("%A %Y-%m-%d %H:%M:%S %z")


@tool(retry="safe", label_arg="expression")
def calculator(
    expression: Annotated[str, Meta(max_length=200, description="numbers, + - * / // % ** and parentheses")],
) -> str:
    """Work out an arithmetic expression. `^` is a power."""
    try:
        tree = ast.parse(expression.strip().replace("^", "**"), mode="eval")
        value = _evaluate(tree.body)
    except ZeroDivisionError:
        raise ToolFailed("Division by zero.") from None
    except OverflowError:
        raise ToolFailed("The result is too large.") from None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ToolFailed("This is not an arithmetic expression.") from None
    return str(value)


def _evaluate(node: ast.expr) -> _Number:
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return _bounded(value)
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY:
            return _UNARY[type(op)](_evaluate(operand))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            a, b = _evaluate(left), _evaluate(right)
            if isinstance(op, ast.Pow):
                _check_power(a, b)
            return _bounded(_BINARY[type(op)](a, b))
        case _:
            raise ToolFailed(f"Only numbers, + - * / // % ** and parentheses are allowed, not {ast.unparse(node)!r}.")


def _check_power(base: _Number, exponent: _Number) -> None:
    """Check a power before it is computed: a tower of powers with six characters would never finish."""
    if isinstance(base, int) and isinstance(exponent, int) and exponent * (base.bit_length() - 1) > NUMBER_MAX_BITS:
        raise OverflowError
    if base < 0 and not float(exponent).is_integer():
        raise ToolFailed("A root of a negative number is not a real number.")


def _bounded(value: _Number) -> _Number:
    if isinstance(value, int) and value.bit_length() > NUMBER_MAX_BITS:
        raise OverflowError
    if isinstance(value, float) and not math.isfinite(value):
        raise OverflowError
    return value


@tool(policy="ask", category="editing", retry="idempotent", label_arg="name")
def write_note(
    name: Annotated[str, Meta(min_length=1, max_length=200, description="file name, such as trip/packing.md")],
    text: Annotated[str, Meta(max_length=256_000, description="the whole content; replaces what was there")],
    ctx: ToolContext,
) -> str:
    """Write a note into the notebook."""
    root = (Path(ctx.data_dir) / "notes").resolve() / _folder_of(ctx.principal.id)
    try:
        path = (root / name).resolve()  # links are followed, so that a link out of the notebook is recognised
        if not path.is_relative_to(root) or path == root:
            raise ToolFailed(f"The name {name!r} leads out of the notebook; use a plain relative name.")
        if not path.exists() and sum(1 for _ in islice(root.rglob("*"), NOTES_MAX)) >= NOTES_MAX:
            raise ToolFailed(f"The notebook is full: it has {NOTES_MAX} notes and folders. Replace another note.")
        path.parent.mkdir(parents=True, exist_ok=True)
        _replace_file(path, text)
    except (OSError, ValueError) as wrong:  # ValueError: the name contains NUL
        reason = wrong.strerror if isinstance(wrong, OSError) else "the name is not a file name"
        raise ToolFailed(f"The note {name!r} could not be written: {reason}.") from None
    return f"Wrote {path.relative_to(root)} ({len(text.encode())} bytes)."


def _folder_of(principal_id: str) -> str:
    """Return the name of a caller's folder. Different callers have different folders, even on file systems that ignore
    case, and no id leads out of the notebook."""
    return re.sub(r"[^a-z0-9_-]", lambda found: f"%{ord(found[0]):x}.", principal_id) or "%"


def _replace_file(path: Path, text: str) -> None:
    """Replace a file atomically, so that a repeated call after a crash has the same effect as one call."""
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=".note-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            file.write(text)
        Path(draft).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(draft).unlink()
        raise


@tool(retry="safe", timeout_seconds=600)
async def countdown(
    start: Annotated[int, Meta(ge=1, le=100, description="the number to begin with")] = 5,
    interval_seconds: Annotated[float, Meta(ge=0, le=5, description="between two numbers")] = 1.0,
) -> AsyncIterator[Progress | ToolResult]:
    """Count down to zero, slowly."""
    for number in range(start, 0, -1):
        yield Progress(stage="counting", message=str(number), fraction=1 - number / start)
        await asyncio.sleep(interval_seconds)
    yield ToolResult(content=f"Counted down from {start}.")


DEMO_TOOLS: tuple[PythonTool, ...] = (calculator, clock, countdown, write_note)
