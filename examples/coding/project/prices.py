"""Prices, in cents."""


def with_discount(cents: int, percent: int) -> int:
    """Return a price after a discount."""
    return cents - percent
