"""Measures what a flood of hostile requests costs: the server's memory, `/livez`, and the time of another caller.

For each flood a new `threadcast serve` runs. The calls of another caller are measured for some seconds without the
flood, and then during the flood. Attacker and observer are processes of their own (`bench.flood_attacks`,
`bench.flood_observer`). The memory is the highest resident size of the server's process during the flood, minus its
size without the flood. MCP servers that flood are not among these rows: `tests/security` attacks with them.
"""

import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import httpx2
import msgspec
from tests.resources.measures import PeakMemory
from tests.support.server import started_server, user_message
from tests.support.tokens import bearer, tokens

from bench.figures import Figure, Section, announce, plain, progress, quantile
from bench.flood_attacks import ATTACKS, BIG_CHAT
from bench.flood_observer import Observed

__all__ = ["measure"]

QUIET_SECONDS, FLOOD_SECONDS = 4.0, 8.0

MEMORY_MAX_MB = 50.0
LIVEZ_MAX_MS = 250.0
P99_RATIO_MAX = 3.0

LEAST_P99_MS = 10.0
"""A lower p99 without the flood is replaced by this value, because nobody notices a tick of the scheduler."""

WARM_SECONDS = 1.0


def measure(small: bool = False, names: tuple[str, ...] = tuple(ATTACKS)) -> Section:
    """Measure each flood; with `small`, for a shorter time."""
    share = 0.5 if small else 1.0
    announce("floods", len(names) * (share * (QUIET_SECONDS + FLOOD_SECONDS) + 5))
    figures: list[Figure] = []
    remarks: list[str] = []
    for name in names:
        progress(f"floods: {name}")
        found, failures = _flood(name, share)
        figures += found
        remarks += [f"{name}: {each}" for each in failures[:2]]
    missed = [each.key for each in figures if each.holds is False]
    remarks.append(f"missed: {', '.join(missed)}" if missed else "every bar is kept")
    return Section("floods", "floods of hostile requests", "scripts/bench floods", figures, remarks)


def _flood(name: str, share: float) -> tuple[list[Figure], list[str]]:
    what, _ = ATTACKS[name]
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        server = stack.enter_context(started_server(Path(directory), config=tokens(ann="", bob=""))).wait_ready()
        _make_big_chat(server.url)
        observer = stack.enter_context(_program("bench.flood_observer", server.url))
        stack.callback(observer.terminate)
        _observed(observer, WARM_SECONDS)
        quiet = _observed(observer, share * QUIET_SECONDS)
        memory = PeakMemory(server.pid)
        attacker = stack.enter_context(_program("bench.flood_attacks", name, server.url))
        stack.callback(attacker.terminate)
        assert attacker.stdout is not None
        if attacker.stdout.readline() != b"begun\n":
            raise SystemExit(f"the flood {name} ended by itself")
        flooded = _observed(observer, share * FLOOD_SECONDS)
        growth = memory.growth_bytes / 1e6
        if attacker.poll() is not None:
            raise SystemExit(f"the flood {name} ended by itself")
    before, after = quantile(quiet.bob, 0.99), quantile(flooded.bob, 0.99)
    ratio = after / max(before, LEAST_P99_MS)
    livez = max(flooded.livez)
    return [
        Figure(f"{name}_memory", f"{what}: memory", growth, "MB", growth, growth, bar=MEMORY_MAX_MB),
        Figure(
            f"{name}_livez", "  the longest /livez", livez, "ms", min(flooded.livez), livez, bar=LIVEZ_MAX_MS,
            note=f"quiet {plain(max(quiet.livez))} ms",
        ),
        Figure(
            f"{name}_p99", "  another caller's p99, to quiet", ratio, "x", ratio, ratio, bar=P99_RATIO_MAX,
            note=f"{plain(before)} -> {plain(after)} ms of {len(flooded.bob)} calls",
        ),
    ], flooded.failures  # fmt: skip


def _program(*arguments: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-m", *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def _observed(observer: "subprocess.Popen[bytes]", seconds: float) -> Observed:
    assert observer.stdin is not None and observer.stdout is not None
    observer.stdin.write(b"%f\n" % seconds)
    observer.stdin.flush()
    return msgspec.json.decode(observer.stdout.readline(), type=Observed)


def _make_big_chat(url: str) -> None:
    """Make the chat whose snapshot clients do not read."""
    message = {"role": "user", "content": "a" * 200_000}
    restore = {"type": "restore_messages", "client_request_id": "big", "messages": [message] * 5}
    for body in (restore, user_message("first", "hello")):
        path = f"{url}/v1/chats/{BIG_CHAT}/commands"
        httpx2.post(path, json=body, headers={**bearer("ann"), "prefer": "wait=20"}, timeout=60).raise_for_status()


if __name__ == "__main__":
    from bench.figures import table

    print(table(measure(names=tuple(sys.argv[1:]) or tuple(ATTACKS))))
