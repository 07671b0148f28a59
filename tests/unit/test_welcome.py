"""Greetings and starters: from `threadcast.toml` and from an operator's file to the profile of a scope."""

import sys
from pathlib import Path

import pytest

from threadcast.profiles.welcome import Starter, Welcome
from threadcast.settings import Settings
from threadcast.settings.sources import BadSettings, load_settings
from threadcast.wiring.app_file import app_file_of
from threadcast.wiring.components import build_components
from threadcast.wiring.profiles import profiles_of

TOML = """
[profiles.desk]
greeting = "At the desk."
starters = [
  { title = "Hours", text = "When is the desk open?" },
  { title = "Seven", text = "What is this?", model = "demo/echo", context = { workflow = { id = "7" } } },
]

[profiles.desk.scopes.reports]
greeting = "At the reports."
starters = []

[profiles.desk.scopes."reports/articles"]
"""


def settings(tmp_path: Path, text: str) -> Settings:
    file = tmp_path / "threadcast.toml"
    file.write_text(text)
    return load_settings({}, file=str(file)).settings


def test_a_profile_says_what_its_settings_say_and_the_most_specific_place_wins(tmp_path: Path) -> None:
    desk = profiles_of(settings(tmp_path, TOML))["desk"]
    hours = Starter(title="Hours", text="When is the desk open?")
    seven = Starter(title="Seven", text="What is this?", model="demo/echo", context={"workflow": {"id": "7"}})
    assert (desk.greeting, desk.starters) == ("At the desk.", [hours, seven])
    for place in (("reports",), ("reports", "articles")):
        assert (desk.at(place).greeting, desk.at(place).starters) == ("At the reports.", [])
    agent = profiles_of(settings(tmp_path, ""))["agent"]
    assert (agent.greeting, agent.starters) == ("", None)


def test_the_operators_file_says_what_the_settings_leave_unset(tmp_path: Path) -> None:
    of_file = Welcome(profile="desk", greeting="From the file.", starters=[Starter(title="File", text="f")])
    of_place = Welcome(profile="desk", scope="/reports/articles", greeting="At one article.")
    of_agent = Welcome(greeting="Hello.")
    found = profiles_of(settings(tmp_path, TOML), welcomes=[of_file, of_place, of_agent])
    assert found["desk"].greeting == "At the desk."
    assert [each.title for each in found["desk"].starters or ()] == ["Hours", "Seven"]
    assert found["desk"].at(("reports", "articles")).greeting == "At one article."
    assert found["agent"].greeting == "Hello."
    bare = profiles_of(settings(tmp_path, "[profiles.desk]"), welcomes=[of_file])["desk"]
    assert (bare.greeting, [each.title for each in bare.starters or ()]) == ("From the file.", ["File"])


@pytest.mark.parametrize(
    ("welcome", "sentence"),
    [
        (Welcome(profile="desc"), r"Welcome.profile: there is no profile 'desc'; did you mean 'desk'\?"),
        (
            Welcome(profile="desk", scope="loans"),
            "there are reports, reports/articles",
        ),
    ],
)
def test_a_welcome_names_a_profile_and_a_place_that_there_are(tmp_path: Path, welcome: Welcome, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        profiles_of(settings(tmp_path, TOML), welcomes=[welcome])


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"greeting": "x" * 501}, r"greeting: it has 501 characters; at most 500"),
        ({"starters": [Starter(title=str(n), text="t") for n in range(13)]}, "starters: there are 13; at most 12"),
        ({"starters": [Starter(title=" ", text="t")]}, r"starters\[0\].title: it has 0 characters; write 1 to 80"),
        ({"starters": [Starter(title="t", text="x" * 4_001)]}, r"starters\[0\].text: it has 4001 characters"),
        ({"starters": [Starter(title="t", text="a"), Starter(title="t", text="b")]}, r"\[1\].title: another starter"),
        ({"starters": [Starter(title="t", text="a", context={"x": "y" * 65_536})]}, r"starters\[0\]: context"),
        ({"scope": "a/b/c/d"}, "the scope 'a/b/c/d' is not valid"),
    ],
)
def test_what_cannot_be_shown_is_refused_where_it_is_written(more: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Welcome(**more)  # type: ignore[arg-type] # wrong on purpose


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("starters = [{ title = 'a' }]", "profiles.a.starters"),
        ("starters = [{ title = 'a', text = '' }]", "profiles.a.starters"),
        (
            "starters = [{ titel = 'a', text = 'b' }]",
            r"starters\[0\].titel; did you mean .*title",
        ),
        (f"greeting = '{'x' * 501}'", "profiles.a.greeting"),
    ],
)
def test_settings_that_cannot_be_name_their_place(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(BadSettings, match=sentence):
        settings(tmp_path, f"[profiles.a]\n{text}")


def test_a_starters_model_must_be_one_that_somebody_serves(tmp_path: Path) -> None:
    wrong = "[profiles.a]\nstarters = [{ title = 'a', text = 'b', model = 'nobody/x' }]"
    with pytest.raises(ValueError, match=r"profiles.a.starters\[0\].model = 'nobody/x': There is no model provider"):
        build_components(settings(tmp_path, wrong))


APP = """
from threadcast import Starter, Welcome, companion

hello = Welcome(greeting="Hello.", starters=[Starter(title="a", text="b")])

@companion()
async def beside(url: str) -> None: ...
"""


def test_an_operators_file_may_hold_nothing_but_a_welcome_and_a_companion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "hello_app.py").write_text(APP)
    app = app_file_of(str(tmp_path / "hello_app.py"))
    assert [each.greeting for each in app.welcomes] == ["Hello."]
    assert [each.name for each in app.companions] == ["beside"]


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ("again = Welcome(greeting='Hi.')", "two Welcomes are for the profile 'agent'"),
        ("@companion()\ndef plain(url): ...", "companion plain: write it as async def"),
    ],
)
def test_a_file_with_a_wrong_welcome_or_companion_is_refused_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: str, sentence: str
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "wrong_app.py").write_text(f"{APP}\n{more}\n")
    with pytest.raises(ValueError, match=sentence):
        app_file_of(str(tmp_path / "wrong_app.py"))
