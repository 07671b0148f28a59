"""Shows that the conformance kit notices errors: each mutation changes the answers of a real server, and a transcript
must fail.

`python -m tests.conformance.mutations` judges all mutations, and prints which transcripts noticed each of them. With
names such as `no-ids feed-*`, it judges only the named mutations.

For each mutation, the transcripts that it names are played first; the others are played only if none of these fails.
The failure of a transcript is counted only if the transcript passes through the same proxy without a mutation. The exit
code is 1 if some mutation changed nothing, or was noticed by no transcript.
"""

import random
import subprocess
import sys
import tempfile
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

import anyio

from tests.conformance.proxy import Mutation, proxy_to
from tests.conformance.wrong_answers import ANSWERS
from tests.conformance.wrong_commands import COMMANDS
from tests.conformance.wrong_older_wires import OLDER_WIRES
from tests.conformance.wrong_streams import STREAMS
from tests.support.server import ROOT, start
from threadcast.console.conformance.player import play
from threadcast.console.conformance.target import Target
from threadcast.console.conformance.transcripts import Transcript, load, transcripts_directory

__all__ = ["CONFIG", "MUTATIONS", "Noticed", "drawn", "judge", "main"]

MUTATIONS: dict[str, Mutation] = {**STREAMS, **ANSWERS, **COMMANDS, **OLDER_WIRES}

CONFIG = """
[tools.open_file]
policy = "client"
description = "Opens a file in the editor."

[profiles.agent]
payloads = ["article"]
"""
"""The configuration of a server for all transcripts, with the tools of `tests/integration/preview_tools.py`."""

AT_ONCE = 4
"""Number of mutations that are judged at the same time; they mostly wait for events that never come."""

WAIT_SECONDS = 4.0
"""Time limit of an event that a mutation may have dropped. The same transcripts pass without a mutation in this
time."""

FIXED_SEED = "0"
"""The seed used if git is not available."""


@dataclass
class Noticed:
    """The result of one mutation: `by` maps each transcript that noticed the mutation to the transcript's first reason;
    `was_met` is set if the mutation has changed an answer or a request."""

    by: dict[str, str] = field(default_factory=dict)
    was_met: bool = False


def drawn(count: int) -> list[str]:
    """Return some mutations. The choice depends on the commit, so that it is random and repeatable."""
    try:
        found = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
        seed = found.stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        seed = FIXED_SEED
    return sorted(random.Random(seed).sample(sorted(MUTATIONS), count))


async def judge(url: str, name: str, transcripts: dict[str, Transcript], wait_seconds: float = WAIT_SECONDS) -> Noticed:
    """Play transcripts against the server at `url` behind one mutation until some transcripts have failed."""
    mutation = MUTATIONS[name]
    noticed = Noticed()
    async with AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(proxy_to(url, mutation))
        target = await stack.enter_async_context(Target(proxy.url, answer_seconds=wait_seconds))
        await target.look()
        others = [each for each in transcripts if each not in mutation.hints and not transcripts[each].takes_seconds]
        for group in (mutation.hints, *([each] for each in others)):
            for each in group:
                target.cannot.clear()
                result = await play(target, transcripts[each], wait_seconds)
                if result.outcome == "failed":
                    noticed.by[each] = result.reasons[0]
            if noticed.by:
                break
        noticed.was_met = proxy.changes_count > 0
    return noticed


async def control(url: str, names: list[str], transcripts: dict[str, Transcript]) -> dict[str, list[str]]:
    """Return the transcripts that fail behind a proxy without a mutation, with the reasons."""
    failed: dict[str, list[str]] = {}
    async with proxy_to(url, None) as proxy, Target(proxy.url, answer_seconds=WAIT_SECONDS) as target:
        await target.look()
        for name in names:
            result = await play(target, transcripts[name], WAIT_SECONDS)
            if result.outcome != "passed":
                failed[name] = result.reasons
    return failed


async def _table(url: str, names: list[str]) -> int:
    transcripts = {each.name: each for each in load(transcripts_directory())}
    found: dict[str, Noticed] = {}
    limiter = anyio.CapacityLimiter(AT_ONCE)

    async def one(name: str) -> None:
        async with limiter:
            found[name] = await judge(url, name, transcripts)
        print(f"{_word(found[name])}  {name}", file=sys.stderr, flush=True)

    async with anyio.create_task_group() as tasks:
        for name in names:
            tasks.start_soon(one, name)
    witnesses = sorted({each for noticed in found.values() for each in noticed.by})
    unfair = await control(url, witnesses, transcripts)
    for name in names:
        by = [each for each in found[name].by if each not in unfair]
        found[name].by = {each: found[name].by[each] for each in by}
        print(f"| {name} | {MUTATIONS[name].sentence} | {', '.join(by) or _word(found[name])} |")
    for name, reasons in unfair.items():
        print(f"{name} does not pass without a mutation either: {reasons}")
    noticed_count = sum(bool(each.by) and each.was_met for each in found.values())
    print(f"{noticed_count}/{len(names)} mutations were noticed")
    return 0 if noticed_count == len(names) else 1


def _word(noticed: Noticed) -> str:
    return "noticed" if noticed.by and noticed.was_met else "SURVIVED" if noticed.was_met else "NEVER MET"


def main(patterns: list[str]) -> int:
    """Start a server, judge the mutations and print the table. Returns the exit code."""
    names = [name for name in MUTATIONS if not patterns or any(fnmatch(name, each) for each in patterns)]
    with tempfile.TemporaryDirectory() as directory:
        base = Path(directory)
        (base / "threadcast.toml").write_text(CONFIG)
        arguments = ["--config", str(base / "threadcast.toml"), "--data-dir", str(base / "data")]
        tools = str(ROOT / "tests" / "integration" / "preview_tools.py")
        with start("serve", "--port", "0", *arguments, "--app", tools, log=base / "log") as server:
            anyio.run(server.ready)
            return anyio.run(_table, server.url, names)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
