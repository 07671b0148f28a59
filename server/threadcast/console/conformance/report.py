"""The command `threadcast conformance`: chooses transcripts, plays several at a time, and prints the results.

It prints a line for each transcript as it ends, the differences below the line, and a summary; with `as_json` it prints
one JSON object instead. Exit codes: 0 when no transcript failed, 1 when at least one transcript failed, 2 when no
transcript could be played.
"""

import sys
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

import anyio
import msgspec

from threadcast.console.conformance.player import WAIT_SECONDS, Result, play
from threadcast.console.conformance.probe import MUST, probe
from threadcast.console.conformance.target import NotThere, Target
from threadcast.console.conformance.transcripts import BadTranscript, Transcript, load, transcripts_directory

__all__ = ["Wanted", "conformance"]

_MARKS = {"passed": "ok  ", "failed": "FAIL", "skipped": "skip"}


LIMIT_SECONDS = 22.0
"""Time limit of a run in which the server has missed a deadline. One more wait and the clean-up follow this limit, so
the run ends within 30 s. A run in which the server misses no deadline may take `LONGEST_SECONDS`."""

LONGEST_SECONDS = 180.0


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of the command."""

    url: str
    token: str | None = None
    only: Sequence[str] = ()
    """Names of transcripts, or patterns with `*`. If empty, all transcripts are played."""
    models: dict[str, str] = {}
    """Maps names of models in the transcripts to names of models of the server."""
    mode: str = ""
    """The profile in which the chats are played; '' for the server's default profile."""
    plays: Sequence[str] = ()
    """The models that the profile `mode` behaves like."""
    directory: Path | None = None
    """A directory of transcripts that are played in place of the installed transcripts."""
    at_once: int = 6
    """The number of transcripts that are played together: enough to use the waiting time, but few enough that a small
    server is not slowed down."""
    wait_seconds: float = WAIT_SECONDS
    limit_seconds: float = LIMIT_SECONDS
    """Time limit of the whole run once the server has missed a deadline. Transcripts that have not ended by then have
    failed."""
    as_json: bool = False
    lists: bool = False
    """Whether to print the names of the transcripts and play none."""


def conformance(wanted: Wanted) -> int:
    """Play the transcripts and print the results. Returns the exit code."""
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
            raise BadTranscript(f"no transcript has the name {name}; --list shows the names")
    return [each for each in transcripts if not only or any(fnmatch(each.name, name) for name in only)]


async def _play_all(wanted: Wanted, transcripts: list[Transcript]) -> list[Result]:
    """Play the probe and the transcripts. Returns their results, ordered by name. The time limit covers both."""
    results: list[Result] = []
    table = _Table(silent=wanted.as_json)
    limiter = anyio.CapacityLimiter(wanted.at_once)

    def tell(result: Result) -> None:
        results.append(result)
        table.show(result)

    async def one(target: Target, transcript: Transcript) -> None:
        async with limiter:
            tell(await play(target, transcript, wanted.wait_seconds))

    async with Target(
        wanted.url,
        wanted.token,
        models=wanted.models,
        mode=wanted.mode,
        plays=wanted.plays,
        answer_seconds=wanted.wait_seconds,
    ) as target:
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
        why = "not played: the server lacks an ability that every transcript needs"
        results += [Result(name, "skipped", 0, [why]) for name in missing]
        table.end("no other transcript was played, because every transcript needs this ability")
    else:
        why = "the time limit of the run was reached; --limit sets another one"
        results += [Result(name, "failed", 0, [why], {"time": why}) for name in missing]
        late = "the server missed deadlines and the time limit of the run was reached; not finished"
        table.end(f"{late}: {', '.join(missing)}" if missing else "")
    return sorted(results, key=lambda each: each.name)


async def _limit(target: Target, ends_at: float, playing: anyio.CancelScope) -> None:
    """Cancel the run at `ends_at` if the server has missed a deadline."""
    await target.hung.wait()
    await anyio.sleep_until(ends_at)
    playing.cancel()


class _Table:
    """Prints a line for each transcript as it ends, with the differences below. If many transcripts break the same
    rule, the rule is explained once, and the transcripts are counted at the end."""

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
