"""`threadcast chat` shows the steps of a durable agent: in a pipe only ended steps, at a terminal also waiting ones."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx2
import pytest

from tests.support.server import Process, started_server
from tests.unit.test_cli import Terminal, piped

APP = Path(__file__).with_name("durable_app.py")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    base = tmp_path_factory.mktemp("steps")
    with started_server(base, app=APP, environment={"EFFECTS": str(base / "effects")}) as process:
        yield process.wait_ready()


def choose(server: Process, chat_id: str, mode: str) -> None:
    command = {"type": "set_params", "client_request_id": "mode", "patch": {"mode": mode}}
    httpx2.post(f"{server.url}/v1/chats/{chat_id}/commands", json=command).raise_for_status()


def test_a_pipe_has_a_line_for_each_step_that_has_ended(server: Process) -> None:
    choose(server, "c1", "steps")
    lines = piped(server.url, "tea\n", "chat", "c1").stdout.splitlines()
    steps = [line.partition(" (")[0] for line in lines if line[:2] in ("* ", "! ")]
    assert steps == ["* plan → done", "* number → done", "! fails → KeyError"]
    assert any("tea [1, 2] 7" in line for line in lines)


def test_a_terminal_says_until_when_an_agent_sleeps(server: Process) -> None:
    choose(server, "c2", "sleeps")
    with closing(Terminal(server.url, "chat", "c2")) as person:
        person.expect("Ctrl-D leaves")
        person.type("hello\r")
        person.expect("* keep")
        person.expect("* sleep (until 20")
        person.expect("* sleep")
        person.expect("→ done (")
        person.expect("slept")
        person.expect("\n> ")
        person.type("\x04")
        assert person.ended() == 0
