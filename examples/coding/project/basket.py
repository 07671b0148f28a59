"""What somebody buys."""

from prices import with_discount


def total(prices: list[int], discount: int = 0) -> int:
    """What it costs together."""
    return with_discount(sum(prices), discount)
