"""Calls each function that the blocks of docs/client.md define, with a real server."""

import hashlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.docs.pages import blocks_of
from tests.support.server import DEADLINE_SECONDS, ROOT, Process, serving, start
from threadcast_client import Client, FileOutbox

pytestmark = pytest.mark.anyio

CONFIG = '[tools.open_file]\npolicy = "client"\ndescription = "x"\n[models]\ndefault = "demo/echo"\n'


BLOCKS = [block.text for block in blocks_of(ROOT / "docs" / "client.md") if block.language == "python"]
FUNCTIONS = {name: block for block in BLOCKS for name in re.findall(r"^async def (\w+)\(", block, re.MULTILINE)}


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[Process]:
    async with serving(tmp_path, config=CONFIG) as server:
        yield server


def function(name: str) -> Callable[..., Awaitable[None]]:
    """Return the names that a block of the page defines. (Any: the names of a module.)"""
    names: dict[str, Any] = {}  # Any: a module's names
    exec(compile(FUNCTIONS[name], f"docs/client.md:{name}", "exec"), names)
    found: Callable[..., Awaitable[None]] = names[name]
    return found


async def test_every_function_of_the_page_does_what_it_says(
    harness: Process, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = {"main", "watch", "talk", "read_aloud", "apply_edit", "serve_tools", "sidebar", "come_back"}
    assert set(FUNCTIONS) == run | {"go_on"}
    async with Client(harness.url) as client:
        with anyio.fail_after(3 * DEADLINE_SECONDS):
            await function("watch")(client, "hello")
            assert capsys.readouterr().out.endswith(("live\n", "catching up\n"))
            await function("talk")(client)
            said = capsys.readouterr().out
            assert "bad_request temperature: Expected" in said
            assert said.strip().endswith("True")
            await function("read_aloud")(client)
            assert len(capsys.readouterr().out) > 1_000
            await function("serve_tools")(client, "tools")
            await function("sidebar")(client)
            assert "hello" in capsys.readouterr().out
            outbox = FileOutbox(tmp_path / "outbox")
            async with Client("http://127.0.0.1:9", outbox=outbox) as away, away.chat("earlier", wait=False) as chat:
                chat.send("from an earlier life")
            outbox.close()
            await function("come_back")(harness.url, str(tmp_path / "outbox"))
        async with client.chat("earlier") as earlier, client.chat("offline") as offline:
            for chat, text in ((earlier, "from an earlier life"), (offline, "goes out when it can")):
                await chat.at_rest(DEADLINE_SECONDS)
                assert str(chat.messages[0].content) == text


async def test_a_program_waits_for_a_sign_in_as_the_page_says(tmp_path: Path) -> None:
    config = tmp_path / "threadcast.toml"
    token = hashlib.sha256(b"a new one").hexdigest()
    config.write_text(f'[models]\ndefault = "demo/echo"\n[[auth.tokens]]\nid = "ann"\nsha256 = "{token}"\n')
    with start("serve", "--memory", "--port", "0", "--config", str(config), log=tmp_path / "log") as server:
        harness = await server.ready()
        with anyio.fail_after(DEADLINE_SECONDS):
            await function("go_on")(harness.url)
        async with Client(harness.url, "a new one") as client, client.chat("signing-in") as chat:
            assert [str(message.content) for message in chat.messages] == ["hello", "You said: hello"]
