"""A pytest plugin that hides the modules that Python has on Unix only: `pytest -p tests.packaging.without_unix`."""

import sys

__all__ = ["UNIX_MODULES"]

UNIX_MODULES = ("fcntl", "grp", "pty", "pwd", "resource", "termios", "tty")


def pytest_configure() -> None:
    """Make each of these modules fail to import, as Python does with a module that is None in `sys.modules`."""
    sys.modules.update(dict.fromkeys(UNIX_MODULES))  # type: ignore[arg-type]
