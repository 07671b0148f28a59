"""aimock as a process on loopback: a third party's server that speaks the APIs of OpenAI, Anthropic and Google.

Its answers are in `answers.json`, the same for every API; its journal lists the requests that it received.
`scripts/peers` installs it into `.peers`; if it or node is missing, the tests are skipped with a sentence that says so.
"""

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from tests.peers.installed import node_package
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["Aimock", "serve_aimock"]

ANSWERS = Path(__file__).with_name("answers.json")

CHUNK_CHARACTERS = 8
"""aimock streams every text and every object of arguments in several pieces."""


class Aimock:
    """A running one. `url` has no path."""

    def __init__(self, url: str) -> None:
        self.url = url

    def asked(self) -> list[JsonObject]:
        """Return the bodies of all requests since the last `forget`, as this peer understood them."""
        return [entry["body"] for entry in self.journal()]

    def journal(self) -> list[JsonObject]:
        entries: list[JsonObject] = httpx2.get(f"{self.url}/__aimock/journal", timeout=10).json()
        return entries

    def forget(self) -> None:
        httpx2.post(f"{self.url}/__aimock/reset/journal", timeout=10).raise_for_status()


@contextmanager
def serve_aimock() -> Iterator[Aimock]:
    """Run aimock for as long as the block runs."""
    program = node_package("@copilotkit/aimock", "dist/cli.js")
    # Strict mode: aimock refuses what the real APIs refuse, such as a tool round without the signature of its thinking.
    command = [*program, "--port", "0", "--fixtures", str(ANSWERS), "--validate-on-load", "--strict"]
    process = subprocess.Popen(
        [*command, "--chunk-size", str(CHUNK_CHARACTERS)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        assert process.stdout is not None
        said = ""
        for line in process.stdout:  # the process prints its address, or ends
            said += line
            if found := re.search(r"listening on (http://\S+)", line):
                yield Aimock(found[1])
                break
        else:
            pytest.fail(f"aimock did not start:\n{said}")
    finally:
        process.terminate()
        process.wait(10)
        if process.stdout is not None:
            process.stdout.close()
