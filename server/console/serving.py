"""`threadcast serve`, `web` and `worker`: from flags to settings, and then into the house.

The one place that reads the environment for the server. Whatever is wrong with the configuration is said here, before
anything opens, in one line; what is noteworthy about it as well.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

from server.process import Seat
from server.settings import Settings
from server.settings.sources import BadSettings, load_settings

__all__ = ["Many", "serve", "web", "worker"]

PROCESSES_MAX = 64
"""As many as a large machine has cores; 1,000 would be a slip of the finger."""


class Many(NamedTuple):
    """How many processes a command shall have. `command` starts one of them, once `--seat` is added; `seat` is what was
    added to this one."""

    total: int
    seat: str | None
    command: Sequence[str]


def serve(flags: Mapping[str, object], file: str | None) -> int:
    settings = _settings(flags, file)
    from server.app import serve as run

    return run(settings)


def web(flags: Mapping[str, object], file: str | None, many: Many) -> int:
    settings = _shared(_settings(flags, file, many.seat), "web")
    if many.seat is None and many.total != 1:
        return _several(settings, "web", many)
    from server.app import web as run

    return run(settings, _seat(many.seat))


def worker(flags: Mapping[str, object], file: str | None, many: Many) -> int:
    settings = _shared(_settings(flags, file, many.seat), "worker")
    if many.seat is None and many.total != 1:
        return _several(settings, "worker", many)
    from server.worker import worker as run

    return run(settings, _seat(many.seat))


def _several(settings: Settings, half: Literal["web", "worker"], many: Many) -> int:
    if not 1 <= many.total <= PROCESSES_MAX:
        raise BadSettings(
            f"--processes {many.total}: from 1 to {PROCESSES_MAX}; as many as the machine has cores is usual"
        )
    if half == "web" and sys.platform != "linux":
        raise BadSettings(
            "--processes needs Linux, whose kernel spreads connections over the processes of one port; here, start "
            "`threadcast web` as often as you like, each with a --port of its own, behind a balancer"
        )
    if sys.platform == "win32":
        raise BadSettings("--processes is not for Windows; start `threadcast worker` as often as you like")
    from server.supervisor import supervise

    return supervise(settings, half, many.command, many.total)


def _seat(text: str | None) -> Seat | None:
    """Raises BadSettings."""
    try:
        return None if text is None else msgspec.json.decode(text, type=Seat)
    except msgspec.MsgspecError:
        raise BadSettings("--seat is what --processes gives to the processes that it starts; leave it away") from None


def _settings(flags: Mapping[str, object], file: str | None, seat: str | None = None) -> Settings:
    """What is noteworthy is said once: by the supervisor, not by each process that it starts."""

    def say(text: str) -> None:
        if seat is None:
            print(f"threadcast: {text}", file=sys.stderr)

    loaded = load_settings(os.environ, flags, file)
    for note in loaded.notes:
        say(note)
    return loaded.settings


def _shared(settings: Settings, command: str) -> Settings:
    if settings.store.url is None:
        raise BadSettings(
            f"`threadcast {command}` is one half of a server and shares a store with the other: set REDIS_URL. "
            "`threadcast serve` runs both halves with a store of its own"
        )
    return settings
