"""Settings of models and profiles become the values that the agent loop reads from a profile."""

from pathlib import Path

import pytest

from threadcast.profiles.reply_guard import ReplyGuard
from threadcast.settings import Settings
from threadcast.settings.sources import BadSettings, load_settings
from threadcast.wiring.profiles import profiles_of

TOML = """
[models]
summarizer = "demo/echo"
fallback = ["demo/echo", "demo/essay"]

[profiles.plain]

[profiles.own]
summarizer = ""
fallback = []
context_warn_ratio = 0.5
reply_guard = { forbid_scripts = ["Han", "Hangul"], max_retries = 2 }
"""


def settings(text: str, tmp_path: Path) -> Settings:
    file = tmp_path / "threadcast.toml"
    file.write_text(text)
    return load_settings({}, file=str(file)).settings


@pytest.mark.parametrize("name", ["agent", "plain"])
def test_what_a_profile_leaves_unset_is_what_the_models_section_says(name: str, tmp_path: Path) -> None:
    profile = profiles_of(settings(TOML, tmp_path))[name]
    assert (profile.summarizer, profile.fallback) == ("demo/echo", ["demo/echo", "demo/essay"])
    assert (profile.reply_guard, profile.context_warn_ratio) == (ReplyGuard(), 0.7)


def test_a_profile_may_say_otherwise(tmp_path: Path) -> None:
    profile = profiles_of(settings(TOML, tmp_path))["own"]
    assert (profile.summarizer, profile.fallback, profile.context_warn_ratio) == ("", [], 0.5)
    assert profile.reply_guard == ReplyGuard(forbid_scripts=["Han", "Hangul"], max_retries=2)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('[profiles.a]\nreply_guard = { forbid_scripts = ["Klingon"] }', "must be one of Arabic"),
        ("[profiles.a]\nreply_guard = { max_retries = 0 }", "max_retries"),
        ("[profiles.a]\ncontext_warn_ratio = 0.0", "context_warn_ratio"),
        ('[models]\nsummarizer = "nobody/x"', "summarizer: 'nobody/x' does not begin with the name"),
        ('[models]\nfallback = ["demo/echo", "x"]', "fallback: 'x' does not begin with the name"),
    ],
)
def test_what_cannot_be_is_refused_at_start(text: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match=sentence):
        settings(text, tmp_path)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            '[profiles.a]\naliases = ["X"]\n[profiles.b]\naliases = ["x"]',
            r"profiles\.b\.aliases: 'x' names .* 'a' already",
        ),
        ('[profiles.a]\naliases = ["B"]\n[profiles.b]', r"profiles\.a\.aliases: 'B' names the profile 'b' already"),
        ("[profiles.a]\n[profiles.A]", r"profiles\.A: 'A' names the profile 'a' already"),
        ('[profiles.a]\naliases = ["AGENT"]', r"profiles\.a\.aliases: 'AGENT' names the profile 'agent' already"),
        ("[profiles.Agent]", r"'agent' names the profile 'Agent' already .* there is always a profile 'agent'"),
    ],
)
def test_a_word_that_means_two_profiles_stops_the_start(text: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=sentence):
        profiles_of(settings(text, tmp_path))


def test_an_alias_may_repeat_its_own_profiles_name(tmp_path: Path) -> None:
    assert profiles_of(settings('[profiles.agent]\naliases = ["AGENT", "Chat"]', tmp_path))["agent"].aliases == [
        "AGENT",
        "Chat",
    ]
