"""Starts the whole product for a measurement: a private Valkey, one web process, and one worker with the demo models.

The programs of `bench/` measure the web process by its id. An answer of N words at R words a second has about N events,
because the worker combines only words that come within 30 ms. Between two answers the product is idle, so that a
compared program has the machine for itself.
"""

import itertools
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import anyio
import httpx2
from tests.support.fleet import fleet_on_new_store
from tests.support.server import Process, user_message

from bench.readers import Count, Readers

__all__ = ["Harness", "opened_harness"]

QUIET_SECONDS = 0.25
"""The time after the end of a run after which no further event comes. The last events of a run are sent within 30
ms."""

POSTS_AT_ONCE = 20

LIMITS = {"STREAMS_PER_PRINCIPAL": "20000", "RUNS_PER_PRINCIPAL": "20000"}
"""The limits of streams and runs for each caller; all readers and all chats of a measurement are of one caller."""


class Harness:
    """The processes of the product. `web` is the process whose CPU time is measured."""

    def __init__(self, web: Process, client: httpx2.AsyncClient) -> None:
        self.web = web
        self._client = client
        self._numbers = itertools.count()

    async def ask(self, chat_ids: Sequence[str], words: int, rate: float) -> None:
        """Begin an answer in each of the chats."""
        bound = anyio.CapacityLimiter(POSTS_AT_ONCE)

        async def post(chat_id: str) -> None:
            async with bound:
                body = user_message(
                    f"r{next(self._numbers)}", "go", params={"model": f"demo/essay?words={words}&rate={rate}"}
                )
                answer = await self._client.post(f"{self.web.url}/v1/chats/{chat_id}/commands", json=body)
                assert answer.status_code == 202, answer.text

        async with anyio.create_task_group() as tasks:
            for chat_id in chat_ids:
                tasks.start_soon(post, chat_id)

    async def answered(self, readers: Readers, words: int, rate: float) -> Count:
        """Wait until all readers have the whole answer that was just begun. Returns the events and bytes that the
        readers received."""
        await anyio.sleep(words / rate)
        before, now = 0, readers.count()
        while now.events != before:
            await anyio.sleep(QUIET_SECONDS)
            before, now = now.events, readers.count()
        return now


@asynccontextmanager
async def opened_harness(limits: dict[str, str] | None = None) -> AsyncIterator[Harness]:
    """Start all processes for a block, and wait until they are ready."""
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        fleet = stack.enter_context(fleet_on_new_store(Path(directory)))
        web = await fleet.add_web(limits=LIMITS | (limits or {}))
        await fleet.add_worker(limits=LIMITS)
        async with httpx2.AsyncClient(timeout=60) as client:
            yield Harness(web, client)
