"""Requests one whole answer instead of a stream, for titles and summaries (PROV-3).

The caller sets the deadline (`anyio.move_on_after` or `fail_after`) and catches `ModelFailed`.
"""

from contextlib import aclosing

import msgspec
from msgspec.structs import replace

from threadcast.providers.base import Finished, FinishReason, Provider, Request, TextDelta, UsageReported
from threadcast_protocol.wire.messages import Usage

__all__ = ["Completion", "complete"]


class Completion(msgspec.Struct, frozen=True):
    text: str
    usage: Usage | None = None
    finish_reason: FinishReason = "stop"


async def complete(provider: Provider, request: Request) -> Completion:
    """Return the text of the answer, without reasoning and calls.

    Raises: ModelFailed: the call failed; the code is one of PROV-7.
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
