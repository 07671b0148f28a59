"""Wakes tasks that wait for a condition."""

from collections.abc import Callable

import anyio

__all__ = ["Changed"]


class Changed:
    """Tells waiting tasks that something has changed. Call `tell` after each change that a condition depends on."""

    def __init__(self) -> None:
        self._event = anyio.Event()

    def tell(self) -> None:
        """Wake all waiting tasks."""
        event, self._event = self._event, anyio.Event()
        event.set()

    async def wait(self) -> None:
        """Wait for the next change."""
        await self._event.wait()

    async def until(self, is_so: Callable[[], object], seconds: float | None = None) -> bool:
        """Wait until `is_so()` is true; `is_so` is called after each change. Returns False after `seconds`."""
        with anyio.move_on_after(seconds):
            while not is_so():
                await self._event.wait()
            return True
        return bool(is_so())  # the last change may have come together with the timeout
