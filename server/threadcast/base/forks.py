"""Closes the server's ports, connections and locks in forked children, and resets the signal handlers there.

`os.fork` and `multiprocessing` copy every open descriptor, and a tool may call them. A child that outlives the server
would keep the server's port and data directory, so that the server could not be started again. It would also keep the
connections of readers, so that they would not notice the server's end. It would also answer a signal as the server
does: `multiprocessing.Pool` ends its workers with SIGTERM, and a worker with our handler would live on. Programs that a
tool starts (`subprocess`) need no cleaning: exec closes Python's descriptors (PEP 446) and resets handlers.

uvloop runs these hooks also between fork and exec, so descriptors for a child program must not be registered here.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress

__all__ = ["close_in_children"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_thread = threading.local()

_keepers: dict[int, Callable[[], Iterable[int]]] = {}


def close_in_children(descriptors: Callable[[], Iterable[int]]) -> Callable[[], None]:
    """Close these descriptors in every child that is forked from now on; negative numbers are skipped. The child calls
    `descriptors` after the fork, so that it does not close a number that meanwhile belongs to another file. Returns a
    function that cancels the registration."""
    key = max(_keepers, default=0) + 1
    _keepers[key] = descriptors

    def forget() -> None:
        _keepers.pop(key, None)

    return forget


def _hold_signals() -> None:
    """Block signals before the fork, in the thread that forks: a signal that reaches the child before it has reset our
    handlers would be lost."""
    _thread.mask = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS) if _keepers else None


def _release_signals() -> None:
    mask, _thread.mask = getattr(_thread, "mask", None), None
    if mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _forget_the_parent() -> None:
    """Clean up in the child, in its only thread, the thread that called fork."""
    if _keepers:  # empty in a process that is not a server
        signal.set_wakeup_fd(-1)
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        for descriptors in list(_keepers.values()):
            for descriptor in list(descriptors()):
                if descriptor >= 0:
                    with suppress(OSError):
                        os.close(descriptor)
    _release_signals()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_hold_signals, after_in_parent=_release_signals, after_in_child=_forget_the_parent)
