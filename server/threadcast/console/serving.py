"""`threadcast serve`, `web` and `worker`: loads the settings from flags, environment and file, and starts the server.

Only this module reads the environment for the server. Before any resource is opened, errors in the configuration and
notes about it are printed, one line for each.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

from threadcast.process.lifecycle import ProcessSlot
from threadcast.settings import Settings
from threadcast.settings.sources import BadSettings, load_settings

__all__ = ["Many", "half", "serve"]

SERVER_PROCESSES_MAX = 64
"""Maximum number of server processes: the number of cores of a large machine. A number such as 1,000 is a typing
error."""


class Many(NamedTuple):
    """The number of processes that `threadcast web` or `worker` starts.

    `total` is the number of processes. `command` is the command line that starts one of them, without `--seat`. `slot`
    is the value of `--seat`, which the supervisor passes to each process that it starts; None in the supervisor itself.
    """

    total: int
    slot: str | None
    command: Sequence[str]


def serve(flags: Mapping[str, object], file: str | None) -> int:
    """Run both halves in this process. Returns the exit code. Raises BadSettings."""
    settings = _settings(flags, file)
    from threadcast import wiring

    return wiring.serve(settings)


def half(name: Literal["web", "worker"], flags: Mapping[str, object], file: str | None, many: Many) -> int:
    """Run one half in this process, or in several processes under a supervisor. Returns the exit code.

    Raises BadSettings.
    """
    settings = _settings(flags, file, many.slot)
    if settings.store.url is None:
        raise BadSettings(
            f"`threadcast {name}` is one half of a server and shares a store with the other half: set REDIS_URL, or "
            "use `threadcast serve`, which runs both halves with their own store"
        )
    if many.slot is None and many.total != 1:
        return _several(settings, name, many)
    from threadcast import wiring

    return {"web": wiring.web, "worker": wiring.worker}[name](settings, _process_slot(many.slot))


def _several(settings: Settings, half: Literal["web", "worker"], many: Many) -> int:
    if not 1 <= many.total <= SERVER_PROCESSES_MAX:
        raise BadSettings(
            f"--processes {many.total} must be from 1 to {SERVER_PROCESSES_MAX}; one for each core is usual"
        )
    if half == "web" and sys.platform != "linux":
        raise BadSettings(
            "--processes needs Linux, whose kernel distributes connections among the processes of one port; on this "
            "system, start `threadcast web` several times, each with its own --port, behind a load balancer"
        )
    from threadcast.process.supervisor import supervise

    return supervise(settings, half, many.command, many.total)


def _process_slot(text: str | None) -> ProcessSlot | None:
    """Decode the value of `--seat`. Raises BadSettings."""
    try:
        return None if text is None else msgspec.json.decode(text, type=ProcessSlot)
    except msgspec.MsgspecError:
        raise BadSettings("--seat is only for processes that --processes starts; leave it out") from None


def _settings(flags: Mapping[str, object], file: str | None, slot: str | None = None) -> Settings:
    """Load the settings and print notes about them. Only the supervisor prints the notes; its processes do not."""
    loaded = load_settings(os.environ, flags, file)
    for note in loaded.notes if slot is None else ():
        print(f"threadcast: {note}", file=sys.stderr)
    return loaded.settings
