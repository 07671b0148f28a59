"""Helpers for the boundary between the server and foreign code: tools, an operator's functions, SDKs, native
extensions.

Such code may raise a bare `BaseException`, which `except Exception` does not catch: for example a panic in a Rust
extension (`pyo3_runtime.PanicException`), or `sys.exit()`. In a task such an exception would end the whole process, so
a boundary catches `BaseException` and calls `pass_on` first:

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
    """Raise `wrong` again if it is a request to end the code and not a failure: a cancellation, the closing of a
    generator, or a group that contains one of these. `SystemExit` and `KeyboardInterrupt` are failures: a tool must not
    end the server, and Ctrl-C reaches a running server through its signal handlers, never as an exception."""
    if isinstance(wrong, _PASSING):
        raise wrong
    if isinstance(wrong, BaseExceptionGroup) and wrong.subgroup(_PASSING) is not None:
        raise wrong


class Panicked(Exception):
    """Replaces a bare `BaseException` that was raised in a thread; that exception is the `__cause__`."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def failing_plainly(call: Callable[[], _T]) -> _T:
    """Run `call()` in a thread and turn a bare `BaseException` into `Panicked`. In a thread no cancellation or Ctrl-C
    arrives, so every exception is a failure of the code; a bare `BaseException` could be mistaken for a request to end
    the waiting task.

    Raises:
        Panicked: in place of a bare `BaseException`.
        Exception: any exception of `call` that is not a bare `BaseException`.
    """
    try:
        return call()
    except Exception:
        raise
    except BaseException as wrong:  # boundary: a thread
        raise Panicked(type(wrong).__name__) from wrong


def name_of(wrong: BaseException) -> str:
    """Return the class name of the exception that the foreign code raised, even if `Panicked` wraps the exception."""
    return wrong.name if isinstance(wrong, Panicked) else type(wrong).__name__
