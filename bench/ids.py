"""Computes the bytes of the SSE id of a stream of several chats, which each event of such a stream carries.

Nothing is measured: the ids come from the protocol's own functions, for chats with random positions up to
`POSITION_MAX` that began at random times of a month. `python -m bench.ids` prints the table.
"""

import random
import sys

from bench.figures import Section, figure, table
from threadcast_protocol.framing.stream_ids import CHATS_MAX, parse_stream_ids, stream_id_word, tag_of
from threadcast_protocol.wire.ids import Position

__all__ = ["id_of", "measure"]

CHATS = 1, 4, 16, CHATS_MAX
POSITION_MAX = 500
MONTH_MS = 30 * 24 * 3_600_000
NOW_MS = 1_795_500_000_000
IDS = 100


def id_of(chats_count: int, chance: random.Random) -> str:
    """Return the id of a stream of this many chats. Raises AssertionError if a client could not resume from it."""
    told: dict[str, Position] = {}
    for _ in range(chats_count):
        position = chance.randint(1, POSITION_MAX)
        base = chance.randrange(position)
        epoch = NOW_MS - chance.randrange(MONTH_MS)
        told[f"chat-{chance.getrandbits(64):x}"] = Position(epoch, position, base)
    found = ".".join(stream_id_word(tag_of(chat_id), position) for chat_id, position in told.items())
    assert parse_stream_ids(found, told) == told
    return found


def measure(small: bool) -> Section:
    """Compute at once; `small` changes nothing."""
    chance = random.Random(1)  # the same chats in each run, so that two commits compare the same ids
    figures = [
        figure(
            f"id {count}",
            f"SSE id of a stream of {count} chats",
            [float(len(id_of(count, chance))) for _ in range(IDS)],
            "B",
        )
        for count in CHATS
    ]
    return Section("ids", "bytes of an id on a stream of several chats, computed", "python -m bench.ids", figures)


if __name__ == "__main__":
    print(table(measure("--small" in sys.argv)))
