"""Plays the transcripts of the protocol against Threadcast in one process, against a web process with a worker, and
against servers that break the protocol.

Each transcript is a separate test. A broken server is Threadcast behind a proxy that breaks one rule
(`tests/conformance/`), so that these tests see each rule of the runner catch its violation. `python -m
tests.conformance.mutations` judges all broken servers; these tests draw some of them for each commit.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from tests.conformance.breaking import EventChange, changed, events, is_chats, lost, twice, units
from tests.conformance.mutations import CONFIG, MUTATIONS, control, drawn, judge
from tests.conformance.proxy import Mutation, UnitChange, proxy_to
from tests.integration.store_fixtures import fresh_url
from tests.support.server import DEADLINE_SECONDS, ROOT, Process, start
from threadcast.cli import main
from threadcast.console.conformance.player import Result, play
from threadcast.console.conformance.target import Target
from threadcast.console.conformance.transcripts import Transcript, load, transcripts_directory
from threadcast.store.embedded.server_process import ServerProcess

pytestmark = pytest.mark.anyio

TRANSCRIPTS = {transcript.name: transcript for transcript in load(transcripts_directory())}

WAIT_SECONDS = 15.0
"""Maximum seconds of any one event on a busy machine."""

DRAWN_COUNT = 5

RUN_MAX_SECONDS = 30.0
"""Maximum seconds of a run, whatever the server does (docs/conformance.md)."""


@pytest.fixture(scope="module", params=["serve", "web+worker"])
def played(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, valkey_server: ServerProcess
) -> Iterator[Process]:
    """Run Threadcast in one process, or as web process and worker over one store."""
    base = tmp_path_factory.mktemp("conformance")
    config = base / "threadcast.toml"
    config.write_text(CONFIG)
    tools = str(Path(__file__).with_name("preview_tools.py"))
    shared = ["--config", str(config), "--data-dir", str(base / "data"), "--app", tools]
    with ExitStack() as stack:
        if request.param == "serve":
            web = stack.enter_context(start("serve", "--port", "0", *shared, log=base / "log"))
        else:
            environment = {"REDIS_URL": fresh_url(valkey_server)}
            worker = stack.enter_context(start("worker", *shared, log=base / "worker", environment=environment))
            worker.wait_ready()
            web = stack.enter_context(start("web", "--port", "0", *shared, log=base / "web", environment=environment))
        yield web.wait_ready()


def _each_transcript() -> list[object]:
    slow = {each.name for each in TRANSCRIPTS.values() if each.takes_seconds}
    return [
        pytest.param(name, marks=[pytest.mark.slow(TRANSCRIPTS[name].takes_seconds)]) if name in slow else name
        for name in TRANSCRIPTS
    ]


@pytest.mark.parametrize("name", _each_transcript())
async def test_our_server_does_what_the_transcript_says(played: Process, name: str) -> None:
    async with Target(played.url, answer_seconds=WAIT_SECONDS) as target:
        await target.look()
        result = await play(target, TRANSCRIPTS[name], WAIT_SECONDS)
    assert (result.outcome, result.reasons) == ("passed", [])


async def test_a_server_without_a_tool_is_told_so_and_not_failed(server: Process) -> None:
    async with Target(server.url) as target:
        await target.look()
        result = await play(target, TRANSCRIPTS["client-tool-result"])
    assert (result.outcome, result.reasons) == ("skipped", ["the server does not offer: client_tool open_file"])


@pytest.mark.parametrize("name", drawn(DRAWN_COUNT))
async def test_a_mutation_that_this_commit_draws_is_noticed(played: Process, name: str) -> None:
    noticed = await judge(played.url, name, TRANSCRIPTS)
    assert noticed.was_met, f"no transcript met {name}: {MUTATIONS[name].sentence}"
    unfair = await control(played.url, list(noticed.by), TRANSCRIPTS)
    assert noticed.by.keys() - unfair.keys(), f"{name} survived: {MUTATIONS[name].sentence}"


def test_there_are_at_least_forty_mutations_and_a_draw_depends_on_the_commit_alone() -> None:
    assert len(MUTATIONS) >= 40
    assert len({mutation.sentence for mutation in MUTATIONS.values()}) == len(MUTATIONS)
    page = (ROOT / "docs" / "conformance.md").read_text()
    assert re.findall(r"There\s+are\s+(\d+)\s+such\s+mutations", page) == [str(len(MUTATIONS))]
    assert drawn(DRAWN_COUNT) == drawn(DRAWN_COUNT)
    for name, mutation in MUTATIONS.items():
        assert set(mutation.hints) <= TRANSCRIPTS.keys(), name


async def result_of(url: str, transcript: Transcript, mutation: Mutation) -> Result:
    async with proxy_to(url, mutation) as proxy, Target(proxy.url) as target:
        await target.look()
        return await play(target, transcript, wait_seconds=2.0)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("id-before-data", "an id comes before its data"),
        ("event-names", "`onmessage` stays silent"),
        ("no-cache-control", "cache-control: no-cache"),
        ("no-heartbeat", "no heartbeat followed"),
        ("heartbeat-with-empty-line", "an empty line ends no event"),
        ("no-early-retry", "`retry: 500` must come before"),
        ("no-ids", "has no id to resume from"),
        ("position-ahead", "should be of position"),
        ("position-without-base", "seq is position minus base"),
        ("at-is-late", "?at="),
        ("no-tree", "?view=tree"),
        ("never-resumes", "resumed after"),
        ("resumes-with-a-hole", "resumed after"),
        ("delta-twice", "must follow"),
        ("message-lost", "expected"),
        ("wrong-finish-reason", "finish_reason should be"),
        ("index-off-by-one", "index"),
    ],
)
async def test_a_broken_server_is_told_what_is_wrong(server: Process, name: str, words: str) -> None:
    result = await result_of(server.url, TRANSCRIPTS["plain-turn"], MUTATIONS[name])
    assert result.outcome == "failed"
    assert words in " ".join(result.reasons)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (twice("ack", renumbered=True), "acks [True, True]"),
        (lost("ack"), "has no ack"),
        (twice("message_added", renumbered=True), "answered 2 times"),
        (changed("queue_updated", queue_size="one"), "another shape"),
    ],
    ids=["ack-twice", "no-ack", "result-twice", "wrong-type"],
)
async def test_the_law_holds_also_where_a_transcript_does_not_look(
    server: Process, change: EventChange, words: str
) -> None:
    blind = Transcript(
        name="blind",
        about="It looks at nothing but the end.",
        model="demo/tools?rate=0",
        steps=TRANSCRIPTS["tool-call"].steps[:1],
        final={"chat": {"runtime": {"state": "idle", "outcome": "complete"}}},
    )
    result = await result_of(server.url, blind, Mutation("one thing", (), unit=events(is_chats, lambda _: change)))
    assert result.outcome == "failed"
    assert words in " ".join(result.reasons)


async def run_against(url: str, *arguments: str) -> int:
    """Run the command as a person does; it must end within the documented time."""
    with anyio.fail_after(RUN_MAX_SECONDS):
        return await anyio.to_thread.run_sync(lambda: main(["conformance", url, *arguments]), abandon_on_cancel=True)


@pytest.mark.slow(25)
async def test_a_run_against_a_server_that_cannot_resume_ends_in_time_and_says_so(
    server: Process, capsys: pytest.CaptureFixture[str]
) -> None:
    async with proxy_to(server.url, MUTATIONS["never-resumes"]) as proxy:
        assert await run_against(proxy.url) == 1
    printed = capsys.readouterr().out
    assert "FAIL  probe: resume" in printed
    assert printed.count("the server cannot resume: a stream opened with the last id began with a snapshot") == 1
    assert "ok    abort-idle" in printed  # transcripts that do not resume are still played


async def test_what_needs_a_missing_capability_is_skipped_and_named(
    server: Process, capsys: pytest.CaptureFixture[str]
) -> None:
    async with proxy_to(server.url, MUTATIONS["never-resumes"]) as proxy:
        assert await run_against(proxy.url, "--only", "several-chats*", "plain-turn") == 1
    printed = capsys.readouterr().out
    assert "skip  several-chats-resumed" in printed and "not played without resume" in printed
    assert "ok    plain-turn" in printed


async def test_a_run_against_a_server_whose_streams_stay_silent_ends_in_time_and_says_so(
    server: Process, capsys: pytest.CaptureFixture[str]
) -> None:
    silent = Mutation("streams say nothing", (), unit=units(is_chats, lambda: lambda unit: ()))
    async with proxy_to(server.url, silent) as proxy:
        assert await run_against(proxy.url) == 1
    printed = capsys.readouterr().out
    assert "a new stream of a chat must begin with a snapshot (waited 5 s)" in printed
    assert "no other transcript was played" in printed and "ok  " not in printed


async def test_a_run_against_a_server_whose_runs_never_end_ends_in_time_and_says_so(
    server: Process, capsys: pytest.CaptureFixture[str]
) -> None:
    stuck = Mutation("runs do not end", (), unit=events(is_chats, lambda _: lost("runtime_updated")))
    async with proxy_to(server.url, stuck) as proxy:
        assert await run_against(proxy.url) == 1
    printed = capsys.readouterr().out
    assert "FAIL  probe: run" in printed and "the run of a plain message did not end (waited 5 s)" in printed
    assert "skip  plain-turn" in printed


@asynccontextmanager
async def deaf() -> AsyncIterator[str]:
    """A server that accepts connections and never answers."""
    streams: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        streams.append(writer)
        while await reader.read(65_536):
            pass

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()
    for each in streams:
        each.close()


async def test_a_run_against_a_server_that_never_answers_ends_in_time_and_says_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with deaf() as url:
        assert await run_against(url) == 2
    assert "no answer came in time" in capsys.readouterr().err


def _silent_from_the_first_tool_on() -> UnitChange:
    is_silent = False

    def unit(data: bytes) -> Iterable[bytes]:
        nonlocal is_silent
        is_silent = is_silent or b'"type":"tool_status"' in data
        if not is_silent:
            yield data

    return unit


@pytest.mark.slow(20)
async def test_a_run_against_a_server_that_hangs_here_and_there_ends_in_time_and_names_what_was_not_played(
    server: Process, capsys: pytest.CaptureFixture[str]
) -> None:
    hangs = Mutation("streams fall silent when a tool runs", (), unit=units(is_chats, _silent_from_the_first_tool_on))
    async with proxy_to(server.url, hangs) as proxy:
        assert await run_against(proxy.url, "--wait", "4", "--limit", "12") == 1
    printed = capsys.readouterr().out
    assert "nothing more came in 4 s" in printed
    not_played = printed.split("the time limit of the run was reached; not finished: ")[1]
    assert "heartbeats" in not_played  # takes 16 s
    assert "ok    abort-idle" in printed


async def test_a_rule_that_many_transcripts_break_is_told_once(
    server: Process, capsys: pytest.CaptureFixture[str]
) -> None:
    async with proxy_to(server.url, MUTATIONS["buffered-by-proxies"]) as proxy:
        assert await run_against(proxy.url, "--only", "plain-turn", "unicode", "tool-call") == 1
    printed = capsys.readouterr().out
    assert printed.count("an event stream must have the header x-accel-buffering: no") == 1
    assert "headers-x-accel-buffering: broken in 3 transcripts" in printed


async def test_the_command_prints_a_table_and_its_exit_code_tells(
    server: Process, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*arguments: str) -> int:
        return main(["conformance", server.url, *arguments])

    run_in_thread = anyio.to_thread.run_sync
    with anyio.fail_after(DEADLINE_SECONDS):
        assert await run_in_thread(lambda: run("--only", "plain-turn", "client-tool-result")) == 0
    printed = capsys.readouterr().out
    assert "ok    plain-turn" in printed and "skip  client-tool-result" in printed
    assert "1 passed, 0 failed, 1 skipped" in printed
    wrong = json.loads((transcripts_directory() / "plain-turn.json").read_text())
    wrong["final"]["chat"]["messages"][1]["content"] = "You said: goodbye"
    (tmp_path / "plain-turn.json").write_text(json.dumps(wrong))
    assert await run_in_thread(lambda: run("--transcripts", str(tmp_path), "--wait", "1", "--json")) == 1
    (failed,) = json.loads(capsys.readouterr().out)["results"]
    assert "/messages/1/content should be" in failed["reasons"][0]
    assert await run_in_thread(lambda: run("--only", "no-such")) == 2
    assert await run_in_thread(lambda: main(["conformance", "http://127.0.0.1:9"])) == 2
