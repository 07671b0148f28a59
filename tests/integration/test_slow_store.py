"""A slow store makes the pause between appends longer, but only for as long as the store is slow."""

import itertools

import anyio
import pytest

from tests.integration.store_fixtures import CHAT, fresh_url, owned
from tests.torture.proxy import Proxy
from threadcast.actor import writer as writer_module
from threadcast.actor.writer import Writer
from threadcast.base import append_pace
from threadcast.base.append_pace import PACE_SECONDS, AppendPace
from threadcast.base.telemetry import Metrics
from threadcast.chat.entry_builder import EntryBuilder
from threadcast.store.embedded.server_process import ServerProcess
from threadcast.store.load import fold_loaded
from threadcast.store.redis.store import RedisStore
from threadcast_protocol.wire.events import ThreadUpdated

pytestmark = pytest.mark.anyio

DEADLINE_SECONDS = 60.0
MANY = 5_000
"""Number of answers, high enough not to limit the pause."""

SLOW_SECONDS = 0.5
"""The delay of a chunk in each direction: far above the delays of a busy machine, and below the deadline of a
command."""


async def test_the_pause_grows_while_the_store_is_slow_and_comes_back_afterwards(
    valkey_server: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(append_pace, "STORE_DELAY_SECONDS", SLOW_SECONDS)
    monkeypatch.setattr(append_pace, "FULL_STORE_DELAY_SECONDS", SLOW_SECONDS)
    pace = AppendPace(cpu=lambda: 0.0)
    monkeypatch.setattr(writer_module, "PACE", pace)
    ids = itertools.count()
    database = fresh_url(valkey_server).rpartition("=")[2]
    async with (
        Proxy("worker > store", valkey_server.path) as proxy,
        RedisStore(f"redis://127.0.0.1:{proxy.port}/{database}") as store,
    ):
        taken = await owned(store)
        state = fold_loaded(CHAT, await store.load(CHAT), with_facts=True)
        writer = Writer(
            store, "w1", state, owner=taken.owner, new_id=lambda prefix: f"{prefix}_{next(ids)}", metrics=Metrics()
        )

        def rename(builder: EntryBuilder) -> None:
            builder.say(ThreadUpdated(title=str(next(ids))))

        async def append_until_pause(above: float, up_to: float) -> None:
            with anyio.fail_after(DEADLINE_SECONDS):
                while not above < pace.seconds(MANY) <= up_to:
                    await writer.commit(rename)

        for _ in range(10):
            await writer.commit(rename)
        assert pace.seconds(MANY) == PACE_SECONDS
        proxy.delay(SLOW_SECONDS, 2 * DEADLINE_SECONDS)
        await append_until_pause(2 * PACE_SECONDS, append_pace.PACE_FULL_MAX_SECONDS)
        proxy.heal()
        await append_until_pause(0.0, PACE_SECONDS)
