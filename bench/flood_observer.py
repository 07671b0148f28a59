"""Measures the calls of another caller during a flood: `python -m bench.flood_observer URL`.

For each line `SECONDS` on its input the program calls the server for that number of seconds, and then prints one line
of JSON. The line has the milliseconds of each call of `bob`, who lists chats and sets a parameter (the worker applies
the parameter), and of each `GET /livez`, which is sent on a new connection as an orchestrator would.
"""

import asyncio
import sys
import time

import httpx2
import msgspec
from tests.support.tokens import bearer

__all__ = ["Observed"]

PAUSE_SECONDS = 0.01
LIVEZ_PAUSE_SECONDS = 0.02
TIMEOUT_SECONDS = 30.0


class Observed(msgspec.Struct):
    """Milliseconds of each call. A call that failed counts as `TIMEOUT_SECONDS`."""

    bob: list[float]
    livez: list[float]
    failures: list[str]


async def _observe(client: httpx2.AsyncClient, url: str, seconds: float, number: int) -> Observed:
    found = Observed([], [], [])
    until = time.monotonic() + seconds

    async def timed(into: list[float], client: httpx2.AsyncClient, method: str, path: str, **sent: object) -> None:
        began = time.monotonic()
        try:
            answer = await client.request(method, path, **sent)  # type: ignore[arg-type] # as httpx2 takes them
            answer.raise_for_status()
            into.append(1_000 * (time.monotonic() - began))
        except httpx2.HTTPError as trouble:
            into.append(1_000 * TIMEOUT_SECONDS)
            found.failures.append(f"{path}: {trouble!r}"[:200])

    async def call() -> None:
        count = 0
        while time.monotonic() < until:
            count += 1
            body = {"type": "set_params", "client_request_id": f"s{number}-{count}", "patch": {"title": f"t{count}"}}
            await timed(found.bob, client, "GET", "/v1/chats")
            await timed(found.bob, client, "POST", "/v1/chats/bobs/commands", json=body)
            await asyncio.sleep(PAUSE_SECONDS)

    async def probe() -> None:
        while time.monotonic() < until:
            async with httpx2.AsyncClient(base_url=url, timeout=TIMEOUT_SECONDS) as fresh:
                await timed(found.livez, fresh, "GET", "/livez")
            await asyncio.sleep(LIVEZ_PAUSE_SECONDS)

    await asyncio.gather(call(), probe())
    return found


async def _main(url: str) -> None:
    async with httpx2.AsyncClient(base_url=url, timeout=TIMEOUT_SECONDS, headers=bearer("bob")) as client:
        message = {"type": "user_message", "client_request_id": "first", "content": "hello"}
        (await client.post("/v1/chats/bobs/commands", json=message)).raise_for_status()
        number = 0
        while line := await asyncio.to_thread(sys.stdin.readline):
            number += 1
            print(msgspec.json.encode(await _observe(client, url, float(line), number)).decode(), flush=True)


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1]))
