"""The guard of one background process: starts it, waits for it, and leaves nothing of it behind.

Run by path as `python -I -S process_child.py LIFE REPORT BINARY ARGUMENTS...`, so it imports nothing of ours. LIFE is
the read end of a pipe whose other end only the worker holds: it closes when the worker dies, however it dies, and then
the whole process group is killed. REPORT is the write end of another, for one line: the exit code, or `!` and why it
could not be started. The group is ours alone (the worker started us in a new session), and it goes with us.
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
    news, wakeup = os.pipe()
    os.set_blocking(wakeup, False)
    signal.set_wakeup_fd(wakeup)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # before there is a child, so that its end is never missed
    try:
        # Python ignores SIGPIPE, and what is ignored stays so through exec.
        child = os.posix_spawnp(binary, [binary, *arguments], dict(os.environ), setsigdef=[signal.SIGPIPE])
    except OSError as wrong:
        _end(report, f"!{wrong.strerror}")
        return
    signal.signal(signal.SIGTERM, lambda *_: None)  # meant for the process; we stay to report and to clean up
    signal.signal(signal.SIGINT, lambda *_: None)
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            _end(report, str(os.waitstatus_to_exitcode(status)))
        readable, _, _ = select.select([life, news], [], [])
        if life in readable:
            _end(report, "")
        os.read(news, 512)


def _end(report: int, word: str) -> None:
    """Say the last word, then take the group along, this process in it."""
    with contextlib.suppress(OSError):  # the worker may be gone
        os.write(report, f"{word}\n".encode())
    os.close(report)
    os.killpg(os.getpgid(0), signal.SIGKILL)


if __name__ == "__main__":
    main()
