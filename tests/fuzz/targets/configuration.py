"""threadcast.toml and the environment: decoding returns settings, or raises one sentence that names the place of the
wrong value.

An operator may read that sentence in an emergency, so it must name the file or the variable; and it must not contain a
secret.
"""

import os
import tempfile
from functools import cache
from pathlib import Path
from random import Random

from tests.fuzz.target import Target, held
from threadcast.settings.sources import BadSettings, load_settings

__all__ = ["configuration_targets"]

_EXAMPLE = Path(__file__).resolve().parents[3] / "threadcast.example.toml"
_SECRET = "sk-never-shown"


@cache
def _directory(process: int) -> Path:
    """Return a directory for each process, in memory if the system has such a file system."""
    memory = Path("/dev/shm")  # files of one process, made by mkdtemp
    return Path(tempfile.mkdtemp(prefix="threadcast-fuzz-", dir=memory if memory.is_dir() else None))


def _file(data: bytes, random: Random) -> bool:
    path = _directory(os.getpid()) / "threadcast.toml"
    path.write_bytes(data)
    try:
        load_settings({}, {}, str(path)).values()
    except BadSettings as wrong:
        held(len(str(wrong)) > 10 and "\n" not in str(wrong).strip(), "no sentence", str(wrong))
        return False
    return True


def _environment(data: bytes, random: Random) -> bool:
    """Parse lines `NAME=value`, as `env` prints them."""
    text = data.decode("utf-8", "surrogateescape").replace("\0", "")
    environ = dict(line.split("=", 1) for line in text.split("\n") if "=" in line)
    environ.pop("THREADCAST_CONFIG", None)
    environ["THREADCAST_MODELS__PROVIDERS__MINE__API_KEY"] = _SECRET
    try:
        loaded = load_settings(environ, {}, os.devnull)
    except BadSettings as wrong:
        held(_SECRET not in str(wrong), "the sentence has a secret in it", str(wrong))
        held(any(name in str(wrong) for name in ("environment", "OPENAI", "models", "server")), str(wrong))
        return False
    held(_SECRET not in repr(loaded), "a secret shows")
    return True


_ENVIRONMENT = [
    b"THREADCAST_SERVER__PORT=9000\nTHREADCAST_SERVER__HOST=127.0.0.1\nTHREADCAST_LIMITS__BODY_MAX_BYTES=1048576",
    b'THREADCAST_AUTH__TOKENS=[{"token":"a","principal":"b"}]\nREDIS_URL=redis://127.0.0.1:6379/0',
    b"OPENAI_API_KEY=sk-1\nOPENAI_BASE_URL=http://127.0.0.1:1/v1\nOPENAI_MODEL=m",
    b"THREADCAST_MODELS__PROVIDERS__OLLAMA__BASE_URL=http://127.0.0.1:1\nTHREADCAST_MODELS__DEFAULT=ollama/x",
    b'THREADCAST_PROFILES__AGENT__SYSTEM=hi\nTHREADCAST_TOOLS__CLOCK__POLICY=ask\nTHREADCAST_MCP={"a":{"command":["b"]}}',
    b'THREADCAST_SERVER_PORT=1\nTHREADCAST_STORE__URL=unix:///x\nTHREADCAST_SERVER__CORS_ORIGINS=["*"]',
]


def configuration_targets() -> list[Target]:
    whole = _EXAMPLE.read_text("utf-8")
    uncommented = "\n".join(
        line.removeprefix("# ") if line.startswith("# ") and "=" in line else line for line in whole.split("\n")
    )
    sections = ["[" + part for part in uncommented.split("\n[")[1:]]
    small = [
        b'[server]\nport = 9000\nhost = "127.0.0.1"\n[auth]\ntokens = [{token = "a", principal = "b"}]\n',
        b'[models]\ndefault = "a/b"\n[models.providers.a]\nbase_url = "http://127.0.0.1:1"\n'
        b'[[models.providers.a.models]]\nname = "b"\n',
        b'[profiles.help]\nsystem = "hi"\n[profiles.help.scopes."a/b"]\n[tools.clock]\npolicy = "ask"\n',
    ]
    return [
        Target("settings-file", _file, [*small, *(section.encode() for section in sections)], weight=1),
        Target("settings-environment", _environment, _ENVIRONMENT, weight=1),
    ]
