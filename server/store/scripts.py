"""The Lua scripts: read once from `scripts/*.lua`, known to the server by their SHA-1.

It does not know what a script does nor how it is sent; `connection.py` calls EVALSHA and loads a script that the
server forgot. A file is one atomic step, opens with `#!lua` (Redis ≥ 7.0), and says in its head which KEYS and ARGV it
takes and what a repeat answers.
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
    # SHA-1 is how Redis names scripts, not a question of security.
    return Script(name, source, sha1(source, usedforsecurity=False).hexdigest().encode())


SCRIPTS: dict[str, Script] = {
    path.stem: _script(path.stem, path.read_bytes())
    for path in sorted((Path(__file__).parent / "scripts").glob("*.lua"))
}

SHARDED_SCRIPTS: dict[str, Script] = {
    name: _script(name, script.source.replace(b"'PUBLISH'", b"'SPUBLISH'")) for name, script in SCRIPTS.items()
}
"""The same steps for a Cluster: what they publish stays with the node of the slot, whose subscribers it counts."""
