"""`threadcast chat` and `threadcast approve` with a real server whose tools ask, at a real terminal and in a pipe."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.server import Process, started_server
from tests.unit.test_cli import Terminal, piped
from threadcast.console.answers import answer_of, lines_of
from threadcast_protocol.wire.messages import JsonObject

APP = Path(__file__).with_name("asking_tools.py")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    base = tmp_path_factory.mktemp("asked")
    config = base / "threadcast.toml"
    config.write_text('[models]\ndefault = "demo/tools?rate=0"\n')
    with started_server(base, "--config", str(config), "--app", str(APP)) as process:
        yield process.wait_ready()


def test_a_person_chooses_types_and_rejects(server: Process) -> None:
    with closing(Terminal(server.url, "chat", "c1")) as person:
        person.expect("Ctrl-D leaves")
        person.type('call ask {"text":"Which one?","options":["short","long"]}\r')
        person.expect("? the tool ask asks: Which one?")
        person.expect("1) short")
        person.expect("2) long")
        person.expect("\n> ")
        person.type("3\r")
        person.expect("please type a number from 1 to 2, or one of the options")
        person.expect("\n> ")
        person.type("2\r")
        person.expect("→ the answer is long")
        person.expect("\n> ")
        person.type('call ask {"text":"Your name?"}\r')
        person.expect("type your answer")
        person.expect("\n> ")
        person.type("\r")
        person.expect("please type your answer")
        person.expect("\n> ")
        person.type("//ann\r")
        person.expect("→ the answer is /ann")
        person.expect("\n> ")
        for refusal in ("/reject\r", "\x04"):
            person.type('call ask {"text":"Well?"}\r')
            person.expect("type your answer")
            person.expect("\n> ")
            person.type(refusal)
            person.expect("→ no answer: rejected")
            person.expect("\n> ")
        person.type("\x04")
        assert person.ended() == 0


def test_a_form_is_answered_with_json_and_errors_are_shown(server: Process) -> None:
    with closing(Terminal(server.url, "chat", "c2")) as person:
        person.expect("Ctrl-D leaves")
        person.type("call ask_form\r")
        person.expect("type JSON that fits")
        person.expect("\n> ")
        person.type("ann\r")
        person.expect("please type JSON")
        person.expect("\n> ")
        person.type('{"name":"ann","size":"huge"}\r')
        person.expect("error: 'huge' is not one of ['small', 'large'] (at /size)")
        person.expect("\n> ")
        person.type('{"name":"ann","size":"large"}\r')
        person.expect("'size': 'large'")


def test_a_pipe_answers_and_approve_answers(server: Process) -> None:
    asked = 'call ask {"text":"Which one?","options":["short","long"]}\n'
    assert "the answer is long" in piped(server.url, asked + "long\n", "chat", "c3").stdout
    ended = piped(server.url, asked, "chat", "c4")
    assert ended.returncode == 1
    assert "(a question waits for an answer; decide with:" in ended.stdout
    approved = piped(server.url, "huge\n1\n", "approve", "c4")
    assert approved.returncode == 0, approved.stderr
    assert "please type a number" in approved.stdout
    assert "answered" in approved.stdout
    assert "the answer is short" in piped(server.url, "", "chat", "c4").stdout


@pytest.mark.parametrize(
    ("question", "line", "value"),
    [
        ({"text": "?", "options": ["2", "1"]}, "2", "2"),  # the text of an option has precedence over its number
        ({"text": "?", "schema": {"type": "string"}}, "plain", "plain"),
        ({"text": "?", "schema": {"type": "string"}}, '"quoted"', "quoted"),
        ({"text": "?", "schema": {"type": "integer"}}, "3", 3),
        (None, "text", "text"),
    ],
)
def test_what_a_line_means(question: JsonObject | None, line: str, value: object) -> None:
    reason = {"type": "question", "tool_name": "", "command": "What?", "question": question}
    assert answer_of(reason, line) == value
    assert lines_of(reason)[0] == ("? ?" if question else "? What?")


def test_an_mcp_server_is_named_as_the_one_who_asks() -> None:
    reason = {"tool_name": "mcp__shop__buy", "question": {"text": "Your size?"}}
    assert lines_of(reason)[0] == "? the MCP server shop asks: Your size?"
