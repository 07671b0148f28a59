"""One answer at once, for what nobody watches being written: titles, summaries. It knows no vendor and no chat.

Whoever calls it sets the deadline; a call that is cancelled closes its connection.
"""

from contextlib import aclosing

import msgspec

from protocol.messages import Usage
from server.providers.base import Provider, Request, TextDelta, UsageReported

__all__ = ["Completion", "complete"]


class Completion(msgspec.Struct, frozen=True):
    text: str
    usage: Usage | None = None


async def complete(provider: Provider, request: Request) -> Completion:
    """The whole text of an answer. Raises ModelFailed."""
    parts: list[str] = []
    usage: Usage | None = None
    async with aclosing(provider.stream(request)) as deltas:
        async for delta in deltas:
            if isinstance(delta, TextDelta):
                parts.append(delta.text)
            elif isinstance(delta, UsageReported):
                usage = delta.usage
    return Completion("".join(parts), usage)
