"""Runs tests with node: compiles them once a session, and skips them with a reason if node is missing.

`scripts/web` installs the needed packages into `web/node_modules`; these tests do not use the network. Each package of
`web/` has its tests in `test/*.test.ts`; the tests of the page cover the parts that need no browser.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

__all__ = ["APP", "CLIENT", "WEB", "node_is_missing", "node_test"]

WEB = Path(__file__).parents[2] / "web"
CLIENT = WEB / "client"
APP = WEB / "app"

NODE_SECONDS = 120
"""Maximum seconds of one file of node's tests on a busy machine; each test in the file has its own deadline."""


@cache
def node_is_missing() -> str:
    """Return why these tests cannot run, or "" if they can run."""
    if shutil.which("node") is None:
        return "node is not installed; with it, `scripts/web` installs what this test needs"
    if not _compiler().exists():
        return "the TypeScript compiler is not installed; run `scripts/web`"
    return ""


def _compiler() -> Path:
    return WEB / "node_modules" / ".bin" / "tsc"


@cache
def _compile(config: Path) -> None:
    made = subprocess.run([_compiler(), "-p", config], capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stdout


def node_test(name: str, environment: Mapping[str, str] | None = None, room: Path = CLIENT) -> None:
    """Run `test/<name>.test.ts` of a package. A failure shows the output of node."""
    if missing := node_is_missing():
        pytest.skip(missing)
    if room == APP:  # the page imports the built client
        _compile(CLIENT / "tsconfig.json")
    _compile(room / "tsconfig.test.json")
    done = subprocess.run(
        ["node", "--test", room / "build" / "test" / f"{name}.test.js"],
        capture_output=True,
        text=True,
        timeout=NODE_SECONDS,
        env={**os.environ, **(environment or {})},
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8_000:] + done.stderr[-2_000:]
