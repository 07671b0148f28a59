"""Computes the cost of one model call from its tokens. The assembler calls `with_cost`.

The operator's prices take precedence over the published prices of the provider. Without any price there is no cost,
because a guessed cost would mislead. A provider's `prompt_tokens` counts every token of the prompt, including cached
tokens.
"""

from msgspec.structs import replace

from threadcast.providers.base import ModelInfo, Provider, model_info
from threadcast.providers.public_prices import public_cost
from threadcast.providers.sdk import SdkProvider
from threadcast_protocol.wire.messages import COST_DECIMALS, Usage

__all__ = ["with_cost"]

_TOKENS_PER_PRICE = 1_000_000


def with_cost(usage: Usage, provider: Provider, model: str) -> Usage:
    """Return `usage` with its `cost_usd`; unchanged for a model of unknown price."""
    info = model_info(provider, model)
    cost = None if info is None else _by_operator(usage, info)
    if cost is None and isinstance(provider, SdkProvider):
        cost = public_cost(provider.price_url, model, usage)
    return usage if cost is None else replace(usage, cost_usd=cost)


def _by_operator(usage: Usage, model: ModelInfo) -> float | None:
    if model.price_input is None or model.price_output is None:
        return None
    read, written = usage.cache_read_input_tokens or 0, usage.cache_creation_input_tokens or 0
    plain = max(0, usage.prompt_tokens - read - written)
    dollars = (
        plain * model.price_input
        + read * (model.price_input if model.price_cache_read is None else model.price_cache_read)
        + written * (model.price_input if model.price_cache_write is None else model.price_cache_write)
        + usage.completion_tokens * model.price_output
    )
    return round(dollars / _TOKENS_PER_PRICE, COST_DECIMALS)
