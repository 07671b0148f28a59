"""Finds out whether other users of the machine may read secrets in the configuration file, or change the file."""

import os
import shlex
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from threadcast.settings.secrets import secrets_of

__all__ = ["advice_on_file"]


def advice_on_file(path: Path, secrets: Iterable[tuple[str, object]]) -> Iterator[str]:
    """Yield a sentence for each fault of the file's mode. `secrets` are the values that the file sets, each with its
    path. Windows has no such modes."""
    try:
        mode = path.stat().st_mode if os.name == "posix" else 0
    except OSError:  # the file was removed meanwhile
        return
    remedy = f"chmod {'640' if mode & stat.S_IRGRP else '600'} {shlex.quote(str(path))}"
    shown = f"{path} has the mode {stat.S_IMODE(mode):04o}"
    if mode & stat.S_IWOTH:
        yield f"{shown}: every user of this machine can change it, and so what this server runs; run `{remedy}`"
    held = sorted(name for name, value in secrets if _is_secret(name, value)) if mode & stat.S_IROTH else []
    if held:
        yield (
            f"{shown}: every user of this machine can read its secrets ({', '.join(held)}); run `{remedy}`, or put "
            "them into the environment"
        )


def _is_secret(name: str, value: object) -> bool:
    """Return whether a value is or contains a secret. The address of a store is a secret only if it contains a
    password."""
    found = [secret for secret in secrets_of(value) if secret]
    return len(found) > 1 if name == "store.url" else bool(found)
