"""The boundary of code that is not ours: tools, an operator's functions, SDKs, native extensions.

Such code may raise a bare `BaseException`, which `except Exception` lets through: a panic in a Rust extension does
(`pyo3_runtime.PanicException`), and so does `sys.exit()`. In a task that would end the whole process, so a boundary
catches `BaseException` and calls `pass_on` first:

    try:
        await foreign()
    except BaseException as wrong:  # boundary: what runs here
        pass_on(wrong)
        ...
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

__all__ = ["failing_plainly", "name_of", "pass_on"]

_T = TypeVar("_T")

_PASSING = (asyncio.CancelledError, GeneratorExit)


def pass_on(wrong: BaseException) -> None:
    """Raise `wrong` again where it is no failure of the code but a request to end it: a cancellation, a generator that
    is closed, or a group with one of these in it. `SystemExit` and `KeyboardInterrupt` are failures: a tool must not
    end the server, and Ctrl-C reaches a running server through its signal handlers, never as an exception."""
    if isinstance(wrong, _PASSING):
        raise wrong
    if isinstance(wrong, BaseExceptionGroup) and wrong.subgroup(_PASSING) is not None:
        raise wrong


class Panicked(Exception):
    """In place of a bare `BaseException` that code in a thread raised, which is its cause."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def failing_plainly(call: Callable[[], _T]) -> _T:
    """Run `call()` in a thread, where no cancellation and no Ctrl-C arrives: every exception is a failure of its code,
    and a bare `BaseException` might look like a request to end the task that waits for the thread.

    Raises:
        Panicked: in place of a bare `BaseException`.
        Exception: any other that `call` raises.
    """
    try:
        return call()
    except Exception:
        raise
    except BaseException as wrong:  # boundary: a thread
        raise Panicked(type(wrong).__name__) from wrong


def name_of(wrong: BaseException) -> str:
    """The name of the exception that the code itself raised."""
    return wrong.name if isinstance(wrong, Panicked) else type(wrong).__name__
