"""Texts that are made to be slow, to control a terminal, or to become headers."""

import asyncio
import base64
import hashlib
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import httpx2
import pytest

from tests.support.server import Process, command, serving, start, user_message
from tests.support.tokens import bearer, token_of, tokens
from threadcast.console.dead_letters import line_of
from threadcast.store.redis.inbox import DeadLetter
from threadcast_protocol.wire.messages import JsonObject

pytestmark = pytest.mark.anyio

TOOLS = {"model": "demo/tools?rate=0"}

LIVE_MAX_SECONDS = 5.0
"""Maximum seconds for an answer on a busy machine; without protection the slow text would take hours."""

EVIL = "\x1b]0;owned\x07\x1b[2J\u009b31m\u202egnp.exe\u2028\x7f"
"""Sets the title of a terminal, clears it, colours text with C1 codes, and changes the direction of text."""


@asynccontextmanager
async def server(base: Path, log_format: str = "json") -> AsyncIterator[Process]:
    config = f"[models]\ndemo = true\n[server]\nlog_format = '{log_format}'\n" + tokens(ann="", bob="permissions = []")
    async with serving(base, config=config) as process:
        yield process


@pytest.mark.parametrize("text", ["1" * 200_000, "(" * 200_000, "-" * 200_000, "1 " * 100_000, "1+" * 100_000])
async def test_a_text_that_is_made_to_be_slow_holds_nobody_up(tmp_path: Path, text: str) -> None:
    async with server(tmp_path) as process:
        posted = await command(process.url, "c1", user_message("a", text, params=TOOLS), bearer("bob"))
        assert posted.status_code == 202, posted.text
        async with httpx2.AsyncClient(timeout=LIVE_MAX_SECONDS) as client:
            for _ in range(20):
                began = time.monotonic()
                await client.get(f"{process.url}/livez")
                assert time.monotonic() - began < LIVE_MAX_SECONDS
                await anyio.sleep(0.05)


@pytest.mark.parametrize("log_format", ["json", "pretty"])
async def test_a_callers_text_cannot_control_the_terminal_that_shows_the_log(tmp_path: Path, log_format: str) -> None:
    async with server(tmp_path, log_format) as process:
        body = user_message("a", "hi", params={"model": f"demo/{EVIL}\n12:00:00 [info] forged"})
        await command(process.url, "c1", body, bearer("bob"))
        with anyio.fail_after(30):
            while "model.failed" not in process.log_text():
                await anyio.sleep(0.02)
        log = process.log_text()
        assert "owned" in log, "the name is not logged, so nothing is tested"
        assert not set(EVIL) & set(log) - set("]0;owned[2J31mgnp.exe")
        assert not [line for line in log.splitlines() if line.startswith("12:00:00")]


async def test_a_command_that_was_given_up_is_shown_without_control_characters() -> None:
    letter = DeadLetter("c1", "1-0", "r1", "deadly", "{}", json.dumps({"content": EVIL}, ensure_ascii=False))
    assert line_of(letter).isprintable()


async def test_threadcast_tail_prints_no_control_characters_and_the_same_values(tmp_path: Path) -> None:
    text = f"{EVIL}\u009b2J\x7f\u2028 👩\u200d💻 مرحبا"
    async with server(tmp_path, "json") as process:
        body = user_message("a", text)
        assert (await command(process.url, "c1", body, bearer("bob"))).status_code == 202
        arguments = [sys.executable, "-m", "threadcast.cli", "tail", "c1", "--url", process.url]
        environment = {**os.environ, "THREADCAST_TOKEN": token_of("bob")}
        tail = await asyncio.create_subprocess_exec(*arguments, stdout=asyncio.subprocess.PIPE, env=environment)
        try:
            assert tail.stdout is not None
            printed = ""
            with anyio.fail_after(30):
                while "owned" not in printed:
                    printed = (await tail.stdout.readline()).decode()
        finally:
            tail.kill()
            await tail.wait()
    assert not [each for each in printed if not each.isprintable() and each not in "\n\u200d"]
    assert text in list(_texts(json.loads(printed))), "a program reads the same text"


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts(each)


def _export(chat_id: str, mime: str, data: bytes) -> str:
    name = hashlib.sha256(data).hexdigest()
    counts = {"message_count": 1, "payload_count": 0, "agent_count": 0, "blob_count": 1}
    part = {"type": "file", "name": "a.txt", "mime": "text/plain", "blob": name}
    lines: list[JsonObject] = [
        {"type": "chat", "format": 1, "chat_id": chat_id, "leaf_id": "m1", **counts, "thread": {}},
        {"type": "message", "message": {"message_id": "m1", "role": "user", "content": [part]}},
        {"type": "blob", "hash": name, "mime": mime, "data": base64.b64encode(data).decode()},
    ]
    return "\n".join(map(json.dumps, lines))


@pytest.mark.parametrize(
    "mime",
    ["text/plain\r\nSet-Cookie: a=b", "text/plain\r\n\r\nHTTP/1.1 200 OK", "text/\u4e2d", "x", "", "text/html; a\x00"],
)
async def test_the_type_of_an_imported_blob_cannot_become_another_header(tmp_path: Path, mime: str) -> None:
    data = b"<script>alert(1)</script>"
    async with server(tmp_path) as process, httpx2.AsyncClient(headers=bearer("bob"), timeout=30) as client:
        imported = await client.post(f"{process.url}/v1/chats/import", content=_export("c1", mime, data))
        assert imported.json()["imported"] == ["c1"]
        answer = await client.get(f"{process.url}/v1/chats/c1/blobs/{hashlib.sha256(data).hexdigest()}")
        assert (answer.status_code, answer.content) == (200, data)
        assert answer.headers["content-type"] == "application/octet-stream"
        assert answer.headers["content-disposition"] == "attachment"
        assert "set-cookie" not in answer.headers
        assert "Traceback" not in process.log_text()


async def test_a_page_that_is_imported_as_a_picture_is_not_shown_as_a_page(tmp_path: Path) -> None:
    data = b"\x89PNG\r\n\x1a\n<script>alert(1)</script>"
    async with server(tmp_path) as process, httpx2.AsyncClient(headers=bearer("bob"), timeout=30) as client:
        await client.post(f"{process.url}/v1/chats/import", content=_export("c1", "text/html", data))
        answer = await client.get(f"{process.url}/v1/chats/c1/blobs/{hashlib.sha256(data).hexdigest()}")
        assert answer.headers["content-type"] == "image/png"
        assert answer.headers["content-security-policy"].startswith("sandbox")
        assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("name", ["ann\n", "ann ", "ＡＮＮ", "anń", "a\u200dnn", "Ann\u0131"])
async def test_a_principals_name_has_one_spelling(tmp_path: Path, name: str) -> None:
    config = tmp_path / "threadcast.toml"
    config.write_text(f"[[auth.tokens]]\nid = {json.dumps(name)}\nsha256 = '{'0' * 64}'\n")
    with start("serve", "--port", "0", "--memory", "--config", str(config), log=tmp_path / "log") as process:
        assert await process.ended() in (1, 2)
        assert "auth.tokens" in process.log_text()
