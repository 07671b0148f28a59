"""Tries what readers of a peer see after a lost connection, in a second tab, after a time without readers, after a
stop, and after kill -9 of the server.

Each trial has one scripted answer. The package's `measure` tries several peers at the same time, because only the times
of resumption are measured. Every result is what a client had on its screen, or what the model recorded of the peer's
requests; no result is taken from documentation.
"""

import time
from collections.abc import Callable

import anyio
import httpx2
import msgspec

from bench.peers.peer import Cannot, Peer
from bench.peers.reading import Screen, begin
from bench.peers.scripted import Play, prompt

__all__ = ["Trial", "try_out"]

TOKENS = 250
RATE = 50
"""The tokens of an answer: five seconds, long enough for three lost connections."""

FIRST_CUT = 40
"""The numbers of tokens on the screen at which the connection is lost."""

CUTS = 3
BETWEEN_CUTS = 30
AWAY_SECONDS = 0.4
"""The time for which the chat has no reader."""

STOP_SECONDS = 2.0
"""Time limit for the model to learn that its answer was stopped."""

RECOVER_SECONDS = 16.0
"""Time limit from the restart to the end of the answer, which takes five seconds."""


class Trial(msgspec.Struct):
    """The results in words. `resume_ms` is the time from the request to the first token that was not on the screen
    before."""

    resume: str = ""
    resume_ms: list[float] = []
    second_tab: str = ""
    unwatched: str = ""
    late_tab: str = ""
    abort: str = ""
    kill: str = ""


async def try_out(peer: Peer, mark: str) -> Trial:
    """Make all trials with a running peer. Afterwards the peer runs again."""
    trial = Trial()
    async with httpx2.AsyncClient(timeout=30) as client:
        await _cuts(peer, client, trial, f"{mark}-cuts")
        for name, test in (("abort", _abort), ("kill", _kill)):
            try:
                said = await test(peer, client, f"{mark}-{name}")
            except Cannot as wrong:
                said = f"no: {wrong}"
            setattr(trial, name, said)
    return trial


async def _begin(peer: Peer, client: httpx2.AsyncClient, chat: str, screen: Screen, until: int) -> None:
    """Begin an answer and read it in one tab until `until` tokens are on the screen; then close the connection."""
    await peer.prepare(client, chat)
    said = prompt(chat, TOKENS, RATE)
    request = peer.begin(chat, said)
    if not peer.begins_by_reading:
        await begin(peer, client, chat, said)
        request = peer.watch(chat, None, "")
    await client.post(f"{peer.model_url}/go/{chat}")
    await screen.read(peer, request, _reached(until), TOKENS / RATE + 10)
    if screen.count < until:
        raise Cannot(f"only {screen.count} tokens came")


async def _cuts(peer: Peer, client: httpx2.AsyncClient, trial: Trial, chat: str) -> None:
    screen, second = Screen(client), Screen(client)
    try:
        await _begin(peer, client, chat, screen, FIRST_CUT)
    except Cannot as wrong:
        trial.resume = f"no: {wrong}"
        return
    await anyio.sleep(AWAY_SECONDS)
    play = (await _plays(peer, client, chat))[0]
    trial.unwatched = "goes on" if not play.cut and play.written > FIRST_CUT + AWAY_SECONDS * RATE / 2 else "stops"

    async def other() -> None:
        try:
            await second.read(peer, peer.watch(chat, None, ""), _whole, TOKENS / RATE + 5)
            trial.second_tab = _seen(second)
        except Cannot as wrong:
            trial.second_tab = f"no: {wrong}"

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(other)
        try:
            for cut in range(CUTS):
                until = TOKENS if cut == CUTS - 1 else screen.count + BETWEEN_CUTS
                request = peer.watch(chat, screen.last, screen.shown)
                new = await screen.read(peer, request, _reached(until), TOKENS / RATE + 5)
                trial.resume_ms.append(1000 * new)
                await anyio.sleep(AWAY_SECONDS / 2)
            trial.resume = screen.verdict(TOKENS)
        except Cannot as wrong:
            trial.resume = f"no: {wrong}"
    late = Screen(client)
    try:
        await late.read(peer, peer.watch(chat, None, ""), _whole, 2)
        trial.late_tab = _seen(late)
    except Cannot as wrong:
        trial.late_tab = f"no: {wrong}"


async def _abort(peer: Peer, client: httpx2.AsyncClient, chat: str) -> str:
    screen = Screen(client)
    await _begin(peer, client, chat, screen, FIRST_CUT)
    request = peer.abort(chat)
    answer = await client.request(
        request.method, peer.url + request.path, headers=request.headers, content=request.body
    )
    if answer.status_code >= 300:
        return f"no: {answer.status_code}"
    deadline = time.monotonic() + STOP_SECONDS
    while time.monotonic() < deadline:
        if (await _plays(peer, client, chat))[-1].cut:
            return "yes"
        await anyio.sleep(0.02)
    return "no: the model continues to write"


async def _kill(peer: Peer, client: httpx2.AsyncClient, chat: str) -> str:
    """Send kill -9 during an answer, restart the server, and compare what a reconnected tab and a new tab show."""
    screen, new = Screen(client), Screen(client)
    await _begin(peer, client, chat, screen, FIRST_CUT)
    had = screen.shown
    peer.kill()
    await peer.start()
    back = await _reread(peer, chat, screen)
    plays = await _plays(peer, client, chat)
    fresh = await _reread(peer, chat, new)
    asked = f"; the model was asked {len(plays)} times" if len(plays) > 1 else ""
    retracted = "" if screen.shown.startswith(had[: len(had) // 2]) else ", the shown text was replaced"
    return f"tab: {back}{retracted}; new tab: {fresh}{asked}"


async def _reread(peer: Peer, chat: str, screen: Screen) -> str:
    deadline = time.monotonic() + RECOVER_SECONDS
    before = screen.shown
    while time.monotonic() < deadline and not _whole(screen):
        try:
            left = min(RECOVER_SECONDS / 2, deadline - time.monotonic())
            await screen.read(peer, peer.watch(chat, screen.last, screen.shown), _whole, left)
        except Cannot as wrong:
            return f"{screen.count} of {TOKENS} tokens, then {wrong}" if before else str(wrong)
        if screen.shown == before:
            break
        before = screen.shown
    return _seen(screen)


def _reached(count: int) -> Callable[[Screen], bool]:
    return lambda screen: screen.count >= count


def _whole(screen: Screen) -> bool:
    return f"~{TOKENS - 1}@" in screen.shown


def _seen(screen: Screen) -> str:
    return "whole answer" if screen.verdict(TOKENS) == "exact" else screen.verdict(TOKENS)


async def _plays(peer: Peer, client: httpx2.AsyncClient, chat: str) -> list[Play]:
    answer = await client.get(f"{peer.model_url}/plays/{chat}")
    return msgspec.json.decode(answer.content, type=list[Play])
