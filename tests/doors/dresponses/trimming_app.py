"""Trims the log of a chat between the moments at which the server finds a response and opens its stream.

In production, the release of a chat that comes to rest at this moment trims the log in the same way. A server loads the
file by `--app`, which needs a function in each file, so the file exports the tool `safe`.
"""

import threadcast.compat.responses.reading
from tests.deploys.deploy_tools import safe
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
    for key in (keys.log, keys.recent):
        await edge.store._redis.send(b"XTRIM", key, b"MAXLEN", b"0")
    return found


setattr(threadcast.compat.responses.reading, "find_response", _find_and_trim)  # noqa: B010 - only this test sets it
