"""Measures the cost of serving an agent of another framework: the CPU time of a worker for each token, compared with a
process in which the framework streams the same agent's answer into a list.

The model needs no network, so nearly all CPU time is that of the framework and of the server. The worker also writes
the log; the compared process writes none. To repeat: `python -m bench.frameworks [--small]`.
"""

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx2
from tests.ports import free_port
from tests.support.fleet import Fleet, fleet_on_new_store
from tests.support.server import ROOT, user_message

from bench import frameworks_app
from bench.figures import Figure, Section, announce, figure, progress, table
from bench.processes import cpu_seconds

__all__ = ["measure"]

APP = Path(frameworks_app.__file__)
SHARE_MAX = 1.25
"""A served agent costs at most a quarter more than the framework alone."""

WAIT_SECONDS = 120.0


def measure(small: bool) -> Section:
    """Measure the row `frameworks`; `small` takes three rounds in place of seven."""
    announce("frameworks", 60 if small else 120)
    os.environ["PYTHONPATH"] = str(ROOT)  # for the program that speaks ACP, which starts in another folder
    rounds = 3 if small else 7
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        figures += asyncio.run(_measure(stack, Path(directory), rounds))
    progress("")
    return Section("frameworks", "agents of frameworks", f"python -m bench.frameworks{' --small' * small}", figures)


async def _measure(stack: ExitStack, directory: Path, rounds: int) -> list[Figure]:
    url = stack.enter_context(_remote())
    config = directory / "threadcast.toml"
    command = json.dumps([sys.executable, "-m", "bench.frameworks_remote", "acp"])
    config.write_text(
        f'[server]\nprograms_user = "root"\n[agents.acp]\nkind = "acp"\ncommand = {command}\nenv = ["PYTHONPATH"]\n'
        f'[agents.ag_ui]\nkind = "ag_ui"\nurl = "{url}"\n'
    )
    fleet = stack.enter_context(fleet_on_new_store(directory, "--app", str(APP), "--config", str(config)))
    await fleet.open(workers=1)
    figures: list[Figure] = []
    for name in frameworks_app.NAMES:
        progress(f"frameworks: {name}")
        await _served(fleet, name, "warm")
        served = [await _served(fleet, name, str(number)) for number in range(rounds)]
        alone = [_alone(name, url) for _ in range(rounds)]
        shares = [ours / theirs for ours, theirs in zip(sorted(served), sorted(alone), strict=True)]
        figures += [
            figure(f"{name}_served", f"CPU of the worker for a token of {name}", [1e6 * each for each in served], "µs"),
            figure(f"{name}_alone", f"{name} streaming into a list", [1e6 * each for each in alone], "µs"),
            figure(f"{name}_share", f"served {name} over the list", shares, "times", bar=SHARE_MAX),
        ]
    return figures


async def _served(fleet: Fleet, name: str, chat_id: str) -> float:
    """Let the agent answer once, and return the worker's CPU time for a token, in seconds."""
    [worker] = fleet.workers
    before = cpu_seconds(worker.pid)
    async with httpx2.AsyncClient(base_url=fleet.url, timeout=WAIT_SECONDS) as http:
        body = user_message("a", "go", params={"mode": name})
        (await http.post(f"/v1/chats/{name}-{chat_id}/commands", json=body)).raise_for_status()
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                chat = (await http.get(f"/v1/chats/{name}-{chat_id}")).json()
                if chat["runtime"]["state"] == "idle" and len(chat["messages"]) > 1:
                    break
                await asyncio.sleep(0.1)
    return (cpu_seconds(worker.pid) - before) / frameworks_app.TOKENS


@contextmanager
def _remote() -> Iterator[str]:
    """Run the agent that answers AG-UI, and yield its address."""
    port = free_port()
    with subprocess.Popen([sys.executable, "-m", "bench.frameworks_remote", "ag_ui", str(port)], cwd=ROOT) as process:
        try:
            while process.poll() is None:
                with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                time.sleep(0.05)
            yield f"http://127.0.0.1:{port}/"
        finally:
            process.terminate()


def _alone(name: str, url: str) -> float:
    """Return the CPU time of the framework for a token, in seconds."""
    line = [sys.executable, "-m", "bench.frameworks_app", name, url]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=True, timeout=WAIT_SECONDS)
    return float(done.stdout) / frameworks_app.TOKENS


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.frameworks", description=__doc__)
    parser.add_argument("--small", action="store_true", help="three rounds in place of seven")
    print(table(measure(parser.parse_args().small)))
