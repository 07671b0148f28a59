"""`threadcast doctor`: its findings on a fresh machine, beside a running server, and on a machine with a fault."""

import socket
from contextlib import closing
from pathlib import Path

import anyio
import pytest

from tests.ports import free_port
from tests.unit.scripted_chat import ScriptedChat, served
from tests.unit.test_cli import empty_environment  # noqa: F401 # an autouse fixture
from threadcast.cli import main
from threadcast.console.doctor import Finding, examine, local_url
from threadcast.settings.sources import load_settings


def findings(environ: dict[str, str]) -> dict[str, Finding]:
    return {found.what: found for found in anyio.run(examine, load_settings(environ)) if found.what}


def test_doctor_finds_a_fresh_machine_in_order() -> None:
    found = findings({"THREADCAST_SERVER__PORT": str(free_port())})
    assert [(finding.what, finding.verdict) for finding in found.values()] == [
        ("configuration", "ok"),
        ("python", "ok"),
        ("server", "ok"),
        ("store", "ok"),
        ("assistants", "ok"),
        ("models", "note"),
    ]
    assert "demo models answer" in found["models"].text
    assert "is free" in found["server"].text


def test_doctor_asks_a_server_that_runs() -> None:
    with served(ScriptedChat(lambda command: []).app) as url:
        found = findings({"THREADCAST_SERVER__PORT": url.rpartition(":")[2]})
        assert (found["server"].verdict, found["store"].verdict) == ("ok", "ok")
        assert "a threadcast server answers" in found["server"].text
    with served(ScriptedChat(lambda command: [], ready_status=503).app) as url:
        found = findings({"THREADCAST_SERVER__PORT": url.rpartition(":")[2]})
        assert found["store"].verdict == "fail"
        assert found["store"].text.startswith("the server is not ready: the store: is loading. Start it there, or")


def test_doctor_asks_the_store_that_is_configured_also_where_a_server_answers() -> None:
    with served(ScriptedChat(lambda command: []).app) as url:
        store = f"redis://127.0.0.1:{free_port()}/0"
        loaded = load_settings({"THREADCAST_SERVER__PORT": url.rpartition(":")[2], "REDIS_URL": store})
        of_store = [found.verdict for found in anyio.run(examine, loaded) if found.what == "store"]
    assert of_store == ["ok", "fail"], "the server's own, and the one that the settings name"


def test_doctor_asks_the_server_that_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with served(ScriptedChat(lambda command: []).app) as url:
        assert main(["doctor", "--url", url]) == 0
        assert f"a threadcast server answers at {url}" in capsys.readouterr().out
    assert main(["doctor", "--url", url, "--data-dir", "elsewhere"]) == 1
    said = capsys.readouterr().out
    assert f"no threadcast server answers at {url}; start it there, or correct --url" in said
    assert "a private store in elsewhere" in said


def test_doctor_names_what_is_wrong(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    Path("threadcast.toml").write_text(
        "[models.providers.keyless]\napi_key_env = 'NOT_SET'\n"
        f"[models.providers.gone]\nbase_url = 'http://127.0.0.1:{free_port()}/v1'\n"
    )
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        other.settimeout(0)
        monkeypatch.setattr("threadcast.console.doctor.TIMEOUT_SECONDS", 0.2)  # the other program never answers
        monkeypatch.setenv("THREADCAST_SERVER__PORT", str(other.getsockname()[1]))
        gone = free_port()
        monkeypatch.setenv("REDIS_URL", f"redis://:hunter2@127.0.0.1:{gone}/0")
        assert main(["doctor"]) == 1
    said = capsys.readouterr().out.splitlines()
    failed = [line.split()[1:3] for line in said if line.startswith("fail")]
    assert failed == [["server", "port"], ["store", "store.url:"], ["model", "keyless"], ["model", "gone"]]
    assert any(f"store.url = redis://:***@127.0.0.1:{gone}/0  (environment REDIS_URL)" in line for line in said)
    assert "hunter2" not in "".join(said)
    assert any(
        "Start it there, or correct REDIS_URL" in line and "no accepted command is lost" in line for line in said
    )


def test_the_local_address_of_a_server_that_listens_everywhere_is_loopback() -> None:
    tokens = f'[{{"id": "a", "sha256": "{"0" * 64}"}}]'
    environ = {"THREADCAST_AUTH__TOKENS": tokens, "THREADCAST_SERVER__HOST": "0.0.0.0"}
    assert local_url(load_settings(environ).settings) == "http://127.0.0.1:8000"
    assert local_url(load_settings({"THREADCAST_SERVER__HOST": "::1"}).settings) == "http://[::1]:8000"
