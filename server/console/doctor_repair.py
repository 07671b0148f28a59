"""`threadcast doctor --repair`: makes the private store's files loadable again after more than a bad end was damaged.

It works on the files of a server that does not run, and tries the result with the server itself. All that it cuts or
replaces is kept in `store/damaged` of the data directory. Exit code: 0 the store starts, 1 it does not, or nothing can
be repaired here.
"""

import sys
from collections.abc import Mapping
from pathlib import Path

from protocol.errors import ThreadcastError
from server.settings.sources import BadSettings, load_settings
from server.store.embedded import PERSISTENT, locked_for_serving
from server.store.repair import mend_files, set_base_aside
from server.store.server_process import EndedAtStart, find_binary, start_server

__all__ = ["repair"]


def repair(environ: Mapping[str, str], file: str | None, *, data_dir: str | None = None) -> int:
    """Print a line for each repair, and return the exit code."""
    try:
        settings = load_settings(environ, {"store.data_dir": data_dir}, file).settings
        if data_dir is None and settings.store.url is not None:
            return _refuse(
                "store.url names a server of your own; --repair is for the private store of `threadcast serve`"
            )
        directory = settings.store.data_path.absolute()
        if not (directory / "store").is_dir():
            return _refuse(f"there is no store in {directory}; name the directory of another with --data-dir")
        with locked_for_serving(directory):
            return _repair(directory / "store")
    except (BadSettings, ThreadcastError, OSError) as wrong:
        return _refuse(str(wrong))


def _repair(directory: Path) -> int:
    done = mend_files(directory)
    for line in done:
        print(line, flush=True)
    trouble = _try(directory)
    if trouble is not None and (aside := set_base_aside(directory)) is not None:
        print(aside, flush=True)
        done.append(aside)
        trouble = _try(directory)
    if trouble is not None:
        return _refuse(f"the store does not start all the same: {trouble.words}")
    print("the store starts" if done else "the store's files are whole, and it starts")
    return 0


def _try(directory: Path) -> EndedAtStart | None:
    """Start the server on these files. Returns why it ended, None when it runs. Raises Unavailable when a server runs
    there already."""
    server = start_server(find_binary(), directory, PERSISTENT)
    try:
        server.wait_ready_blocking()
    except EndedAtStart as ended:
        return ended
    finally:
        server.stop_blocking()
    return None


def _refuse(sentence: str) -> int:
    print(f"threadcast: {sentence}", file=sys.stderr)
    return 1
