"""Providers from settings: each kind has its adapter, and a sentence reports a missing optional package."""

from pathlib import Path

import anyio
import anyio.abc
import pytest

from threadcast.console.doctor_services import model_finding, tool_findings
from threadcast.providers import extras
from threadcast.providers.anthropic.messages import Anthropic
from threadcast.providers.google.gemini import Google
from threadcast.providers.openai.chat import OpenAIChat
from threadcast.settings import Model, Models, Provider, Secret, Settings, Tool
from threadcast.settings.sources import load_settings
from threadcast.wiring.components import build_components
from threadcast.wiring.providers import providers_of

KINDS = Models(
    providers={
        "o": Provider(),
        "a": Provider(kind="anthropic", prefill="trailing", models=[Model("m", max_output_tokens=64_000)]),
        "g": Provider(kind="google"),
    }
)


def test_each_kind_has_its_adapter() -> None:
    found = providers_of(KINDS)
    made = [found.resolve(f"{name}/m")[0] for name in "oag"]
    assert [type(provider) for provider in made] == [OpenAIChat, Anthropic, Google]
    assert [provider.prefills("m") for provider in made] == [False, True, False]
    assert found.model_infos()["a/m"].max_output_tokens == 64_000


@pytest.mark.parametrize("kind", ["anthropic", "google"])
def test_kind_whose_extra_is_missing_says_what_to_install(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda module: None)
    with pytest.raises(ValueError, match=rf"models\.providers\.x: .*pip install 'threadcast\[{kind}\]'"):
        providers_of(Models(providers={"x": Provider(kind=kind)}))  # type: ignore[arg-type]  # one of its literals


def test_extra_is_missing_with_all_that_stands_above_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert extras.missing_extra("google") is None
    monkeypatch.setitem(extras._MODULES, "google", ["nobody_has_this.below"])
    assert extras.missing_extra("google") == "pip install 'threadcast[google]'"


def test_claude_on_vertex_needs_googles_sign_in_too(monkeypatch: pytest.MonkeyPatch) -> None:
    assert extras.missing_extra("anthropic", on_vertex=True) is None
    monkeypatch.setitem(extras._MODULES, "anthropic-vertex", ["anthropic", "nobody_has_this.auth"])
    assert extras.missing_extra("anthropic") is None
    with pytest.raises(ValueError, match=r"'anthropic' on Vertex AI needs .*'threadcast\[anthropic-vertex\]'"):
        providers_of(Models(providers={"x": Provider(kind="anthropic", vertex_project="mine")}))


def test_vertex_project_of_another_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="vertex_project: only providers of the kinds"):
        Provider(kind="openai_chat", vertex_project="mine")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('[models]\ndefault = "demo/nope"', r"models\.default = 'demo/nope': There is no model .*known: demo/echo"),
        ('[models]\ndefault = "demo/essay?speed=1"', "demo/essay has no option speed=1"),
        (
            '[models]\nfallback = ["demo/echo", "played/b"]',
            r"models\.fallback = 'played/b': The script has no .*known: a",
        ),
        ('[profiles.p]\nmodel = "nobody/x"', r"profiles\.p\.model = 'nobody/x': There is no model provider 'nobody'"),
    ],
)
def test_a_named_model_that_nobody_serves_stops_the_start(text: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "scenes.toml").write_text('models = ["a"]\nscene = []\n')
    file = tmp_path / "threadcast.toml"
    file.write_text(f'{text}\n[models.providers.played]\nkind = "script"\nfile = "scenes.toml"\n')
    with pytest.raises(ValueError, match=sentence):
        build_components(load_settings({}, file=str(file)).settings)


def test_a_model_that_is_not_listed_goes_to_its_server(tmp_path: Path) -> None:
    file = tmp_path / "threadcast.toml"
    file.write_text('[models]\ndefault = "here/new"\n[models.providers.here]\nbase_url = "http://127.0.0.1:9/v1"\n')
    assert build_components(load_settings({}, file=str(file)).settings).providers.names == ["here"]


def test_doctor_reads_a_script_and_asks_it_for_no_key(tmp_path: Path) -> None:
    scenes = tmp_path / "scenes.toml"
    provider = Provider(kind="script", file=str(scenes))
    for text, verdict, said in [
        (None, "fail", "No such file"),
        ("[[scene]]\nwen = 1\n", "fail", "unknown field `wen` (at /scene/0)"),
        ("scene = []\n", "ok", f"plays {scenes}"),
    ]:
        if text is not None:
            scenes.write_text(text)
        found = anyio.run(model_finding, "x", provider, 2.0)
        assert (found.verdict, said in found.text) == (verdict, True), found


def test_doctor_says_what_a_native_provider_lacks() -> None:
    cases = [
        (Provider(kind="anthropic"), "fail", "the key is missing"),
        (Provider(kind="google", vertex_project="mine"), "note", "Vertex AI of mine in global"),
        (Provider(kind="anthropic", vertex_project="mine"), "note", "Vertex AI of mine in global"),
        (Provider(kind="anthropic", base_url="http://127.0.0.1:9", api_key=Secret("k")), "fail", "/v1/models does not"),
    ]
    for provider, verdict, text in cases:
        found = anyio.run(model_finding, "x", provider, 2.0)
        assert (found.verdict, text in found.text) == (verdict, True), found


@pytest.mark.anyio
async def test_doctor_looks_once_for_each_origin_of_http_tools() -> None:
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        here = f"http://127.0.0.1:{port}"
        tools = {
            "articles": Tool(url=f"{here}/articles/{{id}}", description="x"),
            "nobody": Tool(url="http://127.0.0.1:9/x", description="x"),
            "notes": Tool(url=f"{here}/notes", description="x"),
            "off": Tool(url="http://127.0.0.1:9/off", description="x", enabled=False),
        }
        found = await tool_findings(Settings(models=Models(default="demo/echo"), tools=tools), 2.0)
    assert [(each.verdict, each.what) for each in found] == [("ok", "http tools"), ("fail", "http tools")]
    assert found[0].text == f"articles, notes: 127.0.0.1:{port} accepts connections"
    assert found[1].text.startswith("nobody: nothing accepts connections at 127.0.0.1:9")
