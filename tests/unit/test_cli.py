"""The command line: its output, its exit codes, and a conversation by pipe and by terminal."""

import os
import pty
import select
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.ports import free_port
from tests.unit.scripted_chat import Json, ScriptedChat, served
from threadcast.api.auth import TokenAuthenticator
from threadcast.cli import main
from threadcast.http.imports import GC_YOUNG_COUNT
from threadcast.settings import Auth
from threadcast.settings.sources import load_settings
from threadcast_protocol.wire.principal import Principal

ROOT = Path(__file__).parents[2]
WAIT_SECONDS = 30.0
"""Maximum seconds for the start of a process on a machine that is busy with other tests."""


@pytest.fixture(autouse=True)
def empty_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith(("THREADCAST_", "OPENAI_")) or name in ("REDIS_URL", "NO_COLOR"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("TERM", "xterm")


# Words and exit codes.


def test_help_comes_without_loading_what_only_some_commands_need() -> None:
    heavy = "{'anyio', 'httpx2', 'msgspec', 'openai', 'redis', 'starlette', 'structlog', 'uvicorn'}"
    code = f"import sys, threadcast.cli; print(sorted({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"[]\n"


def test_serving_loads_no_library_before_it_is_used() -> None:
    """structlog would load `rich`, which is installed where the tests run; code that needs it later can import it."""
    code = """if True:
        from threadcast.http.imports import begin_startup_imports
        begin_startup_imports()
        import gc, importlib.util, sys
        import threadcast.wiring
        from threadcast.process.lifecycle import run_process
        from threadcast.settings import Settings
        heavy = {"anthropic", "google", "httpx2", "jsonschema", "mcp", "openai", "pydantic", "pygments", "rich"}
        print(sorted(heavy & set(sys.modules)), gc.isenabled())
        importlib.util.find_spec("rich")  # raises when the name is still taken
        async def main(*_):
            print(gc.isenabled(), gc.get_threshold()[0])
        run_process(Settings(), main)
    """
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout.decode()
    assert said == f"[] False\nTrue {GC_YOUNG_COUNT}\n"


def test_on_windows_every_command_is_refused_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    for command in (["serve"], ["chat"], ["token"]):
        assert main(command) == 2
        assert capsys.readouterr().err.startswith("threadcast: the server and its terminal run on Linux and macOS;")


def test_help_and_version_say_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    for argv in (["--help"], ["--version"]):
        with pytest.raises(SystemExit) as ended:
            main(argv)
        assert ended.value.code == 0
    said = capsys.readouterr().out
    assert "threadcast 0." in said
    for word in ("serve", "web", "worker", "chat", "tail", "doctor", "token", "examples:"):
        assert word in said


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["serve", "--host", "0.0.0.0"], "auth.tokens"),
        (["serve", "--config", "nowhere.toml"], "nowhere.toml"),
        (["web"], "set REDIS_URL"),
        (["worker"], "set REDIS_URL"),
        (["chat", "../etc"], "chat_id must be"),
        (["tail", "feed"], "reserved"),
        (["chat", "c1", "--new"], "leave out the id"),
        (["tail", "c1", "--url", "localhost"], "http://"),
        (["doctor", "--url", "localhost"], "http://"),
        (["token", "a b"], "'a b'"),
        (["token", "a", "--permissions", "fly"], "'fly'"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(argv: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 2
    said = capsys.readouterr().err
    assert said.startswith("threadcast: ")
    assert sentence in said
    assert said.count("\n") == 1


def test_a_misspelt_key_stops_the_start_and_names_itself(capsys: pytest.CaptureFixture[str]) -> None:
    Path("threadcast.toml").write_text("[server]\nprot = 1")
    assert main(["serve"]) == 2
    assert capsys.readouterr().err == (
        "threadcast: threadcast.toml: unknown key server.prot; did you mean server.port?\n"
    )


@pytest.mark.row("AUTH-1")
def test_a_new_token_is_let_in_by_the_lines_that_come_with_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["token", "alice", "--permissions", "approve,diagnostics"]) == 0
    said = capsys.readouterr()
    (made,) = [word for word in said.err.split() if word.startswith("tc_")]
    assert made not in said.out
    (entry,) = tomllib.loads(said.out)["auth"]["tokens"]
    alice = Principal(entry["id"], tuple(entry["permissions"]))
    assert alice == Principal("alice", ("approve", "diagnostics"))
    assert TokenAuthenticator({entry["sha256"]: alice}).authenticate(f"Bearer {made}") == alice
    Path("threadcast.toml").write_text(said.out)
    assert load_settings({}, {"server.host": "0.0.0.0"}).settings.auth != Auth()


# Doctor.


def test_where_the_dead_letters_lie_can_be_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dead-letters", "--data-dir", "elsewhere"]) == 1
    assert "no server runs on elsewhere: start it, name the directory of another" in capsys.readouterr().err


# A conversation.


def answer_to(command: Json) -> list[Json]:
    """Return the answer of a chat that echoes; "long" begins an answer that only an abort ends; "write" asks before it
    calls a tool."""
    done = {"type": "runtime_updated", "state": "idle", "outcome": "complete"}
    match command:
        case {"type": "user_message", "content": content, "client_request_id": request_id}:
            begin: list[Json] = [
                {"type": "queue_updated", "queue_size": 1, "queued_items": []},
                {"type": "ack", "client_request_id": request_id, "accepted": True, "result": {"queued": True}},
                {"type": "runtime_updated", "state": "generating"},
                {"type": "queue_updated", "queue_size": 0, "queued_items": []},
                _added(_message(f"u-{request_id}", "user", content, request_id), 0),
            ]
            answer = f"a-{request_id}"
            if content == "long":
                return [*begin, _started("a-long"), _delta("a-long", "It began")]
            if content == "write":
                reason = {"type": "confirmation", "tool_name": "write", "tool_call_id": "k1", "input": {"n": 1}}
                paused = {"type": "runtime_updated", "state": "paused"}
                return [*begin, {"type": "pause_required", "reasons": [{**reason, "input_hash": "h"}]}, paused]
            final = _added(_message(answer, "assistant", f"You said: {content}"), 1)
            return [*begin, _started(answer), _delta(answer, f"You said: {content}"), final, done]
        case {"type": "abort"}:
            return [
                {"type": "stream_finished", "message_id": "a-long", "finish_reason": "abort"},
                {**done, "outcome": "aborted"},
            ]
        case {"type": "tool_decision"}:
            status = {
                "type": "tool_status",
                "tool_call_id": "k1",
                "name": "write",
                "status": "done",
                "message_id": "a",
                "index": 0,
            }
            return [{"type": "pause_cleared"}, {**status, "elapsed_ms": 2}, done]
    return []


def _message(message_id: str, role: str, content: str, request_id: str | None = None) -> Json:
    return {"message_id": message_id, "role": role, "content": content, "client_request_id": request_id}


def _added(message: Json, index: int) -> Json:
    return {"type": "message_added", "message": message, "index": index}


def _started(message_id: str) -> Json:
    return {"type": "stream_started", "message_id": message_id}


def _delta(message_id: str, text: str) -> Json:
    return {"type": "stream_delta", "message_id": message_id, "ops": [{"op": "append_content", "text": text}]}


def piped(url: str, text: str, *argv: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "threadcast.cli", *argv, "--url", url]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=WAIT_SECONDS, check=False)


def test_every_line_of_a_pipe_is_a_message_and_gets_its_answer() -> None:
    script = ScriptedChat(answer_to)
    with served(script.app) as url:
        ended = piped(url, "one\n\nto be cut \x1b[2J\n", "chat", "c1", "--model", "demo/essay")
    assert ended.stdout == "chat c1 · New Chat\nYou said: one\nYou said: to be cut [2J\n"
    assert (ended.returncode, ended.stderr) == (0, "")
    assert [command.get("content") or command.get("patch") for command in script.posted] == [
        {"model": "demo/essay"}, "one", "to be cut \x1b[2J",
    ]  # fmt: skip


def test_a_pipe_that_ends_at_a_question_says_so_and_fails() -> None:
    with served(ScriptedChat(answer_to).app) as url:
        ended = piped(url, "write\n", "chat", "c1")
        assert ended.returncode == 1
        assert "? allow write(n=1)?\n(a tool waits for a decision" in ended.stdout
        assert piped(url, "", "chat", "c1").returncode == 1  # the question is still open


def test_a_server_that_is_not_there_is_said_at_once() -> None:
    ended = piped(f"http://127.0.0.1:{free_port()}", "hi\n", "chat", "c1")
    assert ended.returncode == 1
    assert "the server does not answer. Is it running? Start it with: threadcast serve" in ended.stdout


def test_tail_prints_each_event_on_a_line_and_ends_quietly_with_its_reader() -> None:
    script = ScriptedChat(answer_to)
    with served(script.app) as url:
        command = [sys.executable, "-m", "threadcast.cli", "tail", "c1", "--url", url]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as tail:
            assert tail.stdout is not None
            assert '"type":"snapshot"' in tail.stdout.readline()
            piped(url, "hi\n", "chat", "c1")
            assert '"type":"queue_updated"' in tail.stdout.readline()
            tail.send_signal(signal.SIGINT)
            _, errors = tail.communicate(timeout=WAIT_SECONDS)
            assert (tail.returncode, errors) == (130, "")


class Terminal:
    """A person at a terminal, who reads what the program writes, and types."""

    def __init__(self, url: str, *argv: str) -> None:
        self._master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "threadcast.cli", *argv, "--url", url], stdin=slave, stdout=slave, stderr=slave
        )
        os.close(slave)
        self._unread = ""

    def expect(self, text: str) -> str:
        """Return everything up to `text`, which must appear."""
        give_up_at = time.monotonic() + WAIT_SECONDS
        while text not in self._unread:
            assert select.select([self._master], [], [], max(0.0, give_up_at - time.monotonic()))[0], self._unread
            try:
                self._unread += os.read(self._master, 65_536).decode()
            except OSError:  # Linux reports EIO when the other end is closed
                raise AssertionError(f"ended before {text!r}: {self._unread!r}") from None
        before, _, self._unread = self._unread.partition(text)
        return before

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def ended(self) -> int:
        return self.process.wait(WAIT_SECONDS)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)


@pytest.fixture
def script() -> ScriptedChat:
    return ScriptedChat(answer_to)


@pytest.fixture
def terminal(script: ScriptedChat) -> Iterator[Terminal]:
    with served(script.app) as url, closing(Terminal(url, "chat", "c1")) as person:
        person.expect("Ctrl-D leaves")
        person.expect("\n> ")
        yield person


def test_a_person_types_edits_reads_and_leaves(terminal: Terminal) -> None:
    terminal.type("helpo\x7f\x7flo\r")
    terminal.expect("You said: hello")
    terminal.expect("> ")
    terminal.type("\x04")
    assert terminal.ended() == 0


def test_ctrl_c_stops_the_answer_first_and_leaves_when_there_is_none(terminal: Terminal, script: ScriptedChat) -> None:
    terminal.type("long\r")
    terminal.expect("It began")
    terminal.interrupt()
    terminal.expect("(stopped)")
    assert script.posted[-1]["type"] == "abort"
    terminal.expect("> ")
    terminal.interrupt()
    assert terminal.ended() == 0


def test_a_question_is_answered_by_a_clear_word_only(terminal: Terminal, script: ScriptedChat) -> None:
    terminal.type("write\r")
    terminal.expect("? allow write(n=1)?")
    terminal.expect("\n> ")
    terminal.type("maybe\r")
    terminal.expect("please answer y, n or always")
    terminal.expect("\n> ")
    terminal.type("always\r")
    terminal.expect("* write() ")
    decision = script.posted[-1]
    del decision["client_request_id"]
    assert decision == {
        "type": "tool_decision", "tool_call_id": "k1", "accepted": True, "remember": "tool", "input_hash": "h",
    }  # fmt: skip


def test_what_others_say_does_not_disturb_what_is_being_typed(terminal: Terminal, script: ScriptedChat) -> None:
    terminal.type("half a")
    terminal.expect("half a")
    url = terminal.process.args[-1] if isinstance(terminal.process.args, list) else ""
    piped(str(url), "from the pipe\n", "chat", "c1")
    terminal.expect("\r\x1b[K")
    terminal.expect("from the pipe")
    terminal.expect("You said: from the pipe")
    terminal.expect("> half a")
    terminal.type(" message\r")
    terminal.expect("You said: half a message")
