"""Measures how the cost of a fan-out grows: the CPU time that one more event, reader and chat adds to the web process.

One chat has 1 to 5,000 readers, then 1,000 chats have two readers each. All get answers of the demo model at a pace
that does not use the whole machine. A straight line through the costs of an event, by the number of its readers, gives
the cost of an event without readers and the cost of each reader. The measurement with many chats gives the cost of an
event when readers share no work. CPU time is read from the web process's own clock. `python -m bench.growth` runs it.
"""

import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack

import anyio

from bench.figures import Figure, Section, announce, figure, progress, table
from bench.harness import Harness, opened_harness
from bench.processes import cpu_seconds
from bench.readers import opened_readers

__all__ = ["measure"]

READERS = {1: 25.0, 10: 25.0, 100: 25.0, 500: 20.0, 5_000: 1.5}
"""Maps the number of readers of one chat to the words a second, so that there are at most about 10,000 deliveries a
second."""

CHATS, READERS_OF_EACH, CHATS_RATE = 1_000, 2, 0.5
"""The number of chats, each with a word every two seconds: 500 events a second together."""

OPENED_AT_ONCE = "50"
"""The number of streams that are opened at the same time; `bench.join` measures the cost of many joins at once."""

SECONDS, SECONDS_SMALL = 3.0, 2.0
"""The least duration of an answer."""

ROUNDS, ROUNDS_SMALL = 4, 2


def measure(small: bool) -> Section:
    """Measure for less than three minutes; `small` has fewer and shorter answers."""
    return anyio.run(_measure, small)


async def _measure(small: bool) -> Section:
    announce("growth", 90 if small else 160)
    rounds, seconds = (ROUNDS_SMALL, SECONDS_SMALL) if small else (ROUNDS, SECONDS)
    costs: dict[int, list[float]] = {}
    async with opened_harness() as harness:
        for readers_count, rate in READERS.items():
            chat_id = f"of-{readers_count}"
            costs[readers_count] = await _event_us(harness, chat_id, [chat_id], readers_count, rate, rounds, seconds)
        chats = [f"many-{number}" for number in range(CHATS)]
        many = await _event_us(harness, "many-%d", chats, CHATS * READERS_OF_EACH, CHATS_RATE, rounds, seconds)
    return Section(
        "growth", "the cost of one more event, reader and chat", "python -m bench.growth", _figures(costs, many)
    )


async def _event_us(
    harness: Harness,
    pattern: str,
    chat_ids: Sequence[str],
    readers_count: int,
    rate: float,
    rounds: int,
    seconds: float,
) -> list[float]:
    """Return the cost of an event for all its readers together, in microseconds, for each round."""
    words = max(4, round(rate * seconds))
    each = readers_count // len(chat_ids)
    found: list[float] = []
    async with AsyncExitStack() as stack:
        readers = stack.enter_context(
            opened_readers(
                harness.web.url,
                f"/v1/chats/subscribe?chat_id={pattern}",
                "-m",
                str(len(chat_ids)),
                "-w",
                OPENED_AT_ONCE,
            )
        )
        readers.open(readers_count)
        readers.wait(1)
        for number in range(rounds + 1):
            progress(f"growth: {len(chat_ids)} chats, {readers_count} readers, round {number} of {rounds}")
            readers.reset()
            await harness.ask(chat_ids, words, rate)
            before, events_before = cpu_seconds(harness.web.pid), readers.count().events
            count = await harness.answered(readers, words, rate)
            spent = cpu_seconds(harness.web.pid) - before
            if number:  # the first round warms up
                found.append(spent / (count.events - events_before) * each * 1e6)
    return found


def _figures(costs: dict[int, list[float]], many: list[float]) -> list[Figure]:
    figures = [
        figure(f"event {count}", f"CPU of an event, {count:,} readers", values, "us") for count, values in costs.items()
    ]
    figures.append(figure("event many", f"CPU of an event, {CHATS:,} chats of {READERS_OF_EACH}", many, "us"))
    lines = [_line(list(costs), values) for values in zip(*costs.values(), strict=True)]
    fixed, added = [line[0] for line in lines], [line[1] for line in lines]
    figures.append(figure("fixed", "an event without readers", fixed, "us"))
    figures.append(figure("added", "each reader of an event", added, "us"))
    left = [event - READERS_OF_EACH * each for event, each in zip(many, added, strict=True)]
    figures.append(figure("fixed many", f"an event, of one of {CHATS:,} chats", left, "us"))
    return figures


def _line(counts: Sequence[int], costs: Sequence[float]) -> tuple[float, float]:
    """Return the straight line with the least relative errors: its value at 0 and its slope."""
    weights = [1 / cost**2 for cost in costs]
    total = sum(weights)
    middle = sum(w * x for w, x in zip(weights, counts, strict=True)) / total
    height = sum(w * y for w, y in zip(weights, costs, strict=True)) / total
    spread = sum(w * (x - middle) ** 2 for w, x in zip(weights, counts, strict=True))
    slope = sum(w * (x - middle) * (y - height) for w, x, y in zip(weights, counts, costs, strict=True)) / spread
    return height - slope * middle, slope


if __name__ == "__main__":
    print(table(measure("--small" in sys.argv)))
