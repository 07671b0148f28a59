"""The transcripts of the protocol, played by durable agents: `threadcast conformance --mode`."""

import json
from collections.abc import Iterator

import anyio
import anyio.to_thread
import pytest

from tests.conformance.durable_models import PLAYED
from tests.support.reader import watching
from tests.support.server import ROOT, Process, command, start, user_message
from threadcast.cli import main
from threadcast.console.conformance.transcripts import load, transcripts_directory
from threadcast_protocol.wire.messages import JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.row("AGT-2")]

APP = ROOT / "tests/conformance/durable_models.py"
RUN_MAX_SECONDS = 150.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    directory = tmp_path_factory.mktemp("agents")
    line = ["serve", "--port", "0", "--memory", "--app", str(APP), "--data-dir", str(directory / "data")]
    with start(*line, log=directory / "log") as process:
        yield process.wait_ready()


async def results_of(
    url: str, mode: str, capsys: pytest.CaptureFixture[str], *arguments: str
) -> tuple[int, list[JsonObject]]:
    """Run the command as a person does. Returns its exit code and its results."""
    line = ["conformance", url, "--mode", mode, "--wait", "20", "--limit", "120", "--json", *arguments]
    with anyio.fail_after(RUN_MAX_SECONDS):
        code = await anyio.to_thread.run_sync(lambda: main(line), abandon_on_cancel=True)
    return code, json.loads(capsys.readouterr().out or '{"results": []}')["results"]


def names_that_need(models: set[str]) -> set[str]:
    """Return the names of the transcripts whose models are all among `models`."""
    return {
        each.name
        for each in load(transcripts_directory())
        if {wish for wish in each.requires if wish.startswith("model:")} <= {f"model:{name}" for name in models}
    }


@pytest.mark.slow(40)
async def test_a_durable_agent_that_plays_the_models_of_the_transcripts_passes(
    server: Process, capsys: pytest.CaptureFixture[str]
) -> None:
    code, results = await results_of(server.url, f"player={','.join(PLAYED)}", capsys)
    assert [(each["name"], each["reasons"]) for each in results if each["outcome"] == "failed"] == []
    assert code == 0
    passed = {each["name"] for each in results if each["outcome"] == "passed"}
    assert passed >= names_that_need(set(PLAYED)) - {"continue-after-abort", "model-unknown"}
    for each in results:
        if each["outcome"] == "skipped":
            assert each["reasons"][0].startswith("the profile player is not said to play: "), each


@pytest.mark.slow(20)
async def test_a_durable_agent_that_only_echoes_passes(server: Process, capsys: pytest.CaptureFixture[str]) -> None:
    code, results = await results_of(server.url, "echo", capsys)
    assert [(each["name"], each["reasons"]) for each in results if each["outcome"] == "failed"] == []
    assert code == 0
    passed = {each["name"] for each in results if each["outcome"] == "passed"}
    assert passed >= names_that_need({"demo/echo"}) - {"model-unknown"}


async def test_the_chats_are_played_in_the_mode(server: Process, capsys: pytest.CaptureFixture[str]) -> None:
    """The answers come from the agent, not from the model: a transcript fails if its profile sets another model than
    the transcript names."""
    code, results = await results_of(server.url, "echo=demo/echo,demo/hang", capsys, "--only", "abort-keeps")
    assert (code, results[0]["outcome"]) == (1, "failed")


async def test_a_mode_that_the_server_does_not_have_is_named(
    server: Process, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["conformance", server.url, "--mode", "nobody"]
    assert await anyio.to_thread.run_sync(lambda: main(line)) == 2
    assert "has no profile 'nobody'; it has agent, echo, player" in capsys.readouterr().err


async def test_the_cut_answer_of_a_durable_agent_cannot_be_continued(server: Process) -> None:
    async with watching(server.url, "cut") as watcher:
        asked = user_message("a", "go", params={"mode": "player", "model": "demo/hang?after=3&rate=0"})
        await command(server.url, "cut", asked)
        await watcher.until(lambda w: w.state is not None and w.state.draft is not None and bool(w.state.draft.content))
        await command(server.url, "cut", {"type": "abort", "client_request_id": "b"})
        await watcher.at_rest()
        assert watcher.state is not None and watcher.state.leaf is not None
        body = {"type": "continue_message", "client_request_id": "c", "message_id": watcher.state.leaf.message_id}
        answer = await command(server.url, "cut", body, {"Prefer": "wait=10"})
        assert answer.json()["accepted"] is False
        assert "the answer of a durable agent cannot be continued" in answer.json()["result"]["error"]
