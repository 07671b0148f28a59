"""`threadcast dead-letters`: the commands that were given up, for the operator who wants to know why.

They lie in the store, out of reach of any client, since they hold what people wrote; so this reads the store itself and
no HTTP. It changes nothing. Exit code: 0 there are none or they were shown, 1 the store could not be asked.
"""

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path

import anyio
import msgspec

from protocol.errors import ThreadcastError
from server.settings import Settings
from server.settings.sources import BadSettings, load_settings
from server.store.inbox import DeadLetter
from server.store.redis_store import RedisStore
from server.store.server_process import ask, unix_url

__all__ = ["dead_letters", "line_of", "store_url"]

PATIENCE_SECONDS = 5.0

AWAY_ADVICE = "start it there, or mend REDIS_URL (store.url)"

BODY_SHOWN_CHARACTERS = 60
"""Of a command in the table: enough to know it by; --json shows the whole."""


def store_url(settings: Settings) -> str | None:
    """Where the store of these settings answers; None: it is a private one, and nobody runs it now."""
    if settings.store.url is not None:
        return settings.store.url.reveal()
    recorded = settings.store.data_path.absolute() / "store/socket"  # written by who started it
    if settings.store.memory or not recorded.is_file():
        return None
    path = Path(recorded.read_text().strip())
    return unix_url(path) if ask(path).startswith(b"+PONG") else None


def dead_letters(
    environ: Mapping[str, str], file: str | None, *, as_json: bool, limit: int, data_dir: str | None = None
) -> int:
    """Print them, the newest last; the exit code."""
    try:
        settings = load_settings(environ, {"store.data_dir": data_dir}, file).settings
    except BadSettings as wrong:
        return _refuse(str(wrong))
    url = store_url(settings)
    if url is None:
        return _refuse(
            f"no server runs on {settings.store.data_dir}: start it, name the directory of another with --data-dir, or "
            "set REDIS_URL to its store"
        )
    try:
        letters, count = asyncio.run(_read(url, limit))
    except ThreadcastError as wrong:
        return _refuse(f"{wrong.message}; {AWAY_ADVICE}")
    except TimeoutError:
        return _refuse(f"the store did not answer within {PATIENCE_SECONDS:g} s; {AWAY_ADVICE}")
    for letter in letters:
        print(json.dumps(msgspec.to_builtins(letter)) if as_json else line_of(letter))
    if not as_json:
        print(f"commands given up: {count}" if count else "no command was given up", file=sys.stderr)
    return 0


def line_of(letter: DeadLetter) -> str:
    body = " ".join(letter.body.split())
    shown = body if len(body) <= BODY_SHOWN_CHARACTERS else body[:BODY_SHOWN_CHARACTERS] + "…"
    return f"{letter.inbox_id:<20} {letter.reason:<8} {letter.chat_id}  {letter.request_id}  {shown}"


async def _read(url: str, limit: int) -> tuple[list[DeadLetter], int]:
    with anyio.fail_after(PATIENCE_SECONDS):
        async with RedisStore(url) as store:
            return await store.dead_letters(max(1, limit)), await store.dead_letters_count()


def _refuse(text: str) -> int:
    print(f"threadcast: {text}", file=sys.stderr)
    return 1
