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

from server.console.conformance.player import WAIT_SECONDS, Result, play
from server.console.conformance.probe import MUST, probe
from server.console.conformance.target import NotThere, Target
from server.console.conformance.transcripts import BadTranscript, Transcript, load, transcripts_directory

__all__ = ["Wanted", "conformance"]

_MARKS = {"passed": "ok  ", "failed": "FAIL", "skipped": "skip"}


LIMIT_SECONDS = 22.0
"""The time limit of a run once the server has missed a deadline. One more wait and the clean-up come on top, so that a
run ends within 30 s. A healthy server on a busy machine is given `LONGEST_SECONDS`."""

LONGEST_SECONDS = 180.0


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line asked for. `models`: transcript's name to the server's."""

    url: str
    token: str | None = None
    only: Sequence[str] = ()
    """Names, or patterns with `*`; none: all."""
    models: dict[str, str] = {}
    directory: Path | None = None
    at_once: int = 6
    """Transcripts that are played together: enough to hide waiting, few enough to time a small server fairly."""
    wait_seconds: float = WAIT_SECONDS
    limit_seconds: float = LIMIT_SECONDS
    """For all of it, once the server has not done something in time. What is not over by then has failed."""
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
    """Return the results of the probe and of the transcripts, in the order of their names. The time limit covers
    both."""
    results: list[Result] = []
    table = _Table(silent=wanted.as_json)
    limiter = anyio.CapacityLimiter(wanted.at_once)

    def tell(result: Result) -> None:
        results.append(result)
        table.show(result)

    async def one(target: Target, transcript: Transcript) -> None:
        async with limiter:
            tell(await play(target, transcript, wanted.wait_seconds))

    async with Target(wanted.url, wanted.token, models=wanted.models, answer_seconds=wanted.wait_seconds) as target:
        await target.look()
        ends_at = anyio.current_time() + wanted.limit_seconds
        with anyio.move_on_after(LONGEST_SECONDS):
            async with anyio.create_task_group() as watching:
                watching.start_soon(_limit, target, ends_at, watching.cancel_scope)
                for result in await probe(target, wanted.wait_seconds):
                    tell(result)
                if not target.cannot.keys() & set(MUST):
                    async with anyio.create_task_group() as tasks:
                        for transcript in sorted(transcripts, key=lambda each: -each.takes_seconds):
                            tasks.start_soon(one, target, transcript)
                watching.cancel_scope.cancel()
    missing = sorted({each.name for each in transcripts} - {each.name for each in results})
    if target.cannot.keys() & set(MUST):
        why = "not played: the server lacks what every transcript needs"
        results += [Result(name, "skipped", 0, [why]) for name in missing]
        table.end("nothing else was played, since every transcript needs this")
    else:
        why = "time was up (--limit)"
        results += [Result(name, "failed", 0, [why], {"time": why}) for name in missing]
        late = f"the server kept transcripts waiting, and time was up; not played to their ends: {', '.join(missing)}"
        table.end(late if missing else "")
    return sorted(results, key=lambda each: each.name)


async def _limit(target: Target, ends_at: float, playing: anyio.CancelScope) -> None:
    """Ends the run in time if the server has not done something in time."""
    await target.hung.wait()
    await anyio.sleep_until(ends_at)
    playing.cancel()


class _Table:
    """Prints a line for each transcript as it ends, with the differences below it. A rule that many transcripts break
    is printed once, and counted at the end."""

    def __init__(self, *, silent: bool) -> None:
        self._silent = silent
        self._broken_by: dict[str, list[str]] = {}

    def show(self, result: Result) -> None:
        if self._silent:
            return
        took = f"{result.duration_ms:>7} ms" if result.outcome != "skipped" else " " * 10
        print(f"{_MARKS[result.outcome]}  {result.name:<32}{took}", flush=True)
        for reason in result.reasons:
            if reason not in result.rules.values():
                print(f"        {reason}", flush=True)
        for rule, sentence in result.rules.items():
            told = self._broken_by.setdefault(rule, [])
            print(f"        {rule}: {'as above' if told else sentence}", flush=True)
            told.append(result.name)

    def end(self, sentence: str) -> None:
        if self._silent:
            return
        for rule, names in self._broken_by.items():
            if len(names) > 1:
                print(f"{rule}: broken in {len(names)} transcripts", flush=True)
        if sentence:
            print(sentence, flush=True)
