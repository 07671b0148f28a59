"""Tests the names of MCP tools: which names models accept, which server a name belongs to, and which lists cover a
name."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from threadcast_protocol.wire.tool_names import SERVER_NAME, all_of_server, covers, mcp_server_of, mcp_tool_name

PIECES = st.text("ab-Z09", min_size=1, max_size=12)
SERVERS = st.lists(PIECES, min_size=1, max_size=4).map("_".join).filter(SERVER_NAME.fullmatch)


@pytest.mark.row("MCP-2")
@given(server=SERVERS, tool=st.text(min_size=1, max_size=200))
def test_every_tool_has_a_name_that_models_take_and_that_says_whose_it_is(server: str, tool: str) -> None:
    name = mcp_tool_name(server, tool)
    assert re.fullmatch("[A-Za-z0-9_-]{1,64}", name)
    assert mcp_server_of(name) == server
    assert all_of_server(name) == f"mcp__{server}__*"


def test_long_names_that_differ_only_at_their_end_stay_different() -> None:
    one, other = mcp_tool_name("s", "x" * 80 + "a"), mcp_tool_name("s", "x" * 80 + "b")
    assert one != other


@pytest.mark.parametrize("name", ["a__b", "_a", "a_", "", "a b", "x" * 25, "a.b"])
def test_a_server_cannot_have_a_name_that_would_blur_its_tools_names(name: str) -> None:
    assert not SERVER_NAME.fullmatch(name)


@pytest.mark.parametrize("name", ["clock", "mcp__", "mcp__a", "mcp__a__", "xmcp__a__b"])
def test_other_names_belong_to_no_server(name: str) -> None:
    assert mcp_server_of(name) is None
    assert all_of_server(name) == name


def test_a_list_covers_a_name_by_itself_or_through_its_server() -> None:
    assert covers(["mcp__a__*"], "mcp__a__b")
    assert covers(["mcp__a__b"], "mcp__a__b")
    assert not covers(["mcp__a__*"], "mcp__ab__c")
    assert not covers(["mcp__a__*"], "clock")
