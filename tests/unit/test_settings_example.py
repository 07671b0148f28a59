"""The example file shows every setting with its default, and an unedited copy changes no setting."""

import re
import tomllib
from pathlib import Path

import msgspec

from threadcast.settings import (
    Action,
    Limits,
    Mcp,
    Model,
    Payload,
    Profile,
    Provider,
    Scope,
    Server,
    Store,
    Token,
    Tool,
)
from threadcast.settings.sources import load_settings

EXAMPLE = Path(__file__).parents[2] / "threadcast.example.toml"


def test_the_example_file_names_every_value_with_its_default() -> None:
    text = EXAMPLE.read_text("utf-8")
    assert load_settings({}, file=str(EXAMPLE)).values() == []
    uncommented = re.sub(r"(?m)^# (?=(\[|[a-z0-9_]+ = ))", "", text)
    table = tomllib.loads(uncommented)
    provider, profile = table["models"]["providers"]["local"], table["profiles"]["agent"]
    entries: list[tuple[dict[str, object], type[msgspec.Struct]]] = [
        (table["server"], Server),
        (table["store"], Store),
        (table["limits"], Limits),
        (provider, Provider),
        (provider["models"][0], Model),
        (profile, Profile),
        (profile["scopes"]["reports/articles"], Scope),
        (profile["actions"][0], Action),
        (table["payloads"]["chart"], Payload),
        (table["tools"]["write_note"], Tool),
        (table["auth"]["tokens"][0], Token),
        (table["mcp"]["files"], Mcp),
    ]
    for shown, kind in entries:
        fields = {field.name: field for field in msgspec.structs.fields(kind)}
        assert set(shown) == set(fields), kind
        for name, value in shown.items():
            default = fields[name].default
            if isinstance(default, int | float | str) and not isinstance(value, dict):
                assert value == default, f"{kind.__name__}.{name}"
