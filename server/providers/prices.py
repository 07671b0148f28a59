"""What one model call cost, from its tokens and the operator's prices. Pure; the assembler calls it.

A provider's `prompt_tokens` counts every token of the prompt, those of its cache included. Without prices nothing is
said: a guessed cost is worse than none.
"""

from msgspec.structs import replace

from protocol.messages import COST_DECIMALS, Usage
from server.providers.base import Prices

__all__ = ["with_cost"]

_TOKENS_PER_PRICE = 1_000_000


def with_cost(usage: Usage, prices: Prices | None) -> Usage:
    """`usage` with its `cost_usd`; unchanged without prices."""
    if prices is None:
        return usage
    read, written = usage.cache_read_input_tokens or 0, usage.cache_creation_input_tokens or 0
    plain = max(0, usage.prompt_tokens - read - written)
    dollars = (
        plain * prices.input
        + read * (prices.input if prices.cache_read is None else prices.cache_read)
        + written * (prices.input if prices.cache_write is None else prices.cache_write)
        + usage.completion_tokens * prices.output
    )
    return replace(usage, cost_usd=round(dollars / _TOKENS_PER_PRICE, COST_DECIMALS))
