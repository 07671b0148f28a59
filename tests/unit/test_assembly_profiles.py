"""Building profiles from settings: the names that a profile may use, its scopes, and mistakes that stop the start."""

import sys
from pathlib import Path

import pytest

from threadcast.profiles.payload_types import Action, PayloadType
from threadcast.profiles.profile import DEFAULT_IDENTITY, Profile
from threadcast.profiles.prompt import SECTIONS, STANDARD_SECTIONS, PromptContext, Section
from threadcast.settings.sources import BadSettings, load_settings
from threadcast.wiring.app_file import app_file_of
from threadcast.wiring.components import build_components
from threadcast.wiring.payloads import payload_types_of
from threadcast.wiring.profiles import profiles_of

TOOLS = ["clock", "save_article", "get_payload"]
TYPES = {"chart": PayloadType(name="chart"), "draft": PayloadType(name="draft")}
OWN = {
    "weather": (Section("weather", lambda prompt: "Sunny."),),
    "page": (
        Section("page", lambda prompt: "A report.", ("reports",)),
        Section("page", lambda prompt: "An article.", ("reports", "articles", "new")),
    ),
}


def profiles(tmp_path: Path, text: str) -> dict[str, Profile]:
    (tmp_path / "threadcast.toml").write_text(text, "utf-8")
    settings = load_settings({}, {}, str(tmp_path / "threadcast.toml")).settings
    return profiles_of(settings, TOOLS, payload_types=TYPES, sections=OWN)


WHOLE = """
[profiles.writer]
system_prompt = "You write."
guidelines = "Be brief."
custom_instructions = "Use British English."
highlight = ["article_id"]
sections = ["weather", "identity"]
tools = ["clock"]
payloads = ["chart"]

[[profiles.writer.actions]]
action = "open"
label = "Open"
handler = "server"

[profiles.writer.scopes.reports]
guidelines = "Quote sources."

[profiles.writer.scopes."reports/articles"]
tools = ["save_article"]
payloads = ["draft"]
actions = [{ action = "publish" }]
"""


def test_a_profile_is_what_the_settings_say(tmp_path: Path) -> None:
    writer = profiles(tmp_path, WHOLE)["writer"]
    assert (writer.system_prompt, writer.guidelines, writer.highlight) == ("You write.", "Be brief.", ["article_id"])
    assert writer.custom_instructions == "Use British English."
    assert writer.sections == (*OWN["weather"], SECTIONS["identity"])
    assert (writer.tools, writer.payload_types) == (["clock"], {"chart": TYPES["chart"]})
    assert writer.actions == {"open": Action(action="open", label="Open", handler="server")}
    assert list(writer.scopes) == [("reports",), ("reports", "articles")]
    articles = writer.scopes["reports", "articles"]
    assert (articles.tools, list(articles.payload_types)) == (["save_article"], ["draft"])
    assert (articles.guidelines, list(articles.actions)) == (None, ["publish"])


@pytest.mark.row("OLD-6")
def test_the_places_that_a_section_runs_in_are_places_of_the_profile(tmp_path: Path) -> None:
    writer = profiles(tmp_path, WHOLE.replace('"weather", "identity"', '"weather", "page"'))["writer"]
    assert writer.sections == (*OWN["weather"], *OWN["page"])
    assert list(writer.scopes) == [("reports",), ("reports", "articles"), ("reports", "articles", "new")]
    assert writer.scopes["reports",].guidelines == "Quote sources."
    # A profile that defines no scopes accepts any scope.
    assert profiles(tmp_path, "[profiles.a]\nsections = ['page']")["a"].scopes == {}


def test_a_profile_without_settings_has_the_standard_sections_and_all_tools(tmp_path: Path) -> None:
    agent = profiles(tmp_path, "")["agent"]
    assert (agent.system_prompt, agent.sections, agent.tools) == (DEFAULT_IDENTITY, STANDARD_SECTIONS, None)
    assert (agent.payload_types, agent.actions, agent.scopes) == ({}, {}, {})


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[profiles.a]\ntools = ['clokc']", r"profiles\.a\.tools: there is no tool 'clokc'; did you mean 'clock'\?"),
        ("[profiles.a]\npayloads = ['map']", r"profiles\.a\.payloads: there is no payload type 'map'; known: chart, d"),
        ("[profiles.a]\ndelegate_to = ['b']", r"profiles\.a\.delegate_to: there is no profile 'b'"),
        ("[profiles.a]\nsections = ['identty']", r"there is no section 'identty'; did you mean 'identity'\?"),
        ("[profiles.a.scopes.'b/c']\ntools = ['x']", r'profiles\.a\.scopes\."b/c"\.tools: there is no tool \'x\''),
        ("[profiles.a.scopes.b]\npayloads = ['x']", r'profiles\.a\.scopes\."b"\.payloads: there is no payload type'),
    ],
)
def test_a_name_that_nobody_knows_stops_the_start(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        profiles(tmp_path, text)


def test_tools_of_mcp_servers_and_tools_that_are_switched_off_may_be_named(tmp_path: Path) -> None:
    text = "[tools.noise]\nenabled = false\n[profiles.a]\ntools = ['mcp__files__*', 'noise']"
    assert profiles(tmp_path, text)["a"].tools == ["mcp__files__*", "noise"]


@pytest.mark.parametrize("place", ["a//b", "a/b/c/d", "", "/", "x" * 65])
def test_a_scope_that_is_no_path_of_names_stops_the_start(tmp_path: Path, place: str) -> None:
    with pytest.raises(
        BadSettings, match=r"profiles\.p\.scopes: .* is not a valid name; a place is one to three names"
    ):
        profiles(tmp_path, f"[profiles.p.scopes.'{place}']\nguidelines = 'x'")


@pytest.mark.row("OLD-3")
def test_a_scope_is_called_as_the_pages_call_it(tmp_path: Path) -> None:
    text = "[profiles.p.scopes.'/Drug search/Results 2']\n[profiles.p.scopes.'Отчёты']\ntools = ['clock']"
    assert list(profiles(tmp_path, text)["p"].scopes) == [("Drug_search", "Results_2"), ("Отчёты",)]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[profiles.p.scopes.'a b']\n[profiles.p.scopes.'/a_b']", r"\"/a_b\": names the scope 'a_b' again"),
        ("[profiles.p.scopes.' ']", r"profiles\.p\.scopes\.\" \": has no name"),
    ],
)
def test_a_place_without_a_name_or_with_two_tables_stops_the_start(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        profiles(tmp_path, text)


def test_a_slash_belongs_into_scopes_alone(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match=r"profiles: 'a/b' is not a valid name; use letters, digits, _ and -$"):
        profiles(tmp_path, "[profiles.'a/b']")


def test_payload_types_are_what_the_settings_say_and_markers_are_their_own(tmp_path: Path) -> None:
    def types(text: str) -> dict[str, PayloadType]:
        (tmp_path / "threadcast.toml").write_text(text, "utf-8")
        return payload_types_of(load_settings({}, {}, str(tmp_path / "threadcast.toml")).settings)

    text = "[payloads.chart]\ndescription = 'd'\nschema = { type = 'object' }\nmarker = 'CHART'\nsummary = '{title}'\n"
    chart = PayloadType(name="chart", description="d", schema={"type": "object"}, marker="CHART", summary="{title}")
    assert types(text) == {"chart": chart}
    with pytest.raises(ValueError, match=r"payloads\.bars\.marker: payloads\.chart has the marker CHART too"):
        types(text + "[payloads.bars]\nmarker = 'CHART'")
    with pytest.raises(BadSettings, match="SUGGESTED_VALUES is the server's own"):
        types("[payloads.x]\nmarker = 'SUGGESTED_VALUES'")


APP = """
from threadcast.profiles.prompt import PromptContext, section
from threadcast.tools.python import tool

@tool()
def greet() -> str:
    "Say hello."
    return "hello"

@section("weather")
def weather(prompt: PromptContext) -> str:
    return "Sunny."
"""


def test_the_operators_file_gives_tools_and_sections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "both_app.py").write_text(APP)
    app = app_file_of(str(tmp_path / "both_app.py"))
    assert [tool.name for tool in app.tools] == ["greet"]
    assert [section.write(PromptContext()) for section in app.sections["weather"]] == ["Sunny."]
    assert app_file_of("").tools == []


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("x = 1", r"decorated with @agent\(NAME\), @tool\(\) or @section\(NAME\)"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        (APP + "\n@section('weather')\ndef other(prompt):\n    return ''\n", "two sections are called 'weather'"),
        (
            APP + "\n@section('p', scope='a/b')\ndef one(_): ...\n@section('p', scope='/a/b/')\ndef two(_): ...\n",
            "two sections are called 'p' for the scope 'a/b'",
        ),
    ],
)
def test_a_file_of_the_operators_that_cannot_be_is_refused_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, sentence: str
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "bad_app.py").write_text(text)
    with pytest.raises(ValueError, match=sentence):
        app_file_of(str(tmp_path / "bad_app.py"))


def test_a_binding_names_an_argument_that_its_tool_takes(tmp_path: Path) -> None:
    (tmp_path / "threadcast.toml").write_text(
        "[[profiles.p.bindings]]\ntool = 'calculator'\narg = 'expresion'\nfrom_context = 'a'\n", "utf-8"
    )
    settings = load_settings({}, {}, str(tmp_path / "threadcast.toml")).settings
    with pytest.raises(ValueError, match="there is no argument of calculator 'expresion'; did you mean 'expression'"):
        build_components(settings)
