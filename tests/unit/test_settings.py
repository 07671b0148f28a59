"""Settings: working defaults, three sources in order, and errors that name the setting."""

from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from threadcast.providers.base import UNNAMED_MODEL
from threadcast.settings import (
    Model,
    Profile,
    Provider,
    Secret,
    Settings,
    Store,
    Tool,
)
from threadcast.settings.sources import BadSettings, Loaded, load_settings
from threadcast_protocol.wire.loopback import is_loopback


@pytest.fixture(autouse=True)
def _empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def load(text: str = "", environ: Mapping[str, str] | None = None, **flags: object) -> Loaded:
    Path("threadcast.toml").write_text(text, "utf-8")
    return load_settings(environ or {}, {name.replace("__", "."): value for name, value in flags.items()})


def refusal(text: str = "", environ: Mapping[str, str] | None = None, **flags: object) -> str:
    with pytest.raises(BadSettings) as caught:
        load(text, environ, **flags)
    return str(caught.value)


def test_without_file_and_environment_everything_has_a_default() -> None:
    loaded = load_settings({})
    assert loaded.file is None
    assert loaded.origins == {}
    assert loaded.settings == Settings(models=msgspec.structs.replace(Settings().models, default="demo/echo"))


def test_later_sources_win_and_each_value_knows_who_said_it() -> None:
    environ = {"THREADCAST_SERVER__PORT": "2", "THREADCAST_LIMITS__LEASE_SECONDS": "4.5", "UNRELATED": "x"}
    loaded = load("[server]\nport = 1\nlog_level = 'debug'\n[limits]\nlease_seconds = 9", environ, server__port=3)
    assert (loaded.settings.server.port, loaded.settings.limits.lease_seconds) == (3, 4.5)
    assert [loaded.origins[path] for path in ("server.port", "limits.lease_seconds", "server.log_level")] == [
        "flag --port",
        "environment THREADCAST_LIMITS__LEASE_SECONDS",
        "threadcast.toml",
    ]
    assert "server.host" not in loaded.origins
    assert load("[server]\nport = 1", server__port=None).settings.server.port == 1, "a flag that was not given"


def test_a_place_with_a_dot_in_its_name_can_be_shown() -> None:
    text = "[profiles.p.scopes.'v1']\nhighlight = ['a']\n[profiles.p.scopes.'v1.2']\nguidelines = 'x'\n"
    values = {value.path: value.text for value in load(text).values()}
    assert values["profiles.p.scopes.v1.2.guidelines"] == "x"
    assert values["profiles.p.scopes.v1.highlight"] == "['a']"


def test_environment_values_have_the_type_of_their_field() -> None:
    environ = {
        "THREADCAST_SERVER__CORS_ORIGINS": '["http://a", "https://b:1"]',
        "THREADCAST_STORE__MEMORY": "true",
        "THREADCAST_STORE__DATA_DIR": "7",
        "THREADCAST_LIMITS__MAX_ROUNDS": "7",
        "THREADCAST_PROFILES__CODER__TOOLS": '["clock"]',
        "THREADCAST_TOOLS__CLOCK__TIMEOUT_SECONDS": "2.5",
    }
    settings = load("", environ).settings
    assert settings.server.cors_origins == ["http://a", "https://b:1"]
    assert settings.store == Store(memory=True, data_dir="7")
    assert settings.limits.max_rounds == 7
    assert settings.profiles == {"coder": Profile(tools=["clock"])}
    assert settings.tools == {"clock": Tool(timeout_seconds=2.5)}


def test_environment_finds_a_table_of_the_file_whatever_its_case() -> None:
    text = "[models.providers.My-Own]\nbase_url = 'http://x/v1'"
    loaded = load(text, {"THREADCAST_MODELS__PROVIDERS__MY_OWN__API_KEY": "k"})
    assert list(loaded.settings.models.providers) == ["My-Own"]
    assert loaded.settings.models.providers["My-Own"].api_key == Secret("k")


@pytest.mark.parametrize(
    ("text", "environ", "sentence"),
    [
        ("[server]\nprot = 1", {}, "threadcast.toml: unknown key server.prot; did you mean server.port?"),
        ("[sever]", {}, "threadcast.toml: unknown key sever; did you mean server?"),
        (
            "[models.providers.a]\nbaseurl = 1",
            {},
            "threadcast.toml: unknown key models.providers.a.baseurl; did you mean models.providers.a.base_url?",
        ),
        (
            "[[auth.tokens]]\nsha = 1",
            {},
            "threadcast.toml: unknown key auth.tokens[0].sha; did you mean auth.tokens[0].sha256?",
        ),
        ("[mcp]\nservers = 1", {}, "threadcast.toml: mcp.servers must be a table, not int"),
        ("[mcp.files]\npolicy = 'auto'", {}, "mcp.files: an MCP server needs either a command or a url"),
        ("[mcp.a__b]\ncommand = 'x'", {}, "mcp: 'a__b' cannot be the name of an MCP server"),
        ("[server]\nport = 'x'", {}, "threadcast.toml: server.port: write a whole number, not a text in quotes"),
        ("[store]\nmemory_max_bytes = 10", {}, "memory_max_bytes: write at least 16777216 (16 MiB), or 0"),
        ("server = 1", {}, "threadcast.toml: server must be a table, not int"),
        ("[server]\nframe_origins = ['*']", {}, "frame_origins"),
        ("[server]\nframe_origins = ['null']", {}, "frame_origins"),
        ("[server]\nframe_origins = ['https://*.example.com']", {}, "frame_origins"),
        ("[server]\nframe_origins = ['https://a.example/x']", {}, "frame_origins"),
        ("[server]\nframe_origins = ['HTTPS://a.example']", {}, "frame_origins"),
        ("[server]\nframe_origins = ['https://A.example']", {}, "frame_origins"),
        ("[server]\nframe_origins = ['https://a.example:443']", {}, "frame_origins"),
        ("[server]\nframe_origins = ['https://a.example;script-src']", {}, "frame_origins"),
        ("[server]\nframe_origins = ['https://a.example https://b.example']", {}, "frame_origins"),
        ("[server]\nframe_origins = ['https://me@a.example']", {}, "frame_origins"),
        ("[server]\nframe_origins = ['ftp://a.example']", {}, "frame_origins"),
        ("[server]\nframe_origins = ['https://a.example:99999']", {}, "frame_origins"),
        (
            "[models.providers.a]\nmodels = [1]",
            {},
            "threadcast.toml: models.providers.a.models[0] must be a table, not int",
        ),
        (
            "[profiles.a]\nmax_rounds = 0",
            {},
            "threadcast.toml: profiles.a.max_rounds: write a whole number of at least 1",
        ),
        ("[profiles.'a b']", {}, "threadcast.toml: profiles: 'a b' is not a valid name; use letters, digits, _ and -"),
        (
            "[tools.a]\npolicy = 'aks'",
            {},
            "threadcast.toml: tools.a.policy must be one of auto, ask, deny, preview, client",
        ),
        ("x = [[", {}, "threadcast.toml: Invalid value (at end of document)"),
        (
            "",
            {"THREADCAST_SERVER__PROT": "1"},
            "environment THREADCAST_SERVER__PROT: unknown key server.prot; did you mean server.port?",
        ),
        ("", {"THREADCAST_SERVER__PORT": "x"}, "environment THREADCAST_SERVER__PORT: the value is not a valid int"),
        (
            "",
            {"THREADCAST_SERVER__PORT": "70000"},
            "environment THREADCAST_SERVER__PORT: server.port: write a whole number of at most 65535",
        ),
        (
            "",
            {"THREADCAST_SERVER__PORT__X": "1"},
            "environment THREADCAST_SERVER__PORT__X: server.port is a value and has no x",
        ),
        (
            "",
            {"THREADCAST_SERVER__CORS_ORIGINS": "http://a"},
            "environment THREADCAST_SERVER__CORS_ORIGINS: the value is not valid JSON",
        ),
        ("", {"REDIS_URL": "localhost:6379"}, "environment REDIS_URL: store: url: write it as redis://"),
        (
            "",
            {"REDIS_URL": "redis+sentinel://a:1,b:2"},
            "environment REDIS_URL: store: url: write it as redis+sentinel://",
        ),
        ("[server]\ncors_origins = ['http://a/']", {}, "cors_origins: 'http://a/' is not an origin"),
        (
            "[models]\ndefault = 'nope/x'",
            {},
            "default: 'nope/x' does not begin with the name of a configured provider; write PROVIDER/MODEL;",
        ),
        ("[models.providers.demo]", {}, "'demo' is built in"),
        ("[models.providers.a]\nbase_url = 'ftp://x'", {}, "models.providers.a: base_url: this is not an http(s) URL"),
        (
            "[models.providers.a]\nbase_url = 'http://x/v1?v=1'",
            {},
            "models.providers.a: base_url: it must have no query (?) and no fragment (#), since paths are appended",
        ),
        (
            "[models.providers.a]\nbase_url = 'http://x/v1#part'",
            {},
            "models.providers.a: base_url: it must have no query (?) and no fragment (#), since paths are appended",
        ),
        (
            "[models.providers.a]\napi_key = 'k'\napi_key_env = 'K'",
            {},
            "models.providers.a: both api_key and",
        ),
        (
            "[[auth.tokens]]\nid = 'a'\nsha256 = 'short'",
            {},
            "auth.tokens.0.sha256: write the 64 hexadecimal digits that",
        ),
        (
            "[[auth.tokens]]\nid = 'a ä'\nsha256 = ''",
            {},
            "auth.tokens.0.id: use 1 to 64 letters from a to z, digits, _ and -",
        ),
        (
            "[[auth.tokens]]\npermissions = ['aprove']",
            {},
            "auth.tokens[0].permissions[0] must be one of approve, diagnostics, metrics",
        ),
    ],
)
def test_a_bad_value_names_itself_and_where_it_stands(text: str, environ: dict[str, str], sentence: str) -> None:
    assert sentence in refusal(text, environ)


def test_a_file_that_was_named_must_be_there() -> None:
    with pytest.raises(BadSettings, match=r"other\.toml: No such file"):
        load_settings({}, file="other.toml")
    with pytest.raises(BadSettings, match=r"third\.toml: No such file"):
        load_settings({"THREADCAST_CONFIG": "third.toml"})


def test_memory_and_a_given_store_exclude_each_other() -> None:
    said = refusal("", {"REDIS_URL": "redis://x"}, store__memory=True)
    assert said.startswith("environment REDIS_URL, flag --memory: store: memory = true is for the private store")


@pytest.mark.parametrize("host", ["0.0.0.0", "", "::", "10.0.0.1", "example.com"])
def test_listening_beyond_this_machine_without_tokens_is_refused_with_the_way_out(host: str) -> None:
    said = refusal("", server__host=host)
    assert "threadcast token" in said
    assert repr(host) in said
    tokens = f"[[auth.tokens]]\nid = 'a'\nsha256 = '{'0' * 64}'"
    assert load(tokens, server__host=host).settings.server.host == host


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "localhost", "::1", "[::1]", "LOCALHOST.", "tab.localhost"])
def test_loopback_needs_no_tokens(host: str) -> None:
    assert is_loopback(host)
    assert load("", server__host=host).settings.server.host == host


def test_secrets_show_themselves_nowhere() -> None:
    environ = {
        "REDIS_URL": "redis://:hunter2@x/0",
        "OPENAI_API_KEY": "hunter2",
        "OPENAI_MODEL": "m",
        "MY_KEY": "hunter2",
    }
    loaded = load("[models.providers.own]\nbase_url = 'http://x/v1'\napi_key_env = 'MY_KEY'", environ)
    said = f"{loaded!r} {loaded} {loaded.values()} {[str(value) for value in loaded.values()]}"
    assert "hunter2" not in said
    providers = loaded.settings.models.providers
    assert [provider.api_key for provider in providers.values()] == [Secret("hunter2"), Secret("hunter2")]
    assert loaded.origins["models.providers.own.api_key"] == "environment MY_KEY"


def test_openai_variables_make_a_provider_with_its_default_model() -> None:
    environ = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "http://x/v1", "OPENAI_MODEL": "meta/llama"}
    models = load("", environ).settings.models
    assert models.default == "openai/meta/llama"
    assert models.providers == {
        "openai": Provider(base_url="http://x/v1", api_key=Secret("k"), models=[Model(name="meta/llama")])
    }


def test_openai_variables_override_nothing_that_the_file_says() -> None:
    text = "[models]\ndefault = 'openai/mine'\n[models.providers.openai]\nbase_url = 'http://mine/v1'"
    models = load(text, {"OPENAI_API_KEY": "k", "OPENAI_MODEL": "other"}).settings.models
    assert (models.default, models.providers["openai"]) == ("openai/mine", Provider(base_url="http://mine/v1"))


def test_the_default_model_of_a_server_without_a_named_one_is_the_first_that_it_lists() -> None:
    loaded = load("", {"OPENAI_BASE_URL": "http://x/v1"})
    assert (loaded.settings.models.default, loaded.settings.has_demo) == (f"openai/{UNNAMED_MODEL}", False)


def test_a_key_alone_does_not_choose_a_model_that_costs_money_and_says_so() -> None:
    loaded = load("", {"OPENAI_API_KEY": "k"})
    assert (loaded.settings.models.default, loaded.settings.has_demo) == ("", False)
    assert ["each chat must choose one; choose one by OPENAI_MODEL" in note for note in loaded.notes] == [True]


@pytest.mark.parametrize(
    ("text", "has_demo", "default"),
    [
        ("", True, "demo/echo"),
        ("[models]\ndemo = false", False, ""),
        ("[models.providers.a]\nkind = 'script'\nfile = 's.toml'", True, "demo/echo"),
        ("[models.providers.a]\nmodels = [{name = 'x'}]", False, "a/x"),
        ("[models]\ndemo = true\n[models.providers.a]\nmodels = [{name = 'x'}]", True, "a/x"),
        ("[models]\ndemo = true\n[models.providers.a]", True, "demo/echo"),
        ("[models]\nfallback = ['demo/echo']\n[models.providers.a]\nmodels = [{name = 'x'}]", True, "a/x"),
        ("[models]\ndefault = 'demo/essay'\n[models.providers.a]", True, "demo/essay"),
        ("[profiles.p]\nmodel = 'demo/hang'\n[models.providers.a]\nmodels = [{name = 'x'}]", True, "a/x"),
    ],
)
def test_the_demonstration_ends_with_the_first_real_provider_unless_it_is_asked_for(
    text: str, has_demo: bool, default: str
) -> None:
    settings = load(text).settings
    assert (settings.has_demo, settings.models.default) == (has_demo, default)


def test_the_first_model_of_the_first_provider_is_the_default() -> None:
    text = "[models.providers.a]\nmodels = [{name = 'x'}, {name = 'y'}]\n[models.providers.b]\nmodels = [{name = 'z'}]"
    assert load(text).settings.models.default == "a/x"
    assert load(text, models__default="b/z").settings.models.default == "b/z"


def test_what_is_probably_a_mistake_is_noted() -> None:
    assert load("", {"OPENAI_MODEL": "m"}).notes == [
        "OPENAI_MODEL has no effect without OPENAI_API_KEY or OPENAI_BASE_URL"
    ]
    notes = load("[models.providers.a]\nbase_url = 'http://x/v1'\napi_key_env = 'NOT_SET'").notes
    assert notes == ["provider a has no key: NOT_SET (its api_key_env) is not set"]


@pytest.mark.parametrize(
    ("variable", "advice"),
    [
        (
            "THREADCAST_PROFILES",
            "profiles is a section .* write THREADCAST_PROFILES__NAME__KEY, or use threadcast.toml",
        ),
        ("THREADCAST_SERVER", "server is a section .* write THREADCAST_SERVER__KEY, or use threadcast.toml"),
        ("THREADCAST_SERVER_PORT", "write THREADCAST_SERVER__PORT"),
        ("THREADCAST_SEVER_PROT", "write THREADCAST_SERVER__PORT"),
        ("THREADCAST_TOOLS_CLOCK", "write THREADCAST_TOOLS__NAME__KEY, with two underscores"),
        ("THREADCAST_TOKENS", "write a setting as THREADCAST_SECTION__KEY, as in threadcast.toml; unset"),
    ],
)
def test_a_variable_that_nobody_reads_stops_the_start_and_says_what_to_write(variable: str, advice: str) -> None:
    with pytest.raises(BadSettings, match=f"^environment {variable} is not read: {advice}"):
        load("", {variable: '{"coder": {}}'})


def test_all_variables_that_nobody_reads_are_named_at_once() -> None:
    told = refusal("", {"THREADCAST_PROFILES": "[]", "THREADCAST_HOST": "0.0.0.0", "THREADCAST_SERVER__PORT": "1"})
    assert "THREADCAST_HOST is not read" in told and "; environment THREADCAST_PROFILES is not read" in told


def test_variables_of_the_command_line_and_of_a_kubernetes_service_are_nobodys_mistake() -> None:
    others = {
        "THREADCAST_TOKEN": "t",
        "THREADCAST_URL": "http://x",
        "THREADCAST_PAGE": "skip",
        "THREADCAST_SERVICE_HOST": "10.0.0.1",
        "THREADCAST_SERVICE_PORT": "80",
        "THREADCAST_WEB_SERVICE_PORT_HTTP": "80",
        "THREADCAST_PORT": "tcp://10.0.0.1:80",
        "THREADCAST_PORT_80_TCP": "tcp://10.0.0.1:80",
        "THREADCAST_PORT_80_TCP_ADDR": "10.0.0.1",
    }
    assert load("", others) == load("")


def test_two_tokens_of_one_hash_and_the_id_system_are_refused() -> None:
    entry = "[[auth.tokens]]\nid = '{}'\nsha256 = '" + "a" * 64 + "'\n"
    assert "two tokens have the same sha256" in refusal(entry.format("a") + entry.format("b"))
    assert "reserved for the server" in refusal(entry.format("system"))


def test_files_that_the_file_names_lie_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "threadcast.toml"
    file.write_text('[server]\napp = "tools.py"\n[models.providers.a]\nkind = "script"\nfile = "scenes.toml"\n')
    settings = load_settings({}, file=str(file)).settings
    assert settings.server.app == str(tmp_path / "tools.py")
    assert settings.models.providers["a"].file == str(tmp_path / "scenes.toml")
    assert load_settings({}, {"server.app": "mine.py"}, str(file)).settings.server.app == "mine.py"


def test_kinds_with_an_address_of_their_own_need_no_base_url_and_are_not_searched_for_models() -> None:
    text = "[models.providers.a]\nkind = 'anthropic'\n[models.providers.g]\nkind = 'google'\nbase_url = 'http://x'"
    models = load(text).settings.models
    addresses = {name: provider.base_url for name, provider in models.providers.items()}
    assert addresses == {"a": "https://api.anthropic.com", "g": "http://x"}
    assert models.default == "", "nobody has named one, and which one is asked costs money"


def test_the_program_of_an_agent_may_lie_beside_the_file(tmp_path: Path) -> None:
    file = tmp_path / "threadcast.toml"
    file.write_text(
        '[agents.coder]\nkind = "acp"\ncommand = ["./coder", "--file", "../x", "y/z"]\nworkspace = "work"\n'
        '[agents.other]\nkind = "acp"\ncommand = ["coder"]\n'
    )
    settings = load_settings({}, file=str(file)).settings
    here = tmp_path.absolute()
    assert settings.agents["coder"].command == [str(here / "./coder"), "--file", str(here / "../x"), "y/z"]
    assert settings.agents["coder"].workspace == str(tmp_path / "work")
    assert (settings.agents["other"].command, settings.agents["other"].workspace) == (["coder"], "")


def test_a_key_that_earlier_versions_read_is_left_out_with_a_note(tmp_path: Path) -> None:
    file = tmp_path / "threadcast.toml"
    file.write_text("[limits]\nbeat_seconds = 0.5\nlease_seconds = 2.0\n")
    loaded = load_settings({"THREADCAST_LIMITS__SWEEP_SECONDS": "0.1"}, file=str(file))
    assert loaded.settings.limits.lease_seconds == 2.0
    assert loaded.notes == [
        f"{file}: limits.beat_seconds is ignored: it follows from limits.lease_seconds; remove the key",
        "environment THREADCAST_LIMITS__SWEEP_SECONDS: limits.sweep_seconds is ignored: it follows from "
        "limits.lease_seconds; remove the key",
    ]
    assert [value.path for value in loaded.values()] == ["limits.lease_seconds"]
