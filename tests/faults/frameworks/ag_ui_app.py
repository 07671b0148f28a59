"""A remote agent behind AG-UI that writes slowly, carries a tool out, asks for an approval, and writes again. The file
is also the program of the remote server: `python -m tests.faults.frameworks.ag_ui_app PORT`."""

import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx2
import uvicorn
from ag_ui.core import BaseEvent, Interrupt, RunAgentInput, ToolCallResultEvent

from tests.agents import ag_ui_server
from tests.agents.ag_ui_server import APPROVAL, WORDS, answers, asks, call
from tests.agents.ag_ui_server import text as written
from tests.faults.durable.app import WORD_SECONDS, work
from tests.ports import free_port
from tests.support.server import DEADLINE_SECONDS, ROOT

ONCE = ("look", "pay")
IS_REMOTE = True
FIRST, SECOND = "".join(WORDS), f"{''.join(WORDS)}look, pay"
TEXTS = (FIRST, SECOND)


def text(said: Mapping[str, str]) -> str:
    """Return the text of the last answer of an undisturbed run."""
    return SECOND


async def journey(run: RunAgentInput) -> AsyncIterator[BaseEvent]:
    """The agent."""
    if not answers(run):
        async for event in written("m0", *WORDS, seconds=WORD_SECONDS):
            yield event
        async for event in call("look-1", "look", "m0"):
            yield event
        await work(run.thread_id, "look", 0.3)
        yield ToolCallResultEvent(message_id="t0", tool_call_id="look-1", content="look")
        async for event in call("pay-1", "pay", "m1"):
            yield event
        yield asks(run, Interrupt(id="i1", reason="tool_call", tool_call_id="pay-1", response_schema=APPROVAL))
        return
    await work(run.thread_id, "pay", 0.3)
    yield ToolCallResultEvent(message_id="t1", tool_call_id="pay-1", content="pay")
    async for event in written("m2", *WORDS, "look, pay", seconds=WORD_SECONDS):
        yield event


@contextmanager
def extras(directory: Path) -> Iterator[list[str]]:
    """Start the remote agent, and yield the server's configuration."""
    port = free_port()
    data = directory / "data"
    data.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "THREADCAST_STORE__DATA_DIR": str(data), "DIRECTORY": str(directory)}
    line = [sys.executable, "-m", "tests.faults.frameworks.ag_ui_app", str(port)]
    with subprocess.Popen(line, env={**environment, "PYTHONPATH": str(ROOT)}) as process:
        try:
            url = f"http://127.0.0.1:{port}/"
            until = time.monotonic() + DEADLINE_SECONDS
            while time.monotonic() < until:
                try:
                    httpx2.get(url)
                    break
                except httpx2.TransportError:
                    time.sleep(0.05)
            config = directory / "threadcast.toml"
            config.write_text(f'[agents.journey]\nkind = "ag_ui"\nurl = "{url}"\n')
            yield ["--config", str(config)]
        finally:
            process.terminate()


EXTRAS = extras

if __name__ == "__main__":
    ag_ui_server.BEHAVIOURS["go"] = journey
    uvicorn.run(ag_ui_server.app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
