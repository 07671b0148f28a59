"""An MCP server in plain JSON-RPC over its standard input and output: `python raw_mcp.py DIRECTORY`.

The server's tools are in the file `tools.json` of the directory, which it reads at each request for the list of tools.
It announces a change when the file changes, and answers a call of any tool with `ran NAME`.
"""

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

__all__ = ["DESK_TOOL", "write_tools"]

Json = dict[str, Any]  # Any: JSON

DESK_TOOL: Json = {"name": "read", "description": "Read a file.", "inputSchema": {"type": "object"}}


def write_tools(directory: Path, *tools: Json) -> None:
    """Let the server of this directory offer these tools from now on."""
    new = directory / "new"
    new.write_text(json.dumps(list(tools)))
    new.replace(directory / "tools.json")


def say(message: Json) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def answer(request: Json, tools: Path) -> Json:
    match request["method"]:
        case "initialize":
            version = request["params"]["protocolVersion"]
            said: Json = {"tools": {"listChanged": True}}
            result = {"protocolVersion": version, "capabilities": said, "serverInfo": {"name": "raw", "version": "1"}}
        case "tools/list":
            result = {"tools": json.loads(tools.read_text())}
        case "tools/call":
            result = {"content": [{"type": "text", "text": f"ran {request['params']['name']}"}]}
        case _:
            return {"id": request["id"], "error": {"code": -32601, "message": "no such method"}}
    return {"id": request["id"], "result": result}


def announce(tools: Path) -> None:
    """Announce each change of the file."""
    seen = tools.stat().st_ino
    while True:
        time.sleep(0.02)
        if (now := tools.stat().st_ino) != seen:
            seen = now
            say({"method": "notifications/tools/list_changed"})


def main() -> None:
    tools = Path(sys.argv[1]) / "tools.json"
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request and "method" in request:
            say(answer(request, tools))
        elif request.get("method") == "notifications/initialized":
            threading.Thread(target=announce, args=(tools,), daemon=True).start()


if __name__ == "__main__":
    main()
