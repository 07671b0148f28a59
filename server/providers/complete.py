"""One whole answer instead of a stream, for titles and summaries (PROV-3).

It asks without streaming and gathers what comes. It knows no chat; whoever calls it sets the deadline (an
`anyio.move_on_after` or `fail_after` around it) and catches `ModelFailed`.
"""

from contextlib import aclosing

import msgspec
from msgspec.structs import replace

from protocol.messages import Usage
from server.providers.base import Finished, FinishReason, Provider, Request, TextDelta, UsageReported

__all__ = ["Completion", "complete"]


class Completion(msgspec.Struct, frozen=True):
    text: str
    usage: Usage | None = None
    finish_reason: FinishReason = "stop"


async def complete(provider: Provider, request: Request) -> Completion:
    """The text of the answer; reasoning and calls are left out.

    Raises:
        ModelFailed: with a code of PROV-7.
    """
    parts: list[str] = []
    usage: Usage | None = None
    reason: FinishReason = "stop"
    async with aclosing(provider.stream(replace(request, stream=False))) as deltas:
        async for delta in deltas:
            match delta:
                case TextDelta():
                    parts.append(delta.text)
                case UsageReported():
                    usage = delta.usage
                case Finished():
                    reason = delta.reason
                case _:
                    pass
    return Completion("".join(parts), usage, reason)
