"""An MCP server over stdio that answers every resource and every prompt, including unlisted ones: `python mcp_files.py
RECORD`. It appends each request to the file RECORD, one JSON text per line.

It uses the standard library alone, so that any interpreter can run it. Its tools `read_file`, `list_directory`,
`write_file`, `connect` and `variables` do what their names and arguments say, with the rights of the user that runs the
server.
"""

import json
import os
import socket
import sys
from pathlib import Path

LISTED = ["notes://packing", "notes://\u202egnikcap", "notes://two\nlines"]
PROMPTS = ["greet", "gre\x00et"]


def tool(name: str, arguments: dict[str, str]) -> str:
    try:
        match name:
            case "read_file":
                return Path(arguments["path"]).read_bytes().replace(b"\0", b"\n").decode(errors="replace")
            case "write_file":
                Path(arguments["path"]).write_text("written")
                return "written"
            case "list_directory":
                return " ".join(each.name for each in Path(arguments["path"]).iterdir())
            case "connect":
                with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                    connection.settimeout(5)
                    connection.connect(arguments["path"])
                    connection.sendall(b"PING\r\n")
                    return connection.recv(100).decode()
    except OSError as wrong:
        return f"{type(wrong).__name__}: {wrong}"
    return json.dumps({"uid": os.getuid(), "groups": os.getgroups(), "environment": dict(os.environ)})


def answer(method: str, params: dict[str, object]) -> dict[str, object] | None:
    """Return the result of a request; None for a method that this server does not know."""
    match method:
        case "initialize":
            return {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}, "resources": {}, "prompts": {}},
                "serverInfo": {"name": "files", "version": "1"},
            }
        case "ping":
            return {}
        case "tools/list":
            schema = {"type": "object", "properties": {"path": {"type": "string"}}}
            names = ["read_file", "list_directory", "write_file", "connect", "variables"]
            return {"tools": [{"name": name, "description": "A test.", "inputSchema": schema} for name in names]}
        case "tools/call":
            text = tool(str(params["name"]), params.get("arguments") or {})  # type: ignore[arg-type]  # from a test
            failed = params["name"] == "write_file" and text != "written"
            if failed:
                print("a frame of the stack\n" * 1_000 + f"the reason: {text}", file=sys.stderr, flush=True)
            return {"content": [{"type": "text", "text": text}], "isError": failed}
        case "resources/list":
            return {"resources": [{"uri": uri, "name": uri} for uri in LISTED]}
        case "resources/read":
            return {"contents": [{"uri": params["uri"], "mimeType": "text/plain", "text": f"of {params['uri']}"}]}
        case "prompts/list":
            return {"prompts": [{"name": name} for name in PROMPTS]}
        case "prompts/get":
            return {"messages": [{"role": "user", "content": {"type": "text", "text": f"of {params['name']}"}}]}
    return None


def main() -> None:
    for line in sys.stdin:
        asked = json.loads(line)
        if "id" not in asked:
            continue
        if asked["method"] in ("resources/read", "prompts/get"):
            with Path(sys.argv[1]).open("a") as record:
                record.write(json.dumps(asked["params"].get("uri") or asked["params"]["name"]) + "\n")
        result = answer(asked["method"], asked.get("params", {}))
        said = {"error": {"code": -32601, "message": "unknown"}} if result is None else {"result": result}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **said}), flush=True)


if __name__ == "__main__":
    main()
