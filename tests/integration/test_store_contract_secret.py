"""The secret of a store is the same for all its processes."""

import pytest

from tests.integration.store_fixtures import fresh_url
from threadcast.store.embedded.server_process import ServerProcess
from threadcast.store.ports import Store
from threadcast.store.redis.store import RedisStore

pytestmark = pytest.mark.anyio


async def test_the_secret_is_made_once(store: Store) -> None:
    secret = await store.secret()
    assert len(secret) == 32
    assert await store.secret() == secret


async def test_two_processes_of_a_store_have_one_secret_and_two_stores_have_two(valkey_server: ServerProcess) -> None:
    url = fresh_url(valkey_server)
    async with RedisStore(url) as one, RedisStore(url) as other, RedisStore(fresh_url(valkey_server)) as foreign:
        assert await one.secret() == await other.secret() != await foreign.secret()
