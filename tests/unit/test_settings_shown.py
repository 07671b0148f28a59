"""The doctor's output and refusals show the addresses in settings, but no secrets."""

import re
from pathlib import Path

import anyio
import pytest

from threadcast.console.doctor import Finding, doctor
from threadcast.console.doctor_services import model_finding
from threadcast.settings import Provider
from threadcast.settings.shown import masked
from threadcast.settings.sources import BadSettings, load_settings

TEXT = """
[server]
port = 1
cors_origins = ["https://app.example"]
[models.providers.a]
base_url = "http://ann:hunter2@127.0.0.1:9/v1"
[models.providers.b]
base_url = "http://hunter2:@127.0.0.1:9/v1"
models = [{ name = "https://hunter2@hooks.example/x" }]
[mcp.files]
command = "no-such-program"
args = ["--url=https://ann:hunter2@files.example/x?token=hunter2", "see https://hunter2@files.example."]
"""
MCP = '{"url": "http://ann:hunter2@127.0.0.1:9/x?token=hunter2", "args": []}'


def test_the_doctor_shows_where_urls_lead_and_no_secret_in_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "threadcast.toml"
    file.write_text(TEXT, "utf-8")
    doctor({"THREADCAST_MCP__DOCS": MCP}, str(file), data_dir=str(tmp_path / "none"))
    said = capsys.readouterr().out
    assert "hunter2" not in said
    for line in [
        "models.providers.a.base_url = http://ann:***@127.0.0.1:9/v1  (",
        "models.providers.b.base_url = http://***@127.0.0.1:9/v1  (",
        "[Model(name='https://***@hooks.example/x', context_tokens=128000",
        "['--url=https://ann:***@files.example/x?token=***', 'see https://***@files.example.']",
        "url='http://ann:***@127.0.0.1:9/x?token=***'",
        "server.cors_origins = ['https://app.example']",
    ]:
        assert line in said


def test_a_model_whose_server_is_away_is_named_without_its_password() -> None:
    provider = Provider(base_url="http://ann:hunter 2@127.0.0.1:9/v1")
    found = anyio.run(model_finding, "x", provider, 2.0)
    assert found.verdict == "fail" and "http://ann:***@127.0.0.1:9/v1" in found.text and "hunter" not in found.text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("nobody answers at http://127.0.0.1:8000; start it", "nobody answers at http://127.0.0.1:8000; start it"),
        ("(http://[::1]:8000/v1).", "(http://[::1]:8000/v1)."),
        ("http://ann:my hunter2@host/v1", "http://ann:***@host/v1"),
        ("no URL: a/b, c@d", "no URL: a/b, c@d"),
    ],
)
def test_urls_in_sentences_are_masked_and_the_rest_stays(text: str, shown: str) -> None:
    assert masked(text) == shown
    assert str(Finding("ok", "x", shown)).endswith(shown), "what is masked stays as it is"


@pytest.mark.parametrize(
    ("text", "environ", "said"),
    [
        ("[models.providers.a]\napi_key_env = 'sk-hunter2'", {}, r"a: api_key_env: .* such as OPENAI_API_KEY"),
        ("[models.providers.a]\napi_key_env = 'sk-hunter2'\napi_key = 'k'", {}, "a: api_key_env: "),
        ("[models.providers.a]\nbase_url = 'ann:hunter2@host'", {}, r"a: base_url: .*https://host"),
        ("[models.providers.a]\nbase_url = 'http://ann:hunter2/v1'", {}, "a: base_url: "),
        ("[models.providers.a]\nbase_url = 'http://[hunter2]/v1'", {}, "a: base_url: "),
        ("[models.providers.a]\nbase_url = 'http://host/v1?key=hunter2'", {}, "a: base_url: .*no query"),
        ("[models.providers.a]\nkind = 'hunter2'", {}, r"a\.kind must be one of openai_chat, "),
        ("[mcp.a]\nurl = 'ftp://ann:hunter2@host'", {}, r"mcp\.a: url: "),
        ("[tools.a]\ndescription = 'x'\nurl = 'https://ann:hunter2@host'", {}, "credentials belong in headers"),
        ("[tools.a]\ndescription = 'x'\nurl = 'https://host?key=hunter2#x'", {}, "it has a fragment"),
        ("[server]\ncors_origins = ['https://ann:hunter2@host/']", {}, r"'https://ann:\*\*\*@host/' is not an origin"),
        ("", {"THREADCAST_SERVER__PORT": "hunter2"}, "the value is not a valid int"),
        ("", {"THREADCAST_MCP__A__POLICY": "hunter2"}, "must be one of auto, ask, deny"),
    ],
)
def test_a_refusal_says_what_is_allowed_and_not_what_was_written(
    text: str, environ: dict[str, str], said: str, tmp_path: Path
) -> None:
    file = tmp_path / "threadcast.toml"
    file.write_text(text, "utf-8")
    with pytest.raises(BadSettings) as caught:
        load_settings(environ, file=str(file))
    assert re.search(said, str(caught.value))
    assert "hunter2" not in str(caught.value)
