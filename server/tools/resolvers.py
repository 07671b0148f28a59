"""From the names that a model writes to the ids that a tool takes (TOOL-9), remembered for each caller.

Resolving happens within the call: under its timeout, cancelled with it, after `tool_status(running)`, which shows what
the model wrote. A UUID is an id already. What one principal found is never told to another, since their rights differ,
nor where they are elsewhere, since a name is one of a place; what was not found is not remembered, for it may be there
a moment later.
"""

import hashlib
import math
import re
import time
from collections import OrderedDict
from collections.abc import Mapping

import msgspec

from protocol.errors import ToolFailed
from protocol.messages import JsonObject
from server.tools.base import ToolContext
from server.tools.traits import Resolver

__all__ = ["CACHE_MAX", "KEEP_SECONDS", "Resolvers", "resolver"]

CACHE_MAX = 2_000
"""Names of one tool in one worker, the least recently used out first: some hundred kilobytes."""

KEEP_SECONDS = 300.0
"""Long enough for a conversation, short enough that a renamed thing is soon found under its new name."""

_canonical = msgspec.json.Encoder(order="sorted")

_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def resolver(find: Resolver, discovery: str) -> Resolver:
    """A resolver that answers a name which `find` does not know (LookupError, or '') by naming the tool that lists
    what there is."""

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
    """The resolvers of one tool, by argument, and what they found lately."""

    def __init__(self, resolvers: Mapping[str, Resolver]) -> None:
        self._resolvers = resolvers
        self._found: OrderedDict[tuple[str, bytes, str, str], tuple[float, str]] = OrderedDict()

    async def resolved(self, arguments: JsonObject, context: ToolContext) -> JsonObject:
        """`arguments` with ids for names; other values than text, and empty ones, are left to the tool.

        Raises:
            ToolFailed: there is nothing of that name.
        """
        completed = dict(arguments)
        for arg, find in self._resolvers.items():
            name = completed.get(arg)
            if isinstance(name, str) and name and not _UUID.fullmatch(name):
                completed[arg] = await self._id_of(arg, name, find, context)
        return completed

    async def _id_of(self, arg: str, name: str, find: Resolver, context: ToolContext) -> str:
        place = _canonical.encode([context.chat_id, context.scope, context.context])
        key = (context.principal.id, hashlib.sha256(place).digest(), arg, name)
        until, found = self._found.get(key, (-math.inf, ""))
        if until <= time.monotonic():
            found = await find(name, context)
            self._found[key] = (time.monotonic() + KEEP_SECONDS, found)
        self._found.move_to_end(key)
        if len(self._found) > CACHE_MAX:
            self._found.popitem(last=False)
        return found
