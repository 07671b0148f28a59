"""Four sources of tools behind one interface (TOOL-6): Python, an MCP server, an HTTP service, and a client."""

from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.integration.mcp_harness import STDIO, answers_in, offered, until_offered
from tests.support.reader import watching
from tests.support.server import command, start, user_message
from tests.unit.scripted_chat import served
from threadcast_protocol.wire.events import IdeToolRequired, ToolStatus

pytest.importorskip("mcp", reason="the extra `mcp` is not installed")

pytestmark = pytest.mark.anyio

CONFIG = """
[models]
default = "demo/tools"

[mcp.desk]
{stdio}
policy = "auto"

[tools.lookup]
url = "{url}/lookup/{{id}}"
description = "Looks an id up."

[tools.open_file]
policy = "client"
description = "Opens a file in the editor."
input_schema = {{ type = "object", properties = {{ path = {{ type = "string" }} }} }}
"""

APP = '''
from threadcast import tool


@tool()
def double(number: int) -> str:
    """Doubles a number."""
    return str(2 * number)
'''


async def lookup(request: Request) -> Response:
    return JSONResponse({"found": request.path_params["id"]})


@pytest.mark.row("TOOL-6", "TOOL-12")
async def test_one_round_calls_tools_of_all_four_sources_and_each_answers_in_the_same_way(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    with served(Starlette(routes=[Route("/lookup/{id}", lookup)])) as url:
        config = tmp_path / "threadcast.toml"
        config.write_text(CONFIG.format(stdio=STDIO, url=url))
        arguments = ["--data-dir", str(tmp_path / "data"), "--config", str(config), "--app", str(tmp_path / "app.py")]
        with start("serve", "--port", "0", *arguments, log=tmp_path / "log") as server:
            await server.ready()
            await until_offered(server, "mcp__desk__add")
            tools = await offered(server)
            names = {"double": "python", "mcp__desk__add": "mcp", "lookup": "http", "open_file": "client"}
            assert {name: tools[name]["source"] for name in names} == names
            for name in names:
                assert set(tools[name]) == set(tools["double"]), "one shape, whatever the source"
                assert tools[name]["description"] and tools[name]["input_schema"]["type"] == "object"
            async with watching(server.url, "c1") as watcher:
                calls = [
                    'double {"number":21}',
                    'mcp__desk__add {"a":1,"b":2}',
                    'lookup {"id":"x1"}',
                    'open_file {"path":"a.py"}',
                ]
                await command(server.url, "c1", user_message("a", "\n".join(f"call {each}" for each in calls)))
                await watcher.until(lambda w: any(isinstance(event, IdeToolRequired) for event in w.events))
                (wanted,) = [event for event in watcher.events if isinstance(event, IdeToolRequired)]
                body = {"type": "ide_tool_result", "client_request_id": "r", "tool_call_id": wanted.tool_call_id}
                await command(server.url, "c1", {**body, "content": "opened"})
                await watcher.at_rest()
    assert sorted(answers_in(watcher)) == sorted(
        [("42", False), ("3", False), ('{"found":"x1"}', False), ("opened", False)]
    )
    done = [event.name for event in watcher.events if isinstance(event, ToolStatus) and event.status == "done"]
    assert sorted(done) == sorted(names)
