"""Computes the cost of a model call from the published prices of its provider, without a network request.

The prices are in the tables of `genai-prices`, which identify a provider by its address. No table has the address of a
local server, so the models of a local server cost nothing. The prices are list prices: for a discount or a contract,
the operator sets `price_input` and `price_output` of the model. `docs/decisions/0036` has the measurements.
"""

from functools import lru_cache

from threadcast_protocol.wire.messages import COST_DECIMALS, Usage

__all__ = ["load_prices", "public_cost"]


def load_prices(base_url: str) -> None:
    """Load the tables, if a provider at this address may be in them. Call this function in a thread, since the import
    takes 0.2 to 0.4 s."""
    _provider_id(base_url)


def public_cost(base_url: str, model: str, usage: Usage) -> float | None:
    """Return the cost of a call in USD; None when the tables have no such provider or model, or when the provider
    reported more cached tokens than prompt tokens."""
    provider = _provider_id(base_url)
    if provider is None:
        return None
    from genai_prices import Usage as Tokens
    from genai_prices import calc_price

    tokens = Tokens(
        input_tokens=usage.prompt_tokens,
        output_tokens=usage.completion_tokens,
        cache_read_tokens=usage.cache_read_input_tokens or 0,
        cache_write_tokens=usage.cache_creation_input_tokens or 0,
    )
    try:
        price = calc_price(tokens, model, provider_id=provider)
    except (LookupError, ValueError):
        return None
    return round(float(price.total_price), COST_DECIMALS)


@lru_cache
def _provider_id(base_url: str) -> str | None:
    """Return the name of the provider at this address in the tables. All public addresses begin with https, so that the
    tables are not loaded for a local server."""
    if not base_url.startswith("https://"):
        return None
    from genai_prices.data_snapshot import get_snapshot

    try:
        return get_snapshot().find_provider(None, None, base_url).id
    except LookupError:
        return None
