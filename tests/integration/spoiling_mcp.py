"""The MCP servers of `mcp_servers.py`, whose answers have small faults: `python spoiling_mcp.py stdio` or `http PORT`.

On the wire, `@half@` becomes half of a surrogate pair and `@byte@` a byte that is not UTF-8, in the output of any tool.
"""

import subprocess
import sys
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HALF, BYTE = rb"\ud83d", b"\xff"


def spoilt(data: bytes) -> bytes:
    return data.replace(b"@half@", HALF).replace(b"@byte@", BYTE)


class Spoiling:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def spoil(message: Message) -> None:
            if message["type"] == "http.response.body":
                message["body"] = spoilt(message.get("body", b""))
            elif message["type"] == "http.response.start":
                message["headers"] = [each for each in message["headers"] if each[0].lower() != b"content-length"]
            await send(message)

        await self._app(scope, receive, spoil if scope["type"] == "http" else send)


def main() -> None:
    here = Path(__file__).parent
    if sys.argv[1] == "stdio":
        child = subprocess.Popen([sys.executable, here / "mcp_servers.py", "stdio"], stdout=subprocess.PIPE)
        assert child.stdout is not None
        for line in child.stdout:
            sys.stdout.buffer.write(spoilt(line))
            sys.stdout.buffer.flush()
        return
    sys.path.insert(0, str(here.parents[1]))
    from tests.integration.mcp_servers import build

    uvicorn.run(Spoiling(build().streamable_http_app()), host="127.0.0.1", port=int(sys.argv[2]), log_level="error")


if __name__ == "__main__":
    main()
