"""The command `threadcast conformance`: chooses transcripts, plays several at a time, prints as they end.

A line for each, what differed below it, a summary last; or one JSON object with all of it. The exit code is 0 when
nothing failed, 1 when something did, 2 when nothing could be played.
"""

import sys
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

import anyio
import msgspec

from server.console.conformance.player import Result, play
from server.console.conformance.target import NotThere, Target
from server.console.conformance.transcripts import BadTranscript, Transcript, load, transcripts_directory

__all__ = ["Wanted", "conformance"]

_MARKS = {"passed": "ok  ", "failed": "FAIL", "skipped": "skip"}


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line asked for. `models`: transcript's name to the server's."""

    url: str
    token: str | None = None
    only: Sequence[str] = ()
    """Names, or patterns with `*`; none: all."""
    models: dict[str, str] = {}
    directory: Path | None = None
    at_once: int = 4
    """Transcripts that are played together: enough to hide waiting, few enough to time a small server fairly."""
    wait_seconds: float = 15.0
    as_json: bool = False
    lists: bool = False


def conformance(wanted: Wanted) -> int:
    """Play, print; the exit code."""
    try:
        transcripts = _chosen(load(wanted.directory or transcripts_directory()), wanted.only)
        if wanted.lists:
            for transcript in transcripts:
                print(f"{transcript.name:<28} {transcript.about}")
            return 0
        results = anyio.run(_play_all, wanted, transcripts)
    except (BadTranscript, NotThere) as wrong:
        print(f"threadcast conformance: {wrong}", file=sys.stderr)
        return 2
    counts = {outcome: sum(result.outcome == outcome for result in results) for outcome in _MARKS}
    if wanted.as_json:
        print(msgspec.json.encode({"url": wanted.url, **counts, "results": results}).decode())
    else:
        print(", ".join(f"{count} {outcome}" for outcome, count in counts.items()))
    return 1 if counts["failed"] else 0


def _chosen(transcripts: list[Transcript], only: Sequence[str]) -> list[Transcript]:
    for name in only:
        if not any(fnmatch(each.name, name) for each in transcripts):
            raise BadTranscript(f"no transcript is called {name}; --list shows them")
    return [each for each in transcripts if not only or any(fnmatch(each.name, name) for name in only)]


async def _play_all(wanted: Wanted, transcripts: list[Transcript]) -> list[Result]:
    results: dict[str, Result] = {}
    limiter = anyio.CapacityLimiter(wanted.at_once)

    async def one(target: Target, transcript: Transcript) -> None:
        async with limiter:
            result = await play(target, transcript, wanted.wait_seconds)
        results[transcript.name] = result
        if not wanted.as_json:
            _print(result)

    async with Target(wanted.url, wanted.token, models=wanted.models) as target:
        await target.look()
        async with anyio.create_task_group() as tasks:
            for transcript in transcripts:
                tasks.start_soon(one, target, transcript)
    return [results[transcript.name] for transcript in transcripts]


def _print(result: Result) -> None:
    took = f"{result.duration_ms:>7} ms" if result.outcome != "skipped" else " " * 10
    print(f"{_MARKS[result.outcome]}  {result.name:<32}{took}", flush=True)
    for reason in result.reasons:
        print(f"        {reason}", flush=True)
