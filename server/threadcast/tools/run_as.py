"""Gives up the rights of root, and then runs a program.

Root runs this file by path as `python -I -S run_as.py UID GID HOME BINARY ARGUMENTS...`, so it imports nothing of this
package. HOME is created, and its owner becomes the user. The variable `THREADCAST_ENVIRONMENT` contains the program's
variables as a JSON object, because some variables, such as LD_PRELOAD, would otherwise act on this process while it
still has the rights of root.
"""

import ctypes
import json
import os
import pwd
import sys

PR_SET_NO_NEW_PRIVS = 38
"""From <linux/prctl.h>: the program and its descendants gain no rights by setuid files, such as sudo."""


def main() -> None:
    uid, gid, home = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    binary, *arguments = sys.argv[4:]
    variables = {**os.environ, **json.loads(os.environ.get("THREADCAST_ENVIRONMENT", "{}"))}
    variables.pop("THREADCAST_ENVIRONMENT", None)
    path = _found(binary, variables)  # root can read the standard library, and directories that the user cannot
    try:
        user = pwd.getpwuid(uid).pw_name
    except KeyError:
        user = str(uid)
    os.makedirs(home, exist_ok=True)  # noqa: PTH103 - importing pathlib doubles the time of this start
    os.chown(home, uid, gid, follow_symlinks=False)
    os.setgroups([])
    os.setgid(gid)  # for root, the saved ids are set as well (setuid(2)), so there is no way back
    os.setuid(uid)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    try:
        os.execve(path, [binary, *arguments], variables)
    except OSError as wrong:
        print(
            f"{path} could not be started: {wrong.strerror}. Threadcast runs programs as the user {user}. Install the "
            "program where that user may run it, or choose another user by server.programs_user",
            file=sys.stderr,
        )
        sys.exit(127)


def _found(binary: str, variables: dict[str, str]) -> str:
    """Return the path of the program that root's PATH search finds. The user's own search could skip a program that the
    user may not run, and start another program of the same name."""
    if "/" in binary:
        return binary
    for directory in os.get_exec_path(variables):
        path = f"{directory}/{binary}"
        if os.path.isfile(path) and os.access(path, os.X_OK):  # noqa: PTH113 - as in `main`
            return path
    print(f"{binary} could not be started: there is no such program in PATH", file=sys.stderr)
    sys.exit(127)


if __name__ == "__main__":
    main()
