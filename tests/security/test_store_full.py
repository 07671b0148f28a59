"""The private store has a memory limit, and reports clearly when it is full: nothing is discarded, lost or repeated."""

import os
import subprocess
import textwrap
from pathlib import Path

import httpx2
import pytest
import redis

from tests.resources.measures import eventually, metric, ready
from tests.support.reader import watching
from tests.support.server import DEADLINE_SECONDS, ROOT, Process, command, run_command, serving, user_message
from tests.support.store import running_store
from threadcast.base.machine_memory import machine_bytes
from threadcast.store.embedded.embedded import MEMORY_SHARE

pytestmark = pytest.mark.anyio

MIB = 1024 * 1024
ECHO = {"model": "demo/echo"}


async def fill(server: Process, client: httpx2.AsyncClient) -> tuple[int, httpx2.Response]:
    """Upload blobs until one is refused. Returns the number of accepted blobs, and the refusal."""
    for number in range(100):
        answer = await client.post(f"{server.url}/v1/chats/big{number}/blobs", content=os.urandom(4 * MIB))
        if answer.status_code != 201:
            return number, answer
    raise AssertionError("the store was never full")


@pytest.mark.row("SEC-5")
async def test_a_full_store_refuses_clearly_keeps_all_and_takes_more_after_a_deletion(tmp_path: Path) -> None:
    environment = {"THREADCAST_STORE__MEMORY_MAX_BYTES": str(32 * MIB)}
    async with (
        serving(tmp_path, is_durable=True, environment=environment) as server,
        httpx2.AsyncClient(timeout=DEADLINE_SECONDS) as client,
        watching(server.url, "kept") as watcher,
    ):
        await command(server.url, "kept", user_message("a", "first", params=ECHO))
        await watcher.at_rest()
        taken, refusal = await fill(server, client)
        assert 3 <= taken <= 8
        assert (refusal.status_code, refusal.json()["code"]) == (503, "store_full")
        assert "delete chats" in refusal.json()["detail"] and refusal.headers["retry-after"]

        for number in range(1_000):  # fills the remaining memory
            large = user_message(f"b{number}", f"{number} {'x' * 200_000}", params=ECHO)
            refused = await command(server.url, "kept", large)
            if refused.status_code != 202:
                break
        assert (refused.status_code, refused.json()["code"]) == (503, "store_full")
        other = redis.Redis(unix_socket_path=str(tmp_path / "data/store/store.sock"))
        other.config_set("maxmemory", 24 * MIB)  # a slightly lower limit, so that freed buffers do not end the shortage
        assert "memory is full" in await ready(server.url, 503)

        async def is_told() -> bool:
            return await metric(server.url, "store_used_share") > 0.9

        await eventually(is_told)
        async with watching(server.url, "kept") as late:
            assert late.messages[0] == ("user", "first"), "reading goes on"
        assert other.info("stats")["evicted_keys"] == 0
        other.config_set("maxmemory", 64 * MIB)
        other.close()
        await ready(server.url, 200)
        assert (await command(server.url, "kept", large)).status_code == 202
        await watcher.until(lambda w: len(w.messages) == 2 * (number + 2))
        assert (await command(server.url, "kept", large)).json()["status"] == "duplicate"
        sent = [text.partition(" ")[0] for role, text in watcher.messages if role == "user"]
        assert sent == ["first", *(str(each) for each in range(number + 1))], "all of them, each once"


async def test_the_private_store_and_the_compose_file_set_a_limit_and_discard_nothing(tmp_path: Path) -> None:
    half = int(machine_bytes() * MEMORY_SHARE)
    async with serving(tmp_path, is_durable=True):
        with redis.Redis(unix_socket_path=str(tmp_path / "data/store/store.sock")) as client:
            assert client.config_get("maxmemory")["maxmemory"] == str(half)
            assert client.config_get("maxmemory-policy")["maxmemory-policy"] == "noeviction"
    lines = (ROOT / "compose.yaml").read_text().partition("      - |\n")[2].partition("    volumes:\n")[0]
    programs = tmp_path / "bin"
    programs.mkdir()
    entry = programs / "docker-entrypoint.sh"  # takes the place of the image's entry point, which runs its arguments
    entry.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    entry.chmod(0o755)
    shell = ["sh", "-c", textwrap.dedent(lines).replace("$$", "$")]
    for given, wanted in (("", half), ("123456789", 123456789)):
        environment = {"PATH": f"{programs}:{os.environ['PATH']}", "STORE_MAX_BYTES": given}
        said = subprocess.run(shell, env=environment, capture_output=True, text=True, check=True).stdout.split("\n")
        assert said[0] == "valkey-server"
        assert said[said.index("--maxmemory-policy") + 1] == "noeviction"
        told = int(said[said.index("--maxmemory") + 1])
        assert wanted <= told if given == "" else told == wanted


def test_the_limit_of_a_container_counts_and_not_that_of_its_machine(tmp_path: Path) -> None:
    own = tmp_path / "cgroup"
    own.write_text("0::/a/b\n")
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/memory.max").write_text("300000000\n")
    (tmp_path / "a/b/memory.max").write_text("max\n")
    assert machine_bytes(tmp_path, own) == 300_000_000
    own.write_text("0::/../../x\n")  # the path on the host, which is not visible in a container
    (tmp_path / "memory.max").write_text("200000000\n")
    assert machine_bytes(tmp_path, own) == 200_000_000
    own.write_text("5:cpu:/\n4:memory:/c\n")
    (tmp_path / "memory/c").mkdir(parents=True)
    (tmp_path / "memory/c/memory.limit_in_bytes").write_text("100000000\n")
    assert machine_bytes(tmp_path, own) == 100_000_000
    assert machine_bytes(tmp_path / "none", tmp_path / "none") > 200_000_000


def test_doctor_names_a_store_that_may_discard_chats_or_has_no_limit(tmp_path: Path) -> None:
    with running_store(tmp_path / "store") as store:
        store.client.config_set("maxmemory-policy", "allkeys-lru")
        said = run_command("doctor", directory=tmp_path, store_url=store.url)
        assert "Set maxmemory-policy noeviction" in said and "Set maxmemory to half of the machine's memory" in said
