"""Ends a process whose tools have left threads, tasks or child processes behind.

Python waits at its end for every thread that still runs, for the executor of the event loop, for tasks that swallow
their cancellation and for child processes of `multiprocessing`. A tool that hangs in one of these would keep the
process alive for ever, although the process has drained and closed everything in order. `run_process` therefore waits
`LEFTOVERS_SECONDS` for them, and then ends the process with `os._exit`.
"""

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, NoReturn

import structlog

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

__all__ = ["LEFTOVERS_SECONDS", "end_leftovers", "end_now", "ending_by_force"]

LEFTOVERS_SECONDS = 1.0
"""Seconds for threads and tasks that end by themselves; threads and tasks of anyio end within milliseconds."""

_log = structlog.get_logger()


def end_now(status: int) -> NoReturn:
    """End the process without waiting; only logs and output are flushed first."""
    for handler in logging.getLogger().handlers:
        with suppress(Exception):  # a full disk or a closed pipe must not delay the end of the process
            handler.flush()
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # as above
            stream.flush()
    os._exit(status)


@contextmanager
def ending_by_force(seconds: float, status: Callable[[], int], why: str) -> Iterator[Callable[[], None]]:
    """Give the block a function that starts a time limit: if the block still runs `seconds` after the first call, the
    process ends with `status()`, also when the event loop is blocked. The function may be called in a signal
    handler."""
    told: SimpleQueue[bool] = SimpleQueue()  # its `put` may interrupt itself, unlike the locks of `threading`

    def watch() -> None:
        is_told = told.get()
        until = time.monotonic() + seconds
        while is_told:
            try:
                is_told = told.get(timeout=max(0.0, until - time.monotonic()))
            except Empty:
                _log.error("process.ended_by_force", why=why, left=_names_of(_threads()))
                end_now(status())

    threading.Thread(target=watch, name="end", daemon=True).start()
    try:
        yield lambda: told.put(True)
    finally:
        told.put(False)


def end_leftovers(before: set[threading.Thread], status: int) -> None:
    """Return when no child process runs, and no thread except the threads in `before`. If any remain after
    `LEFTOVERS_SECONDS`, end the process."""
    until = time.monotonic() + LEFTOVERS_SECONDS
    threads = [thread for thread in _threads() if thread not in before]
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    threads = [thread for thread in threads if thread.is_alive()]
    children = _children()
    if threads or children:
        names = [*_names_of(threads), *(f"process {child.pid}" for child in children)]
        _log.warning("process.left_behind", left=names)
        for child in children:
            child.terminate()
        end_now(status)


def _threads() -> list[threading.Thread]:
    """Return the threads that Python would wait for."""
    mine = (threading.main_thread(), threading.current_thread())
    return [thread for thread in threading.enumerate() if not thread.daemon and thread not in mine]


def _names_of(threads: list[threading.Thread]) -> list[str]:
    return [f"thread {thread.name}" for thread in threads]


def _children() -> "list[BaseProcess]":
    """Return the child processes of `multiprocessing`, which Python joins at its end; only tools load that module."""
    if "multiprocessing.process" not in sys.modules:
        return []
    from multiprocessing import active_children

    return [child for child in active_children() if not child.daemon]
