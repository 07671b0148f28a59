"""A tool that ends when a test releases it, and demo models that count their calls."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable

import anyio

from tests.unit.faulty_store import DEADLINE_SECONDS
from threadcast.providers.base import Delta, Request
from threadcast.providers.demo.models import Demo
from threadcast.tools.base import Policy, Retry, ToolOutput, ToolResult
from threadcast.tools.context import Progress, ToolContext
from threadcast.tools.traits import NO_TRAITS
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["CountingDemo", "GatedTool"]


class GatedTool:
    """A tool that reports its beginning and ends when a test sets `go_on`. The tool counts how often it began and was
    cancelled."""

    description, category, source, label_arg, hide_input = "waits", "", "python", None, False
    timeout_seconds = 30.0
    traits = NO_TRAITS

    def __init__(self, *, retry: Retry = "once", policy: Policy = "auto") -> None:
        self.name = "gated"
        self.input_schema: JsonObject = {"type": "object"}
        self.retry: Retry = retry
        self.policy: Policy = policy
        self.began = 0
        self.cancelled = 0
        self.go_on = anyio.Event()
        self.report: Callable[[Progress], None] = print
        self.context: JsonObject = {}
        self._entered = anyio.Event()

    async def entered(self, times: int = 1) -> None:
        """Wait until the tool has begun this many times."""
        with anyio.fail_after(DEADLINE_SECONDS):
            while self.began < times:
                await self._entered.wait()

    async def run(self, arguments: JsonObject, context: ToolContext) -> AsyncIterator[ToolOutput]:
        self.began += 1
        self.report = context.report
        self.context = context.context
        self._entered.set()
        self._entered = anyio.Event()
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        yield ToolResult(content=f"result {self.began}")


class CountingDemo(Demo):
    """The demo models. `open_streams` counts the calls that run now; `prefixes` has the texts that calls were told to
    continue."""

    def __init__(self) -> None:
        self.open_streams = 0
        self.prefixes: list[str] = []
        self._was_asked = anyio.Event()

    async def asked(self, times: int) -> None:
        """Wait until the models were called this many times."""
        with anyio.fail_after(DEADLINE_SECONDS):
            while len(self.prefixes) < times:
                await self._was_asked.wait()

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        self.open_streams += 1
        self.prefixes.append(request.prefix)
        self._was_asked.set()
        self._was_asked = anyio.Event()
        stream = super().stream(request)
        try:
            async for delta in stream:
                yield delta
        finally:
            self.open_streams -= 1
            await stream.aclose()
