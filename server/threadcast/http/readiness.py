"""Determines the answer of `/readyz`: whether this process accepts work, and otherwise the reason.

A process passes through three phases: starting, ready, draining; while it is ready, the answer depends on the store.
The web process and the worker set the phase; `api/caps.py` and `http/probes.py` read it. The answer comes within
`READY_SECONDS`, even if the store hangs.
"""

from typing import Literal

import anyio
from msgspec.structs import asdict

from threadcast.store.ports import Facts
from threadcast_protocol.wire.errors import Failed
from threadcast_protocol.wire.server_info import Health

__all__ = ["LATE_SECONDS", "READY_SECONDS", "Readiness"]

LATE_SECONDS = 5.0
"""Seconds after which a chat that waits for a worker is reported. A worker that is not full takes the chat within
milliseconds, and the chats of a dead worker wait for at most a lease and a sweep (4 s)."""

READY_SECONDS = 1.0
"""Seconds that the store may take to answer before the process counts as not ready."""


class Readiness:
    """The phase of a process: starting until `open` is called."""

    def __init__(self) -> None:
        self._phase: Literal["starting", "ready", "draining"] = "starting"
        self._store: Facts | None = None
        self._waits = ""
        self._late = ""

    def wait(self, trouble: str) -> None:
        """Record why the process cannot start yet: its store cannot be reached."""
        self._waits = trouble

    def open(self, store: Facts) -> None:
        """Begin the ready phase, in which the process is ready as long as the store answers. A process that is
        already draining stays in that phase."""
        self._store = store
        if self._phase == "starting":
            self._phase = "ready"

    def note_backlog(self, oldest_seconds: float, count: int) -> None:
        """Record how long the oldest of `count` due chats has waited for a worker."""
        self._late = ""
        if oldest_seconds >= LATE_SECONDS:
            self._late = (
                f"{count} chats wait for a worker, the first one since {oldest_seconds:.0f} s: there are too few "
                "workers, or they are full or stalled"
            )

    @property
    def is_draining(self) -> bool:
        return self._phase == "draining"

    def drain(self) -> None:
        """Begin the draining phase, in which the process finishes or hands over its work, and refuses new work."""
        self._phase = "draining"

    async def look(self) -> tuple[int, Health]:
        """Return 200 or 503, and the body with the reason (PROTOCOL §13). A backlog is reported with 200, because this
        process accepts commands, and sending its requests to other processes would not make the workers faster."""
        if self._phase == "draining":
            return 503, Health("draining", detail="the process was told to stop; send requests elsewhere")
        if self._store is None and self._waits:
            return _unavailable(self._waits)
        if self._store is None or self._phase == "starting":
            return 503, Health("starting", detail="the process is still opening its resources")
        try:
            with anyio.fail_after(READY_SECONDS):
                standing = await self._store.ping()
        except Failed as trouble:
            return _unavailable(trouble.message)
        except TimeoutError:
            return _unavailable(f"no answer within {READY_SECONDS:g} s")
        late = {"workers": "late", "detail": self._late} if self._late else {}
        return 200, Health("ready", "partly" if standing.away else "ok", **late, **asdict(standing))


def _unavailable(trouble: str) -> tuple[int, Health]:
    return 503, Health("unavailable", trouble, f"the store: {trouble}")
