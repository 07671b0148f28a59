"""Tests looking up tools by name, and loading the tools of a file."""

import sys
from pathlib import Path
from typing import Any

import pytest

from threadcast.providers.base import ToolSpec
from threadcast.tools.python import PythonTool, tool
from threadcast.tools.registry import Tools, collect, load_module
from threadcast.tools.traits import Traits


def made(name: str) -> PythonTool:
    def function() -> str:
        return name

    return tool(name=name, description=f"Gives {name}.")(function)


def test_tools_are_found_by_name_and_listed_in_an_order_that_does_not_depend_on_registration() -> None:
    a, b, c = made("a"), made("b"), made("c")
    assert list(Tools([c, a, b])) == list(Tools([b, c, a])) == ["a", "b", "c"]
    tools = Tools([b, a])
    assert (tools["a"], tools.get("a"), tools.get("z"), len(tools)) == (a, a, None, 2)
    schema = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    assert tools.specs() == [ToolSpec("a", "Gives a.", schema), ToolSpec("b", "Gives b.", schema)]


@pytest.mark.row("TOOL-1")
def test_duplicate_name_stops_the_start_and_names_both() -> None:
    def other() -> str:
        return ""

    with pytest.raises(ValueError, match=r"two tools are called 'a': <tool a of .*made.*> and <tool a of .*other>"):
        Tools([made("a"), tool(name="a")(other)])


def test_the_same_tool_twice_is_one_tool() -> None:
    a = made("a")
    assert list(Tools([a, a])) == ["a"]


@pytest.mark.parametrize("name", ["a b", "a.b", "ä", "x" * 65])
def test_name_that_providers_refuse_stops_the_start(name: str) -> None:
    with pytest.raises(ValueError, match="a tool's name is 1 to 64 characters"):
        Tools([made(name)])


@pytest.mark.parametrize("scope", ["reports", ("reports/articles",), (), ("a", "b", "c", "d"), ["a"]])
def test_scope_that_could_never_match_stops_the_start(scope: Any) -> None:  # Any: what a file without types may contain
    with pytest.raises(ValueError, match=r"<tool a of .*>: a scope is 1 to 3 names"):
        Tools([tool(name="a", traits=Traits(scopes=(scope,)))(lambda: "")])


APP = """
from __future__ import annotations
from neighbour_of_app import GREETING
from threadcast.tools.python import tool

@tool()
def greet(name: str) -> str:
    "Say hello."
    return f"{GREETING} {name}"

same = greet

def helper() -> None:
    pass
"""


def test_file_gives_its_decorated_functions_and_can_import_its_neighbours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "neighbour_of_app.py").write_text("GREETING = 'Hello'")
    (tmp_path / "my_tools.py").write_text(APP)
    (greet,) = collect(load_module(tmp_path / "my_tools.py"), PythonTool)
    assert (greet.name, greet.description, greet("Ann")) == ("greet", "Say hello.", "Hello Ann")
    assert greet.input_schema["required"] == ["name"]


def test_file_that_is_missing_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"gone\.py: no such file"):
        load_module(tmp_path / "gone.py")
