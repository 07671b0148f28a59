"""The Lua scripts: read once from `scripts/*.lua`, known to the server by their SHA-1.

It does not know what a script does nor how it is sent; `connection.py` calls EVALSHA and loads a script that the
server forgot. A file is one atomic step, opens with `#!lua` (Redis ≥ 7.0), and says in its head which KEYS and ARGV it
takes and what a repeat answers.
"""

from hashlib import sha1
from pathlib import Path

import msgspec

__all__ = ["SCRIPTS", "Script"]


class Script(msgspec.Struct, frozen=True):
    name: str
    source: bytes
    sha: bytes


def _read(path: Path) -> Script:
    source = path.read_bytes()
    # SHA-1 is how Redis names scripts, not a question of security.
    return Script(path.stem, source, sha1(source, usedforsecurity=False).hexdigest().encode())


SCRIPTS: dict[str, Script] = {
    path.stem: _read(path) for path in sorted((Path(__file__).parent / "scripts").glob("*.lua"))
}
