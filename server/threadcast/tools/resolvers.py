"""Resolves names in a model's arguments to the ids that a tool needs (TOOL-9), with a cache per caller.

A name is resolved as a part of the call: the timeout and the cancellation of the call apply, and
`tool_status(running)`, which shows the model's text, is sent before the lookup. A UUID counts as an id. The cache is
separate for each principal, since rights differ, and for each scope, since names depend on the scope. A failed lookup
is not cached, because the name may exist a moment later.
"""

import hashlib
import math
import re
import time
from collections import OrderedDict
from collections.abc import Mapping

import msgspec

from threadcast.tools.context import ToolContext
from threadcast.tools.traits import Resolver
from threadcast_protocol.wire.errors import ToolFailed
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["CACHE_MAX", "KEEP_SECONDS", "Resolvers", "resolver"]

CACHE_MAX = 2_000
"""Maximum cached names of one tool in one worker; the least recently used name is dropped first. Some hundred
kilobytes."""

KEEP_SECONDS = 300.0
"""Seconds that a name stays cached: long enough for a conversation, short enough that renamed objects are soon
found."""

_canonical = msgspec.json.Encoder(order="sorted")

_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def resolver(find: Resolver, discovery: str) -> Resolver:
    """Return a resolver that calls `find`. If `find` does not know a name (LookupError, or ''), the call fails with a
    sentence that names the discovery tool."""

    async def resolve(name: str, context: ToolContext) -> str:
        try:
            found = await find(name, context)
        except LookupError:
            found = ""
        if not found:
            raise ToolFailed(f"There is no {name!r}. Call {discovery} to see what there is.")
        return found

    return resolve


class Resolvers:
    """The resolvers of one tool, by argument, and their cache."""

    def __init__(self, resolvers: Mapping[str, Resolver]) -> None:
        self._resolvers = resolvers
        self._found: OrderedDict[tuple[str, bytes, str, str], tuple[float, str]] = OrderedDict()

    async def resolved(self, arguments: JsonObject, context: ToolContext) -> JsonObject:
        """Return `arguments` with names replaced by ids; empty texts and other values stay unchanged.

        Raises:
            ToolFailed: a name is unknown.
        """
        completed = dict(arguments)
        for arg, find in self._resolvers.items():
            name = completed.get(arg)
            if isinstance(name, str) and name and not _UUID.fullmatch(name):
                completed[arg] = await self._id_of(arg, name, find, context)
        return completed

    async def _id_of(self, arg: str, name: str, find: Resolver, context: ToolContext) -> str:
        asked_in = _canonical.encode([context.chat_id, context.scope, context.context])
        key = (context.principal.id, hashlib.sha256(asked_in).digest(), arg, name)
        until, found = self._found.get(key, (-math.inf, ""))
        if until <= time.monotonic():
            found = await find(name, context)
            self._found[key] = (time.monotonic() + KEEP_SECONDS, found)
        self._found.move_to_end(key)
        if len(self._found) > CACHE_MAX:
            self._found.popitem(last=False)
        return found
