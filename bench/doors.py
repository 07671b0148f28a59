"""Measures the cost of each door: the CPU time of a web process for each token that one client reads through the door,
compared with our own stream.

A scripted model writes 2,000 words at a fixed pace, in another process. The web process takes the message, reads the
log and sends the answer. All figures include the process's other work. To repeat: `python -m bench.doors [--small]`.
"""

import argparse
import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx2
from tests.support.fleet import fleet_on_new_store
from tests.support.server import user_message

from bench.figures import Figure, Section, announce, figure, progress, table
from bench.processes import cpu_seconds

__all__ = ["DOORS", "measure"]

TOKENS = 2_000
MODEL = f"demo/essay?words={TOKENS}&rate=1000"
WAIT_SECONDS = 120.0

Reader = Callable[[httpx2.AsyncClient, str], Awaitable[str]]
"""Begins an answer in the chat of this id, reads it to its end, and returns all that was read."""


async def own(http: httpx2.AsyncClient, chat_id: str) -> str:
    """Read our own stream until the end of the run."""
    (await http.post(f"/v1/chats/{chat_id}/commands", json=user_message("a", "go"))).raise_for_status()
    read: list[str] = []
    async with http.stream("GET", "/v1/chats/subscribe", params={"chat_id": chat_id}) as answer:
        async for text in answer.aiter_text():
            read.append(text)
            if '"outcome":"complete"' in text:
                break
    return "".join(read)


async def ag_ui(http: httpx2.AsyncClient, chat_id: str) -> str:
    message = {"id": "u", "role": "user", "content": "go"}
    body = {"threadId": chat_id, "runId": "r", "protocolVersion": "1.0", "messages": [message]}
    return await _posted(http, "/ag-ui", body)


async def ai_sdk(http: httpx2.AsyncClient, chat_id: str) -> str:
    message = {"id": "u", "role": "user", "parts": [{"type": "text", "text": "go"}]}
    return await _posted(http, "/ai-sdk/chat", {"id": chat_id, "messages": [message]})


async def completions(http: httpx2.AsyncClient, chat_id: str) -> str:
    message = {"role": "user", "content": "go"}
    body = {"model": MODEL, "messages": [message], "stream": True, "metadata": {"chat_id": chat_id}}
    return await _posted(http, "/v1/chat/completions", body)


async def responses(http: httpx2.AsyncClient, chat_id: str) -> str:
    return await _posted(
        http, "/v1/responses", {"model": MODEL, "input": "go", "stream": True, "conversation": chat_id}
    )


async def mcp(http: httpx2.AsyncClient, chat_id: str) -> str:
    meta = {"progressToken": 1}
    params = {"name": "ask", "arguments": {"text": "go", "chat_id": chat_id}, "_meta": meta}
    return await _posted(http, "/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})


DOORS: dict[str, Reader] = {
    "own": own,
    "completions": completions,
    "responses": responses,
    "ai_sdk": ai_sdk,
    "ag_ui": ag_ui,
    "mcp": mcp,
}
"""Maps each door to the function that reads through it. The others are compared with `own`."""


async def _posted(http: httpx2.AsyncClient, path: str, body: object) -> str:
    """Return the whole stream that answers a POST."""
    async with http.stream("POST", path, json=body) as answer:
        answer.raise_for_status()
        return "".join([text async for text in answer.aiter_text()])


def measure(small: bool) -> Section:
    """Measure the row `doors`; `small` takes three rounds in place of seven."""
    announce("doors", 30 if small else 60)
    with tempfile.TemporaryDirectory() as directory:
        figures = asyncio.run(_measure(Path(directory), 3 if small else 7))
    progress("")
    return Section("doors", "doors for clients of other formats", f"python -m bench.doors{' --small' * small}", figures)


async def _measure(directory: Path, rounds: int) -> list[Figure]:
    costs: dict[str, list[float]] = {name: [] for name in DOORS}
    with fleet_on_new_store(directory) as fleet:
        await fleet.open(workers=1)
        async with httpx2.AsyncClient(base_url=fleet.url, timeout=WAIT_SECONDS) as http:
            for number in range(-1, rounds):  # the first round only warms up
                for name, read in DOORS.items():
                    progress(f"doors: {name}")
                    cost = await _cost(http, fleet.webs[0].pid, read, f"{name}-{number + 1}")
                    costs[name] += [cost] if number >= 0 else []
    figures: list[Figure] = []
    for name, found in costs.items():
        figures.append(figure(f"{name}_token", f"CPU of a token through {name}", [1e6 * each for each in found], "µs"))
        if name != "own":
            shares = [theirs / ours for theirs, ours in zip(sorted(found), sorted(costs["own"]), strict=True)]
            figures.append(figure(f"{name}_share", f"{name} over our own stream", shares, "times"))
    return figures


async def _cost(http: httpx2.AsyncClient, web_pid: int, read: Reader, chat_id: str) -> float:
    """Return the web process's CPU time for a token, in seconds."""
    setting = {"type": "set_params", "client_request_id": "p", "patch": {"model": MODEL}}
    (await http.post(f"/v1/chats/{chat_id}/commands", json=setting)).raise_for_status()
    before = cpu_seconds(web_pid)
    text = await read(http, chat_id)
    if len(text) < TOKENS:
        raise RuntimeError(f"the answer has ended early: {text[-300:]!r}")
    return (cpu_seconds(web_pid) - before) / TOKENS


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.doors", description=__doc__)
    parser.add_argument("--small", action="store_true", help="three rounds in place of seven")
    print(table(measure(parser.parse_args().small)))
