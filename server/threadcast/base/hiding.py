"""Hides the memory and the environment of this process from other processes of the same user, on Linux."""

import ctypes
import sys

__all__ = ["hide_process"]

PR_SET_DUMPABLE = 4
"""From <linux/prctl.h>. In a process that is not dumpable, /proc/PID/environ and /proc/PID/mem belong to root, and no
process without CAP_SYS_PTRACE may trace it. Such a process writes no core dump, either. Linux resets the flag at
execve(2)."""


def hide_process() -> bool:
    """Hide this process from other users; root can still read it. Returns False on systems without this feature."""
    return sys.platform == "linux" and bool(ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0)
