"""Runs the page of the example `coding`, and checks its claims against the messages to editors, watchers and the
model."""

import json
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.abc
import httpx2
import pytest

from tests.examples.console import play
from tests.integration.fake_openai import DONE, STOP, FakeOpenAI, Reply, chunk, serve_fake_openai, text
from tests.support.reader import Watcher, watching
from tests.support.server import DEADLINE_SECONDS, ROOT, command, start, user_message
from threadcast_protocol.wire.messages import JsonObject

pytestmark = pytest.mark.anyio

CODING = ROOT / "examples" / "coding"
PAGES_COPY = "/tmp/threadcast-coding"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Yield the copy of the project on which the server's tools work, and the editor."""
    directory = tmp_path / "project"
    monkeypatch.setenv("CODING_PROJECT", str(directory))
    return Path(shutil.copytree(CODING / "project", directory))


async def test_every_line_of_the_page_is_printed(tmp_path: Path, project: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text((CODING / "README.md").read_text("utf-8").replace(PAGES_COPY, str(project)), "utf-8")
    await play(page, tmp_path)


class Desk:
    """The example with a model that records its requests; `tab` is a watcher of the chat."""

    chat_id = "desk"

    def __init__(self, url: str, model: FakeOpenAI, tab: Watcher) -> None:
        self.url = url
        self.tab = tab
        self._model = model
        self._said = 0

    async def say(self, *replies: Reply) -> None:
        self._model.replies = list(replies)
        await self.post(user_message("", "hi"))

    async def post(self, body: JsonObject) -> None:
        self._said += 1
        answer = await command(self.url, self.chat_id, {**body, "client_request_id": f"r{self._said}"})
        assert answer.status_code in (200, 202), answer.text

    async def decide(self, **decision: object) -> None:
        await self.tab.until(lambda w: w.state is not None and w.state.runtime.paused)
        assert self.tab.state is not None
        (reason,) = self.tab.state.runtime.pause_reasons
        await self.post({"type": "tool_decision", "tool_call_id": reason.tool_call_id, **decision})

    def frames(self, kind: str) -> list[JsonObject]:
        return [frame for frame in self.tab.frames if frame["type"] == kind]

    def told(self, at: int = -1) -> list[str]:
        """Return the texts in one of the model's requests."""
        return [str(message["content"]) for message in self._model.asked[at].body["messages"]]

    def offered(self, at: int = -1) -> set[str]:
        return {tool["function"]["name"] for tool in self._model.asked[at].body["tools"]}


@asynccontextmanager
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    with serve_fake_openai() as model:
        openai = {"OPENAI_BASE_URL": model.base_url, "OPENAI_API_KEY": "sk-x", "OPENAI_MODEL": "tiny"}
        chosen = {**openai, "THREADCAST_MODELS__DEFAULT": "openai/tiny", "CODING_EDITOR": "off"}
        arguments = ["serve", "--config", str(CODING / "threadcast.toml"), "--port", "0", "--memory"]
        with start(*arguments, log=tmp_path / "log", environment=chosen) as server:
            await server.ready()
            async with watching(server.url, Desk.chat_id) as tab:
                yield Desk(server.url, model, tab)


@asynccontextmanager
async def editor(here: Desk, project: Path) -> AsyncIterator[anyio.abc.Process]:
    arguments = [sys.executable, "-m", "examples.coding.editor", here.url, here.chat_id, str(project)]
    async with await anyio.open_process(arguments, cwd=ROOT, stderr=None) as process:
        try:
            assert process.stdout is not None
            with anyio.fail_after(DEADLINE_SECONDS):
                assert (await process.stdout.receive()).startswith(b"watching")
            yield process
        finally:
            process.kill()


def says(words: str) -> Reply:
    return Reply([text(words), STOP, DONE])


def calls(*wanted: tuple[str, JsonObject]) -> Reply:
    listed = [
        {"index": at, "id": f"call_{name}_{at}", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for at, (name, arguments) in enumerate(wanted)
    ]
    return Reply([chunk(delta={"tool_calls": listed}), chunk(finish_reason="tool_calls"), DONE])


@pytest.mark.row("CMD-14")
async def test_of_two_editors_one_carries_a_call_out_and_the_model_reads_what_it_gave(
    tmp_path: Path, project: Path
) -> None:
    edit = {"path": "prices.py", "old": "cents - percent", "new": "cents"}
    outside = {"path": "../log"}
    async with desk(tmp_path) as here, editor(here, project), editor(here, project):
        await here.say(calls(("apply_edit", edit), ("open_file", outside)), says("Done."))
        await here.tab.at_rest()
        assert here.told()[-2:] == ["prices.py is changed.", "../log is not in the project."]
        claims = [ack["accepted"] for ack in here.frames("ack") if ack["client_request_id"].startswith("claim_")]
        assert sorted(claims) == [False, False, True, True]
    assert "return cents\n" in (project / "prices.py").read_text("utf-8")


async def test_several_files_are_searched_at_the_same_time(tmp_path: Path, project: Path) -> None:
    wanted: list[tuple[str, JsonObject]] = [
        ("search", {"word": "def", "path": path}) for path in ("prices.py", "basket.py")
    ]
    async with desk(tmp_path) as here:
        await here.say(calls(*wanted), says("Done."))
        await here.tab.at_rest()
        statuses = [(frame["index"], frame["status"]) for frame in here.frames("tool_status")]
        assert statuses.index((1, "running")) < statuses.index((0, "done")), statuses
        assert ["def with_discount" in here.told()[-2], "def total" in here.told()[-1]] == [True, True]


@pytest.mark.row("GATE-1", "GATE-6")
async def test_a_command_is_asked_for_may_be_changed_refused_or_allowed_for_good(tmp_path: Path, project: Path) -> None:
    remove: tuple[str, JsonObject] = ("run_command", {"command": "rm prices.py"})
    async with desk(tmp_path) as here:
        await here.say(calls(remove), says("I see."))
        await here.decide(accepted=False, note="We still need it.")
        await here.tab.at_rest()
        assert "We still need it." in here.told()[-1] and (project / "prices.py").exists()
        await here.say(calls(remove), says("Done."))
        await here.decide(accepted=True, edited_input={"command": "echo kept"}, remember="tool")
        await here.tab.at_rest(2)
        assert here.told()[-1] == "exit code 0\nkept" and (project / "prices.py").exists()
        await here.say(calls(("run_command", {"command": "echo $OPENAI_API_KEY-"})), says("Done."))
        await here.tab.at_rest(3)
        assert here.told()[-1] == "exit code 0\n-", "what a command sees of our environment holds no key"
        assert len(here.frames("pause_required")) == 2


@pytest.mark.row("EVT-19")
async def test_the_end_of_the_tests_is_an_event_and_wakes_the_chat(tmp_path: Path, project: Path) -> None:
    async with desk(tmp_path) as here:
        await here.say(calls(("run_tests", {})), says("They run."), says("They failed."))
        await here.tab.until(lambda w: ("assistant", "They failed.") in w.messages)
        (end,) = here.frames("process_completed")
        assert (end["status"], end["short_description"]) == ("failed", "the tests")
        assert "FAILED (failures=2)" in here.told()[-1], "the model reads what they printed"


@pytest.mark.row("EVT-19")
async def test_a_reviewer_has_a_log_and_tools_of_its_own_and_no_other_profile_can_be_asked(
    tmp_path: Path, project: Path
) -> None:
    task = {"task": "Review it", "mode": "reviewer", "title": "a review"}
    async with desk(tmp_path) as here:
        await here.say(calls(("delegate", task)), says("It is good."), says("The reviewer likes it."))
        await here.tab.at_rest()
        (update,) = here.frames("subchat_update")
        async with watching(here.url, update["subchat_id"]) as below:
            assert below.messages == [("user", "Review it"), ("assistant", "It is good.")]
        assert here.offered(1) == {"search", "open_file"} and "delegate" in here.offered(0)
        assert here.told()[-1] == "It is good."
        await here.say(calls(("start_agent", {**task, "mode": "agent"})), says("I may not."))
        await here.tab.at_rest(2)
        assert here.told()[-1].endswith("Allowed modes: reviewer.")


@pytest.mark.row("CMD-3")
async def test_an_abort_ends_the_chat_below_too(tmp_path: Path, project: Path) -> None:
    task = {"task": "Review it", "mode": "reviewer"}
    async with desk(tmp_path) as here:
        await here.say(calls(("delegate", task)), calls(("open_file", {"path": "prices.py"})))
        await here.tab.until(lambda w: "subchat_update" in w.types())
        (update,) = here.frames("subchat_update")
        async with watching(here.url, update["subchat_id"]) as below:
            await below.until(lambda w: w.state is not None and w.state.runtime.state == "waiting_ide")
            await here.post({"type": "abort"})
            await below.at_rest()
        await here.tab.at_rest()
        assert below.state is not None and below.state.runtime.outcome == "aborted"
        async with httpx2.AsyncClient(timeout=DEADLINE_SECONDS) as client:
            listed = (await client.get(f"{here.url}/v1/chats?parent_id={here.chat_id}")).json()["items"]
        assert [item["id"] for item in listed] == [below.chat_id]
