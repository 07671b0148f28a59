"""Measures the store's memory for chats at rest after 10 and 50 short turns.

It is part of `bench.memory`. Each turn is a command over HTTP to a chat at rest, so the log is compacted after each of
them (DESIGN §2). The parts of a chat are measured by the MEMORY USAGE of each key. For an hour after the last turn the
chat also has the entries for readers that resume; the measurement deletes them instead of waiting.
"""

import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import redis
from tests.support.fleet import fleet_on_new_store

from bench.figures import Figure, figure, progress
from bench.resting import ECHO, compacted, limits, talk
from threadcast.store.redis.keys import Keys

__all__ = ["talked_figures"]

TURNS = {10: 8.0, 50: 20.0}
"""Maps the number of a chat's turns to the kB that the chat may take at most when its entries have expired."""

REQUEST_IDS_MAX_KB, TRACES_MAX_KB = 4.0, 8.0
"""The kB that a chat's request ids and its traces may take at most. Both expire a day after the last command."""

QUESTIONS = (
    "What is a lease?",
    "And who gives it back, and when?",
    "Can you say that in one sentence?",
    "What happens when the owner dies in the middle of a run?",
    "Thanks! One more thing: how long does that take?",
)


async def talked_figures(stack: ExitStack, directory: Path, chats: int) -> list[Figure]:
    """Talk in `chats` chats for each number of turns, and measure them at rest."""
    fleet = stack.enter_context(fleet_on_new_store(directory, limits=limits(0)))
    web = await fleet.add_web()
    await fleet.add_worker()
    figures: list[Figure] = []
    with redis.Redis.from_url(fleet.store.url) as store:
        for turn in range(max(TURNS)):
            progress(f"memory: turn {turn + 1} of {max(TURNS)}")
            names = [f"of-{turns}-{number}" for turns in TURNS if turn < turns for number in range(chats)]
            await talk(web, names, ECHO, QUESTIONS[turn % len(QUESTIONS)], lambda: str(uuid.uuid4()))
            await compacted(store, settle_seconds=0.05)
        await compacted(store)  # the traces have been written
        for turns, most in TURNS.items():
            figures += _split(store, [f"of-{turns}-{number}" for number in range(chats)], turns, most)
    return figures


def _split(store: redis.Redis, chat_ids: Sequence[str], turns: int, most_kb: float) -> list[Figure]:
    parts: dict[str, list[float]] = {}
    for chat_id in chat_ids:
        for name, names in _PARTS.items():
            keys = Keys(16).chat(chat_id)
            parts.setdefault(name, []).append(_kb(store, [getattr(keys, each) for each in names]))
    whole = [sum(each) for each in zip(*(parts[name] for name in parts if name != "entries"), strict=True)]
    bars = {"request ids": REQUEST_IDS_MAX_KB, "traces": TRACES_MAX_KB}
    of = f"chat of {turns} short turns at rest"
    return [
        figure(f"talked{turns}", of, whole, "kB", bar=most_kb, note="without the entries for readers that resume"),
        *(
            figure(f"talked{turns}.{name}", f"{of}: {name}", values, "kB", bar=bars.get(name), note=_NOTES[name])
            for name, values in parts.items()
        ),
    ]


_PARTS = {
    "entries": ("log", "recent"),
    "checkpoint": ("snap",),
    "history": ("history",),
    "request ids": ("seen", "seen_old"),
    "traces": ("trace", "traces"),
    "the rest": ("head", "meta", "inbox", "blobs"),
}
"""Maps each purpose to the chat's keys for it, as attributes of `ChatKeys` (`store/redis/keys.py`)."""

_NOTES = {
    "entries": "gone after an hour",
    "request ids": "gone after a day",
    "traces": "gone after a day",
} | dict.fromkeys(("checkpoint", "history", "the rest"), "")


def _kb(store: redis.Redis, keys: Sequence[bytes]) -> float:
    return sum(store.memory_usage(key, samples=0) or 0 for key in keys) / 1_000
