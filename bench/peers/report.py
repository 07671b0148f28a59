"""Runs the peers and reports the results as one section: the loads, in rounds with one peer after the other, and the
trials.

`python -m bench` and `python -m bench.peers` call it. All peers run from the first to the last round, so that all are
equally warm. Two loads never run at the same time.
"""

import tempfile
from collections import defaultdict
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import uvloop

from bench.figures import Figure, Section, figure, progress, ratio
from bench.peers.ag_ui import AgUi
from bench.peers.agno import Agno
from bench.peers.ai_sdk import AiSdk
from bench.peers.durable import DurableStreams
from bench.peers.langgraph import LangGraph
from bench.peers.load import GRACE_SECONDS, SHAPES, Helper, Loaded, Shape, helper, load
from bench.peers.opencode import Opencode
from bench.peers.peer import Cannot, Peer
from bench.peers.resumable_fastapi import ResumableFastapi
from bench.peers.threadcast import Threadcast
from bench.peers.trials import Trial, try_out
from bench.peers.vercel import ResumableStream

__all__ = ["PEERS", "measure"]

PEERS: dict[str, type[Peer]] = {
    each.name: each
    for each in (Threadcast, LangGraph, Agno, Opencode, AiSdk, ResumableStream, DurableStreams, ResumableFastapi, AgUi)
}

TOKENS = 50
"""The number of tokens of an answer under load, which are written within a second."""

ROUNDS = 3
WARM_TOKENS = 50
"""The tokens of one answer before the first round."""

TRIALS_AT_ONCE = 4
"""The number of trials that run at once: a trial mostly waits, and the machine has two cores."""

Loads = defaultdict[tuple[str, str], list[Loaded]]


def measure(small: bool, names: Sequence[str] = (), rounds: int = ROUNDS) -> Section:
    """Measure the named peers, or all; `small` has one round and no trials. Raises OSError if this machine cannot start
    processes."""
    chosen = [kind for name, kind in PEERS.items() if not names or name in names or name == Threadcast.name]
    return uvloop.run(_measure(chosen, 1 if small else rounds, with_trials=not small))


async def _measure(kinds: Sequence[type[Peer]], rounds: int, *, with_trials: bool) -> Section:
    loads: Loads = defaultdict(list)
    cannot: dict[tuple[str, str], str] = {}
    trials: dict[str, Trial] = {}
    async with AsyncExitStack() as stack:
        model = await stack.enter_async_context(helper("model"))
        model_url = f"http://127.0.0.1:{int(await model.line())}"
        readers = await stack.enter_async_context(helper("readers"))
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="threadcast-peers-")))
        peers = [kind(directory / kind.name, model_url) for kind in kinds]
        for peer in peers:
            stack.callback(peer.close)
        running = await _started(peers, readers, cannot)
        for number in range(rounds):
            for shape in SHAPES:
                for peer in running:
                    await _loaded(peer, readers, shape, number, loads, cannot)
        if with_trials:
            await _tried(running, trials)
    return Section(
        row="peers",
        title=f"one scripted answer of {TOKENS} tokens at 50 a second, on other servers",
        command="python -m bench.peers",
        figures=_figures(running, loads),
        remarks=[*_trial_lines(running, trials), *_cannot_lines(cannot)],
    )


async def _started(peers: Sequence[Peer], readers: Helper, cannot: dict[tuple[str, str], str]) -> list[Peer]:
    """Start the peers and let each answer once. Returns the peers that answered."""
    running = []
    for peer in peers:
        progress(f"peers: {peer.name} starts")
        try:
            await peer.start()
            await load(peer, readers, Shape(1, 1), WARM_TOKENS, "warm")
            running.append(peer)
        except Cannot as wrong:
            cannot[peer.name, ""] = str(wrong)
            peer.close()
    return running


async def _loaded(
    peer: Peer, readers: Helper, shape: Shape, number: int, loads: Loads, cannot: dict[tuple[str, str], str]
) -> None:
    if (peer.name, shape.key) in cannot:
        return
    progress(f"peers: round {number + 1}, {shape}, {peer.name}")
    try:
        loads[peer.name, shape.key].append(await load(peer, readers, shape, TOKENS, str(number)))
    except Cannot as wrong:
        cannot[peer.name, shape.key] = str(wrong)


async def _tried(running: Sequence[Peer], trials: dict[str, Trial]) -> None:
    limit = anyio.CapacityLimiter(TRIALS_AT_ONCE)

    async def one(peer: Peer) -> None:
        async with limit:
            trials[peer.name] = await try_out(peer, f"{peer.name}-trial")
            progress(f"peers: trials, {len(trials)} of {len(running)}")

    async with anyio.create_task_group() as tasks:
        for peer in running:
            tasks.start_soon(one, peer)


def _figures(running: Sequence[Peer], loads: Loads) -> list[Figure]:
    found = []
    for shape in SHAPES:
        ours = loads[Threadcast.name, shape.key]
        for peer in running:
            theirs = loads[peer.name, shape.key]
            if not theirs:
                continue
            key, what = f"{peer.name}.{shape.key}", f"{shape}, {peer.name}"
            note = ""
            if missing := sum(each.missing for each in theirs):
                total = missing + sum(each.delivered for each in theirs)
                note = (
                    f"falls behind: {missing / total:.0%} had not arrived {GRACE_SECONDS:.0f} s after the model's last"
                )
            store = sum(e.store_seconds for e in theirs) / sum(e.server_seconds + e.store_seconds for e in theirs)
            shares = [f"{sum(e.delivered for e in theirs) / max(1, sum(e.events for e in theirs)):.1f} tokens an event"]
            shares += [f"{store:.0%} of it in the store"] if store else []
            speeds = [e.per_second for e in theirs]
            found.append(figure(f"{key}.per_second", f"{what}: tokens per CPU s", speeds, "/s", note=", ".join(shares)))
            if peer.name != Threadcast.name and len(ours) == len(theirs):
                our_speeds = [e.per_second for e in ours]
                found.append(ratio(f"{key}.ratio", f"{what}: threadcast's over it", our_speeds, speeds))
            late = [e.p99_ms for e in theirs]
            found.append(figure(f"{key}.p99", f"{what}: p99, model to reader", late, "ms", note=note))
    return found


def _trial_lines(running: Sequence[Peer], trials: dict[str, Trial]) -> list[str]:
    lines = []
    for peer in running:
        trial = trials.get(peer.name)
        if trial is None:
            continue
        times = sorted(trial.resume_ms)
        took = f" ({times[len(times) // 2]:.0f} ms)" if times else ""
        lines += [
            f"{peer.name} {peer.version}",
            f"    connection lost three times: {trial.resume}{took}; without a reader: {trial.unwatched}",
            f"    second tab during the answer: {trial.second_tab}; tab after the end: {trial.late_tab}",
            f"    abort: {trial.abort}",
            f"    kill -9 and restart: {trial.kill}",
        ]
    return lines


def _cannot_lines(cannot: dict[tuple[str, str], str]) -> list[str]:
    return [f"{name}{', ' + shape if shape else ''}: {reason}" for (name, shape), reason in cannot.items()]
