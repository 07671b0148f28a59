"""Measures how long a durable function works without beginning or ending an operation."""

import asyncio
from collections.abc import Callable

__all__ = ["AwakeTimer"]


class AwakeTimer:
    """Calls `on_late` after `seconds`, unless the timer is stopped or rewound earlier."""

    def __init__(self, seconds: float, on_late: Callable[[], None]) -> None:
        self.seconds = seconds
        self._on_late = on_late
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start the timer, unless it already runs."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self.seconds, self._on_late)

    def rewind(self) -> None:
        """Start the timer again with its full time, if it runs."""
        if self._timer is not None:
            self.stop()
            self.start()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
