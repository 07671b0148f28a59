"""Starts the embedded server as a process that ends with its parent. Requests a parent-death signal from Linux, then
calls exec.

This program is run by its path, as `python -I -S child.py PARENT_PID BINARY ARGUMENTS...`. It imports nothing of this
package, so it starts in some 15 ms. It is a separate program and not a `preexec_fn`, because Python code between fork
and exec may hang in a process that has threads. The server inherits the lock of the directory through `exec` and holds
the lock until it ends.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
"""From <linux/prctl.h>. The setting survives execve(2); the signal is sent when the thread that forked this process
ends."""


def main() -> None:
    parent, binary = int(sys.argv[1]), sys.argv[2]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        return  # the parent died before the signal was set up, so no signal would end this process
    os.execv(binary, [binary, *sys.argv[3:]])


if __name__ == "__main__":
    main()
