"""The end of a process: a failed start prints a sentence, and a later failure prints its traceback."""

import json
import logging
from collections.abc import Awaitable, Callable, Iterator

import anyio
import pytest
import structlog

from threadcast.process.lifecycle import Startup, run_process
from threadcast.settings import Server, Settings
from threadcast_protocol.wire.errors import Conflict, Unavailable

SETTINGS = Settings(server=Server(log_format="json"))


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def failing(trouble: Exception, *, is_ready: bool) -> Callable[[Settings, Startup], Awaitable[None]]:
    async def main(settings: Settings, startup: Startup) -> None:
        if is_ready:
            startup.say_ready("it is ready")
        async with anyio.create_task_group():
            raise trouble

    return main


@pytest.mark.parametrize("trouble", [ValueError("no such model"), OSError("no space"), Conflict("the port is taken")])
def test_what_keeps_a_process_from_starting_is_one_line(trouble: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_process(SETTINGS, failing(trouble, is_ready=False)) == 1
    assert capsys.readouterr() == ("", f"threadcast: {trouble}\n")


@pytest.mark.parametrize("trouble", [ValueError("a mistake"), OSError("a mistake"), KeyError("a mistake")])
def test_a_process_that_had_started_and_fails_leaves_its_traceback(
    trouble: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_process(SETTINGS, failing(trouble, is_ready=True)) == 1
    said = capsys.readouterr()
    assert said.out == "it is ready\n"
    assert '"event":"process.failed"' in said.err
    assert "Traceback" in said.err and type(trouble).__name__ in said.err


def test_an_error_of_ours_that_ends_a_process_is_one_line_of_its_log(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_process(SETTINGS, failing(Unavailable("the store is gone"), is_ready=True)) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert {"event": "process.failed", "level": "error", "error": "the store is gone"}.items() <= json.loads(
        line
    ).items()


def test_a_process_that_ends_in_peace_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    async def main(settings: Settings, startup: Startup) -> None:
        startup.say_ready("it is ready")

    assert run_process(SETTINGS, main) == 0
    assert capsys.readouterr().err == ""
