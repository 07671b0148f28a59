"""Writes and reads large values in slices, so that no command blocks the store for long (DISPATCH §4).

The slices of a value are the fields of a hash, named by their numbers. They are written under a temporary key that
expires and that no reader uses. The script that makes the value visible counts the slices and renames the key in one
atomic step.
"""

from collections.abc import Awaitable, Callable

from threadcast.store.bounds import SLICE_BYTES, STAGED_SECONDS
from threadcast.store.redis.connection import Commands
from threadcast_protocol.wire.errors import Internal, Unavailable

__all__ = ["gathered", "slices_of", "staged", "unstaged"]


def slices_of(size_bytes: int) -> int:
    """Return the number of slices of a value."""
    return -(-size_bytes // SLICE_BYTES)


async def staged(redis: Commands, key: bytes, data: bytes) -> int:
    """Write the slices of `data` under `key`, with one command for each slice, and return the number of slices. The
    call is safe to repeat. Raises Unavailable and StoreFull."""
    count = slices_of(len(data))
    for number in range(count):
        slice_ = data[number * SLICE_BYTES : (number + 1) * SLICE_BYTES]
        await redis.call("stage", (key,), number, slice_, STAGED_SECONDS)
    return count


def unstaged() -> Unavailable:
    """Return the error for a script whose slices have expired, or were lost in a failover."""
    return Unavailable("the store has lost a part of a large value before it was complete; try again")


async def gathered(read: Callable[[int], Awaitable[bytes | None]], size_bytes: int) -> bytes | None:
    """Read the slices of a value and return the value. Returns None if a slice is missing, because the value was
    deleted or replaced.

    Raises:
        Internal: the slices together do not have the expected size.
        Unavailable: the store does not answer.
    """
    slices = []
    for number in range(slices_of(size_bytes)):
        found = await read(number)
        if found is None:
            return None
        slices.append(found)
    if sum(map(len, slices)) != size_bytes:
        raise Internal(f"a stored value of {size_bytes} bytes has {sum(map(len, slices))}")
    return b"".join(slices)
