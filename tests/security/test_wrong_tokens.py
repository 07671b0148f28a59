"""Floods of requests with wrong tokens or none: the answers are slowed, the log is bounded, and callers with a token
are not affected."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import httpx2
import pytest
import structlog
from msgspec.structs import replace

from tests.support.server import Process, start
from tests.support.tokens import bearer, tokens
from threadcast.api import refused_tokens
from threadcast.api.refused_tokens import RefusedTokens
from threadcast.settings.limits import DEFAULT_LIMITS

pytestmark = pytest.mark.anyio

DEADLINE_SECONDS = 8.0
"""Time limit of an answer; less than the 10 s by which the servers of these tests slow an answer."""

FREE = 3
WRONG = {"Authorization": "Bearer wrong"}


@asynccontextmanager
async def serving(directory: Path) -> AsyncIterator[tuple[Process, httpx2.AsyncClient]]:
    """Yield a server that slows answers 401 by 10 s after the first three within a minute, and a client."""
    limits = f"[limits]\nunauthorized_per_minute = {FREE}\nunauthorized_delay_seconds = 10\n"
    (directory / "threadcast.toml").write_text(limits + tokens(ann=""))
    arguments = ("serve", "--memory", "--port", "0", "--config", str(directory / "threadcast.toml"))
    with start(*arguments, log=directory / "log") as server:
        await server.ready()
        pool = httpx2.Limits(max_connections=100)
        async with httpx2.AsyncClient(base_url=server.url, timeout=60, limits=pool) as client:
            yield server, client


async def test_wrong_tokens_are_slowed_and_a_valid_one_of_the_same_address_is_not(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, client), anyio.create_task_group() as tasks:
        with anyio.fail_after(DEADLINE_SECONDS):
            for headers in (WRONG, {}, {"Authorization": "Basic eDp5"}):
                refused = await client.get("/v1/chats", headers=headers)
                assert (refused.status_code, refused.json()["code"]) == (401, "unauthorized")
        answered: list[int] = []

        async def guess(path: str) -> None:
            answered.append((await client.get(path, headers=WRONG)).status_code)

        paths = ("/v1/chats", "/v1/chats/subscribe?chat_id=x", "/v1/session", "/v1/chats/feed")
        for path in paths:
            tasks.start_soon(guess, path)
        with anyio.fail_after(DEADLINE_SECONDS):
            for _ in range(20):
                assert (await client.get("/v1/chats", headers=bearer("ann"))).status_code == 200
                assert (await client.get("/livez")).status_code == 200
            # A valid token of another user than the request names is not counted as a wrong token. It occurs when
            # another user has signed in, and then the page must notice at once.
            other = await client.get("/v1/chats", headers={**bearer("ann"), "Threadcast-Principal": "bob"})
            assert other.status_code == 401
            assert answered == []
        while len(answered) < len(paths):
            with anyio.fail_after(30):
                await anyio.sleep(0.1)
        assert answered == [401] * len(paths)


async def test_slowed_answers_hold_few_connections(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, client), anyio.create_task_group() as tasks:
        for _ in range(FREE):
            await client.get("/v1/chats", headers=WRONG)
        answers: list[httpx2.Response] = []
        changed = anyio.Event()

        async def guess() -> None:
            nonlocal changed
            answers.append(await client.get("/v1/chats", headers=WRONG))
            changed.set()
            changed = anyio.Event()

        for _ in range(60):
            tasks.start_soon(guess)
        with anyio.fail_after(DEADLINE_SECONDS):
            while len(answers) < 50:
                await changed.wait()
            assert (await client.get("/v1/chats", headers=bearer("ann"))).status_code == 200
        assert len(answers) == 50, "ten wait"
        assert {(answer.status_code, answer.headers.get("connection")) for answer in answers} == {(401, "close")}
        tasks.cancel_scope.cancel()


async def test_behind_a_proxy_each_caller_counts_for_itself(tmp_path: Path) -> None:
    """The tests connect from loopback, which always counts as a trusted proxy."""
    async with serving(tmp_path) as (server, client):

        async def is_slowed(forwarded_for: str) -> bool:
            with anyio.move_on_after(1.5):
                refused = await client.get("/v1/chats", headers={**WRONG, "X-Forwarded-For": forwarded_for})
                assert refused.status_code == 401
                return False
            return True

        for number in range(FREE):  # all addresses before the last one are forged
            assert not await is_slowed(f"198.51.100.{number}, 203.0.113.5")
        assert await is_slowed("203.0.113.6, 203.0.113.5")
        assert not await is_slowed("203.0.113.6")
        for number in range(FREE):
            assert not await is_slowed(f"2001:db8:1:1::{number}")
        assert await is_slowed("[2001:db8:1:1:ffff::9]:4711"), "another address of the same network"
        assert not await is_slowed("2001:db8:1:2::1")
        lines = [line for line in server.log_text().splitlines() if "auth.refused" in line]
        found = [name for name in ("203.0.113.5", "203.0.113.6", "2001:db8:1:1::/64") if name in "".join(lines)]
        assert len(found) == 3
        assert len(lines) == 4
        assert "wrong" not in "".join(lines), "a token that a person misspelt must not be in the log"


def scope_of(address: str) -> dict[str, object]:
    return {"type": "http", "headers": [], "client": (address, 1)}


async def test_the_log_has_one_line_for_each_address_and_minute() -> None:
    refused = RefusedTokens(replace(DEFAULT_LIMITS, unauthorized_delay_seconds=0.0), minute_seconds=0.3)
    with structlog.testing.capture_logs() as lines:
        for _ in range(50):
            for address in ("192.0.2.1", "192.0.2.2"):
                assert not await refused.note(scope_of(address))
        assert [(line["event"], line["address"], line["count"]) for line in lines] == [
            ("auth.refused", "192.0.2.1", 1),
            ("auth.refused", "192.0.2.2", 1),
        ]
        with anyio.fail_after(DEADLINE_SECONDS):
            while len(lines) < 4:
                await anyio.sleep(0.01)
        assert [(line["address"], line["count"]) for line in lines[2:]] == [("192.0.2.1", 49), ("192.0.2.2", 49)]


async def test_very_many_addresses_fill_neither_the_table_nor_the_log() -> None:
    limits = replace(DEFAULT_LIMITS, unauthorized_per_minute=1, unauthorized_delay_seconds=10.0)
    refused = RefusedTokens(limits)
    with structlog.testing.capture_logs() as lines:
        for number in range(3 * refused_tokens.REMEMBERED_MAX):
            await refused.note(scope_of(f"2001:db8:{number >> 8:x}:{number & 255:x}::1"))
        assert len(lines) == refused_tokens.LINES_MAX
        assert len(refused._addresses) == refused_tokens.REMEMBERED_MAX
        begun = time.monotonic()
        async with anyio.create_task_group() as tasks:  # each of very many addresses has some waiting answers
            for number in range(2 * refused_tokens.WAITING_MAX):
                tasks.start_soon(refused.note, scope_of(f"2001:db8:ffff:{number >> 3:x}::1"))
            await anyio.wait_all_tasks_blocked()
            assert refused._waiting.total() <= refused_tokens.WAITING_MAX
            tasks.cancel_scope.cancel()
        assert refused._waiting.total() == 0
        assert time.monotonic() - begun < limits.unauthorized_delay_seconds
