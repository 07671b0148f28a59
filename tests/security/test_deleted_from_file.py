"""A deleted chat leaves the disk: the private store's append-only file is rewritten, also after a restart.

The attacker here is someone who gets hold of the data directory later. The tests search all files of this directory for
a sentence of a deleted chat.
"""

from collections.abc import Callable
from pathlib import Path

import anyio
import httpx2
import pytest

from tests.support.reader import watching
from tests.support.server import DEADLINE_SECONDS, Process, command, logged, serving, user_message

pytestmark = pytest.mark.anyio

CANARY = "the canary sings at midnight"
SOON = {"THREADCAST_STORE__ERASE_AFTER_SECONDS": "1"}


def files_with(directory: Path, text: str) -> list[str]:
    return [path.name for path in directory.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]


async def until(holds: Callable[[], bool], what: str) -> None:
    with anyio.fail_after(DEADLINE_SECONDS):
        while not holds():
            await anyio.sleep(0.05)  # the store's process sends no event when its files change
    assert holds(), what


async def held(server: Process, chat_id: str, text: str) -> None:
    async with watching(server.url, chat_id) as watcher:
        await command(server.url, chat_id, user_message("a", text, params={"model": "demo/echo"}))
        await watcher.at_rest()


async def delete(server: Process, chat_id: str) -> None:
    async with httpx2.AsyncClient(timeout=DEADLINE_SECONDS) as client:
        assert (await client.delete(f"{server.url}/v1/chats/{chat_id}")).status_code in (200, 204)


@pytest.mark.row("SEC-12")
async def test_a_deleted_chat_leaves_the_file_and_the_others_stay(tmp_path: Path) -> None:
    async with serving(tmp_path, is_durable=True, environment=SOON) as server:
        await held(server, "secret", CANARY)
        await held(server, "kept", "an ordinary sentence")
        await until(lambda: bool(files_with(tmp_path / "data", CANARY)), "the file holds the chat while it exists")
        await delete(server, "secret")
        await until(lambda: not files_with(tmp_path / "data", CANARY), "the file was rewritten")
    async with serving(tmp_path, is_durable=True) as again, watching(again.url, "kept") as watcher:
        assert watcher.messages[0] == ("user", "an ordinary sentence")


async def test_a_chat_that_was_deleted_before_a_restart_leaves_the_file_after_it(tmp_path: Path) -> None:
    async with serving(tmp_path, is_durable=True) as server:
        await held(server, "secret", CANARY)
        await delete(server, "secret")
    assert files_with(tmp_path / "data", CANARY), "half an hour had not passed, so nothing was rewritten"
    async with serving(tmp_path, is_durable=True, environment=SOON):
        await until(lambda: not files_with(tmp_path / "data", CANARY), "the new server rewrites the file")


async def test_without_a_deletion_nothing_is_rewritten_and_many_deletions_cost_one_rewrite(tmp_path: Path) -> None:
    log = {"THREADCAST_SERVER__LOG_FORMAT": "json", "THREADCAST_STORE__ERASE_AFTER_SECONDS": "2"}
    async with serving(tmp_path, is_durable=True, environment=log) as server:
        for number in range(5):
            await held(server, f"c{number}", CANARY)
        assert logged(tmp_path / "log", "store.erased") == []
        for number in range(5):
            await delete(server, f"c{number}")
        await until(lambda: not files_with(tmp_path / "data", CANARY), "the file was rewritten")
        await until(lambda: bool(logged(tmp_path / "log", "store.erased")), "the rewrite is logged")
        assert len(logged(tmp_path / "log", "store.erased")) == 1
