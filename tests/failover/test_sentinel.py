"""With Sentinel, a primary that is killed or hangs is replaced by a replica without any restart. A running answer goes
on, each posted command takes effect once, and the server reports the address of its primary."""

import signal
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import anyio
import httpx2
import pytest
from anyio.abc import TaskStatus

from tests.failover.conftest import QUICK
from tests.failover.harness import LONG, LONG_TEXT, Client, harness, settled, told
from tests.ports import free_port
from tests.support.reader import watching
from tests.support.store import StoreServer, running_sentinel, running_store, wait_until
from threadcast.store.embedded.server_process import find_binary

pytestmark = [pytest.mark.anyio, pytest.mark.slow(25)]

SERVICE = "tc"
POST_EVERY_SECONDS = 0.1
FAILOVER_SECONDS = 30.0
"""Maximum seconds of a failover. On an idle machine it takes three seconds: one until the primary counts as down, then
a vote and a promotion."""


class Watched(NamedTuple):
    """A primary with a replica, watched by three sentinels."""

    primary: StoreServer
    replica: StoreServer
    sentinels: list[StoreServer]

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{each.port}" for each in self.sentinels)
        return f"redis+sentinel://{hosts}/{SERVICE}/0"


def is_settled(watched: Watched) -> bool:
    """Return whether each sentinel knows the other sentinels and the replica; before that, no sentinel can be
    elected."""

    def knows(each: StoreServer) -> bool:
        facts = each.client.sentinel_master(SERVICE)
        assert isinstance(facts, dict)
        return bool(facts["num-other-sentinels"] == 2 and facts["num-slaves"] == 1)

    return all(map(knows, watched.sentinels))


@pytest.fixture
async def watched(tmp_path: Path) -> AsyncIterator[Watched]:
    binary = find_binary()
    with ExitStack() as stack:
        primary = stack.enter_context(running_store(tmp_path / "primary", QUICK, port=free_port()))
        replica = stack.enter_context(running_store(tmp_path / "replica", QUICK, port=free_port()))
        replica.follow(primary.port)
        names = [tmp_path / f"sentinel-{number}" for number in range(3)]
        sentinels = [stack.enter_context(running_sentinel(binary, name, SERVICE, primary.port, 2)) for name in names]
        made = Watched(primary, replica, sentinels)
        wait_until(lambda: is_settled(made), "the sentinels know each other and the replica")
        yield made


async def primary_of(url: str) -> object:
    """Return the address of the primary that the server reports, or None while the server is not ready."""
    async with httpx2.AsyncClient(timeout=5) as client:
        answer = await client.get(f"{url}/readyz")
    return answer.json().get("primary")


async def post_all_the_time(client: Client, times: list[float], *, task_status: TaskStatus[None]) -> None:
    """Post one message after another to three chats, and note when each was accepted."""
    task_status.started()
    number = 0
    while True:
        await client.post(f"chat-{number % 3}", f"m{number}")
        times.append(time.monotonic())
        number += 1
        await anyio.sleep(POST_EVERY_SECONDS)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "hangs"])
async def test_a_lost_primary_is_replaced_without_a_restart_of_anything(
    watched: Watched, tmp_path: Path, number: signal.Signals
) -> None:
    async with harness(watched.url, tmp_path) as product, watching(product.url, "long") as reader:
        url = product.url
        assert await primary_of(url) == f"127.0.0.1:{watched.primary.port}"
        await Client(url).post("reference", "write", LONG_TEXT)
        async with watching(url, "reference") as reference:
            await settled(reference, {"write"})
        client = Client(url)
        accepted_at: list[float] = []
        async with anyio.create_task_group() as posting:
            await posting.start(post_all_the_time, client, accepted_at)
            await Client(url).post("long", "write", LONG)
            await reader.until(lambda w: w.types().count("stream_delta") > 10)
            watched.primary.signal(number)
            killed_at, events = time.monotonic(), len(reader.frames)
            with anyio.fail_after(FAILOVER_SECONDS):
                while await primary_of(url) != f"127.0.0.1:{watched.replica.port}":
                    await anyio.sleep(0.05)
                while accepted_at[-1] < killed_at:
                    await anyio.sleep(0.01)
            # a sentinel that was stopped does not know of the failover for a while
            watched.primary.signal(signal.SIGCONT)
            accepted_seconds = next(at for at in accepted_at if at > killed_at) - killed_at
            await reader.until(lambda w: len(w.frames) > events + 3, FAILOVER_SECONDS)
            answer_seconds = time.monotonic() - killed_at
            await settled(reader, {"write"})
            posting.cancel_scope.cancel()
        lost = await client.missing()
        statuses = await client.post_all_again()
        assert set(statuses) <= {"accepted", "duplicate"}
        for chat_id in {chat_id for chat_id, _ in client.accepted.values()}:
            texts = {request_id for request_id, (where, _) in client.accepted.items() if where == chat_id}
            async with watching(url, chat_id) as late:
                await settled(late, texts)
        assert await client.missing() == set()
        assert await client.repeated() == set()
        assert told(reader) == told(reference)
        async with watching(url, "long") as late:
            assert late.snapshot == reader.snapshot
    print(
        f"\nSentinel, primary {number.name}: {len(client.accepted)} accepted, {len(lost)} lost, 0 after posting again;"
        f" posts accepted after {accepted_seconds:.2f} s ({client.refused_count} refused meanwhile),"
        f" the answer went on after {answer_seconds:.2f} s"
    )
