"""Describes how a function's operations differ from those that the log has recorded."""

import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from threadcast.base.boundary import name_of
from threadcast.chat.journal import Operation

__all__ = ["difference", "early_end"]

_PACKAGE = str(Path(__file__).parents[2])


def difference(found: Operation, kind: str, name: str, digest: str) -> str:
    """Return the error text for an operation that differs from the recorded operation `found`. Call this function
    inside the operation, so that the text names the line of the operator's code."""
    recorded, now = f"{found.kind} {found.name}".rstrip(), f"{kind} {name}".rstrip()
    what = f"{now} with other arguments" if recorded == now and found.digest != digest else now
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    file = Path(frame.f_code.co_filename)
    is_branch = file.parent.name == "asyncio"  # the operation itself was passed to gather
    where = "in a branch of ctx.gather" if is_branch else f"{file.name}, line {frame.f_lineno}"
    return _changed(recorded, f"has {what!r}", where)


def early_end(left: Operation, function: Callable[..., Any], wrong: BaseException | None) -> str:
    """Return the error text for a function that has ended although the log has the further operation `left`. `wrong` is
    the error with which the function has ended, or None."""
    code = inspect.unwrap(function).__code__
    ends = "ends" if wrong is None else f"ends with {name_of(wrong)}"
    return _changed(
        f"{left.kind} {left.name}".rstrip(), ends, f"{Path(code.co_filename).name}, line {code.co_firstlineno}"
    )


def _changed(recorded: str, now: str, where: str) -> str:
    return (
        f"The agent's code has changed while this run was open: the log has the operation {recorded!r} where the code "
        f"now {now} ({where}). Use ctx.version to change the code of open runs."
    )
