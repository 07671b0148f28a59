"""Trims the log of a chat between the moments at which the server finds a response and opens its stream.

In production, the compaction of a chat at rest trims the log in the same way. A server loads the file by `--app`, which
needs a function in each file, so the file exports the tool `safe`. The server must compact at once.
"""

import anyio

import threadcast.compat.responses.reading
from tests.deploys.deploy_tools import safe
from tests.support.server import DEADLINE_SECONDS
from threadcast.api.edge import Edge
from threadcast.compat.responses.replay import Found, find_response
from threadcast.compat.responses.response_ids import ResponseId
from threadcast.store.redis.store import RedisStore
from threadcast_protocol.wire.principal import Principal

__all__ = ["safe"]


async def _find_and_trim(edge: Edge, principal: Principal, own_id: ResponseId) -> Found:
    found = await find_response(edge, principal, own_id)
    assert isinstance(edge.store, RedisStore) and found.trimmed is None
    keys = edge.store._keys.chat(own_id.chat_id)
    with anyio.fail_after(DEADLINE_SECONDS):
        while not await edge.store._redis.send(b"EXISTS", keys.recent):
            await anyio.sleep(0.01)
    await edge.store._redis.send(b"XTRIM", keys.recent, b"MAXLEN", b"0")
    return found


setattr(threadcast.compat.responses.reading, "find_response", _find_and_trim)  # noqa: B010 - only this test sets it
