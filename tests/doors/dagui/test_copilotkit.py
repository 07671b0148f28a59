"""CopilotKit's runtime, unpatched, between a page and the door."""

import json
import shutil
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream

from tests.doors.dagui.agent import user
from tests.integration.oneshot_client import prepare
from tests.peers.installed import PEERS
from tests.support.server import DEADLINE_SECONDS, serving

pytestmark = pytest.mark.anyio

PACKAGES = PEERS.parent / "copilotkit" / "node_modules"
TOOLS = Path(__file__).parents[2] / "integration/misbehaving_tools.py"


async def test_its_runtime_shows_an_answer_and_an_approval(tmp_path: Path) -> None:
    node = shutil.which("node")
    runtime = PACKAGES / "@copilotkit/runtime/dist/v2/index.mjs"
    if node is None or not runtime.is_file():
        pytest.skip("CopilotKit's runtime is not installed; run `scripts/peers --all`")
    client = PACKAGES / "@ag-ui/client/dist/index.mjs"
    script = str(Path(__file__).with_name("copilotkit.mjs"))
    async with serving(tmp_path, app=TOOLS) as server:
        await prepare(server, "c", "demo/tools")
        line = [node, script, runtime.as_uri(), client.as_uri(), f"{server.url}/ag-ui"]
        async with await anyio.open_process(line, stderr=None) as program:
            assert program.stdin is not None and program.stdout is not None
            lines, stdin = BufferedByteReceiveStream(program.stdout), program.stdin

            async def run(**more: object) -> list[Any]:
                body = {"threadId": "c", "runId": f"r{len(more)}", "state": {}, "tools": [], "context": []}
                await stdin.send(json.dumps({**body, "forwardedProps": {}, **more}).encode() + b"\n")
                with anyio.fail_after(DEADLINE_SECONDS):
                    while not (told := await lines.receive_until(b"\n", 1 << 20)).startswith(b"[{"):
                        pass  # a line that the runtime itself prints
                found: list[Any] = json.loads(told)
                return found

            asked = user('call asks {"text": "x"}')
            events = await run(messages=[asked])
            (interrupt,) = events[-1]["outcome"]["interrupts"]
            assert "TEXT_MESSAGE_CONTENT" in [event["type"] for event in events]
            answer = {"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": True}}
            events = await run(messages=[asked], resume=[answer])
            assert [event["content"] for event in events if event["type"] == "TOOL_CALL_RESULT"] == ["allowed: x"]
            assert events[-1]["type"] == "RUN_FINISHED"
            program.kill()
