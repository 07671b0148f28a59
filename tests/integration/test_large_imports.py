"""Large chats over real HTTP and a real store: export, delete, import and export again give the same bytes.

One chat has 100,000 messages; the other has 300 MB of text that hardly compresses.
"""

import base64
import random
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import anyio
import httpx2
import pytest
import redis

from tests.integration.test_transfer_http import NOTHING
from tests.support.server import serving, user_message
from threadcast.actor.checkpoint_policy import CHECKPOINT_MAX_BYTES
from threadcast_protocol.framing.codec import encode
from threadcast_protocol.wire.messages import JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.slow(120), pytest.mark.row("SES-6")]

MESSAGES = 100_000
WORDS = "It was a long conversation, and this is one of its many sentences. " * 8
LONG_SECONDS = 900.0
"""Maximum seconds of a request. A busy machine may need minutes; the limit is long, because these tests measure no
time."""
MEMORY_RATIO_MAX = 12
"""Maximum of the peak memory, less the idle server's memory, in multiples of the file's size. The chat's state in the
worker, and a checkpoint of it in JSON and compressed, take most of this memory. The limit checks that the body is never
held whole."""

HEAVY_MESSAGES, HEAVY_TEXT_BYTES = 1_200, 250_000
HEAVY_RATIO_MAX = 5
"""The same limit for the heavy chat: its state, a second state for an export, and memory that the allocator does not
return."""


def heavy_lines(chat_id: str) -> Iterator[bytes]:
    """Yield the lines of a chat with 300 MB of random text in few messages."""
    chance = random.Random(1)
    head: JsonObject = {"type": "chat", "format": 1, "chat_id": chat_id, "leaf_id": f"m{HEAVY_MESSAGES - 1}"}
    counts = {"thread": {}, "message_count": HEAVY_MESSAGES, "payload_count": 0, "agent_count": 0}
    yield encode({**head, **counts}) + b"\n"
    for number in range(HEAVY_MESSAGES):
        text = base64.b64encode(chance.randbytes(HEAVY_TEXT_BYTES * 3 // 4)).decode()
        said = {"role": "assistant" if number % 2 else "user", "content": text, "message_id": f"m{number}"}
        parent = {"parent_id": f"m{number - 1}"} if number else {}
        yield encode({"type": "message", "message": {**said, "created_at": number + 1, **parent}}) + b"\n"


def lines(chat_id: str, count: int = MESSAGES) -> Iterator[bytes]:
    """Every hundredth message has a branch beside it."""
    head: JsonObject = {"type": "chat", "format": 1, "chat_id": chat_id, "leaf_id": f"m{count - 1}", "thread": {}}
    yield encode({**head, "message_count": count, "payload_count": 0, "agent_count": 0}) + b"\n"
    for number in range(count):
        role = "assistant" if number % 2 else "user"
        parent = None if number == 0 else f"m{number - (2 if number % 100 == 99 and number > 99 else 1)}"
        said = {"role": role, "content": f"{number}: {WORDS}", "message_id": f"m{number}", "created_at": number + 1}
        yield encode({"type": "message", "message": {**said, **({"parent_id": parent} if parent else {})}}) + b"\n"


def rss_of(pid: int) -> int:
    """Return the peak of the memory that the process holds."""
    status = Path(f"/proc/{pid}/status").read_text()
    (peak,) = [line for line in status.splitlines() if line.startswith("VmHWM")]
    return int(peak.split()[1]) * 1_024


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("large") / "chat.jsonl"
    with path.open("wb") as file:
        file.writelines(lines("large"))
    return path


async def test_a_chat_of_100_000_messages_comes_back_byte_for_byte_in_bounded_memory(
    tmp_path: Path, export: Path
) -> None:
    async with serving(tmp_path, "--data-dir", str(tmp_path / "data")) as process:
        idle = rss_of(process.pid)
        async with httpx2.AsyncClient(base_url=process.url, timeout=LONG_SECONDS) as client:
            with anyio.fail_after(LONG_SECONDS):
                await imported(client, export)
                ratio = (rss_of(process.pid) - idle) / export.stat().st_size
                print(f"peak memory above idle is {ratio:.1f} times the file of {export.stat().st_size} bytes")
                first = await exported(client, tmp_path / "first")
                await client.delete("/v1/chats/large")
                await imported(client, tmp_path / "first")
                assert await exported(client, tmp_path / "second") == first
                posted = await client.post(
                    "/v1/chats/large/commands", json=user_message("a", "still there?"), headers={"Prefer": "wait=30"}
                )
                assert posted.status_code == 200, "it goes on as any chat"
        assert ratio < MEMORY_RATIO_MAX
        assert await process.stop() == 0
    async with (
        serving(tmp_path, "--data-dir", str(tmp_path / "data")) as again,
        httpx2.AsyncClient(base_url=again.url, timeout=LONG_SECONDS) as client,
    ):
        (item,) = (await client.get("/v1/chats")).json()["items"]
        assert item["id"] == "large" and item["message_count"] > MESSAGES - MESSAGES // 50


async def test_300_mb_of_text_come_back_byte_for_byte_and_are_never_one_value_of_the_store(tmp_path: Path) -> None:
    path = tmp_path / "heavy.jsonl"
    with path.open("wb") as file:
        file.writelines(heavy_lines("large"))
    async with serving(tmp_path, "--data-dir", str(tmp_path / "data")) as process:
        idle = rss_of(process.pid)
        async with httpx2.AsyncClient(base_url=process.url, timeout=LONG_SECONDS) as client:
            with anyio.fail_after(LONG_SECONDS):
                await imported(client, path)
                first = await exported(client, tmp_path / "first")
                assert (tmp_path / "first").stat().st_size > HEAVY_MESSAGES * HEAVY_TEXT_BYTES
                other = await client.post(
                    "/v1/chats/other/commands", json=user_message("a", "hello"), headers={"Prefer": "wait=30"}
                )
                assert other.status_code == 200, "other chats go on"
                await client.delete("/v1/chats/large")
                await imported(client, tmp_path / "first")
                assert await exported(client, tmp_path / "second") == first
        ratio = (rss_of(process.pid) - idle) / path.stat().st_size
        print(f"peak memory above idle is {ratio:.1f} times the file of {path.stat().st_size} bytes")
        assert ratio < HEAVY_RATIO_MAX
        (socket,) = (tmp_path / "data").rglob("*.sock")
        with redis.Redis.from_url(f"unix://{socket}") as store:
            sizes = [int(store.strlen(key)) for key in store.scan_iter("*:snap")]
        assert sizes and max(sizes) < CHECKPOINT_MAX_BYTES
        assert await process.stop() == 0


async def imported(client: httpx2.AsyncClient, path: Path) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        with path.open("rb") as file:
            while chunk := file.read(1_048_576):
                yield chunk

    answer = await client.post("/v1/chats/import", content=chunks())
    assert answer.json() in ({**NOTHING, "imported": ["large"]}, {**NOTHING, "accepted": ["large"]})
    # The import stores the chat, and the list shows the chat only after the import's last part.
    while "large" not in [item["id"] for item in (await asked_until_answered(client, "/v1/chats"))["items"]]:
        await anyio.sleep(0.2)


async def asked_until_answered(client: httpx2.AsyncClient, path: str) -> JsonObject:
    """Return a JSON answer. Repeat a request that is answered 503: a slow disk may delay the store for seconds."""
    while (answer := await client.get(path)).status_code == 503:
        await anyio.sleep(0.5)
    body: JsonObject = answer.json()
    return body


async def exported(client: httpx2.AsyncClient, path: Path) -> int:
    """Write the export to `path`, and return its hash."""
    with path.open("wb") as file:
        async with client.stream("GET", "/v1/chats/large/export") as answer:
            if answer.status_code == 503:  # as above
                await anyio.sleep(0.5)
                return await exported(client, path)
            assert answer.status_code == 200
            async for chunk in answer.aiter_raw():
                file.write(chunk)
    return hash(path.read_bytes())


async def test_an_import_that_broke_off_with_the_server_goes_on_when_it_is_sent_again(
    tmp_path: Path, export: Path
) -> None:
    async with serving(tmp_path, "--data-dir", str(tmp_path / "data")) as process:
        timeout = httpx2.Timeout(LONG_SECONDS)
        async with (
            httpx2.AsyncClient(base_url=process.url, timeout=timeout) as client,
            anyio.create_task_group() as tasks,
        ):

            async def begin() -> None:
                with pytest.raises(httpx2.TransportError):
                    await imported(client, export)

            tasks.start_soon(begin)
            async with httpx2.AsyncClient(base_url=process.url) as watcher:
                with anyio.fail_after(LONG_SECONDS):
                    while (await watcher.get("/v1/chats/large")).status_code != 200:
                        await anyio.sleep(0.02)
            process.kill()
    async with (
        serving(tmp_path, "--data-dir", str(tmp_path / "data")) as again,
        httpx2.AsyncClient(base_url=again.url, timeout=LONG_SECONDS) as client,
    ):
        assert (await client.get("/v1/chats")).json()["items"] == [], "half a chat is in no list"
        with anyio.fail_after(LONG_SECONDS):
            await imported(client, export)
        assert [item["id"] for item in (await client.get("/v1/chats")).json()["items"]] == ["large"]
        lines_count = (await client.get("/v1/chats/large/export")).content.count(b"\n")
        assert lines_count == MESSAGES + 1
