"""Finds the peers from npm: `scripts/peers` installs them into `.peers/`. If a peer is missing, its tests are skipped
with a message."""

import shutil
from pathlib import Path

import pytest

__all__ = ["node_package"]

PEERS = Path(__file__).parents[2] / ".peers" / "node_modules"


def node_package(name: str, entry: str) -> list[str]:
    """Return the command that starts `entry` of the npm package `name`; skip the test if it cannot be started."""
    node = shutil.which("node")
    file = PEERS / name / entry
    if node is None:
        pytest.skip("node is not installed; with it, `scripts/peers` installs what this test talks to")
    if not file.is_file():
        pytest.skip(f"{name} is not installed; run `scripts/peers`")
    return [node, str(file)]
