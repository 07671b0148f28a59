"""Payload types and previews as an operator writes them down: what cannot work stops the start and says why."""

from pathlib import Path

import pytest

from server.assembly.app_file import app_file_of
from server.assembly.payloads import payload_types_of
from server.assembly.profiles import profiles_of
from server.assembly.tools import tools_of
from server.settings import Payload, Profile, Settings, Tool
from server.tools.http import HttpClient

APP = '''
import msgspec
from server.agent.place.payload_types import payload_type
from server.tools.preview import Preview
from server.tools.python import tool
from server.tools.traits import Traits

class Article(msgspec.Struct):
    """A text with a title."""
    title: str

article = payload_type(name="article", model=Article, marker="ARTICLE", summary="{title}")

@tool(policy="preview", traits=Traits(payload_type="article", commit_tool="save"))
def propose(title: str) -> Preview:
    return Preview("new", {"title": title})

@tool()
def save(title: str) -> str:
    return "saved"
'''


@pytest.fixture
def app(tmp_path: Path) -> str:
    file = tmp_path / "articles_app.py"
    file.write_text(APP)
    return str(file)


def test_a_file_of_tools_registers_types_and_the_table_has_the_last_word(app: str) -> None:
    named = {"agent": Profile(payloads=["article", "chart"])}
    settings = Settings(profiles=named, payloads={"chart": Payload(marker="CHART", summary="{title}")})
    file = app_file_of(app)
    types = payload_types_of(settings, file.payload_types)
    assert {kind.marker for kind in types.values()} == {"ARTICLE", "CHART"}
    assert types["article"].schema["required"] == ["title"]
    assert set(profiles_of(settings, payload_types=types)["agent"].payload_types) == {"article", "chart"}
    tools = tools_of(settings, file.tools, HttpClient())
    assert (tools["propose"].policy, tools["propose"].retry, tools["save"].retry) == ("preview", "safe", "once")
    over = Settings(payloads={"article": Payload(marker="TEXT")})
    assert payload_types_of(over, file.payload_types)["article"].marker == "TEXT"


def test_types_that_cannot_be_told_apart_stop_the_start() -> None:
    settings = Settings(payloads={"a": Payload(marker="DATA"), "b": Payload(marker="DATA")})
    with pytest.raises(ValueError, match=r"payloads\.b\.marker: payloads.a has the marker DATA too"):
        payload_types_of(settings)
    with pytest.raises(ValueError, match=r"payloads\.a\.schema: must be of an object"):
        payload_types_of(Settings(payloads={"a": Payload(schema={"type": "string"})}))


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"clock": Tool(policy="preview")}, "tool clock: .* needs a payload_type"),
        ({"propose": Tool(commit_tool="gone")}, "its commit_tool 'gone' is not there"),
        ({"save": Tool(policy="deny")}, "its commit_tool 'save' has the policy 'deny'"),
        ({"save": Tool(enabled=False)}, "its commit_tool 'save' is not there"),
    ],
)
def test_a_preview_that_could_not_be_shown_or_carried_out_stops_the_start(
    app: str, table: dict[str, Tool], words: str
) -> None:
    settings = Settings(tools=table)
    with pytest.raises(ValueError, match=words):
        tools_of(settings, app_file_of(app).tools, HttpClient())
