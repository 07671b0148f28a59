"""The Lua scripts, read once from `scripts/*.lua` and identified by their SHA-1.

`connection.py` calls EVALSHA and loads a script that the server has forgotten. Each file is one atomic step and begins
with `#!lua` (Redis ≥ 7.0). The header of a file documents its KEYS, ARGV and answer, and under "Repeat" the answer to a
second call with the same arguments.
"""

from hashlib import sha1
from pathlib import Path

import msgspec

__all__ = ["SCRIPTS", "SHARDED_SCRIPTS", "Script"]


class Script(msgspec.Struct, frozen=True):
    name: str
    source: bytes
    sha: bytes


def _script(name: str, source: bytes) -> Script:
    # Redis names scripts by their SHA-1. Security does not depend on this hash.
    return Script(name, source, sha1(source, usedforsecurity=False).hexdigest().encode())


SCRIPTS: dict[str, Script] = {
    path.stem: _script(path.stem, path.read_bytes())
    for path in sorted((Path(__file__).parent / "scripts").glob("*.lua"))
}

SHARDED_SCRIPTS: dict[str, Script] = {
    name: _script(name, script.source.replace(b"'PUBLISH'", b"'SPUBLISH'").replace(b"'NUMSUB'", b"'SHARDNUMSUB'"))
    for name, script in SCRIPTS.items()
}
"""The same scripts for a Cluster. They publish on sharded channels, whose messages stay on the node of the slot, and
they count only the listeners of that node."""
