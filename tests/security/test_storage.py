"""Attempts of one caller to fill the store with files, messages, imports and copies, and the memory and disk of a
process with bodies. Each test attacks a real server over a socket, while another caller's requests are still answered.
"""

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import httpx2
import pytest
import redis

from tests.resources.measures import eventually, rss_bytes
from tests.support.reader import Watcher, watching
from tests.support.server import DEADLINE_SECONDS, Process, command, serving, user_message
from tests.support.tokens import bearer, tokens
from threadcast_protocol.fold.snapshot import snapshot_of

pytestmark = pytest.mark.anyio

MIB = 1024 * 1024
ECHO = {"model": "demo/echo"}
ANN, BOB = bearer("ann"), bearer("bob")


@asynccontextmanager
async def bounded(directory: Path, **limits: int) -> AsyncIterator[tuple[Process, httpx2.AsyncClient]]:
    """A server with the callers ann and bob and these limits, and a client of it."""
    config = (
        tokens(ann='permissions = ["metrics"]', bob="")
        + "\n[limits]\n"
        + "".join(f"{name} = {value}\n" for name, value in limits.items())
    )
    async with (
        serving(directory, config=config) as server,
        httpx2.AsyncClient(timeout=DEADLINE_SECONDS, base_url=server.url) as client,
    ):
        yield server, client


async def upload(
    client: httpx2.AsyncClient, chat_id: str, data: bytes, who: dict[str, str] = ANN
) -> tuple[int, dict[str, str]]:
    answer = await client.post(f"/v1/chats/{chat_id}/blobs", content=data, headers=who)
    return answer.status_code, answer.json()


async def say(server: Process, chat_id: str, request_id: str, text: str, who: dict[str, str] = ANN) -> httpx2.Response:
    return await command(server.url, chat_id, user_message(request_id, text, params=ECHO), who)


async def talk(server: Process, chat_id: str, who: dict[str, str], count: int) -> tuple[Watcher, httpx2.Response]:
    """Send up to `count` long messages, one after the other, until one is refused. Returns the watcher of the chat, and
    the last answer."""
    async with watching(server.url, chat_id, headers=who) as watcher:
        for number in range(count):
            answer = await say(server, chat_id, f"m{number}", f"{number} {os.urandom(60_000).hex()}", who)
            if answer.status_code != 202:
                break
            await watcher.at_rest(number + 1)
    return watcher, answer


@pytest.mark.row("SEC-5")
async def test_files_for_invented_chats_count_for_their_uploader_and_no_one_else(tmp_path: Path) -> None:
    async with bounded(tmp_path, storage_per_principal_bytes=20 * MIB) as (server, client):
        answers = [await upload(client, f"invented{number}", os.urandom(3 * MIB)) for number in range(30)]
        assert [status for status, _ in answers].count(201) == 6
        refused = answers[-1]
        assert (refused[0], refused[1]["code"]) == (413, "storage_full")
        assert "20.9" in refused[1]["detail"] or "21.0" in refused[1]["detail"], "it says how much may be stored"
        assert "delete chats" in refused[1]["detail"]
        counts = (await client.get("/metrics", headers=ANN)).text
        assert "threadcast_storage_refused_total 24.0" in counts
        message = await say(server, "c1", "a", "hello " * 400_000)
        assert message.status_code == 413
        assert (await say(server, "c1", "b", "x" * 200_000)).status_code == 202, "a message still fits"
        assert (await upload(client, "bobs", os.urandom(3 * MIB), BOB))[0] == 201


async def test_many_files_at_the_same_moment_exceed_the_bound_by_no_more_than_the_bodies_in_flight(
    tmp_path: Path,
) -> None:
    limits = {"storage_per_principal_bytes": 20 * MIB, "bodies_per_principal_bytes": 8 * MIB}
    async with bounded(tmp_path, **limits) as (_, client):
        statuses: list[int] = []

        async def attack(number: int) -> None:
            statuses.append((await upload(client, f"invented{number}", os.urandom(2 * MIB)))[0])

        for _ in range(3):
            async with anyio.create_task_group() as tasks:
                for number in range(20):
                    tasks.start_soon(attack, len(statuses) + number)
        assert set(statuses) <= {201, 413, 429}
        assert statuses.count(201) * 2 <= 20 + 8
        assert (await upload(client, "bobs", os.urandom(2 * MIB), BOB))[0] == 201


async def test_who_deletes_gets_room_again_and_reading_and_ending_always_work(tmp_path: Path) -> None:
    async with bounded(tmp_path, storage_per_principal_bytes=4 * MIB) as (server, client):
        async with watching(server.url, "c1", headers=ANN) as watcher:
            assert (await say(server, "c1", "a", "hello")).status_code == 202
            await watcher.at_rest()
        _, answer = await talk(server, "big", ANN, 40)
        assert (answer.status_code, answer.json().get("code")) == (413, "storage_full")
        again = await say(server, "c1", "a", "hello")
        assert again.json()["status"] == "duplicate", "the sender of an accepted command is not told of a refusal"
        assert (await client.get("/v1/chats", headers=ANN)).json()["items"]
        assert (await command(server.url, "big", {"type": "abort", "client_request_id": "x"}, ANN)).status_code == 200
        assert (await client.delete("/v1/chats/big", headers=ANN)).status_code in (200, 204)
        assert (await say(server, "c1", "b", "hello again")).status_code == 202


async def test_copies_of_a_chat_count_before_they_are_made(tmp_path: Path) -> None:
    async with bounded(tmp_path, storage_per_principal_bytes=8 * MIB) as (server, _):
        watcher, _ = await talk(server, "source", ANN, 3)
        assert watcher.state is not None
        last = snapshot_of(watcher.state).messages[-1].message_id
        statuses = []
        for number in range(20):
            names = {"source_chat_id": "source", "up_to_message_id": last}
            branch = {"type": "branch_from_chat", "client_request_id": f"b{number}", **names}
            statuses.append((await command(server.url, f"copy{number}", branch, ANN)).status_code)
        assert statuses[0] == 202 and statuses[-1] == 413
        assert 1 <= statuses.count(202) <= 6


async def test_the_number_of_chats_is_bounded_and_chats_that_exist_go_on(tmp_path: Path) -> None:
    async with bounded(tmp_path, chats_per_principal=5) as (server, client):
        statuses = [(await say(server, f"c{number}", "a", "hello")).status_code for number in range(8)]
        assert statuses == [202] * 5 + [413] * 3
        refused = await say(server, "c9", "a", "hello")
        assert refused.json()["code"] == "storage_full" and "5 chats" in refused.json()["detail"]
        assert (await say(server, "c0", "b", "hello")).status_code == 202
        patch = {"type": "set_params", "client_request_id": "p", "patch": {"title": "x"}}
        assert (await command(server.url, "empty", patch, ANN)).status_code == 413, "empty chats count, too"
        assert (await say(server, "bobs", "a", "hello", BOB)).status_code == 202
        assert (await client.delete("/v1/chats/c1", headers=ANN)).status_code in (200, 204)
        assert (await say(server, "c8", "a", "hello")).status_code == 202


async def test_an_import_counts_before_it_is_stored(tmp_path: Path) -> None:
    async with bounded(tmp_path, storage_per_principal_bytes=MIB) as (server, client):
        await talk(server, "c1", BOB, 2)
        export = (await client.get("/v1/chats/c1/export", headers=BOB)).content
        assert (await client.delete("/v1/chats/c1", headers=BOB)).status_code in (200, 204)
        bodies = [export.replace(b'"c1"', b'"i%d"' % number, 1) for number in range(3)]
        answer = await client.post("/v1/chats/import", content=b"".join(bodies), headers=ANN)
        codes = [failed["code"] for failed in answer.json()["failed"]]
        assert codes and set(codes) == {"storage_full"}, answer.text


@asynccontextmanager
async def stalled(server: Process, path: str, announced: int, sent: int, who: dict[str, str]) -> AsyncIterator[None]:
    """Send a request whose body stops after `sent` bytes, and keep the request open while the block runs."""
    port = urlsplit(server.url).port
    assert port is not None
    head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: {who['Authorization']}\r\n"
    async with await anyio.connect_tcp("127.0.0.1", port) as stream:
        await stream.send(f"{head}content-length: {announced}\r\n\r\n".encode())
        piece = b" " * 65_536
        with anyio.move_on_after(DEADLINE_SECONDS):
            for _ in range(sent // len(piece)):
                try:
                    await stream.send(piece)
                except anyio.BrokenResourceError:
                    break
        yield


@pytest.mark.parametrize("path", ["/v1/chats/import", "/v1/chats/c1/commands", "/v1/chats/c1/blobs"])
async def test_stalled_bodies_hold_a_bounded_number_of_bytes(tmp_path: Path, path: str) -> None:
    limits = {"import_max_bytes": 64 * MIB}
    async with bounded(tmp_path, **limits) as (server, client):
        before = rss_bytes(server.pid)
        size = 30 * MIB if path.endswith("import") else 15 * MIB
        async with AsyncExitStack() as stack:
            for _ in range(8):
                await stack.enter_async_context(stalled(server, path, size + 1_000, size, ANN))
            growth = rss_bytes(server.pid) - before
            assert growth < 50 * MIB, growth
            assert (await client.get("/livez")).status_code == 200
            refused = await client.post(path, content=b"x" * (8 * MIB), headers=ANN)
            assert (refused.status_code, refused.json()["code"]) == (429, "rate_limited"), refused.text
            assert refused.headers["retry-after"]
            assert (await upload(client, "bobs", b"bytes", BOB))[0] == 201
        assert (await say(server, "c2", "a", "hello")).status_code == 202


async def test_a_body_has_its_room_from_its_beginning_and_keeps_others_of_its_caller_out_but_nobody_else(
    tmp_path: Path,
) -> None:
    async with bounded(tmp_path, bodies_per_principal_bytes=3 * MIB, bodies_max_bytes=3 * MIB) as (server, client):
        async with stalled(server, "/v1/chats/c1/blobs", 2 * MIB, 65_536, ANN):
            await eventually(lambda: _bytes_in_flight(client, 65_536))
            status, body = await upload(client, "c2", os.urandom(2 * MIB))
            assert (status, body["code"]) == (429, "rate_limited"), body
            assert (await upload(client, "bobs", os.urandom(2 * MIB), BOB))[0] == 201
        await eventually(lambda: _bytes_in_flight(client, 0))
        assert (await upload(client, "c2", os.urandom(2 * MIB)))[0] == 201


async def _bytes_in_flight(client: httpx2.AsyncClient, expected: int) -> bool:
    counts = (await client.get("/metrics", headers=ANN)).text
    return float(counts.partition("\nthreadcast_body_bytes_inflight ")[2].partition("\n")[0]) == expected


async def test_the_bodies_of_all_callers_together_are_bounded_and_given_back(tmp_path: Path) -> None:
    async with bounded(tmp_path, bodies_max_bytes=4 * MIB, bodies_per_principal_bytes=3 * MIB) as (server, client):
        async with (
            stalled(server, "/v1/chats/c1/blobs", 3 * MIB, 2 * MIB, ANN),
            stalled(server, "/v1/chats/c1/blobs", 2 * MIB, 2 * MIB - 65_536, BOB),
        ):
            await eventually(lambda: _bytes_in_flight(client, 4 * MIB - 65_536))
            status, body = await upload(client, "c3", os.urandom(MIB), BOB)
            assert (status, body["code"]) == (503, "unavailable"), body
        for _ in range(10):
            assert (await upload(client, "c3", os.urandom(2 * MIB), BOB))[0] == 201


async def test_an_account_repairs_itself_after_files_have_expired(tmp_path: Path) -> None:
    config = tokens(ann="") + f"\n[limits]\nstorage_per_principal_bytes = {10 * MIB}\n"
    async with (
        serving(tmp_path, is_durable=True, config=config) as server,
        httpx2.AsyncClient(timeout=DEADLINE_SECONDS, base_url=server.url) as client,
    ):
        for number in range(3):
            assert (await upload(client, f"invented{number}", os.urandom(3 * MIB)))[0] == 201
        with redis.Redis(unix_socket_path=str(tmp_path / "data/store/store.sock")) as store:
            for key in store.scan_iter("*:blobs*"):
                assert 0 < store.ttl(key) <= 24 * 3_600, "a file that no chat uses expires after a day"
                store.pexpire(key, 1)
            while list(store.scan_iter("*:blobs*")):
                await anyio.sleep(0.01)
        assert (await upload(client, "c1", os.urandom(3 * MIB)))[0] == 201
