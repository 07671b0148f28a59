"""Valid configurations of MCP servers, and mistakes that stop the start."""

import msgspec
import pytest

from threadcast.settings import Mcp, Models, Secret, Settings, Tool
from threadcast.wiring.components import build_components


def settings(**tools: Tool) -> Settings:
    server = Mcp(command="some-program", env={"KEY": Secret("hush")})
    return Settings(models=Models(default="demo/echo"), mcp={"files": server}, tools=tools)


@pytest.mark.row("MCP-1")
def test_without_the_extra_a_configured_server_stops_the_start_with_the_way_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("threadcast.wiring.tools.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"mcp\.files.*threadcast\[mcp\].*enabled = false"):
        build_components(settings())
    off = msgspec.structs.replace(settings(), mcp={"files": Mcp(command="some-program", enabled=False)})
    assert build_components(off).mcp.names == []
    assert build_components(Settings(models=Models(default="demo/echo"))).mcp.names == []


@pytest.mark.row("MCP-2")
def test_the_operators_table_may_name_tools_of_a_configured_server_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("threadcast.wiring.tools.find_spec", lambda name: object())
    assert build_components(settings(mcp__files__read=Tool(policy="auto"))).mcp.names == ["files"]
    with pytest.raises(ValueError, match="mcp__other__read: there is no such tool"):
        build_components(settings(mcp__other__read=Tool(policy="auto")))
    with pytest.raises(ValueError, match="use auto, ask, deny"):
        build_components(settings(mcp__files__read=Tool(policy="preview")))


@pytest.mark.row("TOOL-7")
@pytest.mark.parametrize(
    "tools",
    [
        {"mcp__files__read": Tool(forward_auth=True)},
        {"open_file": Tool(policy="client", description="Opens it.", forward_auth=True)},
        {"clock": Tool(policy="client", forward_auth=True)},
    ],
    ids=["of an MCP server", "of a client", "made a client's"],
)
def test_a_tool_that_is_never_given_credentials_cannot_be_told_to_forward_them(tools: dict[str, Tool]) -> None:
    with pytest.raises(ValueError, match=rf"tools\.{min(tools)}: forward_auth is for tools with a url"):
        build_components(settings(**tools))


def test_settings_show_no_secret() -> None:
    assert "hush" not in repr(settings())
