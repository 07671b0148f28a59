"""What somebody buys."""

from prices import with_discount


def total(prices: list[int], discount: int = 0) -> int:
    """Return the total price."""
    return with_discount(sum(prices), discount)
