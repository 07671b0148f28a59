"""Attacks by a caller who opens very many streams, opens and drops streams without pause, or watches very many
chats."""

import json
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio
import httpx2
import pytest

from tests.resources.measures import PeakMemory
from tests.security.test_connections import connected, port_of
from tests.support.server import Process, start
from tests.support.tokens import bearer, tokens
from threadcast.fanout.admissions import BURST_MIN, Rate

pytestmark = pytest.mark.anyio

DEADLINE_SECONDS = 60.0

OPENINGS = "[limits]\nstream_openings_per_second = 1\n"
CHATS = "[limits]\nwatched_chats_per_principal = 100\n"


@asynccontextmanager
async def guarded(directory: Path, limits: str = "") -> AsyncIterator[tuple[Process, httpx2.AsyncClient]]:
    """Yield a server for ann and bob, and a client for bob."""
    (directory / "threadcast.toml").write_text(limits + tokens(ann='permissions = ["metrics"]', bob=""))
    arguments = ("serve", "--memory", "--port", "0", "--config", str(directory / "threadcast.toml"))
    with start(*arguments, log=directory / "log") as server:
        await server.ready()
        async with httpx2.AsyncClient(base_url=server.url, timeout=DEADLINE_SECONDS, headers=bearer("bob")) as bob:
            yield server, bob


async def begun(bob: httpx2.AsyncClient, stack: AsyncExitStack, chats: list[str], name: str = "") -> Counter[str]:
    """Open a stream that stays open. Returns the types of the first events, one for each chat."""
    query = "&".join([*(f"chat_id={each}" for each in chats), *([f"stream_id={name}"] if name else [])])
    answer = await stack.enter_async_context(bob.stream("GET", f"/v1/chats/subscribe?{query}"))
    assert answer.status_code == 200
    types: Counter[str] = Counter()
    lines = answer.aiter_lines()
    stack.callback(str, lines)  # keeps the iterator alive: when it is freed, it closes the stream
    with anyio.fail_after(DEADLINE_SECONDS):
        while types.total() < len(chats):
            line = await anext(lines)
            if line.startswith("data: "):
                types[json.loads(line[6:])["type"]] += 1
    return types


async def refusal(client: httpx2.AsyncClient, path: str) -> httpx2.Response:
    """Ask for a stream, which must be refused. If the stream begins, the test fails at once."""
    async with client.stream("GET", path) as answer:
        assert (answer.status_code, answer.headers["content-type"]) == (429, "application/json")
        await answer.aread()
        assert answer.json()["code"] == "rate_limited"
    return answer


async def test_a_caller_who_opens_and_drops_streams_is_told_to_wait_and_others_are_not(tmp_path: Path) -> None:
    """Without the rate, each opening would occupy the process for about 2 ms, and new connections would wait."""
    async with guarded(tmp_path, OPENINGS) as (_, bob):
        for number in range(BURST_MIN):
            async with bob.stream("GET", f"/v1/chats/subscribe?chat_id=invented-{number}") as answer:
                assert answer.status_code == 200
        refused: list[httpx2.Response] = []
        for path in ("subscribe?chat_id=one-more", "subscribe?stream_id=a-name", "feed") * 20:
            async with bob.stream("GET", f"/v1/chats/{path}") as answer:
                if answer.status_code != 200:
                    await answer.aread()
                    refused.append(answer)
        assert len(refused) > 20, "some are let through, one for each second that has passed"
        for answer in refused:
            assert (answer.status_code, answer.json()["code"]) == (429, "rate_limited")
            assert answer.json()["detail"].startswith("you open streams too fast; keep a stream open")
            assert 1 <= int(answer.headers["Retry-After"]) <= 2
        async with bob.stream("GET", "/v1/chats/subscribe?chat_id=x", headers=bearer("ann")) as answer:
            assert answer.status_code == 200


async def test_a_client_that_has_left_before_its_stream_begins_gets_no_stream(tmp_path: Path) -> None:
    async with guarded(tmp_path) as (server, _):
        count = 50
        for number in range(count):
            async with connected(port_of(server)) as line:
                path = f"/v1/chats/subscribe?chat_id=invented-{number}"
                token = bearer("bob")["Authorization"]
                await line.send(f"GET {path} HTTP/1.1\r\nhost: x\r\nauthorization: {token}\r\n\r\n".encode())
        async with httpx2.AsyncClient(base_url=server.url, headers=bearer("ann"), timeout=DEADLINE_SECONDS) as last:
            assert (await last.get("/v1/chats")).status_code == 200, "a new connection waits for those before it"
            with anyio.fail_after(DEADLINE_SECONDS):
                while "\nthreadcast_subscribers_inflight 0.0\n" not in (await last.get("/metrics")).text:
                    await anyio.sleep(0.02)
        log = (tmp_path / "log").read_text()
        assert log.count("subscription.ended") < count / 2, "these were read before the end of their connection"


async def test_a_caller_watches_a_bounded_number_of_chats_also_on_streams_that_change(tmp_path: Path) -> None:
    """Each watched id costs memory and a subscription at the store, also if no chat has the id."""
    async with guarded(tmp_path, CHATS) as (server, bob):
        async with AsyncExitStack() as stack:
            assert await begun(bob, stack, [f"a-{each}" for each in range(64)]) == {"snapshot": 64}
            assert await begun(bob, stack, [f"b-{each}" for each in range(30)], name="changing") == {"snapshot": 30}
            refused = await refusal(bob, "/v1/chats/subscribe?" + "&".join(f"chat_id=c-{each}" for each in range(7)))
            assert refused.json()["detail"].startswith("your streams may show 100 chats together; close a stream")
            adding = {"add": [{"chat_id": f"d-{each}"} for each in range(7)]}
            refused = await bob.post("/v1/streams/changing", json=adding)
            assert (refused.status_code, refused.json()["code"]) == (429, "rate_limited")
            assert int(refused.headers["Retry-After"]) > 0
            exchanged = await bob.post("/v1/streams/changing", json={**adding, "remove": ["b-0"]})
            assert exchanged.status_code == 200
            again = await bob.post("/v1/streams/changing", json={"add": [{"chat_id": "e"}]})
            assert again.status_code == 429
            async with bob.stream("GET", "/v1/chats/subscribe?chat_id=alone") as answer:
                assert answer.status_code == 200, "streams of one chat have a bound of their own"
            ann = await stack.enter_async_context(httpx2.AsyncClient(base_url=server.url, headers=bearer("ann")))
            assert await begun(ann, stack, ["f", "g"]) == {"snapshot": 2}
        with anyio.fail_after(DEADLINE_SECONDS):  # chats of closed streams no longer count
            while (await bob.post("/v1/streams/changing", json={"add": []})).status_code != 404:
                await anyio.sleep(0.02)
        async with AsyncExitStack() as stack:
            await begun(bob, stack, [f"a-{each}" for each in range(64)])
            await begun(bob, stack, [f"b-{each}" for each in range(36)])


async def test_chats_that_are_exchanged_without_pause_are_counted(tmp_path: Path) -> None:
    """A named stream of 64 chats could open 64 relays with each request, on one connection."""
    async with guarded(tmp_path, OPENINGS) as (_, bob), AsyncExitStack() as stack:
        await begun(bob, stack, ["first"], name="changing")
        statuses: list[int] = []
        held: list[str] = ["first"]
        for number in range(40):
            added = [f"x-{number}-{each}" for each in range(64)]
            body = {"add": [{"chat_id": each} for each in added], "remove": held}
            answer = await bob.post("/v1/streams/changing", json=body)
            statuses.append(answer.status_code)
            if answer.status_code != 200:
                break
            held = added
        assert answer.status_code == 429, statuses
        assert answer.json()["detail"] == "you add chats to streams too fast; add these chats later"
        assert int(answer.headers["Retry-After"]) >= 1


async def test_watching_as_many_invented_ids_as_possible_costs_less_than_50_mb(tmp_path: Path) -> None:
    async with guarded(tmp_path) as (server, bob), AsyncExitStack() as stack:
        await begun(bob, stack, ["first", "second"])
        memory = PeakMemory(server.pid)
        for number in range(23):
            await begun(bob, stack, [f"invented-{number}-{each}" for each in range(64)])
        await refusal(bob, "/v1/chats/subscribe?" + "&".join(f"chat_id=more-{each}" for each in range(64)))
        assert memory.growth_bytes < 50e6


def test_the_rate_lets_a_burst_through_and_then_so_many_per_second() -> None:
    rate = Rate(10.0, 20)
    now = time.monotonic()
    assert all(rate.take("ann", 1, now) == 0 for _ in range(20))
    assert rate.take("ann", 1, now) == pytest.approx(0.1)
    assert rate.take("bob", 20, now) == 0
    assert rate.take("ann", 1, now + 0.1) == 0
    assert rate.take("ann", 3, now + 0.1) == pytest.approx(0.3)
    assert rate.take("ann", 20, now + 10) == 0
