"""The node side of these tests: compiled once a session, skipped with a sentence where node is missing.

`scripts/web` installs what is needed into `web/node_modules`; nothing here reaches for the network.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

__all__ = ["CLIENT", "WEB", "node_test"]

WEB = Path(__file__).parents[2] / "web"
CLIENT = WEB / "client"

NODE_SECONDS = 120
"""For one file of node's tests, on a busy machine; each test in it has a deadline of its own."""


@cache
def _built() -> str:
    """Why there is nothing to run; empty when there is."""
    if shutil.which("node") is None:
        return "node is not installed; with it, `scripts/web` installs what this test needs"
    compiler = WEB / "node_modules" / ".bin" / "tsc"
    if not compiler.exists():
        return "the TypeScript compiler is not installed; run `scripts/web`"
    made = subprocess.run([compiler, "-p", CLIENT / "tsconfig.test.json"], capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stdout
    return ""


def node_test(name: str, environment: Mapping[str, str] | None = None) -> None:
    """Run `web/client/test/<name>.test.ts`; fails with what node printed."""
    if missing := _built():
        pytest.skip(missing)
    done = subprocess.run(
        ["node", "--test", CLIENT / "build" / "test" / f"{name}.test.js"],
        capture_output=True,
        text=True,
        timeout=NODE_SECONDS,
        env={**os.environ, **(environment or {})},
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8_000:] + done.stderr[-2_000:]
