"""`threadcast dead-letters`: shows an operator the commands that no worker could carry out.

The commands hold text that people wrote, so no client can read them: this module reads the store directly and not over
HTTP. It changes nothing. Exit codes: 0 when the commands were shown or the store has no such commands, 1 when the store
cannot be read.
"""

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path

import anyio
import msgspec

from threadcast.console import refuse
from threadcast.console.pen import short
from threadcast.settings import Settings
from threadcast.settings.sources import BadSettings, load_settings
from threadcast.store.embedded.server_process import ask, unix_url
from threadcast.store.redis.inbox import DeadLetter
from threadcast.store.redis.store import RedisStore
from threadcast_protocol.wire.errors import ThreadcastError

__all__ = ["dead_letters", "line_of", "store_url"]

TIMEOUT_SECONDS = 5.0

AWAY_ADVICE = "start it there, or correct REDIS_URL (store.url)"

BODY_SHOWN_CHARACTERS = 60
"""Maximum characters of a command in the table: enough to recognize the command. --json shows 1 MiB of it."""


def store_url(settings: Settings) -> str | None:
    """Return the URL of the store that these settings name; None if the settings mean a private store and no process
    runs this store now."""
    if settings.store.url is not None:
        return settings.store.url.reveal()
    recorded = settings.store.data_path.absolute() / "store/socket"  # written by the process that started the store
    if settings.store.memory or not recorded.is_file():
        return None
    path = Path(recorded.read_text().strip())
    return unix_url(path) if ask(path).startswith(b"+PONG") else None


def dead_letters(
    environ: Mapping[str, str], file: str | None, *, as_json: bool, limit: int, data_dir: str | None = None
) -> int:
    """Print the newest `limit` commands, the newest last. Returns the exit code."""
    try:
        settings = load_settings(environ, {"store.data_dir": data_dir}, file).settings
        url = store_url(settings)
        if url is None:
            return refuse(
                f"no server runs on {settings.store.data_dir}: start it, name the directory of another server with "
                "--data-dir, or set REDIS_URL to the store"
            )
        letters, count = asyncio.run(_read(url, limit))
    except BadSettings as wrong:
        return refuse(str(wrong))
    except ThreadcastError as wrong:
        return refuse(f"{wrong.message}; {AWAY_ADVICE}")
    except TimeoutError:
        return refuse(f"the store did not answer within {TIMEOUT_SECONDS:g} s; {AWAY_ADVICE}")
    for letter in letters:
        print(json.dumps(msgspec.to_builtins(letter)) if as_json else line_of(letter))
    if not as_json:
        print(f"commands given up: {count}" if count else "no command was given up", file=sys.stderr)
    return 0


def line_of(letter: DeadLetter) -> str:
    """Return the line of the table for one command."""
    shown = short(letter.body, BODY_SHOWN_CHARACTERS + 1)  # a user's text, without characters that control a terminal
    return f"{letter.inbox_id:<20} {letter.reason:<8} {letter.chat_id}  {letter.request_id}  {shown}"


async def _read(url: str, limit: int) -> tuple[list[DeadLetter], int]:
    with anyio.fail_after(TIMEOUT_SECONDS):
        async with RedisStore(url) as store:
            return await store.dead_letters(max(1, limit)), await store.dead_letters_count()
