"""The guard of one background process. The guard starts the process, waits for it, and ends all its descendants.

The worker runs this file by path as `python -I -S process_child.py LIFE REPORT BINARY ARGUMENTS...`, so it imports
nothing of this package. LIFE is the read end of a pipe; only the worker holds the other end. The pipe closes when the
worker dies in any way, and then the whole process group is killed. REPORT is the write end of a pipe for one line: the
exit code, or `!` and the reason of a failed start. The worker starts the guard in a new session, so the group contains
only the guard and its descendants.
"""

import contextlib
import os
import select
import signal
import sys


def main() -> None:
    life, report = int(sys.argv[1]), int(sys.argv[2])
    binary, *arguments = sys.argv[3:]
    os.set_inheritable(life, False)
    os.set_inheritable(report, False)
    wakeups, wakeup = os.pipe()
    os.set_blocking(wakeup, False)
    signal.set_wakeup_fd(wakeup)
    # The handlers are installed before the child starts, so that the end of the child is never missed. Other signals
    # are for the child alone, because the guard must stay alive to report and clean up. exec resets handlers, but not
    # ignored signals.
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    try:
        # Python ignores SIGPIPE, and exec keeps ignored signals ignored.
        child = os.posix_spawnp(binary, [binary, *arguments], dict(os.environ), setsigdef=[signal.SIGPIPE])
    except OSError as wrong:
        _end(report, f"!{wrong.strerror}")
        return
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            _end(report, str(os.waitstatus_to_exitcode(status)))
        readable, _, _ = select.select([life, wakeups], [], [])
        if life in readable:
            _end(report, "")
        os.read(wakeups, 512)


def _end(report: int, word: str) -> None:
    """Write the report, then kill the group, including this process."""
    with contextlib.suppress(OSError):  # the worker may have died
        os.write(report, f"{word}\n".encode())
    os.close(report)
    os.killpg(os.getpgid(0), signal.SIGKILL)


if __name__ == "__main__":
    main()
