"""Whether this process may be sent work now, and if not, why: what `/readyz` says, in a web process and in a worker.

Three phases, each entered once: starting, ready, draining; and while it is ready, what the store says. Told by
`app.py` and `worker.py`, asked by `api/caps.py` and `probes.py`. It knows no HTTP but the number. The rule: an answer
comes within `READY_SECONDS`, whatever the store does.
"""

from typing import Literal

import anyio
import msgspec

from protocol.errors import Failed
from protocol.messages import JsonObject
from server.store.port import Store

__all__ = ["READY_SECONDS", "Readiness"]

READY_SECONDS = 1.0
"""How long the store may take to answer before the process counts as not ready."""


class Readiness:
    """Starting, until `open` is called."""

    def __init__(self) -> None:
        self._phase: Literal["starting", "ready", "draining"] = "starting"
        self._store: Store | None = None
        self._waits = ""

    def wait(self, trouble: str) -> None:
        """Note why the process cannot start yet: its store cannot be reached."""
        self._waits = trouble

    def open(self, store: Store) -> None:
        """All is there; from now on the store decides. A process that was told to stop meanwhile stays draining."""
        self._store = store
        if self._phase == "starting":
            self._phase = "ready"

    @property
    def is_draining(self) -> bool:
        return self._phase == "draining"

    def drain(self) -> None:
        """It was told to stop: what it has is finished or handed over, nothing new should come."""
        self._phase = "draining"

    async def look(self) -> tuple[int, JsonObject]:
        """200 or 503, and the body that says why (PROTOCOL §13)."""
        if self._phase == "draining":
            return 503, {"status": "draining", "detail": "the process was told to stop; send requests elsewhere"}
        if self._store is None and self._waits:
            return _unavailable(self._waits)
        if self._store is None or self._phase == "starting":
            return 503, {"status": "starting", "detail": "the process has not opened all that it needs yet"}
        try:
            with anyio.fail_after(READY_SECONDS):
                standing = await self._store.ping()
        except Failed as trouble:
            return _unavailable(trouble.message)
        except TimeoutError:
            return _unavailable(f"no answer within {READY_SECONDS:g} s")
        said = {"status": "ready", "store": "partly" if standing.away else "ok"}
        return 200, said | msgspec.to_builtins(standing)


def _unavailable(trouble: str) -> tuple[int, JsonObject]:
    return 503, {"status": "unavailable", "store": trouble, "detail": f"the store: {trouble}"}
