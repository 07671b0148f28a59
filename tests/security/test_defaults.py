"""The defaults of a server: metrics, demo tools, and the file mode of its configuration."""

import os
import socket
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from tests.ports import free_port
from tests.support.reader import watching
from tests.support.server import Process, command, run_command, start, started_server, user_message
from tests.support.store import running_store
from tests.support.tokens import bearer, tokens

pytestmark = pytest.mark.anyio

MAY_APPROVE = 'permissions = ["approve"]'


@asynccontextmanager
async def serving(directory: Path, config: str) -> AsyncIterator[tuple[Process, httpx2.AsyncClient]]:
    with started_server(directory, "--data-dir", str(directory / "data"), config=config) as server:
        await server.ready()
        async with httpx2.AsyncClient(base_url=server.url, timeout=30) as client:
            yield server, client


async def test_with_tokens_the_metrics_need_a_permission(tmp_path: Path) -> None:
    config = tokens(ann=MAY_APPROVE, prometheus='permissions = ["metrics"]')
    async with serving(tmp_path, config) as (_, client):
        assert (await client.get("/metrics")).status_code == 401
        refused = await client.get("/metrics", headers=bearer("ann"))
        assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
        assert "the permission `metrics`" in refused.json()["detail"]
        assert "threadcast_" not in refused.text
        assert "threadcast_commands" in (await client.get("/metrics", headers=bearer("prometheus"))).text
        for path in ("/livez", "/readyz"):
            assert (await client.get(path)).status_code == 200


async def test_without_tokens_the_owner_of_the_machine_reads_the_metrics(tmp_path: Path) -> None:
    async with serving(tmp_path, "") as (_, client):
        assert "threadcast_commands" in (await client.get("/metrics")).text


def _answers(address: str, port: int) -> bool:
    """Return whether a process listens at the address. On Linux every address of 127.0.0.0/8 belongs to this machine,
    and a server that listens at one of these addresses does not answer at the others."""
    with socket.socket() as probe:
        probe.settimeout(5)
        return probe.connect_ex((address, port)) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have one loopback address only")
@pytest.mark.parametrize(("lines", "is_open"), [("", False), ('metrics_host = "0.0.0.0"\n', True)])
async def test_the_port_of_metrics_listens_on_loopback_unless_told_otherwise(
    tmp_path: Path, lines: str, is_open: bool
) -> None:
    port = free_port()
    config = tmp_path / "threadcast.toml"
    config.write_text(f'[server]\nhost = "0.0.0.0"\nmetrics_port = {port}\n{lines}' + tokens(ann=MAY_APPROVE))
    with running_store(tmp_path) as store:
        environment = {"REDIS_URL": store.url}
        with start("worker", "--config", str(config), log=tmp_path / "log", environment=environment) as worker:
            await worker.ready()
            assert _answers("127.0.0.1", port)
            assert _answers("127.0.0.2", port) is is_open


async def call(server: Process, who: str, chat_id: str, line: str) -> str:
    """Let the demo model call a tool in a chat, and return the tool's result."""
    async with watching(server.url, chat_id, headers=bearer(who)) as watcher:
        body = user_message("r", f"call {line}", params={"model": "demo/tools"})
        assert (await command(server.url, chat_id, body, bearer(who))).status_code == 202
        await watcher.until(lambda w: w.runs_ended or any(frame["type"] == "pause_required" for frame in w.frames))
        asked = [frame for frame in watcher.frames if frame["type"] == "pause_required"]
        if asked:
            (reason,) = asked[0]["reasons"]
            decision = {
                "type": "tool_decision",
                "client_request_id": "d",
                "tool_call_id": reason["tool_call_id"],
                "accepted": True,
                "input_hash": reason["input_hash"],
            }
            assert (await command(server.url, chat_id, decision, bearer(who))).status_code == 202
            await watcher.at_rest()
        return next((text for role, text in reversed(watcher.messages) if role == "tool"), "")


async def test_with_tokens_demo_tools_are_offered_only_if_they_are_named(tmp_path: Path) -> None:
    callers = tokens(ann=MAY_APPROVE)
    for number, (config, offered) in enumerate(
        [
            (callers, set()),
            (f"[models]\ndemo = true\n{callers}", set()),
            (f"[tools.clock]\n{callers}", {"clock"}),
            (f'[profiles.agent]\ntools = ["calculator"]\n{callers}', {"calculator"}),
            ("", {"clock", "calculator", "countdown", "write_note"}),
        ]
    ):
        directory = tmp_path / str(number)
        directory.mkdir()
        async with serving(directory, config) as (server, client):
            found = (await client.get("/v1/tools", headers=bearer("ann") if "auth" in config else {})).json()
            demo = {tool["name"] for tool in found} & {"clock", "calculator", "countdown", "write_note"}
            assert demo == offered, config
            if number == 0:  # a tool that is not offered does not run, even if a model calls it
                await call(server, "ann", "c1", 'write_note {"name": "a", "text": "x"}')
                assert not (directory / "data" / "files" / "notes").exists()


async def test_notes_are_written_below_a_folder_of_the_caller(tmp_path: Path) -> None:
    config = "[tools.write_note]\n" + tokens(ann=MAY_APPROVE, Ann=MAY_APPROVE)
    async with serving(tmp_path, config) as (server, _):
        for who, name in (("ann", "plan"), ("Ann", "plan"), ("Ann", "../ann/plan"), ("ann", "../../plan")):
            said = await call(server, who, f"{who}-{len(name)}", f'write_note {{"name": "{name}", "text": "of {who}"}}')
            assert ("leads out of the notebook" in said) is (".." in name), said
    notes = tmp_path / "data" / "files" / "notes"
    written = {str(path.relative_to(notes)): path.read_text() for path in notes.rglob("*") if path.is_file()}
    assert written == {"ann/plan": "of ann", "%41.nn/plan": "of Ann"}
    assert not (tmp_path / "data" / "plan").exists()


SECRET = "[models.providers.acme]\nkind = 'openai_chat'\nbase_url = 'http://127.0.0.1:9/v1'\napi_key = 'sk-hush'\n"
PASSWORD = "[store]\nurl = 'redis://me:hush@127.0.0.1:9/0'\n"


@pytest.mark.parametrize(
    ("config", "mode", "named"),
    [
        (SECRET, 0o644, "models.providers.acme.api_key"),
        (SECRET, 0o604, "models.providers.acme.api_key"),
        (SECRET, 0o600, ""),
        (SECRET, 0o640, ""),
        (PASSWORD, 0o644, "store.url"),
        ("[store]\nurl = 'redis://127.0.0.1:9/0'\n" + tokens(ann=MAY_APPROVE), 0o644, ""),
        ("", 0o646, "can change it"),
    ],
)
def test_a_configuration_with_secrets_that_others_can_read_is_named(
    tmp_path: Path, config: str, mode: int, named: str
) -> None:
    file = tmp_path / "threadcast.toml"
    file.write_text(config)
    file.chmod(mode)
    told = run_command("doctor", "--config", str(file), directory=tmp_path, store_url="")
    assert "hush" not in told
    assert ("chmod" in told) is bool(named)
    assert named in told
    if named:
        assert f"{mode:04o}" in told


async def test_the_start_names_it_too(tmp_path: Path) -> None:
    file = tmp_path / "threadcast.toml"
    file.write_text(SECRET)
    file.chmod(0o644)
    with start("serve", "--memory", "--port", "0", "--config", str(file), log=tmp_path / "log") as server:
        await server.ready()
        assert f"chmod 640 {file}" in server.log_text()
        assert "hush" not in server.log_text()


def test_a_new_configuration_can_be_read_by_its_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        run_command("init", str(tmp_path / "new"), directory=tmp_path, store_url="")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new" / "threadcast.toml").stat().st_mode) == 0o600
