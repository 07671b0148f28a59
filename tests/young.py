"""Runs a command on a clock that starts at one second: `python -m tests.young COMMAND ARGUMENTS…`.

A monotonic clock counts from the machine's boot, so code that takes 0 for "long ago" fails only on a machine that has
just started. The command runs in a time namespace of Linux (>= 5.6, time_namespaces(7)), so all processes that it
starts see that clock as well: uvloop, Node.js, Valkey and Chromium too. The wall clock stays as it is. Needs `unshare`
of util-linux >= 2.36, and root or a machine that lets its users make namespaces of their own.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

__all__ = ["START_SECONDS", "command_on_young_clock", "why_not"]

START_SECONDS = 1
"""The time that the clock shows when the command begins."""

CLOCKS = {"monotonic": "CLOCK_MONOTONIC", "boottime": "CLOCK_BOOTTIME"}
"""The clocks that a namespace can shift, by the names of `unshare` and of the module `time`."""


def command_on_young_clock(command: list[str]) -> list[str]:
    """Return the command with the prefix that shifts its clock. Raises OSError if the system has no time namespaces."""
    # the offsets to the machine's clocks, in seconds
    offsets = Path("/proc/self/timens_offsets").read_text().splitlines()
    shifted = {name: int(seconds) for name, seconds, _ in map(str.split, offsets)}
    unshare = ["unshare", "--time"] if os.geteuid() == 0 else ["unshare", "--user", "--map-current-user", "--time"]
    for name, clock in CLOCKS.items():
        now = int(time.clock_gettime(getattr(time, clock)))
        unshare.append(f"--{name}={shifted[name] - now + START_SECONDS}")
    return [*unshare, "--", *command]


def why_not() -> str:
    """Return why this machine cannot shift clocks, or an empty string when it can."""
    try:
        subprocess.run(command_on_young_clock(["true"]), check=True, capture_output=True, text=True)
    except subprocess.CalledProcessError as failed:
        return str(failed.stderr).strip()
    except OSError as missing:
        return f"this system has no time namespaces: {missing}"
    return ""


if __name__ == "__main__":
    if why := why_not():
        sys.exit(why)
    young = command_on_young_clock(sys.argv[1:])
    os.execvp(young[0], young)
