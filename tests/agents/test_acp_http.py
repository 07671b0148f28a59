"""A chat whose agent is a program that speaks ACP: text, calls, permissions, files, terminals, sessions, failures."""

import json
import os
import pwd
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from tests.integration.test_durable_agents_http import asked, decide, error_of
from tests.support.fleet import FAST, fleet_on_new_store
from tests.support.reader import Watcher, watching
from tests.support.server import DEADLINE_SECONDS, Process, command, start, user_message
from threadcast_protocol.wire.events import PauseReason

pytestmark = [pytest.mark.anyio, pytest.mark.row("AGT-9")]

AGENT = Path(__file__).with_name("acp_agent.py")
IMAGE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
USER = pwd.getpwuid(os.geteuid()).pw_name


def settings(directory: Path, *more: str, extra: str = "") -> Path:
    file = directory / "threadcast.toml"
    command = json.dumps([sys.executable, str(AGENT), str(directory), *more])
    file.write_text(
        f'[server]\nprograms_user = "{USER}"\n[agents.coder]\nkind = "acp"\ncommand = {command}\nenv = ["SHARED"]\n'
        f'workspace = "{directory}/workspaces"\nsilence_seconds = 20\n{extra}\n'
    )
    return file


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    directory = tmp_path_factory.mktemp("acp")
    (directory / "secret").write_text("the secret")
    more = 'mode = "plan"\nmodel = "large"\npolicies = { delete = "deny", execute = "auto" }'
    line = ["serve", "--port", "0", "--memory", "--config", str(settings(directory, extra=more))]
    environment = {"SHARED": "yes", "PRIVATE": "no"}
    with start(*line, log=directory / "log", environment=environment) as process:
        yield process.wait_ready()


def lines(server: Process, file: str) -> list[str]:
    found = server.log.parent / file
    return found.read_text().splitlines() if found.exists() else []


async def answered(server: Process, text: str) -> Watcher:
    async with asked(server, "coder", text) as (_, watcher):
        await watcher.at_rest()
        return watcher


async def paused(watcher: Watcher) -> list[PauseReason]:
    """Wait until the chat asks a person. The run is not suspended while it waits, because it keeps the agent's program
    running."""
    await watcher.until(lambda w: w.state is not None and bool(w.state.runtime.pause_reasons))
    assert watcher.state is not None
    return watcher.state.runtime.pause_reasons


def texts(watcher: Watcher) -> list[str]:
    return [text for role, text in watcher.messages if role == "assistant" and text]


async def test_text_and_reasoning_arrive_and_the_same_program_answers_the_next_prompt(server: Process) -> None:
    async with asked(server, "coder", "hello") as (chat_id, watcher):
        await watcher.at_rest()
        assert watcher.messages[-1] == ("assistant", "Hello there")
        assert watcher.state is not None
        message = watcher.state.nodes[watcher.state.path[-1]]
        assert message.reasoning_content == "A greeting. "
        assert message.usage is not None
        assert message.usage.total_tokens == 10
        started = len(lines(server, "started"))
        await command(server.url, chat_id, user_message("b", "environment", params={"mode": "coder"}))
        await watcher.at_rest(2)
    assert len(lines(server, "started")) == started
    assert {"mode plan", "m large"} <= set(lines(server, "sessions"))
    variables = set(json.loads(texts(watcher)[-1]))
    assert {"PATH", "SHARED"} <= variables
    assert not any(each == "PRIVATE" or each.startswith("THREADCAST_") for each in variables)


async def test_images_and_files_are_content_of_the_prompt(server: Process) -> None:
    content = [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{IMAGE}"}},
        {"type": "file", "name": "a.txt", "mime": "text/plain", "text": "in the file"},
        {"type": "text", "text": "hello"},
    ]
    chat_id = "acp-files"
    async with watching(server.url, chat_id) as watcher:
        body = {**user_message("a", "x", params={"mode": "coder"}), "content": content}
        await command(server.url, chat_id, body)
        await watcher.at_rest()
    blocks = json.loads(lines(server, "prompts")[-1])
    assert [each["type"] for each in blocks] == ["image", "text", "text"]
    assert blocks[0]["mimeType"] == "image/png"
    assert "in the file" in json.dumps(blocks[1])


async def test_a_plan_is_shown_once_and_updates(server: Process) -> None:
    watcher = await answered(server, "plan")
    assert watcher.state is not None
    [payload] = watcher.state.payloads
    assert payload.payload_type == "plan"
    assert payload.data == {"entries": [{"content": "Look", "status": "completed", "priority": "high"}]}


@pytest.mark.parametrize("accepted", [True, False])
async def test_a_permission_is_an_approval_with_the_change(server: Process, accepted: bool) -> None:
    before = lines(server, "effects").count("edit")
    async with asked(server, "coder", "edit") as (chat_id, watcher):
        [reason] = await paused(watcher)
        assert reason.tool_name == "coder_edit"
        assert reason.input == {"title": "Edit a.txt", "input": {"path": "a.txt"}}
        assert watcher.state is not None
        [payload] = watcher.state.payloads
        assert (payload.payload_type, payload.data["before"], payload.data["after"]) == ("diff", None, "new text")
        await decide(server, chat_id, reason, accepted)
        await watcher.at_rest()
    assert texts(watcher)[-1] == ("yes: new text" if accepted else "no")
    assert lines(server, "effects").count("edit") - before == int(accepted)
    assert (server.log.parent / "workspaces" / chat_id / "src" / "a.txt").exists() is accepted


async def test_edited_arguments_reject_a_call_that_the_agent_cannot_change(server: Process) -> None:
    async with asked(server, "coder", "edit") as (chat_id, watcher):
        [reason] = await paused(watcher)
        await decide(server, chat_id, reason, True, edited_input={"title": "Edit b.txt"})
        await watcher.at_rest()
    assert texts(watcher)[-1] == "no"


async def test_a_tool_that_a_person_allows_for_good_is_not_asked_about_again(server: Process) -> None:
    async with asked(server, "coder", "edit") as (chat_id, watcher):
        [reason] = await paused(watcher)
        await decide(server, chat_id, reason, True, remember="tool")
        await watcher.at_rest()
        await command(server.url, chat_id, user_message("b", "edit", params={"mode": "coder"}))
        await watcher.at_rest(2)
    assert texts(watcher)[-1] == "yes: new text"


async def test_terminals_run_in_the_folder_of_the_chat_and_are_shown(server: Process) -> None:
    watcher = await answered(server, "terminal")
    assert ("tool", "from shell\n") in watcher.messages
    assert texts(watcher)[-1] == "exit 0"


async def test_no_path_leads_out_of_the_folder(server: Process) -> None:
    watcher = await answered(server, "escape")
    said = texts(watcher)[-1]
    assert "READ" not in said
    assert said == "refused no refused no refused no refused written refused written "
    assert sorted(each.name for each in server.log.parent.glob("secret*")) == ["secret"]


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        ("dies", "connection", "The agent's program has ended with the exit status 3."),
        ("refuses", "llm_error", "The agent refused to go on."),
        ("floods", "connection", "The agent sent a line of more than 16,777,216 bytes."),
        ("many-values", "connection", "The agent sent a line with more than 100,000 values."),
    ],
)
async def test_failures_are_told_and_what_was_said_stays(server: Process, words: str, code: str, sentence: str) -> None:
    watcher = await answered(server, words)
    assert (error_of(watcher).code, error_of(watcher).message) == (code, sentence)
    assert texts(watcher) == ["I try. "]


@pytest.mark.parametrize("words", ["slow", "stubborn"])
async def test_stop_cancels_the_prompt_and_the_next_message_goes_on(server: Process, words: str) -> None:
    before = lines(server, "effects").count("cancelled")
    async with asked(server, "coder", words) as (chat_id, watcher):
        await watcher.until(lambda w: w.state is not None and w.state.draft is not None and bool(w.state.draft.content))
        await command(server.url, chat_id, {"type": "abort", "client_request_id": "stop"})
        await watcher.at_rest()
        assert lines(server, "effects").count("cancelled") == before + 1
        await command(server.url, chat_id, user_message("b", "hello", params={"mode": "coder"}))
        await watcher.at_rest(2)
    assert texts(watcher)[-1] == "Hello there"


@pytest.mark.parametrize(("words", "said"), [("remove", "remove: no"), ("run", "run: yes")])
async def test_a_policy_answers_a_permission_without_a_person(server: Process, words: str, said: str) -> None:
    watcher = await answered(server, words)
    assert texts(watcher)[-1] == said


async def test_a_call_that_no_update_has_told_is_shown_before_it_is_asked_about(server: Process) -> None:
    watcher = await answered(server, "unknown")
    assert texts(watcher)[-1] == "asked: yes"
    assert ("tool", "nothing") in watcher.messages, "a call that only ended is shown with its result"


@pytest.mark.parametrize("words", ["many-calls", "many-calls same"])
async def test_a_prompt_makes_so_many_calls_even_if_all_have_one_id(server: Process, words: str) -> None:
    watcher = await answered(server, words)
    assert error_of(watcher).message == "The agent made more than 500 calls in one prompt."


async def test_an_edited_message_and_another_branch_begin_a_session_with_the_conversation(server: Process) -> None:
    async with asked(server, "coder", "hello") as (chat_id, watcher):
        await watcher.at_rest()
        mode = {"type": "set_params", "client_request_id": "m", "patch": {"mode": "coder"}}
        await command(server.url, chat_id, mode)
        await command(server.url, chat_id, user_message("b", "plan"))
        await watcher.at_rest(2)
        assert watcher.state is not None
        edit = {"type": "update_message", "client_request_id": "c", "message_id": watcher.state.path[0]}
        sessions = len(lines(server, "sessions"))
        body = {**edit, "content": "hello again", "mode": "branch", "regenerate": True}
        await command(server.url, chat_id, body)
        await watcher.at_rest(3)
    assert [text for _, text in watcher.messages] == ["hello again", "Hello there"]
    assert [line.split()[0] for line in lines(server, "sessions")[sessions:]][:1] == ["new"]
    assert len(json.loads(lines(server, "prompts")[-1])) == 1, "nothing came before the edited message"


@pytest.mark.parametrize("role", ["user", "assistant"])
async def test_a_message_edited_in_place_begins_a_session_with_the_conversation(server: Process, role: str) -> None:
    async with asked(server, "coder", "hello") as (chat_id, watcher):
        await watcher.at_rest()
        assert watcher.state is not None
        message_id = watcher.state.path[0 if role == "user" else -1]
        edit = {"type": "update_message", "client_request_id": "c", "message_id": message_id, "content": "changed"}
        sessions = len(lines(server, "sessions"))
        await command(server.url, chat_id, edit)
        await command(server.url, chat_id, user_message("b", "hello", params={"mode": "coder"}))
        await watcher.at_rest(2)
    assert [line.split()[0] for line in lines(server, "sessions")[sessions:]][:1] == ["new"]
    assert f"{role}: changed" in lines(server, "prompts")[-1]


async def test_an_answer_that_another_session_has_written_begins_a_session(server: Process) -> None:
    async with asked(server, "coder", "hello") as (chat_id, watcher):
        await watcher.at_rest()
        mode = {"type": "set_params", "client_request_id": "m", "patch": {"mode": "coder"}}
        await command(server.url, chat_id, mode)
        assert watcher.state is not None
        first = watcher.state.path[-1]
        await command(server.url, chat_id, {"type": "regenerate", "client_request_id": "r"})
        await watcher.at_rest(2)
        branch = {"type": "select_branch", "client_request_id": "s", "message_id": first}
        await command(server.url, chat_id, branch)
        await watcher.until(lambda w: w.state is not None and w.state.path[-1] == first)
        sessions = len(lines(server, "sessions"))
        await command(server.url, chat_id, user_message("b", "hello"))
        await watcher.at_rest(3)
    assert [line.split()[0] for line in lines(server, "sessions")[sessions:]][:1] == ["new"]


async def test_a_process_that_an_agent_leaves_behind_ends_with_the_program(server: Process) -> None:
    async with asked(server, "coder", "forks") as (chat_id, watcher):
        await watcher.at_rest()
        [pid] = lines(server, "forked")[-1:]
        await command(server.url, chat_id, user_message("b", "dies", params={"mode": "coder"}))
        await watcher.at_rest(2)
        with anyio.fail_after(DEADLINE_SECONDS):
            while Path(f"/proc/{pid}").exists():
                await anyio.sleep(0.02)


@pytest.mark.parametrize("more", [(), ("--resume",), ("--no-load",)])
async def test_kill_9_in_a_prompt_interrupts_and_the_next_message_continues_the_session(
    tmp_path: Path, more: tuple[str, ...]
) -> None:
    with fleet_on_new_store(tmp_path, "--config", str(settings(tmp_path, *more)), limits=FAST) as fleet:
        await fleet.open()
        async with watching(fleet.url, "killed") as watcher:
            await command(fleet.url, "killed", user_message("a", "edit", params={"mode": "coder"}))
            await paused(watcher)
            [pid] = (tmp_path / "started").read_text().split()
            fleet.kill_owner("killed")
            await watcher.at_rest()
            assert watcher.state is not None
            assert watcher.state.runtime.outcome == "interrupted"
            assert not watcher.state.runtime.pause_reasons
            assert texts(watcher) == ["I edit. "]
            with anyio.fail_after(DEADLINE_SECONDS):
                while Path(f"/proc/{pid}").exists():
                    await anyio.sleep(0.02)
            await command(fleet.url, "killed", user_message("b", "hello", params={"mode": "coder"}))
            await watcher.at_rest(2)
        assert texts(watcher) == ["I edit. ", "Hello there"]
        sessions = [line.split() for line in (tmp_path / "sessions").read_text().splitlines()]
        begun = {(): "load", ("--resume",): "resume", ("--no-load",): "new"}[more]
        assert [each[0] for each in sessions] == ["new", begun]
        prompt = json.loads((tmp_path / "prompts").read_text().splitlines()[-1])
        assert len(prompt) == (2 if begun == "new" else 1)
        assert begun != "new" or "assistant: I edit. " in prompt[0]["text"]
