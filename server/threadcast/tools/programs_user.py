"""Determines the user for programs that tools start: background processes, and MCP servers over stdio.

A program of the server's own user could read the server's environment, with all keys, and its store. A server that
runs as root therefore starts programs as another user (`run_as.py`). Without root's rights a server cannot change the
user; on Linux it hides at least its memory and environment (`base/hiding.py`).
"""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

__all__ = ["DEFAULT_USER", "ProgramsUser", "programs_user_of"]

DEFAULT_USER = "nobody"

NOBODY_ID = 65_534
"""The user id of `nobody` on Linux, for systems on which this name is not defined."""

_RUN_AS = Path(__file__).with_name("run_as.py")


class ProgramsUser(NamedTuple):
    """A user other than the server's. `home` is the directory that programs of this user get as HOME and may write
    to."""

    uid: int
    gid: int
    home: str
    name: str

    def command(self, argv: Sequence[str]) -> list[str]:
        """Return the command that runs `argv` as this user."""
        return [sys.executable, "-I", "-S", str(_RUN_AS), str(self.uid), str(self.gid), self.home, *argv]

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of the command, which passes `variables` on to the program."""
        return {"THREADCAST_ENVIRONMENT": msgspec.json.encode({"HOME": self.home, **variables}).decode()}


def programs_user_of(name: str, home: Path) -> ProgramsUser | None:
    """Return the user for programs; None for the server's own user. `name` is `server.programs_user`.

    Raises:
        ValueError: there is no such user, or the server may not start programs as that user.
    """
    own = os.geteuid()
    if own != 0 and not name:
        return None
    import pwd

    try:
        found = pwd.getpwnam(name or DEFAULT_USER)
        uid, gid = found.pw_uid, found.pw_gid
    except KeyError:
        if name:
            raise ValueError(f"server.programs_user: there is no user {name!r}") from None
        uid = gid = NOBODY_ID
    if uid == own:
        return None
    if own != 0:
        raise ValueError(
            f"server.programs_user: only a server that runs as root can start programs as {name!r}; leave the setting "
            "out"
        )
    return ProgramsUser(uid, gid, str(home.absolute()), name or DEFAULT_USER)
