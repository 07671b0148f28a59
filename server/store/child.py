"""The first seconds of the embedded server's process: tie its life to ours, then become the server.

Run by path as `python -I -S child.py PARENT_PID BINARY ARGUMENTS...`, so it imports nothing of ours and starts in some
15 ms. It is a process of its own and not a `preexec_fn`, because Python code between fork and exec may hang in a
process that has threads. The inherited lock of the directory goes through `exec` and lives as long as the server.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # <linux/prctl.h>; kept through execve(2), sent when the thread that forked us ends


def main() -> None:
    parent, binary = int(sys.argv[1]), sys.argv[2]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        return  # the parent died before the signal was armed; nobody would end us
    os.execv(binary, [binary, *sys.argv[3:]])


if __name__ == "__main__":
    main()
