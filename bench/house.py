"""The whole product for a measurement: a private Valkey, one web process, one worker with the demo models.

An answer of N words at R words a second makes about N events at that pace, since the worker gathers only what comes
within 30 ms. For the programs of `bench/`, which measure the web process by its id. The rule: between two answers
nothing happens, so that what is measured beside it has the machine for itself.
"""

import itertools
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import anyio
import httpx2

from bench.readers import Count, Readers
from tests.deploys.fleet import opened_fleet
from tests.integration.harness import Process, user_message

__all__ = ["House", "opened_house"]

QUIET_SECONDS = 0.25
"""After which a chat at rest says nothing more: the last events of a run leave within a pace of 30 ms."""

POSTS_AT_ONCE = 20

LIMITS = {"STREAMS_PER_PRINCIPAL": "20000"}
"""All readers of a measurement are one caller."""


class House:
    """`web` is whose CPU is measured."""

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
        """Wait until an answer that was just begun is over and all readers have it; what they have had."""
        await anyio.sleep(words / rate)
        before, now = 0, readers.count()
        while now.events != before:
            await anyio.sleep(QUIET_SECONDS)
            before, now = now.events, readers.count()
        return now


@asynccontextmanager
async def opened_house(limits: dict[str, str] | None = None) -> AsyncIterator[House]:
    """All processes are ready, and end with the block."""
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        fleet = opened_fleet(stack, Path(directory))
        web = await fleet.web(limits=LIMITS | (limits or {}))
        await fleet.worker()
        async with httpx2.AsyncClient(timeout=60) as client:
            yield House(web, client)
