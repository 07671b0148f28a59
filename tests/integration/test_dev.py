"""`threadcast dev`: a saved file is served at once, a broken file is reported, and the chats are kept."""

from pathlib import Path

import anyio
import httpx2
import pytest

from tests.ports import free_port
from tests.support.reader import watching
from tests.support.server import DEADLINE_SECONDS, Process, command, start, user_message

pytestmark = [pytest.mark.anyio, pytest.mark.row("AGT-12")]

AGENT = """
from helper import NAME
from threadcast import Round, agent


@agent("mine")
def mine(round: Round) -> str:
    return f"{NAME} has read {len(round.messages)} messages"
"""


async def said(process: Process, text: str) -> None:
    with anyio.fail_after(DEADLINE_SECONDS):
        while text not in process.log_text():
            await anyio.sleep(0.02)


async def test_a_changed_file_is_served_and_the_chats_stay(tmp_path: Path) -> None:
    here = tmp_path / "app"
    here.mkdir()
    file = here / "my_agents.py"
    file.write_text(AGENT)
    helper = here / "helper.py"
    helper.write_text("NAME = 'Ann'\n")
    options = ("--port", str(free_port()), "--data-dir", str(tmp_path / "data"))
    with start("dev", str(file), *options, log=tmp_path / "log") as process:
        await process.ready()
        async with watching(process.url, "c1") as watcher:
            await command(process.url, "c1", user_message("a", "hello", params={"mode": "mine"}))
            await watcher.at_rest()
        helper.write_text("NAME = 'Robert'\n")
        await said(process, "helper.py has changed; starting again")
        await process.ready()
        async with watching(process.url, "c1") as watcher:
            await command(process.url, "c1", user_message("b", "hello", params={"mode": "mine"}))
            await watcher.until(lambda w: w.messages[-1:] == [("assistant", "Robert has read 3 messages")])
        assert [text for role, text in watcher.messages if role == "assistant"] == [
            "Ann has read 1 messages",
            "Robert has read 3 messages",
        ]
        file.write_text(AGENT.replace("return", "retrun"))
        await said(process, "the server has ended; it starts again when a file changes")
        assert "invalid syntax" in process.log_text() or "SyntaxError" in process.log_text()
        file.write_text(AGENT)
        await process.ready()
        async with httpx2.AsyncClient(timeout=DEADLINE_SECONDS) as client:
            assert (await client.get(f"{process.url}/v1/ping")).text == "pong"
        assert await process.stop() == 0
        with pytest.raises(httpx2.TransportError):
            async with httpx2.AsyncClient(timeout=DEADLINE_SECONDS) as client:
                await client.get(f"{process.url}/v1/ping")


async def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with start("dev", str(tmp_path / "none.py"), log=tmp_path / "log") as process:
        assert await process.ended() == 2
    assert "none.py: no such file; `threadcast init` writes a first one" in (tmp_path / "log").read_text()
