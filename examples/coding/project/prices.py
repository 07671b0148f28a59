"""Prices, in cents."""


def with_discount(cents: int, percent: int) -> int:
    """What is left of a price after a discount."""
    return cents - percent
